//! A database of a test's own, with the store on it.

use std::sync::Arc;

use fencepost::postgres::{LaneSizes, PgStore};
use fencepost_core::store::StoreOutcome;
use fencepost_core::store::command::Command;
use fencepost_core::store::reply::StoreReply;
use fencepost_core::time::Timestamp;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, PgConnection, PgPool};

use fencepost_tests::own_database;

/// Every table that a command writes, but for `lease`.
const TABLES: [&str; 15] = [
    "concurrency_limit",
    "calendar",
    "pause",
    "outbox_event",
    "attempt",
    "dead_letter",
    "execution",
    "skipped_range",
    "job_version",
    "job",
    "operator_request",
    "refusal",
    "malformed_message",
    "node",
    "tenant",
];

/// A migrated database, and the store on it.
pub(crate) struct Database {
    name: String,
    pool: PgPool,
    options: PgConnectOptions,
    /// One for all that is tried here: a connection costs more than a command.
    store: Arc<PgStore>,
}

impl Database {
    /// Makes it anew.
    pub(crate) async fn create(purpose: &str) -> Self {
        let name = own_database::name(purpose);
        let options = own_database::create(&name).await;
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options.clone());
        fencepost::schema::migrate(&pool).await.expect("an empty database can be migrated");
        let store = Arc::new(PgStore::new(options.clone(), LaneSizes::default()));
        Self { name, pool, options, store }
    }

    /// Its connections, for looking.
    pub(crate) const fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// How it is reached.
    pub(crate) const fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// A connection of its own, for looking often: a pool would test it each time.
    pub(crate) async fn connect(&self) -> PgConnection {
        self.options.connect().await.expect("the server of DATABASE_URL can be reached")
    }

    /// A store on it, emptied.
    pub(crate) async fn empty_store(&self) -> Store {
        self.empty().await;
        self.store.forget_definitions();
        Store(Arc::clone(&self.store))
    }

    /// Empties it, in one round trip.
    pub(crate) async fn empty(&self) {
        let mut statements: String = TABLES.map(|table| format!("DELETE FROM {table};")).concat();
        // Tokens never fall, so the rows that were ever granted are made anew.
        statements.push_str(
            "DELETE FROM lease WHERE token > 0 OR owner IS NOT NULL OR nonce <> 0; \
             INSERT INTO lease (resource, token, owner, nonce, expires_at) \
             SELECT resource, 0, NULL, 0, 0 FROM generate_series(0, 128) AS resource ON CONFLICT DO NOTHING",
        );
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&self.pool).await.expect("the tables are there");
    }

    /// Deletes it.
    pub(crate) async fn remove(self) {
        self.pool.close().await;
        own_database::drop(&self.name).await;
    }
}

/// The store under test.
pub(crate) struct Store(Arc<PgStore>);

impl Store {
    /// On the database of these options. Connects with the first command.
    pub(crate) fn on(options: PgConnectOptions) -> Self {
        Self(Arc::new(PgStore::new(options, LaneSizes::default())))
    }

    /// Executes a command; an unknown outcome is no answer.
    pub(crate) async fn apply(&self, now: Timestamp, command: &Command) -> Option<StoreReply> {
        match self.0.execute_at(now, command).await {
            StoreOutcome::Replied(reply) => Some(reply),
            StoreOutcome::Unknown => None,
        }
    }
}
