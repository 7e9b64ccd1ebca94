//! By job: its row, its versions, and its ledger in the order of the fires.

use std::sync::Arc;

use fencepost_core::execution::SkipReason;
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{ExecutionId, JobId, JobVersion, TenantId};
use fencepost_core::job::{Standing, StoredDefinition};
use fencepost_core::store::row::{JobRow, JobState, JobVersionRow, SkippedRangeRow};
use fencepost_core::time::Timestamp;
use fencepost_core::verify::{LedgerFire, LedgerItem};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Reading;
use super::cursor::Cursor;
use crate::postgres::due_jobs::partition;
use crate::postgres::fault::Fault;
use crate::postgres::read;

#[derive(sqlx::FromRow)]
struct JobColumns {
    id: Uuid,
    tenant: Uuid,
    partition: i16,
    version: i64,
    state: String,
    standing: String,
    standing_since: i64,
    definition: String,
    effective_from: i64,
    recorded_through: i64,
    next_fire_time: Option<i64>,
    next_try_at: i64,
    runs: i64,
    created_at: i64,
}

impl JobColumns {
    fn read(self) -> Result<JobRow, Fault> {
        Ok(JobRow {
            id: JobId::from_uuid(self.id),
            tenant: TenantId::from_uuid(self.tenant),
            partition: partition(self.partition)?,
            version: JobVersion(read::count("job.version", self.version)?),
            state: read::named("job.state", &self.state, JobState::from_name)?,
            standing: read::named("job.standing", &self.standing, Standing::from_name)?,
            standing_since: JobVersion(read::count("job.standing_since", self.standing_since)?),
            definition: Arc::new(StoredDefinition::from_text(self.definition.into())),
            effective_from: Timestamp::from_micros(self.effective_from),
            recorded_through: Timestamp::from_micros(self.recorded_through),
            next_fire_time: read::instant(self.next_fire_time),
            next_try_at: Timestamp::from_micros(self.next_try_at),
            runs: self.runs.unsigned_abs(),
            // What a scheduler noted of it decides nothing here.
            unreadable: None,
            created_at: Timestamp::from_micros(self.created_at),
        })
    }
}

#[derive(sqlx::FromRow)]
struct VersionColumns {
    job: Uuid,
    tenant: Uuid,
    version: i64,
    standing: String,
    standing_since: i64,
    definition: String,
    effective_from: i64,
}

impl VersionColumns {
    fn read(self) -> Result<JobVersionRow, Fault> {
        Ok(JobVersionRow {
            job: JobId::from_uuid(self.job),
            version: JobVersion(read::count("job_version.version", self.version)?),
            tenant: TenantId::from_uuid(self.tenant),
            definition: Arc::new(StoredDefinition::from_text(self.definition.into())),
            effective_from: Timestamp::from_micros(self.effective_from),
            standing: read::named("job_version.standing", &self.standing, Standing::from_name)?,
            standing_since: JobVersion(read::count("job_version.standing_since", self.standing_since)?),
            // Who and why decide nothing here.
            actor: None,
            reason: None,
        })
    }
}

#[derive(sqlx::FromRow)]
struct RangeColumns {
    job: Uuid,
    tenant: Uuid,
    from_fire: i64,
    through_fire: i64,
    made_under: i64,
    decided_at: i64,
    job_version: i64,
    reason: String,
    zone_data: String,
}

impl RangeColumns {
    fn read(self) -> Result<LedgerItem, Fault> {
        Ok(LedgerItem::Range(SkippedRangeRow {
            job: JobId::from_uuid(self.job),
            from: Timestamp::from_micros(self.from_fire),
            through: Timestamp::from_micros(self.through_fire),
            tenant: TenantId::from_uuid(self.tenant),
            reason: read::named("skipped_range.reason", &self.reason, SkipReason::from_name)?,
            job_version: JobVersion(read::count("skipped_range.job_version", self.job_version)?),
            made_under: FencingToken::from_i64(self.made_under),
            decided_at: Timestamp::from_micros(self.decided_at),
            zone_data: self.zone_data.into(),
        }))
    }
}

#[derive(sqlx::FromRow)]
struct FireColumns {
    job: Uuid,
    id: Uuid,
    fire: i64,
    job_version: i64,
    due_at: i64,
    materialised_at: i64,
    made_under: i64,
    state: String,
    skip_reason: Option<String>,
}

