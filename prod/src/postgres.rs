//! PostgreSQL as the store: every command of the protocol in set-based SQL.
//!
//! What a command means is written once, in the core's reference semantics; this is the same on a real
//! server, where several connections act at once. Conformance runs both side by side. The rules that make
//! it true at READ COMMITTED:
//!
//! - A lease that guards a write is read `FOR KEY SHARE` in the same transaction. A new token is a key
//!   update, so a takeover waits for the guarded writes under way, and they wait for it and then find
//!   another token. Renewals change no key and neither wait nor are waited for.
//! - The hot statements (materialise, acquire, complete, remove) decide and write in one compare-and-set
//!   `UPDATE`, `INSERT` or `DELETE` over arrays. What they did not touch, which is rare, is looked at
//!   afterwards; should it be touchable by then, the command starts over.
//! - The overlap of jobs that limit it is decided while the job's row is locked, by acquires, finishes, takeovers and
//!   cancels alike.
//! - Everything else locks its rows first, reads the clock, decides by what it locked, and writes what
//!   changed, set by set.
//! - Locks are taken in the order authority, tenant, job, execution, outbox, by id within each. A deadlock
//!   nevertheless costs one more attempt, not the command.
//! - One `now` per command: the server's clock after the locks, or one that is passed in.
//!
//! A call whose outcome is not known is reported so, and its connection is closed: nothing of it can
//! reach a later call.

use std::sync::Arc;

use fencepost_core::limits::STORE_CALL_TIMEOUT;
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::{Command, Lane};
use fencepost_core::store::reply::{Reply, StoreReply};
use fencepost_core::time::Timestamp;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;

use crate::ports::StorePort;
use connections::Connections;
use context::Context;
use definitions::Definitions;
use reach::Reach;

mod acquire;
pub(crate) mod calendars;
mod cancel;
mod change_job;
mod connections;
mod context;
mod dead_letters;
mod deadlines;
mod defer;
mod definitions;
mod due_jobs;
mod earlier_versions;
mod endings;
pub(crate) mod facts;
mod failures;
mod fault;
mod finish;
mod guard;
mod job_lifecycle;
mod leases;
mod limits;
mod locked;
mod malformed;
mod materialise;
mod nodes;
mod notifications;
mod outbox;
mod overlap;
mod promote;
mod reach;
mod read;
mod refusals;
mod renew;
mod repair;
mod return_outbox;
mod set_pause;
mod sweep;
mod tenants;
pub(crate) mod verification;

pub use connections::PLANNING;
pub(crate) use fault::Fault;
pub use notifications::listen;

/// How often a command is tried that lost a deadlock or met rows in motion.
const ATTEMPTS_MAX: u32 = 4;

/// How many connections each lane may open.
#[derive(Clone, Copy, Debug)]
pub struct LaneSizes {
    /// For acquisition, renewal and liveness.
    pub lease: u32,
    /// For everything else.
    pub work: u32,
}

impl Default for LaneSizes {
    fn default() -> Self {
        Self { lease: 1, work: 4 }
    }
}

/// A store on a PostgreSQL server. Opens connections as calls need them.
#[derive(Debug)]
pub struct PgStore {
    lease: Connections,
    work: Connections,
    definitions: Definitions,
    reach: Reach,
}

impl PgStore {
    /// A store on the server that `options` name. Connects with the first call.
    #[must_use]
    pub fn new(options: PgConnectOptions, sizes: LaneSizes) -> Self {
        Self {
            lease: Connections::new(options.clone(), "lease", sizes.lease),
            work: Connections::new(options, "work", sizes.work),
            definitions: Definitions::default(),
            reach: Reach::default(),
        }
    }

    /// Executes one command by the server's clock.
    pub async fn execute(&self, command: &Command) -> StoreOutcome {
        self.bounded(command, None).await
    }

    /// Executes one command at the `now` that is passed in. For tests and simulations.
    pub async fn execute_at(&self, now: Timestamp, command: &Command) -> StoreOutcome {
        self.bounded(command, Some(now)).await
    }

    /// Forgets which definitions it has read. For tests, which empty a database and give its jobs other definitions; the
    /// connections stay, with the statements that they have prepared.
    pub fn forget_definitions(&self) {
        self.definitions.forget();
    }

