//! The database's schema: connecting, migrating, and refusing to run on another version of it.
//!
//! Migrations are numbered SQL in `migrations/`, compiled in. A database that holds something else is
//! left alone: nothing is created beside tables that are not ours.

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{Migrate, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgPool};

use crate::failure::Failure;
use crate::postgres::PLANNING;

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// The oldest server that is supported, as `server_version_num` has it.
const OLDEST_SERVER: i32 = 150_000;
/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What a migration did.
#[derive(Clone, Copy, Debug)]
pub struct Migrated {
    /// The version that the schema has now.
    pub version: i64,
    /// How many migrations were applied now.
    pub applied: usize,
}

/// The options of a database URL.
///
/// # Errors
/// A usage failure: it is no such URL.
pub fn options(url: &str) -> Result<PgConnectOptions, Failure> {
    PgConnectOptions::from_str(url).map_err(|error| {
        Failure::usage(format!("the database's URL cannot be read: {error}"))
            .hint("it looks like postgres://user:password@host:5432/name")
    })
}

/// A pool for reads and administration, with its server looked at. Its statements are planned like the store's: they
/// too find their rows by an index, whatever the planner believes of a table that it has not counted yet.
///
/// # Errors
/// The server is out of reach or too old.
pub async fn connect(url: &str) -> Result<PgPool, Failure> {
    let options = options(url)?.application_name("fencepost reads").options(PLANNING);
    let place = format!(
        "{}:{}/{}",
        options.get_host(),
        options.get_port(),
        options.get_database().unwrap_or_default()
    );
    let out_of_reach = |why: &dyn core::fmt::Display| {
        Failure::unavailable(format!("the database at {place} is out of reach: {why}")).hint(
            "is the server up, and does the URL name it? See --database-url, DATABASE_URL and [database] url",
        )
    };
    // The pool would try again until its time is up, and then say no more than that it is.
    match tokio::time::timeout(CONNECT_LIMIT, options.connect()).await {
        Ok(Ok(connection)) => drop(connection.close().await),
        Ok(Err(error)) => return Err(out_of_reach(&error)),
        Err(_) => return Err(out_of_reach(&format!("no answer within {CONNECT_LIMIT:?}"))),
    }
    let pool = PgPoolOptions::new()
        .max_connections(4)
        .acquire_timeout(CONNECT_LIMIT)
        .connect_with(options)
        .await
        .map_err(|error| out_of_reach(&error))?;
    let version: String = sqlx::query_scalar("SELECT current_setting('server_version_num')")
        .fetch_one(&pool)
        .await
        .map_err(|error| Failure::unavailable(format!("the database at {place} does not answer: {error}")))?;
    if version.parse::<i32>().is_ok_and(|version| version < OLDEST_SERVER) {
        let what = format!(
            "the database at {place} runs PostgreSQL {version}, and 15 is the oldest that is supported"
        );
        return Err(Failure::unavailable(what));
    }
    Ok(pool)
}

/// Brings the schema up to this version.
///
/// # Errors
/// The database is out of reach, holds something else, or was migrated by a newer version.
pub async fn migrate(pool: &PgPool) -> Result<Migrated, Failure> {
    let before = applied(pool).await?;
    if before.is_empty() && holds_tables(pool).await? {
        let what = "the database holds tables that are not Fencepost's, and was left as it is";
        return Err(
            Failure::usage(what).hint("create an empty database for Fencepost, and name it in the URL")
        );
    }
    MIGRATIONS.run(pool).await.map_err(|error| match error {
        sqlx::migrate::MigrateError::VersionMissing(version) => Failure::usage(format!(
            "the schema is at version {version}, which is newer than this program knows"
        ))
        .hint("run a newer fencepost; migrations are never undone"),
        other => Failure::unavailable(format!("the schema cannot be migrated: {other}")),
    })?;
    let after = applied(pool).await?;
    Ok(Migrated { version: after.last().copied().unwrap_or_default(), applied: after.len() - before.len() })
}

/// Refuses a database whose schema is not this version's.
///
/// # Errors
/// A usage failure that says what to run.
pub async fn require_current(pool: &PgPool) -> Result<(), Failure> {
    let applied = applied(pool).await?;
    let needed = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default();
    match applied.last() {
        Some(version) if *version >= needed => Ok(()),
        Some(version) => {
            Err(Failure::usage(format!("the schema is at version {version}, and {needed} is needed"))
                .hint("run `fencepost migrate`"))
        }
        None => Err(Failure::usage("the database has no schema yet").hint("run `fencepost migrate`")),
    }
}

/// The versions that were applied, ascending.
async fn applied(pool: &PgPool) -> Result<Vec<i64>, Failure> {
    let unavailable = |error: String| Failure::unavailable(format!("the database does not answer: {error}"));
    let there: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(pool)
        .await
        .map_err(|error| unavailable(error.to_string()))?;
    if !there {
        return Ok(Vec::new());
    }
    let mut connection = pool.acquire().await.map_err(|error| unavailable(error.to_string()))?;
    let mut versions: Vec<i64> = connection
        .list_applied_migrations("_sqlx_migrations")
        .await
        .map_err(|error| unavailable(error.to_string()))?
        .into_iter()
        .map(|migration| migration.version)
        .collect();
    versions.sort_unstable();
    Ok(versions)
}

async fn holds_tables(pool: &PgPool) -> Result<bool, Failure> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                        WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm'))",
    )
    .fetch_one(pool)
    .await
    .map_err(|error| Failure::unavailable(format!("the database does not answer: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_database_that_refuses_the_connection_is_reported_with_that_cause() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let failure =
            connect(&format!("postgres://nobody@{address}/nothing")).await.expect_err("nobody is there");
        let text = failure.to_string().to_lowercase();
        assert!(text.contains("connection refused"), "{text}");
    }
}
