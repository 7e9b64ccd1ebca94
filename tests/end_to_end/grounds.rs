//! The grounds of one run: a database of its own, queues of its own, and a directory for logs.
//!
//! Relies on the servers of `DATABASE_URL` and `AMQP_URL`. What must stay true: other runs on the same servers
//! are not touched, and what was made is removed, also after a failure (but for the logs, which are then
//! wanted).

use std::path::{Path, PathBuf};

use fencepost::rabbitmq::{RabbitSettings, Topology};
use fencepost_core::job::HandlerName;
use fencepost_tests::own_database;
use fencepost_tests::server_url::{amqp_url, database_url};
use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::{Connection, ConnectionProperties};
use reqwest::Url;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::ledger::Ledger;

/// What one run has to itself.
pub(crate) struct Grounds {
    database: String,
    database_url: String,
    queue_prefix: String,
    logs: PathBuf,
    pool: PgPool,
}

impl Grounds {
    /// Makes them anew.
    pub(crate) async fn prepare(purpose: &str) -> Self {
        let database = own_database::name(&format!("end_to_end_{purpose}"));
        let options = own_database::create(&database).await;
        let mut url = Url::parse(&database_url()).expect("DATABASE_URL is a URL");
        url.set_path(&database);
        let database_url = String::from(url);
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
        let scratch = std::env::var_os("THROWAWAY_SCRATCH").map_or_else(std::env::temp_dir, PathBuf::from);
        let logs = scratch.join(format!("end-to-end-{purpose}-{}", std::process::id()));
        std::fs::create_dir_all(&logs).expect("there is room for logs");
        let queue_prefix = format!("end-to-end-{}-{}", purpose.replace('_', "-"), std::process::id());
        Self { database, database_url, queue_prefix, logs, pool }
    }

    /// The settings that every process shares.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("DATABASE_URL", self.database_url.clone()),
            ("AMQP_URL", amqp_url()),
            ("FENCEPOST_BROKER__PREFIX", self.queue_prefix.clone()),
        ]
    }

    /// Where the processes log.
    pub(crate) fn logs(&self) -> &Path {
        &self.logs
    }

    /// The database.
    pub(crate) fn pool(&self) -> PgPool {
        self.pool.clone()
    }

    /// What is on record.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::new(self.pool.clone())
    }

    /// Removes everything.
    pub(crate) async fn remove(self) {
        std::fs::remove_dir_all(&self.logs).expect("the logs are ours");
        self.leave_logs_and_remove().await;
    }

    /// Removes everything but the logs.
    pub(crate) async fn leave_logs_and_remove(self) {
        self.pool.close().await;
        own_database::drop(&self.database).await;
        self.remove_queues().await;
    }

    async fn remove_queues(&self) {
        let url = amqp_url();
        let mut settings = RabbitSettings::new(url.parse().expect("AMQP_URL is a URL"));
        settings.prefix = self.queue_prefix.parse().expect("it is a prefix");
        let topology = Topology::of(&settings);
        let connection = Connection::connect(&url, ConnectionProperties::default())
            .await
            .expect("the broker of AMQP_URL can be reached");
        let channel = connection.create_channel().await.expect("the connection is open");
        for handler in ["http", "noop"] {
            for queue in topology.queues(&HandlerName::parse(handler).expect("it is a name")) {
                channel
                    .queue_delete(queue, QueueDeleteOptions::default())
                    .await
                    .expect("deleting what is not there is no error");
            }
        }
        channel
            .exchange_delete(topology.exchange(), ExchangeDeleteOptions::default())
            .await
            .expect("deleting what is not there is no error");
    }
}