    async fn bounded(&self, command: &Command, given: Option<Timestamp>) -> StoreOutcome {
        let limit = STORE_CALL_TIMEOUT.to_duration();
        match tokio::time::timeout(limit, self.attempts(command, given)).await {
            Ok(Ok(reply)) => {
                self.reach.answered();
                StoreOutcome::Replied(reply)
            }
            Ok(Err(fault)) if fault.is_out_of_reach() => {
                self.lease.forget_idle();
                self.work.forget_idle();
                self.reach.failed(&fault, fault.hint());
                tracing::debug!(command = %command.kind(), %fault, "a store call found no server");
                StoreOutcome::Unknown
            }
            Ok(Err(fault)) => {
                tracing::warn!(command = %command.kind(), %fault, hint = fault.hint(), "a store call failed");
                StoreOutcome::Unknown
            }
            Err(_) => {
                tracing::warn!(command = %command.kind(), after = ?limit, "a store call was not answered in time");
                StoreOutcome::Unknown
            }
        }
    }

    async fn attempts(&self, command: &Command, given: Option<Timestamp>) -> Result<StoreReply, Fault> {
        let mut attempt = 1;
        loop {
            match self.attempt(command, given).await {
                Err(fault) if fault.is_transient() && attempt < ATTEMPTS_MAX => {
                    tracing::debug!(command = %command.kind(), %fault, attempt, "a store call starts over");
                    attempt += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn attempt(&self, command: &Command, given: Option<Timestamp>) -> Result<StoreReply, Fault> {
        let connections = match command.lane() {
            Lane::Lease => &self.lease,
            Lane::Work => &self.work,
        };
        let mut lent = connections.take().await?;
        let cx = Context { given: given.map(Timestamp::as_micros), definitions: &self.definitions };
        let reply = Box::pin(run(&cx, lent.connection(), command)).await?;
        lent.give_back();
        Ok(reply)
    }
}

impl StorePort for PgStore {
    async fn call(&self, command: Command) -> StoreOutcome {
        self.execute(&command).await
    }
}

async fn run(cx: &Context<'_>, conn: &mut PgConnection, command: &Command) -> Result<StoreReply, Fault> {
    match command {
        Command::ReadClock => Ok(cx.reply(cx.clock(conn).await?, Reply::Clock)),
        Command::Heartbeat(report) => nodes::heartbeat(cx, conn, report).await,
        Command::AcquireLeadership(ask) => leases::acquire_leadership(cx, conn, ask).await,
        Command::AcquirePartitions(ask) => leases::acquire_partitions(cx, conn, ask).await,
        Command::RenewLeases(ask) => leases::renew(cx, conn, ask).await,
        Command::ReleaseLeases(ask) => leases::release(cx, conn, ask).await,
        Command::ScanDueJobs(ask) => due_jobs::scan(cx, conn, ask).await,
        Command::Materialise(ask) => materialise::materialise(cx, conn, ask).await,
        Command::PutOffJobs(ask) => due_jobs::put_off(cx, conn, ask).await,
        Command::PromoteDue(ask) => promote::promote(cx, conn, ask).await,
        Command::ScanOutbox(ask) => outbox::scan(cx, conn, ask).await,
        Command::RemoveOutbox(ask) => outbox::remove(cx, conn, ask).await,
        Command::ReturnOutbox(ask) => return_outbox::return_rows(cx, conn, ask).await,
        Command::ScanSweep(ask) => sweep::scan(cx, conn, ask).await,
        Command::Repair(ask) => repair::repair(cx, conn, ask).await,
        Command::AcquireExecutions(ask) => acquire::acquire(cx, conn, ask).await,
        Command::RenewExecutions(ask) => renew::renew(cx, conn, ask).await,
        Command::FinishExecutions(ask) => finish::finish(cx, conn, ask).await,
        Command::DeferExecutions(ask) => defer::defer(cx, conn, ask).await,
        Command::RecordMalformed(report) => malformed::record(cx, conn, report).await,
        Command::CreateTenant(ask) => tenants::create(cx, conn, ask).await,
        Command::CreateJob(ask) => job_lifecycle::create(cx, conn, ask).await,
        Command::ChangeJob(ask) => change_job::change(cx, conn, ask).await,
        Command::DeleteJob(ask) => job_lifecycle::delete(cx, conn, ask).await,
        Command::TriggerJob(ask) => job_lifecycle::trigger(cx, conn, ask).await,
        Command::CancelExecution(ask) => cancel::cancel(cx, conn, ask).await,
        Command::SetPause(ask) => set_pause::set(cx, conn, ask).await,
        Command::ReplayDeadLetter(ask) => dead_letters::replay(cx, conn, ask).await,
        Command::ReplayDeadLetters(ask) => dead_letters::replay_page(cx, conn, ask).await,
        Command::PurgeDeadLetter(ask) => dead_letters::purge(cx, conn, ask).await,
        Command::SetLimit(ask) => limits::set(cx, conn, ask).await,
        Command::SetCalendar(ask) => calendars::set(cx, conn, ask).await,
    }
}

/// A store that several tasks share.
pub type SharedStore = Arc<PgStore>;
