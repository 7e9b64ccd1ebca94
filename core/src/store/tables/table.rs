//! One table: rows by key, with the indexes of its scans.
//!
//! [`Table::put`] and [`Table::remove`] are the only ways to change a row. Both hand the row before and
//! after to [`Record::reindex`] and report the [`Change`], so that no index and no oracle can be forgotten.
//! What they reported, [`Table::take_back`] takes back.
//! A row written with the contents that it had is no change.

use core::fmt;
use std::collections::BTreeMap;

use crate::store::change::{Change, Delta};

/// What a table holds: a row that knows its key, its place in the indexes and how its change is told.
pub trait Record: Clone + Eq + fmt::Debug {
    /// The primary key.
    type Key: Ord + Clone + fmt::Debug;
    /// The ordered indexes beside the primary key.
    type Index: Clone + Default + Eq + fmt::Debug;

    /// Its primary key.
    fn key(&self) -> Self::Key;

    /// Takes the indexes from the row before to the row after.
    fn reindex(index: &mut Self::Index, before: Option<&Self>, after: Option<&Self>);

    /// The change of such a row.
    fn change(delta: Delta<Self>) -> Change;
}

/// Rows by key. Equal where rows and indexes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<Row: Record> {
    rows: BTreeMap<Row::Key, Row>,
    index: Row::Index,
}

impl<Row: Record> Default for Table<Row> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), index: Row::Index::default() }
    }
}

impl<Row: Record> Table<Row> {
    /// The row of this key.
    #[must_use]
    pub fn get(&self, key: &Row::Key) -> Option<&Row> {
        self.rows.get(key)
    }

    /// Whether there is a row of this key.
    #[must_use]
    pub fn contains(&self, key: &Row::Key) -> bool {
        self.rows.contains_key(key)
    }

    /// All rows, ascending by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Row> + ExactSizeIterator {
        self.rows.values()
    }

    /// The rows of these keys, ascending.
    pub fn range(
        &self,
        keys: impl core::ops::RangeBounds<Row::Key>,
    ) -> impl DoubleEndedIterator<Item = &Row> {
        self.rows.range(keys).map(|(_, row)| row)
    }

    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The indexes beside the primary key.
    pub(in crate::store) const fn index(&self) -> &Row::Index {
        &self.index
    }

    /// Inserts the row or puts it in the place of its predecessor.
    pub(in crate::store) fn put(&mut self, row: Row, changes: &mut Vec<Change>) {
        let before = self.rows.insert(row.key(), row.clone());
        if before.as_ref() == Some(&row) {
            return;
        }
        Row::reindex(&mut self.index, before.as_ref(), Some(&row));
        changes.push(Row::change(Delta { before, after: Some(row) }));
    }

    /// Deletes the row, if there is one, and says whether there was.
    pub(in crate::store) fn remove(&mut self, key: &Row::Key, changes: &mut Vec<Change>) -> bool {
        let Some(before) = self.rows.remove(key) else { return false };
        Row::reindex(&mut self.index, Some(&before), None);
        changes.push(Row::change(Delta { before: Some(before), after: None }));
        true
    }

    /// Puts the row back to what it was before this change.
    pub(in crate::store) fn take_back(&mut self, delta: Delta<Row>) {
        Row::reindex(&mut self.index, delta.after.as_ref(), delta.before.as_ref());
        match (delta.before, delta.after) {
            (Some(before), _) => {
                self.rows.insert(before.key(), before);
            }
            (None, Some(after)) => {
                self.rows.remove(&after.key());
            }
            (None, None) => {}
        }
    }
}
