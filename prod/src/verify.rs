//! Verification of a live database: connect, read every row once in one snapshot, and have the core judge.
//!
//! Nothing is written, so a role that may only read is enough. Memory is bounded whatever the tables hold: rows come
//! through cursors, in pages.

use std::sync::atomic::{AtomicU64, Ordering};

use fencepost_core::verify::{Report, Window};
use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::failure::Failure;
use crate::postgres::{Fault, verification};
use crate::schema;

/// The role may not do that.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// How far a verification has come.
#[derive(Debug, Default)]
pub struct Progress {
    rows: AtomicU64,
}

impl Progress {
    pub(crate) fn read(&self, rows: usize) {
        self.rows.fetch_add(u64::try_from(rows).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Rows read so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
}

/// Verifies the database that a URL names, by what its rows say at one instant.
///
/// # Errors
/// The database is out of reach, its schema is not this version's, or the role may not read it.
pub async fn verify(url: &str, window: Window, progress: &Progress) -> Result<Report, Failure> {
    let pool = schema::connect(url).await?;
    schema::require_current(&pool).await.map_err(Failure::as_unavailable)?;
    pool.close().await;
    let mut connection = schema::options(url)?
        .application_name("fencepost verify")
        .connect()
        .await
        .map_err(|error| not_read(Fault::Sql(error)))?;
    let report = verify_on(&mut connection, window, progress).await?;
    // The snapshot has ended; a server that goes away now takes nothing with it.
    let _closed = connection.close().await;
    Ok(report)
}

/// The same on a connection that is there.
///
/// # Errors
/// The database went out of reach, or the role may not read it.
pub async fn verify_on(
    connection: &mut PgConnection,
    window: Window,
    progress: &Progress,
) -> Result<Report, Failure> {
    verification::read(connection, window, progress).await.map_err(not_read)
}

fn not_read(fault: Fault) -> Failure {
    if let Fault::Sql(sqlx::Error::Database(refused)) = &fault
        && refused.code().as_deref() == Some(INSUFFICIENT_PRIVILEGE)
    {
        return Failure::usage(format!("the database's role lacks a right: {refused}"))
            .hint("GRANT SELECT ON ALL TABLES IN SCHEMA public TO it; nothing more is needed");
    }
    Failure::unavailable(format!("the database does not answer: {fault}"))
        .hint("nothing was written; run the verification again")
}
