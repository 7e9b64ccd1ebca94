//! The database's schema: connecting, migrating, and refusing to run on another version of it.
//!
//! Migrations are numbered SQL in `migrations/`, compiled in. A database that holds something else is
//! left alone: nothing is created beside tables that are not ours. All that are missing are applied in one
//! transaction, so that a right that the role lacks, or a server that goes away, leaves the database as it was.

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool};

use crate::failure::Failure;
use crate::postgres::PLANNING;

static MIGRATIONS: Migrator = sqlx::migrate!("../migrations");

/// The oldest server that is supported, as `server_version_num` has it.
const OLDEST_SERVER: i32 = 150_000;
/// The advisory lock of whoever migrates, held to the end of the transaction: "fencepst" in ASCII.
const MIGRATING: i64 = 0x6665_6e63_6570_7374;
/// The role may not do that.
const INSUFFICIENT_PRIVILEGE: &str = "42501";
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
        .map_err(|error| unanswered(&error))?;
    require_supported(&place, &version)?;
    Ok(pool)
}

/// `version` is `server_version_num`: 150018 is 15.18.
fn require_supported(place: &str, version: &str) -> Result<(), Failure> {
    let Ok(number) = version.parse::<i32>() else {
        let what =
            format!("what runs at {place} is no PostgreSQL that is known: it calls itself {version:?}");
        return Err(Failure::unavailable(what).hint("PostgreSQL 15 or newer is needed"));
    };
    if number >= OLDEST_SERVER {
        return Ok(());
    }
    let (major, minor) = (number / 10_000, number % 10_000);
    let what = format!("the database at {place} runs PostgreSQL {major}.{minor}, which is not supported");
    Err(Failure::unavailable(what).hint("PostgreSQL 15 or newer is needed"))
}

/// What it means that the server did not do what it was asked.
fn unanswered(error: &sqlx::Error) -> Failure {
    if let sqlx::Error::Database(refused) = error
        && refused.code().as_deref() == Some(INSUFFICIENT_PRIVILEGE)
    {
        return Failure::usage(format!("the database's role lacks a right: {refused}"))
            .hint("make it the owner of the database, or GRANT CREATE, USAGE ON SCHEMA public TO it");
    }
    Failure::unavailable(format!("the database does not answer: {error}"))
}

/// Brings the schema up to this version.
///
/// # Errors
/// The database is out of reach, holds something else, or was migrated by a newer version; or the role may not. In
/// each case it is left as it was, unless the server goes away during the commit itself.
pub async fn migrate(pool: &PgPool) -> Result<Migrated, Failure> {
    let mut transaction = pool.begin().await.map_err(|error| unanswered(&error))?;
    // The migrator has a lock too, and gives it back before the commit.
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(MIGRATING)
        .execute(&mut *transaction)
        .await
        .map_err(|error| unanswered(&error))?;
    let before = applied(&mut transaction).await?;
    if before.is_empty() && holds_tables(&mut transaction).await? {
        let what = "the database holds tables that are not Fencepost's, and was left as it is";
        return Err(
            Failure::usage(what).hint("create an empty database for Fencepost, and name it in the URL")
        );
    }
    MIGRATIONS.run(&mut *transaction).await.map_err(not_migrated)?;
    let after = applied(&mut transaction).await?;
    transaction.commit().await.map_err(|error| {
        Failure::unavailable(format!("whether the schema was migrated is not known: {error}"))
            .hint("run `fencepost migrate` again: it does what is missing")
    })?;
    Ok(Migrated { version: after.last().copied().unwrap_or_default(), applied: after.len() - before.len() })
}

fn not_migrated(error: MigrateError) -> Failure {
    match error {
        MigrateError::VersionMissing(version) => Failure::usage(format!(
            "the schema is at version {version}, which is newer than this program knows"
        ))
        .hint("run a newer fencepost; migrations are never undone"),
        MigrateError::VersionMismatch(version) => {
            Failure::usage(format!("migration {version} of this schema is not the one that this program has"))
                .hint("the database was migrated by another build: run that one, or create an empty database")
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => unanswered(&error),
        other => Failure::unavailable(format!("the schema cannot be migrated: {other}")),
    }
}

/// Refuses a database whose schema is not this version's.
///
/// # Errors
/// A usage failure that says what to run.
pub async fn require_current(pool: &PgPool) -> Result<(), Failure> {
    let mut connection = pool.acquire().await.map_err(|error| unanswered(&error))?;
    let applied = applied(&mut connection).await?;
    let needed = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default();
    match applied.last() {
        Some(version) if *version == needed => Ok(()),
        Some(version) if *version > needed => Err(Failure::usage(format!(
            "the schema is at version {version}, which is newer than this program knows"
        ))
        .hint("run a newer fencepost; migrations are never undone")),
        Some(version) => {
            Err(Failure::usage(format!("the schema is at version {version}, and {needed} is needed"))
                .hint("run `fencepost migrate`"))
        }
        None => Err(Failure::usage("the database has no schema yet").hint("run `fencepost migrate`")),
    }
}

/// The versions that were applied, ascending.
async fn applied(connection: &mut PgConnection) -> Result<Vec<i64>, Failure> {
    let there: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await
        .map_err(|error| unanswered(&error))?;
    if !there {
        return Ok(Vec::new());
    }
    let mut versions: Vec<i64> = connection
        .list_applied_migrations("_sqlx_migrations")
        .await
        .map_err(not_migrated)?
        .into_iter()
        .map(|migration| migration.version)
        .collect();
    versions.sort_unstable();
    Ok(versions)
}

/// Whether anything is there that somebody made: tables, views, sequences.
async fn holds_tables(connection: &mut PgConnection) -> Result<bool, Failure> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                        WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S'))",
    )
    .fetch_one(connection)
    .await
    .map_err(|error| unanswered(&error))
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

    #[test]
    fn a_server_that_is_too_old_or_unknown_is_told_by_its_version() {
        assert!(require_supported("here", "150000").is_ok() && require_supported("here", "180001").is_ok());
        for (version, words) in [("140019", "14.19"), ("90624", "9.624"), ("dev", "\"dev\"")] {
            let text = require_supported("here", version).expect_err("it is not supported").to_string();
            assert!(text.contains(words) && text.contains("PostgreSQL 15 or newer"), "{text}");
        }
    }
}
