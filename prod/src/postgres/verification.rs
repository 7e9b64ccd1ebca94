//! The rows that a verification looks at, read once, in one snapshot that nothing is written in.
//!
//! Two passes. By job: its versions, and its ledger in the order of the fires. By execution: what is on record about
//! each. All come through cursors in the order in which they are merged, so that a page of each is all that is in
//! memory; the server sorts, on its disk where it must. These statements are the only ones that walk whole tables, on
//! a connection of their own that is planned for that. They are put together here and not checked while compiling: a
//! cursor has no columns before it is open.
//!
//! A row that holds what this version does not know is no reason to stop: it is told, and the next one is read.

use fencepost_core::id::{ExecutionId, JobId};
use fencepost_core::schedule::TZDATA_VERSION;
use fencepost_core::time::Timestamp;
use fencepost_core::verify::{Report, Verifier, Window, ZoneData};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::fault::Fault;
use crate::verify::Progress;

mod cursor;
mod executions;
mod ledger;
mod records;

/// One snapshot, which nothing is written in.
const SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// While cursors are opened: all of each is read, so that is what is to be cheap; and sorting is what they do.
const PLANNED_FOR_ALL: &str = "
    SET LOCAL cursor_tuple_fraction = 1.0; SET LOCAL work_mem = '32MB';
    SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on";

/// While rows are looked for by their keys beside open cursors, which keep their plans.
const PLANNED_BY_KEY: &str = "
    SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// Where rows go: the verifier and the count of what was read.
struct Reading<'a> {
    verifier: Verifier,
    window: Window,
    progress: &'a Progress,
}

impl Reading<'_> {
    /// A row that could be read; one that could not is told.
    fn readable<T>(
        &mut self,
        job: Option<JobId>,
        execution: Option<ExecutionId>,
        row: Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        match row {
            Ok(row) => Ok(Some(row)),
            Err(Fault::Unknown { column, value }) => {
                self.verifier.unreadable(job, execution, column, &value);
                Ok(None)
            }
            Err(fault @ (Fault::Sql(_) | Fault::InMotion { .. })) => Err(fault),
        }
    }
}

/// Reads everything within the window, and has it judged.
pub(crate) async fn read(
    conn: &mut PgConnection,
    window: Window,
    progress: &Progress,
) -> Result<Report, Fault> {
    // So that the server stops sorting for somebody who is gone. Not every platform can look.
    let _unless_it_cannot =
        sqlx::raw_sql("SET client_connection_check_interval = '1s'").execute(&mut *conn).await;
    let mut snapshot = conn.begin_with(SNAPSHOT).await?;
    sqlx::raw_sql(PLANNED_FOR_ALL).execute(&mut *snapshot).await?;
    let now: i64 = sqlx::query_scalar("SELECT store_now(NULL)").fetch_one(&mut *snapshot).await?;
    let foreign_until: Option<i64> =
        sqlx::query_scalar("SELECT max(decided_at) FROM skipped_range WHERE zone_data <> $1")
            .bind(TZDATA_VERSION)
            .fetch_one(&mut *snapshot)
            .await?;
    let zone_data =
        ZoneData { ours: TZDATA_VERSION, foreign_until: foreign_until.map(Timestamp::from_micros) };
    let mut reading = Reading { verifier: Verifier::new(window, zone_data), window, progress };
    records::leases(&mut snapshot, &mut reading).await?;
    ledger::by_job(&mut snapshot, &mut reading).await?;
    executions::by_execution(&mut snapshot, &mut reading).await?;
    records::refusals(&mut snapshot, &mut reading).await?;
    records::orphans(&mut snapshot, &mut reading).await?;
    snapshot.commit().await?;
    Ok(reading.verifier.finish(Timestamp::from_micros(now)))
}

/// A statement that holds nothing but our own text and numbers.
fn own(text: String) -> AssertSqlSafe<String> {
    AssertSqlSafe(text)
}
