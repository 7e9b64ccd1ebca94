//! The stage: plays a case on a real server, step by step.
//!
//! Both commands run through proxies of their own. One of them, first the guarded command and then its rival, is
//! stopped before a statement; the other is started, and when it has ended, or is seen waiting for a lock, the
//! stopped one goes on. This is done for every statement that there is, counted and not picked, so that no gap between
//! a guard and its write, or between a write and its commit, is left out. A statement that is a transaction of its own
//! is stopped twice: before it is sent, and executed but before it is committed. Once more it is stopped at the last of
//! these places and does not go on: its connection is cut, and the server rolls it back.
//!
//! With some statements rewritten the same cases show whether a mistake in the SQL would be noticed.

use std::sync::Arc;
use std::time::Duration;

use fencepost::postgres::{LaneSizes, PgStore};
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::reply::Reply;
use fencepost_tests::pg_proxy::{COMMIT_OF_ONE, PgProxy};
use fencepost_tests::waiting::until;
use sqlx::PgConnection;
use tokio::task::JoinHandle;

use crate::case::{Act, Case};
use crate::contents;
use crate::database::{Database, Store};
use crate::judgement::{Ending, Seen, Stopped, Tally, Violation, Who, judge};

mod crowd;

/// No command has as many statements.
const STATEMENTS_MAX: u64 = 60;
/// Longer than the store itself waits for an answer.
const LIMIT: Duration = Duration::from_secs(15);

/// Somebody waits for somebody's lock.
const BLOCKED: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() \
     AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0)";
/// How many wait for somebody's lock.
const HOW_MANY_BLOCKED: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
     AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0";
/// Two wait for each other.
const IN_A_CIRCLE: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity a JOIN pg_stat_activity b USING (datname) \
     WHERE datname = current_database() AND a.pid <> b.pid AND a.pid = ANY (pg_blocking_pids(b.pid)) \
     AND b.pid = ANY (pg_blocking_pids(a.pid)))";
/// A statement has been executed, and the server wants to hear that no more belongs to it.
const EXECUTED: &str = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() \
     AND state = 'active' AND wait_event = 'ClientRead' AND pid <> pg_backend_pid())";

/// One of the two sessions.
struct Side {
    proxy: PgProxy,
    store: Arc<PgStore>,
}

impl Side {
    async fn open(database: &Database, rewrites: &[(&str, &str)]) -> Self {
        let proxy = PgProxy::start(database.options(), rewrites).await.expect("a loopback port is free");
        let options = proxy.options(database.options());
        let store = Arc::new(PgStore::new(options, LaneSizes { lease: 1, work: 1 }));
        Self { proxy, store }
    }

    fn start(&self, act: &Act) -> JoinHandle<Option<Reply>> {
        let (store, act) = (Arc::clone(&self.store), act.clone());
        tokio::spawn(async move {
            match store.execute_at(act.now, &act.command).await {
                StoreOutcome::Replied(reply) => Some(reply.reply),
                StoreOutcome::Unknown => None,
            }
        })
    }
}

/// A database on which cases are played.
pub(crate) struct Stage<'a> {
    database: &'a Database,
    arranging: Store,
    looking: PgConnection,
    /// Hold rows, where a crowd is to wait for them.
    holders: Vec<PgConnection>,
    guarded: Side,
    rival: Side,
}

impl<'a> Stage<'a> {
    /// On this database, where the statements of both sessions are rewritten as said.
    pub(crate) async fn open(database: &'a Database, rewrites: &[(&str, &str)]) -> Self {
        Self {
            database,
            arranging: Store::on(database.options().clone()),
            looking: database.connect().await,
            holders: Vec::new(),
            guarded: Side::open(database, rewrites).await,
            rival: Side::open(database, rewrites).await,
        }
    }

    /// How often each statement was rewritten, in the order given.
    pub(crate) fn rewritten(&self) -> Vec<u64> {
        let both = self.guarded.proxy.rewritten().into_iter().zip(self.rival.proxy.rewritten());
        both.map(|(guarded, rival)| guarded + rival).collect()
    }

    /// Plays every step of a case, until one must not be.
    pub(crate) async fn play(&mut self, case: &Case) -> Result<Tally, Violation> {
        let mut tally = Tally::default();
        self.play_counting(case, &mut tally).await?;
        Ok(tally)
    }

