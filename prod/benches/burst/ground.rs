//! What one part has to itself: a database, queues, and a place for logs; and what PostgreSQL counted there.
//!
//! Relies on the servers of `DATABASE_URL` and `AMQP_URL`. What must stay true: other databases and queues are not
//! touched, and what was made is removed, also when a part panics.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use fencepost::rabbitmq::{RabbitSettings, Topology};
use fencepost_core::job::HandlerName;
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Connection, ConnectionProperties};
use reqwest::Url;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, PgPool, Row};

/// The servers, as the environment names them.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    pub(crate) database_url: String,
    pub(crate) amqp_url: String,
}

/// What one part has to itself.
pub(crate) struct Ground {
    servers: Servers,
    database: String,
    database_url: String,
    queue_prefix: String,
    logs: PathBuf,
    pool: PgPool,
}

/// What PostgreSQL has counted so far, in this database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Transactions committed, reads included.
    pub(crate) commits: i64,
    /// Statements executed, each a round trip: `BEGIN` and `COMMIT` too.
    pub(crate) round_trips: i64,
    /// Rows inserted, updated and deleted in all tables.
    pub(crate) row_writes: i64,
}

/// One statement's part in the work.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) calls: i64,
    pub(crate) total_ms: f64,
    pub(crate) rows: i64,
}

impl Ground {
    /// Makes it anew.
    pub(crate) async fn prepare(servers: &Servers, purpose: &str, logs: &Path) -> Self {
        let database = format!("fencepost_{purpose}_{}", std::process::id());
        administer(servers, &[format!("CREATE DATABASE {database}")]).await;
        let mut url = Url::parse(&servers.database_url).expect("DATABASE_URL is a URL");
        url.set_path(&database);
        let database_url = String::from(url);
        let options = PgConnectOptions::from_str(&database_url).expect("DATABASE_URL is a PostgreSQL URL");
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        // In a schema of its own: a database that holds tables of others is not migrated.
        sqlx::raw_sql("CREATE SCHEMA counted; CREATE EXTENSION pg_stat_statements SCHEMA counted")
            .execute(&pool)
            .await
            .expect("pg_stat_statements is installed and preloaded: scripts/throwaway-postgres sees to it");
        let logs = logs.join(purpose);
        std::fs::create_dir_all(&logs).expect("there is room for logs");
        let queue_prefix = format!("{purpose}-{}", std::process::id());
        Self { servers: servers.clone(), database, database_url, queue_prefix, logs, pool }
    }

    /// The settings that every process shares.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("DATABASE_URL", self.database_url.clone()),
            ("AMQP_URL", self.servers.amqp_url.clone()),
            ("FENCEPOST_BROKER__PREFIX", self.queue_prefix.clone()),
        ]
    }

    /// Where the processes log.
    pub(crate) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The database, on one connection.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Waits until no process of ours is connected: what a connection counted is known once it is closed.
    pub(crate) async fn is_left(&self) {
        loop {
            let others: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_stat_activity
                 WHERE datname = current_database() AND application_name LIKE 'fencepost%'",
            )
            .fetch_one(&self.pool)
            .await
            .expect("PostgreSQL tells who is connected");
            if others == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What was counted up to now.
    pub(crate) async fn counts(&self) -> Counts {
        sqlx::query("SELECT pg_stat_force_next_flush()")
            .execute(&self.pool)
            .await
            .expect("PostgreSQL 15 knows it");
        let row = sqlx::query(
            "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS commits,
               (SELECT sum(calls)::int8 FROM counted.pg_stat_statements
                WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())) AS round_trips,
               (SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::int8 FROM pg_stat_user_tables) AS row_writes",
        )
        .fetch_one(&self.pool)
        .await
        .expect("PostgreSQL counts");
        Counts {
            commits: row.get("commits"),
            round_trips: row.get("round_trips"),
            row_writes: row.get("row_writes"),
        }
    }

    /// Forgets the statements so far, so that [`Ground::statements`] is about what follows.
    pub(crate) async fn forget_statements(&self) {
        sqlx::query(
            "SELECT counted.pg_stat_statements_reset(0, (SELECT oid FROM pg_database WHERE datname = current_database()), 0)",
        )
        .execute(&self.pool)
        .await
        .expect("the extension is there");
    }

    /// The statements that took longest.
    pub(crate) async fn statements(&self, most: i64) -> Vec<Statement> {
        let rows = sqlx::query(
            r"SELECT left(regexp_replace(query, '\s+', ' ', 'g'), 72) AS text, calls, total_exec_time, rows
              FROM counted.pg_stat_statements
              WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
              ORDER BY total_exec_time DESC LIMIT $1",
        )
        .bind(most)
        .fetch_all(&self.pool)
        .await
        .expect("the extension is there");
        let statement = |row: sqlx::postgres::PgRow| Statement {
            text: row.get("text"),
            calls: row.get("calls"),
            total_ms: row.get("total_exec_time"),
            rows: row.get("rows"),
        };
        rows.into_iter().map(statement).collect()
    }

    /// Removes everything but the logs.
    pub(crate) async fn remove(self) {
        self.pool.close().await;
        administer(&self.servers, &[format!("DROP DATABASE {} WITH (FORCE)", self.database)]).await;
        self.remove_queues().await;
    }

    async fn remove_queues(&self) {
        let url = &self.servers.amqp_url;
        let mut settings = RabbitSettings::new(url.parse().expect("AMQP_URL is a URL"));
        settings.prefix = self.queue_prefix.parse().expect("it is a prefix");
        let topology = Topology::of(&settings);
        let connection = Connection::connect(url, ConnectionProperties::default())
            .await
            .expect("the broker can be reached");
        let channel = connection.create_channel().await.expect("the connection is open");
        for handler in ["http", "noop"] {
            for queue in topology.queues(&HandlerName::parse(handler).expect("it is a name")) {
                channel.queue_delete(queue, QueueDeleteOptions::default()).await.expect("it is ours");
            }
        }
        let exchange = topology.exchange();
        channel.exchange_delete(exchange, ExchangeDeleteOptions::default()).await.expect("it is ours");
    }
}

async fn administer(servers: &Servers, statements: &[String]) {
    let server = PgConnectOptions::from_str(&servers.database_url).expect("DATABASE_URL is a PostgreSQL URL");
    let mut connection = server.connect().await.expect("the server of DATABASE_URL can be reached");
    for statement in statements {
        sqlx::query(AssertSqlSafe(statement.clone()))
            .execute(&mut connection)
            .await
            .expect("databases may be made and removed");
    }
    connection.close().await.expect("nothing is under way");
}
