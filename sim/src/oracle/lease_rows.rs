//! The lease rows that have been seen, found by their number: they are looked at more than any other row.

use fencepost_core::lease::LeaseResource;
use fencepost_core::store::row::LeaseRow;

/// One place per resource; a row comes with its first change.
#[derive(Debug)]
pub(super) struct LeaseRows(Vec<Option<LeaseRow>>);

impl Default for LeaseRows {
    fn default() -> Self {
        Self(LeaseResource::all().map(|_| None).collect())
    }
}

impl LeaseRows {
    pub(super) fn get(&self, resource: &LeaseResource) -> Option<&LeaseRow> {
        self.0[usize::from(resource.number())].as_ref()
    }

    pub(super) fn put(&mut self, row: &LeaseRow) {
        self.0[usize::from(row.resource.number())] = Some(row.clone());
    }

    pub(super) fn remove(&mut self, resource: LeaseResource) {
        self.0[usize::from(resource.number())] = None;
    }

    /// Those that have been seen, ascending.
    pub(super) fn values(&self) -> impl Iterator<Item = &LeaseRow> {
        self.0.iter().flatten()
    }
}
