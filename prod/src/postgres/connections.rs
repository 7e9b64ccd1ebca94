//! The connections of one lane: a few, opened when needed, each lent to one call at a time.
//!
//! A general pool would test a connection whenever it is lent or comes back, which costs two more round trips per
//! call, and would keep one whose call was given up half-way. Here a connection comes back only from a
//! call that ended well. Any other is dropped, which closes it, and the server rolls back what it was at.

use std::sync::Mutex;
use std::time::Duration;

use fencepost_core::limits::STORE_CALL_TIMEOUT;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::fault::Fault;

/// How long the server lets a transaction of ours wait for us.
const IDLE_IN_TRANSACTION: Duration = Duration::from_secs(10);
/// How many prepared statements a connection keeps. More than there are in this module.
const STATEMENTS: usize = 200;

/// How statements are planned on these connections.
///
/// A plan is made once per statement and connection, perhaps while the tables are still empty, and must fit
/// when they are not. Every statement finds its rows by an index, in the order of its arrays or of its answer, so
/// the shapes that suit small tables alone are not offered at all. Two more things keep the planner to it: rows
/// are joined to arrays by `id = ANY (ARRAY[i.id])`, which no walk along an index can serve, where `id = i.id`
/// would have it walk a table that it believes to hold one row (three hundred fires a second instead of
/// fifteen thousand, when tried); and indexes that only others need have predicates that these statements do
/// not imply. A test explains every statement on empty tables and refuses one that would walk a table.
pub const PLANNING: [(&str, &str); 8] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_material", "off"),
    ("enable_memoize", "off"),
    ("jit", "off"),
];

/// The connections of one lane.
#[derive(Debug)]
pub(super) struct Connections {
    options: PgConnectOptions,
    permits: Semaphore,
    idle: Mutex<Vec<PgConnection>>,
}

/// A connection on loan. Dropped without [`Lent::give_back`], it is closed.
pub(super) struct Lent<'a> {
    connection: PgConnection,
    home: &'a Connections,
    _permit: SemaphorePermit<'a>,
}

impl Connections {
    /// At most `most` connections by `options`.
    pub(super) fn new(options: PgConnectOptions, lane: &str, most: u32) -> Self {
        let timeout = STORE_CALL_TIMEOUT.as_millis().to_string();
        let idle = IDLE_IN_TRANSACTION.as_millis().to_string();
        let options = options
            .application_name(&format!("fencepost {lane}"))
            .statement_cache_capacity(STATEMENTS)
            .options([
                ("statement_timeout", timeout.as_str()),
                ("idle_in_transaction_session_timeout", idle.as_str()),
                ("default_transaction_isolation", "read committed"),
            ])
            .options(PLANNING);
        let most = usize::try_from(most.max(1)).expect("a count of connections fits a usize");
        Self { options, permits: Semaphore::new(most), idle: Mutex::new(Vec::new()) }
    }

    /// A connection for one call; waits until one is free.
    pub(super) async fn take(&self) -> Result<Lent<'_>, Fault> {
        let permit = self.permits.acquire().await.expect("the permits are never closed");
        let idle = self.idle.lock().expect("no holder of this lock panics").pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        Ok(Lent { connection, home: self, _permit: permit })
    }

    /// Closes what is idle. Where one connection has lost its server, the others most likely have as well, and each would
    /// cost a call to find out.
    pub(super) fn forget_idle(&self) {
        self.idle.lock().expect("no holder of this lock panics").clear();
    }
}

impl Lent<'_> {
    /// The connection.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// For the next call. A transaction that was dropped instead of ended is rolled back only when its connection is
    /// used again, and keeps its locks until then: such a connection is closed.
    pub(super) fn give_back(self) {
        let is_at_rest = !self.connection.should_flush();
        debug_assert!(is_at_rest, "a command left its transaction open");
        if !is_at_rest {
            return;
        }
        self.home.idle.lock().expect("no holder of this lock panics").push(self.connection);
    }
}