impl FireColumns {
    fn read(self) -> Result<LedgerItem, Fault> {
        Ok(LedgerItem::Fire(LedgerFire {
            id: ExecutionId::from_uuid(self.id),
            fire: Timestamp::from_micros(self.fire),
            job_version: JobVersion(read::count("execution.job_version", self.job_version)?),
            due_at: Timestamp::from_micros(self.due_at),
            materialised_at: Timestamp::from_micros(self.materialised_at),
            made_under: FencingToken::from_i64(self.made_under),
            state: read::state(&self.state)?,
            skip_reason: self
                .skip_reason
                .map(|name| read::named("execution.skip_reason", &name, SkipReason::from_name))
                .transpose()?,
        }))
    }
}

struct Ledger {
    ranges: Cursor<RangeColumns>,
    fires: Cursor<FireColumns>,
}

/// Reads every job with its ledger.
pub(super) async fn by_job(conn: &mut PgConnection, reading: &mut Reading<'_>) -> Result<(), Fault> {
    let (from, to) = (reading.window.from.as_micros(), reading.window.to.as_micros());
    let mut jobs: Cursor<JobColumns> = Cursor::open(
        conn,
        "verified_job",
        "SELECT id, tenant, partition, version, state, standing, standing_since, definition, effective_from, recorded_through, next_fire_time,
           next_try_at, runs, created_at FROM job ORDER BY id",
    )
    .await?;
    let mut versions: Cursor<VersionColumns> = Cursor::open(
        conn,
        "verified_version",
        "SELECT job, tenant, version, standing, standing_since, definition, effective_from FROM job_version ORDER BY job, version",
    )
    .await?;
    let ranges = Cursor::open(
        conn,
        "verified_range",
        &format!(
            "SELECT job, tenant, from_fire, through_fire, made_under, decided_at, job_version, reason, zone_data
             FROM skipped_range WHERE through_fire >= '{from}'::int8 AND from_fire < '{to}'::int8 ORDER BY job, from_fire"
        ),
    )
    .await?;
    let fires = Cursor::open(
        conn,
        "verified_fire",
        &format!(
            "SELECT job, id, fire, job_version, due_at, materialised_at, made_under, state, skip_reason FROM execution
             WHERE occurrence = 'scheduled' AND fire >= '{from}'::int8 AND fire < '{to}'::int8
             ORDER BY job, fire, id"
        ),
    )
    .await?;
    let mut ledger = Ledger { ranges, fires };
    while let Some(job) = jobs.next(conn, reading.progress).await? {
        let id = job.id;
        let own = versions.of(conn, reading.progress, &id, |row| row.job).await?;
        let Some(job) = reading.readable(Some(JobId::from_uuid(id)), None, job.read())? else {
            // Its ledger is passed by with the next job's.
            continue;
        };
        let mut known = Vec::with_capacity(own.len());
        for version in own {
            known.extend(reading.readable(Some(job.id), None, version.read())?);
        }
        reading.verifier.begin_job(job, &known);
        walk(conn, reading, &mut ledger, id).await?;
        reading.verifier.end_job();
    }
    Ok(())
}

/// The ledger of one job: both lists, in the order of their first fires.
async fn walk(
    conn: &mut PgConnection,
    reading: &mut Reading<'_>,
    ledger: &mut Ledger,
    job: Uuid,
) -> Result<(), Fault> {
    loop {
        let range = ledger.ranges.peek(conn, reading.progress).await?.map(|row| (row.job, row.from_fire));
        let fire = ledger.fires.peek(conn, reading.progress).await?.map(|row| (row.job, row.fire));
        let range_first = match (range, fire) {
            (Some(range), Some(fire)) => range <= fire,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return Ok(()),
        };
        let next = if range_first { range } else { fire };
        if next.is_none_or(|(of, _)| of > job) {
            return Ok(());
        }
        let (of, execution, item) = if range_first {
            let Some(row) = ledger.ranges.next(conn, reading.progress).await? else { return Ok(()) };
            (row.job, None, row.read())
        } else {
            let Some(row) = ledger.fires.next(conn, reading.progress).await? else { return Ok(()) };
            (row.job, Some(ExecutionId::from_uuid(row.id)), row.read())
        };
        // What lies before this job belongs to none that could be read.
        if of == job
            && let Some(item) = reading.readable(Some(JobId::from_uuid(job)), execution, item)?
        {
            reading.verifier.ledger_item(item);
        }
    }
}