    /// The same, where the steps count up to the one that must not be.
    pub(crate) async fn play_counting(&mut self, case: &Case, tally: &mut Tally) -> Result<(), Violation> {
        for who_stops in Who::BOTH {
            for passes in 0..STATEMENTS_MAX {
                let seen = self.step(case, who_stops, Ending::GoesOn, passes, tally).await?;
                if seen.stopped == Stopped::Never {
                    // So the one before was the last, with everything written and nothing committed.
                    self.step(case, who_stops, Ending::Dies, passes.saturating_sub(1), tally).await?;
                    break;
                }
            }
        }
        Ok(())
    }

    async fn step(
        &mut self,
        case: &Case,
        who_stops: Who,
        ending: Ending,
        passes: u64,
        tally: &mut Tally,
    ) -> Result<Seen, Violation> {
        let seen = self.see(case, who_stops, ending, passes).await;
        tally.note(case, &seen);
        match judge(case, &seen) {
            Ok(()) => Ok(seen),
            Err(wrong) => Err(Violation { case: case.name, seen: Box::new(seen), wrong }),
        }
    }

    /// One step: stopped after so many statements.
    async fn see(&mut self, case: &Case, who_stops: Who, ending: Ending, passes: u64) -> Seen {
        self.arrange(case).await;
        let (stopping, other) = match who_stops {
            Who::Guarded => (&self.guarded, &self.rival),
            Who::Rival => (&self.rival, &self.guarded),
        };
        let looking = &mut self.looking;
        let gate = stopping.proxy.stop_before("", passes);
        let mut first = stopping.start(who_stops.act(case));
        let mut first_reply = tokio::select! {
            () = gate.reached() => None,
            reply = &mut first => Some(reply.expect("a store does not panic")),
        };
        stopping.proxy.disarm();
        let stopped = match (&first_reply, passes) {
            (Some(_), _) => Stopped::Never,
            (None, 0) => Stopped::AtTheStart,
            (None, _) => Stopped::Before(gate.place().to_owned()),
        };
        if gate.place() == COMMIT_OF_ONE {
            until("a statement is executed", LIMIT, async || is(looking, EXECUTED).await.then_some(())).await;
        }
        let mut second = other.start(who_stops.other().act(case));
        let mut second_reply = tokio::select! {
            reply = &mut second => Some(reply.expect("a store does not panic")),
            () = until("the other ends or waits", LIMIT, async || is(looking, BLOCKED).await.then_some(())) => None,
        };
        let waited = second_reply.is_none();
        // What has not ended cannot have committed: it waits for the stopped one, whose commit comes first then.
        let other_was_first = !waited && stopped != Stopped::Never;
        match ending {
            Ending::GoesOn => gate.open(),
            Ending::Dies => gate.cut(),
        }
        let mut deadlocked = false;
        if first_reply.is_none() && second_reply.is_none() {
            tokio::select! {
                () = async {
                    first_reply = Some((&mut first).await.expect("a store does not panic"));
                    second_reply = Some((&mut second).await.expect("a store does not panic"));
                } => {}
                () = until("both end", LIMIT, async || is(looking, IN_A_CIRCLE).await.then_some(())) => {
                    deadlocked = true;
                }
            }
        }
        let first_reply = match first_reply {
            Some(reply) => reply,
            None => first.await.expect("a store does not panic"),
        };
        let second_reply = match second_reply {
            Some(reply) => reply,
            None => second.await.expect("a store does not panic"),
        };
        let (guarded, rival) = match who_stops {
            Who::Guarded => (first_reply, second_reply),
            Who::Rival => (second_reply, first_reply),
        };
        Seen {
            who_stopped: who_stops,
            stopped,
            ending,
            waited,
            deadlocked,
            guarded,
            rival,
            first: if other_was_first { who_stops.other() } else { who_stops },
            contents: contents::read(looking).await,
        }
    }

    /// Empties the database, and makes what a case begins with.
    async fn arrange(&mut self, case: &Case) {
        self.database.empty().await;
        for act in &case.arranged {
            let reply = self.arranging.apply(act.now, &act.command).await;
            assert!(reply.is_some(), "{}: nothing disturbs what comes before", case.name);
        }
    }
}

async fn is(looking: &mut PgConnection, question: &'static str) -> bool {
    sqlx::query_scalar(question).fetch_one(looking).await.expect("the server of DATABASE_URL can be reached")
}
