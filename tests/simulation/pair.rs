//! The store of a simulated world, twice: PostgreSQL, and beside it the reference semantics as the expectation.
//!
//! Every command is executed on both at the same `now`, and compared: the reply, and each changed row as the
//! server's own triggers saw it. What the world is shown is what PostgreSQL did. The first difference ends the
//! run. (Each table costs a round trip to look at. What was written to one where nothing was expected is seen at the
//! next look there, a few steps late, or at the end; then the seed is run again with a look at all of them after every
//! step.) Where the plan loses a reply or keeps a command from its commit, that is done to the server for real
//! (see `strikes`); then the reply must not have been heard, and the tables must hold all of the command, or
//! nothing of it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::resume_unwind;
use std::time::Instant;

use fencepost_core::store::change::Change;
use fencepost_core::store::command::{Command, CommandKind};
use fencepost_core::store::reference::ReferenceStore;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::Timestamp;
use fencepost_sim::fault::FaultKind;
use tokio::runtime::Runtime;

use crate::compare::Expected;
use crate::coverage::Coverage;
use crate::database::Store;
use crate::stored::RowKey;
use crate::strikes::{Strike, Strikes};
use crate::watch::Watch;

/// One in so many commands that change something loses its first commit to a serialization failure.
const FAILS_ONCE_EVERY: u64 = 97;

/// Where and how the two stores differ. It travels as a panic, out of a world that knows nothing of it.
#[derive(Debug)]
pub(crate) struct Difference(pub(crate) String);

/// Where the server is looked at after each command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Looking {
    /// At the tables that are expected to have changed.
    WhereExpected,
    /// At all.
    Everywhere,
}

/// Both stores, for one run.
pub(crate) struct Pair<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) watch: &'a mut Watch,
    pub(crate) coverage: &'a mut Coverage,
    pub(crate) reference: ReferenceStore,
    pub(crate) store: Store,
    pub(crate) strikes: Strikes,
    pub(crate) looking: Looking,
    /// How many commands were executed.
    pub(crate) step: u64,
}

impl Pair<'_> {
    /// Executes a command on both; at `strike`, something happens to the server's side of it.
    fn both(
        &mut self,
        now: Timestamp,
        command: &Command,
        changes: &mut Vec<Change>,
        strike: Option<Strike>,
    ) -> StoreReply {
        self.step += 1;
        let mut in_order = Vec::new();
        let expected = self.reference.apply(now, command, &mut in_order);
        let rows = Expected::new(in_order);
        // A command that writes nothing has no commit that could be struck.
        let strike = strike.filter(|strike| !rows.is_empty() && self.strikes.wants(*strike));
        let began = Instant::now();
        let (seen, seen_rows) = self.runtime.block_on(self.execute(now, command, strike, &rows));
        self.coverage.waited += began.elapsed();

        let mut report = String::new();
        let heard = if strike == Some(Strike::ReplyLost) { None } else { Some(&expected) };
        if seen.as_ref() != heard {
            writeln!(report, "the reply\n  expected {heard:#?}\n  seen {seen:#?}")
                .expect("a string takes everything");
        }
        match rows.matched_by(seen_rows) {
            Ok(matched) if report.is_empty() => {
                self.coverage.note(command.kind(), &matched);
                strike.inspect(|strike| self.coverage.struck(*strike));
                changes.extend(matched);
                expected
            }
            Ok(_) => self.differ(now, command, strike, &report),
            Err(rows) => self.differ(now, command, strike, &format!("{report}{rows}")),
        }
    }

    async fn execute(
        &mut self,
        now: Timestamp,
        command: &Command,
        strike: Option<Strike>,
        expected: &Expected,
    ) -> (Option<StoreReply>, BTreeMap<RowKey, Change>) {
        let Some(strike) = strike else {
            let reply = self.store.apply(now, command).await;
            let rows = match self.looking {
                Looking::WhereExpected => self.watch.look_at(&expected.tables()).await,
                Looking::Everywhere => self.watch.look().await,
            };
            return (reply, rows);
        };
        let reply = self.strikes.apply(strike, self.watch, now, command).await;
        let mut rows = self.watch.look().await;
        if strike == Strike::ReplyLost && expected.is_begun_by(&rows) {
            // A batch whose items have commits of their own, cut off after the first: it is sent again.
            self.store.apply(now, command).await;
            rows.extend(self.watch.look().await);
        }
        (reply, rows)
    }

    /// Something keeps a command from its commit: whatever was heard, nothing of it may remain.
    fn prevent(&mut self, now: Timestamp, command: &Command, strike: Strike) {
        if !self.strikes.wants(strike) {
            return;
        }
        let began = Instant::now();
        let (seen, rows) = self.runtime.block_on(async {
            let reply = self.strikes.apply(strike, self.watch, now, command).await;
            (reply, self.watch.look().await)
        });
        self.coverage.waited += began.elapsed();
        if let Err(report) = Expected::new(Vec::new()).matched_by(rows) {
            self.differ(now, command, Some(strike), &format!("nothing was to remain of it, and\n{report}"));
        }
        // Who gets an answer wrote nothing, and had no commit that could fail.
        if seen.is_none() {
            self.coverage.struck(strike);
        }
    }

    fn differ(&self, now: Timestamp, command: &Command, strike: Option<Strike>, report: &str) -> ! {
        let struck = strike.map(|strike| format!(", struck: {strike:?}")).unwrap_or_default();
        let step = self.step;
        resume_unwind(Box::new(Difference(format!(
            "step {step}, at {now}{struck}\n{command:#?}\n\n{report}"
        ))))
    }
}

impl fencepost_sim::store::Store for Pair<'_> {
    fn call(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply {
        let fails = self.step % FAILS_ONCE_EVERY == FAILS_ONCE_EVERY - 1 && !picks(command.kind());
        self.both(now, command, changes, fails.then_some(Strike::SerializationFailureOnce))
    }

    fn call_unheard(&mut self, now: Timestamp, command: &Command, changes: &mut Vec<Change>) -> StoreReply {
        self.both(now, command, changes, Some(Strike::ReplyLost))
    }

    fn roll_back(&mut self, now: Timestamp, command: &Command, why: FaultKind) {
        self.prevent(now, command, Strike::of(why));
    }
}

/// Whether a command passes over rows that somebody else has locked, as its own failed attempt may still do for a
/// moment: what it then picks is right, and not reproducible.
fn picks(kind: CommandKind) -> bool {
    matches!(kind, CommandKind::AcquirePartitions | CommandKind::PromoteDue | CommandKind::ScanOutbox)
}
