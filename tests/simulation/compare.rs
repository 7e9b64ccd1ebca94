//! What a command changed, on both sides: row by row, whatever the order.
//!
//! The reference semantics execute a batch item by item, and may write a row more than once where a batch names
//! it more than once; a store that works on sets cannot. So each row is compared from what it was before the
//! command to what it is after it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use fencepost_core::store::change::Change;

use crate::stored::{RowKey, Stored, deed_of, key_of};

/// The changes of one command by the reference semantics.
pub(crate) struct Expected {
    in_order: Vec<Change>,
    by_row: BTreeMap<RowKey, Change>,
}

impl Expected {
    pub(crate) fn new(in_order: Vec<Change>) -> Self {
        let mut halves: BTreeMap<RowKey, (Option<Stored>, Option<Stored>)> = BTreeMap::new();
        for change in &in_order {
            let (before, after) = Stored::halves(change);
            halves.entry(key_of(change)).and_modify(|row| row.1 = after.clone()).or_insert((before, after));
        }
        let by_row = halves
            .into_iter()
            .filter_map(|(key, (before, after))| Some((key, Stored::change(before, after)?)))
            .collect();
        Self { in_order, by_row }
    }

    /// Whether the command changed nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_row.is_empty()
    }

    /// The tables that it is about.
    pub(crate) fn tables(&self) -> BTreeSet<&'static str> {
        self.by_row.values().map(|change| deed_of(change).0).collect()
    }

    /// Whether this is some of it, and nothing else.
    pub(crate) fn is_begun_by(&self, seen: &BTreeMap<RowKey, Change>) -> bool {
        seen.len() < self.by_row.len()
            && seen.iter().all(|(key, change)| self.by_row.get(key) == Some(change))
    }

    /// What was seen, in the order of the reference semantics. (Of a row that they wrote more than once their
    /// own steps, which come to the same.)
    ///
    /// # Errors
    /// How it differs.
    pub(crate) fn matched_by(self, mut seen: BTreeMap<RowKey, Change>) -> Result<Vec<Change>, String> {
        if seen != self.by_row {
            return Err(difference(&self.by_row, &seen));
        }
        let once = self.in_order.len() == self.by_row.len();
        let in_order = self.in_order.into_iter();
        if once {
            Ok(in_order.map(|change| seen.remove(&key_of(&change)).unwrap_or(change)).collect())
        } else {
            Ok(in_order.collect())
        }
    }
}

/// Row by row, the ones that differ.
fn difference(expected: &BTreeMap<RowKey, Change>, seen: &BTreeMap<RowKey, Change>) -> String {
    let mut report = String::new();
    for (key, change) in expected {
        if seen.get(key) != Some(change) {
            let seen = seen.get(key);
            writeln!(report, "{key:?}\n  expected {change:#?}\n  seen {seen:#?}")
                .expect("a string takes everything");
        }
    }
    for (key, change) in seen.iter().filter(|(key, _)| !expected.contains_key(key)) {
        writeln!(report, "{key:?}\n  expected no change\n  seen {change:#?}")
            .expect("a string takes everything");
    }
    report
}
