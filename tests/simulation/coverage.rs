//! What a run showed: which commands were executed, which rows were written, which strikes happened.
//!
//! A proof in which something never occurred says nothing about it, so what is missing fails the whole.

use core::fmt::Write;
use std::collections::BTreeMap;
use std::time::Duration;

use fencepost_core::store::change::Change;
use fencepost_core::store::command::CommandKind;

use crate::stored::{Deed, deed_of};
use crate::strikes::Strike;

/// Everything that the commands that there are may do to a row.
const DEEDS: [(&str, Deed); 25] = [
    ("tenant", Deed::Inserted),
    ("lease", Deed::Updated),
    ("node", Deed::Inserted),
    ("node", Deed::Updated),
    ("job", Deed::Inserted),
    ("job", Deed::Updated),
    ("job_version", Deed::Inserted),
    ("execution", Deed::Inserted),
    ("execution", Deed::Updated),
    ("attempt", Deed::Inserted),
    ("outbox_event", Deed::Inserted),
    ("outbox_event", Deed::Updated),
    ("outbox_event", Deed::Deleted),
    ("dead_letter", Deed::Inserted),
    ("dead_letter", Deed::Updated),
    ("skipped_range", Deed::Inserted),
    ("refusal", Deed::Inserted),
    ("refusal", Deed::Updated),
    ("operator_request", Deed::Inserted),
    ("pause", Deed::Inserted),
    ("pause", Deed::Updated),
    ("concurrency_limit", Deed::Inserted),
    ("concurrency_limit", Deed::Updated),
    ("malformed_message", Deed::Inserted),
    ("malformed_message", Deed::Updated),
];

/// What occurred, and how often.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    commands: BTreeMap<CommandKind, u64>,
    deeds: BTreeMap<(&'static str, Deed), u64>,
    strikes: BTreeMap<Strike, u64>,
    /// How many commands were executed on both sides.
    pub(crate) calls: u64,
    /// How long the server took for all of them, and for being watched.
    pub(crate) waited: Duration,
}

impl Coverage {
    /// A command was executed on both sides.
    pub(crate) fn note(&mut self, kind: CommandKind, changes: &[Change]) {
        self.calls += 1;
        *self.commands.entry(kind).or_default() += 1;
        for change in changes {
            *self.deeds.entry(deed_of(change)).or_default() += 1;
        }
    }

    /// Something was done to a command, and it showed.
    pub(crate) fn struck(&mut self, strike: Strike) {
        *self.strikes.entry(strike).or_default() += 1;
    }

    /// Adds what another run showed.
    pub(crate) fn add(&mut self, other: Self) {
        fn sum<Key: Ord>(mine: &mut BTreeMap<Key, u64>, theirs: BTreeMap<Key, u64>) {
            for (key, count) in theirs {
                *mine.entry(key).or_default() += count;
            }
        }
        sum(&mut self.commands, other.commands);
        sum(&mut self.deeds, other.deeds);
        sum(&mut self.strikes, other.strikes);
        self.calls += other.calls;
        self.waited += other.waited;
    }

    /// What never occurred.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for kind in CommandKind::ALL.iter().filter(|kind| !self.commands.contains_key(kind)) {
            missing.push(format!("the command {kind}"));
        }
        for (table, deed) in DEEDS.iter().filter(|deed| !self.deeds.contains_key(deed)) {
            missing.push(format!("a row of {table} {deed:?}"));
        }
        for strike in Strike::ALL.iter().filter(|strike| !self.strikes.contains_key(strike)) {
            missing.push(format!("{strike:?}"));
        }
        missing
    }

    /// Everything, for people.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for (kind, count) in &self.commands {
            writeln!(text, "{kind:>22} {count:>8}").expect("a string takes everything");
        }
        for ((table, deed), count) in &self.deeds {
            writeln!(text, "{table:>22} {count:>8} {deed:?}").expect("a string takes everything");
        }
        for (strike, count) in &self.strikes {
            writeln!(text, "{:>22} {count:>8} {strike:?}", "struck").expect("a string takes everything");
        }
        text
    }
}
