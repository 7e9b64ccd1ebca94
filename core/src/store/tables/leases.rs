//! The table of leases: one row per resource, there from the start, found by its number.
//!
//! Every cycle of every scheduler renews all its leases, and every guard reads them, so they lie side by side
//! in the order of [`LeaseResource::number`] instead of in a tree. What must stay true is what holds for every
//! [`Table`](super::Table): a row changes through [`LeaseTable::put`] and [`LeaseTable::extend`] alone, which report the change, and a
//! row written with the contents that it had is no change.

use crate::fencing::FencingToken;
use crate::id::EffectId;
use crate::lease::LeaseResource;
use crate::store::change::{Change, Delta};
use crate::store::row::LeaseRow;
use crate::time::Timestamp;

/// The lease rows, ascending by resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTable {
    rows: Vec<LeaseRow>,
}

impl Default for LeaseTable {
    /// Every resource, never granted.
    fn default() -> Self {
        let never = |resource| LeaseRow {
            resource,
            token: FencingToken::NEVER,
            owner: None,
            nonce: EffectId::default(),
            expires_at: Timestamp::EPOCH,
        };
        Self { rows: LeaseResource::all().map(never).collect() }
    }
}

impl LeaseTable {
    /// The row of a resource.
    #[must_use]
    pub fn get(&self, resource: LeaseResource) -> &LeaseRow {
        &self.rows[usize::from(resource.number())]
    }

    /// All rows, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &LeaseRow> + ExactSizeIterator {
        self.rows.iter()
    }

    /// Puts the row in the place of its predecessor.
    pub(in crate::store) fn put(&mut self, row: LeaseRow, changes: &mut Vec<Change>) {
        let place = &mut self.rows[usize::from(row.resource.number())];
        if *place == row {
            return;
        }
        let before = core::mem::replace(place, row.clone());
        changes.push(Change::Lease(Delta { before: Some(before), after: Some(row) }));
    }

    /// Moves the end of a lease.
    pub(in crate::store) fn extend(
        &mut self,
        resource: LeaseResource,
        expires_at: Timestamp,
        changes: &mut Vec<Change>,
    ) {
        let row = &mut self.rows[usize::from(resource.number())];
        if row.expires_at == expires_at {
            return;
        }
        let before = row.clone();
        row.expires_at = expires_at;
        changes.push(Change::Lease(Delta { before: Some(before), after: Some(row.clone()) }));
    }

    /// Puts the row back to what it was before this change.
    pub(in crate::store) fn take_back(&mut self, delta: Delta<LeaseRow>) {
        if let Some(before) = delta.before {
            let place = usize::from(before.resource.number());
            self.rows[place] = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_found_under_its_number() {
        let table = LeaseTable::default();
        for (place, resource) in LeaseResource::all().enumerate() {
            assert_eq!(usize::from(resource.number()), place);
            assert_eq!(table.get(resource).resource, resource);
        }
        assert_eq!(table.iter().len(), LeaseResource::all().count());
    }

    #[test]
    fn a_row_written_as_it_was_is_no_change() {
        let mut table = LeaseTable::default();
        let mut changes = Vec::new();
        let row = table.get(LeaseResource::Leadership).clone();
        table.put(row.clone(), &mut changes);
        assert!(changes.is_empty());
        table.put(LeaseRow { token: FencingToken::from_i64(1), ..row }, &mut changes);
        assert_eq!(changes.len(), 1);
    }
}
