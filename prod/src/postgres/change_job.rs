//! Jobs edited, paused and resumed.
//!
//! The job's row is locked first (after the calendars that an edit names), so a materialisation either was there before, and has moved the watermark, or finds
//! the version changed. Everything else is looked at after that, with a new snapshot. A resume locks what the pause
//! held back, by id, before it reads the clock.

use fencepost_core::id::{JobId, JobVersion};
use fencepost_core::limits::{PLAN_AGE_MAX, UNRECORDED_VERSIONS_MAX};
use fencepost_core::store::command::{ChangeJob, JobChange};
use fencepost_core::store::reply::{ChangeJobReply, Reply, StoreReply};
use fencepost_core::store::row::JobRow;
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection};

use super::calendars;
use super::context::{Context, micros};
use super::fault::Fault;
use super::notifications::notify;
use super::outbox::stored_partition;
use super::read;

/// What a change is decided by.
pub(super) struct Columns {
    pub(super) version: i64,
    pub(super) state: String,
    pub(super) standing: String,
    pub(super) standing_since: i64,
    pub(super) recorded_through: i64,
    pub(super) partition: i16,
}

/// A change of a job that is locked, is as the change was planned on, and changes with others or not at all.
pub(super) struct Planned<'a> {
    plan: &'a ChangeJob,
    job: &'a Columns,
}

impl<'a> Planned<'a> {
    /// `None` where the job is not as it was planned on.
    pub(super) fn new(plan: &'a ChangeJob, job: &'a Columns, at: Timestamp) -> Option<Self> {
        let is_timely = plan.planned_at <= at && plan.planned_at.plus(PLAN_AGE_MAX) >= at;
        let stands = job.version == i64::from(plan.expected_version.0)
            && job.recorded_through == plan.expected_watermark.as_micros();
        (is_timely && stands).then_some(Self { plan, job })
    }

    /// Which job.
    pub(super) const fn job(&self) -> JobId {
        self.plan.job
    }

    /// Whether as many versions as may be decide about what follows the watermark.
    pub(super) async fn is_behind(&self, conn: &mut PgConnection) -> Result<bool, Fault> {
        let decides_later = self.plan.recorded_through.next() < self.plan.effective_from;
        Ok(decides_later && is_behind(conn, self.plan, self.job).await?)
    }

    /// Writes it.
    pub(super) async fn write(&self, conn: &mut PgConnection, now: i64) -> Result<(), Fault> {
        write(conn, self.plan, self.job, now).await
    }
}

pub(super) async fn change(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ChangeJob,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let (now, reply) = change_within(cx, &mut tx, ask).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::JobChanged(reply)))
}

async fn change_within(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &ChangeJob,
) -> Result<(i64, ChangeJobReply), Fault> {
    let has_calendars = match &ask.change {
        JobChange::Edit(definition) => calendars::share(conn, ask.tenant, definition).await?,
        JobChange::Pause | JobChange::Resume => true,
    };
    let job = sqlx::query_as!(
        Columns,
        "SELECT version, state, standing, standing_since, recorded_through, partition
         FROM job WHERE id = $1 AND tenant = $2 FOR NO KEY UPDATE",
        ask.job.as_uuid(),
        ask.tenant.as_uuid(),
    )
    .fetch_optional(&mut *conn)
    .await?;
    match ask.change {
        JobChange::Resume => lock_held_back(conn, ask).await?,
        JobChange::Edit(_) | JobChange::Pause => {}
    }
    let now = cx.clock(conn).await?;
    let reply = |reply| Ok((now, reply));
    let Some(job) = job else { return reply(ChangeJobReply::NotFound) };
    if let Some(known) = known_request(conn, ask).await? {
        return reply(known);
    }
    if job.state != "active" {
        return reply(ChangeJobReply::NotFound);
    }
    let version = JobVersion(read::count("job.version", job.version)?);
    if ask.change.standing().is_some_and(|standing| standing.name() == job.standing) {
        return reply(ChangeJobReply::Already { version });
    }
    if version != ask.expected_version {
        return reply(ChangeJobReply::VersionChanged { current: version });
    }
    let at = Timestamp::from_micros(now);
    let is_timely = ask.planned_at <= at && ask.planned_at.plus(PLAN_AGE_MAX) >= at;
    if !is_timely || job.recorded_through != ask.expected_watermark.as_micros() {
        return reply(ChangeJobReply::PlanExpired);
    }
    if !has_calendars {
        return reply(ChangeJobReply::CalendarChanged);
    }
    if ask.recorded_through.next() < ask.effective_from && is_behind(conn, ask, &job).await? {
        return reply(ChangeJobReply::LedgerBehind);
    }
    write(conn, ask, &job, now).await?;
    reply(ChangeJobReply::Changed { version: version.next() })
}

/// Pauses a job that is locked and stands as `job` says, as its own policy asks for; unless as many versions as may be
/// decide about what follows its watermark.
pub(super) async fn pause_by_policy(
    conn: &mut PgConnection,
    plan: &ChangeJob,
    job: &JobRow,
    now: i64,
) -> Result<(), Fault> {
    let columns = Columns {
        version: i64::from(job.version.0),
        state: job.state.name().to_owned(),
        standing: job.standing.name().to_owned(),
        standing_since: i64::from(job.standing_since.0),
        recorded_through: job.recorded_through.as_micros(),
        partition: stored_partition(job.partition.number()),
    };
    if plan.recorded_through.next() < plan.effective_from && is_behind(conn, plan, &columns).await? {
        return Ok(());
    }
    write(conn, plan, &columns, now).await
}

async fn known_request(conn: &mut PgConnection, ask: &ChangeJob) -> Result<Option<ChangeJobReply>, Fault> {
    let Some(asked) = &ask.request else { return Ok(None) };
    let known = sqlx::query!(
        "SELECT fingerprint, job, version FROM operator_request WHERE tenant = $1 AND request = $2",
        ask.tenant.as_uuid(),
        &*asked.request,
    )
    .fetch_optional(conn)
    .await?;
    let Some(known) = known else { return Ok(None) };
    let is_this = known.fingerprint == asked.fingerprint && known.job == Some(ask.job.as_uuid());
    Ok(Some(match known.version.filter(|_| is_this) {
        Some(version) => {
            let version = JobVersion(read::count("operator_request.version", version)?);
            ChangeJobReply::Repeated { version }
        }
        None => ChangeJobReply::RequestReused,
    }))
}

/// Whether as many versions as may be decide about what follows the watermark.
async fn is_behind(conn: &mut PgConnection, ask: &ChangeJob, job: &Columns) -> Result<bool, Fault> {
    let oldest = sqlx::query_scalar!(
        "SELECT effective_from FROM job_version WHERE job = $1 AND version = $2",
        ask.job.as_uuid(),
        job.version + 1 - i64::from(UNRECORDED_VERSIONS_MAX),
    )
    .fetch_optional(conn)
    .await?;
    Ok(oldest.is_some_and(|oldest| oldest > job.recorded_through + 1))
}

/// As text, ids have the same order, and no walk along the primary key provides it.
async fn lock_held_back(conn: &mut PgConnection, ask: &ChangeJob) -> Result<(), Fault> {
    sqlx::query!(
        r#"SELECT count(*) AS "locked!" FROM (
             SELECT FROM execution WHERE job = $1 AND waiting = 'job_paused'
             ORDER BY id::text FOR NO KEY UPDATE) AS held_back"#,
        ask.job.as_uuid(),
    )
    .fetch_one(conn)
    .await?;
    Ok(())
}

async fn write(conn: &mut PgConnection, ask: &ChangeJob, job: &Columns, now: i64) -> Result<(), Fault> {
    let version = job.version + 1;
    let (standing, standing_since) = match ask.change.standing() {
        Some(standing) => (standing.name(), version),
        None => (job.standing.as_str(), job.standing_since),
    };
    let definition = match &ask.change {
        JobChange::Edit(definition) => Some(definition.text().to_string()),
        JobChange::Pause | JobChange::Resume => None,
    };
    let key = match &ask.change {
        JobChange::Edit(definition) => definition.concurrency_key().map(|key| &**key),
        JobChange::Pause | JobChange::Resume => None,
    };
    let overlap = match &ask.change {
        JobChange::Edit(definition) => Some(definition.overlap().name()),
        JobChange::Pause | JobChange::Resume => None,
    };
    let pause_after = match &ask.change {
        JobChange::Edit(definition) => definition.pause_after_failures().map(read::stored_count),
        JobChange::Pause | JobChange::Resume => None,
    };
    let deadline = match &ask.change {
        JobChange::Edit(definition) => definition.deadline().map(micros),
        JobChange::Pause | JobChange::Resume => None,
    };
    let calendars = match &ask.change {
        JobChange::Edit(definition) => calendars::names(definition),
        JobChange::Pause | JobChange::Resume => None,
    };
    sqlx::query!(
        "WITH changed AS (
           UPDATE job SET version = $2, standing = $3, standing_since = $4, definition = coalesce($5, definition),
             effective_from = $6, recorded_through = $7, next_fire_time = $8::int8,
             next_try_at = coalesce($8::int8 + $12::int8, next_try_at),
             calendars = CASE WHEN $5 IS NULL THEN calendars ELSE $16::text[] END,
             unreadable_reason = CASE WHEN $5 IS NULL THEN unreadable_reason END,
             unreadable_schema = CASE WHEN $5 IS NULL THEN unreadable_schema END,
             unreadable_zone_data = CASE WHEN $5 IS NULL THEN unreadable_zone_data END
           WHERE id = $1
           RETURNING id, tenant, version, definition, effective_from, standing, standing_since)
         INSERT INTO job_version (job, tenant, version, definition, effective_from, standing, standing_since, actor,
           reason, overlap, concurrency_key, pause_after, deadline)
         SELECT c.id, c.tenant, c.version, c.definition, c.effective_from, c.standing, c.standing_since, $9, $10,
           coalesce($11, before.overlap), CASE WHEN $11 IS NULL THEN before.concurrency_key ELSE $13 END,
           CASE WHEN $5 IS NULL THEN before.pause_after ELSE $14::int4 END,
           CASE WHEN $5 IS NULL THEN before.deadline ELSE $15::int8 END
         FROM changed c JOIN job_version before ON before.job = $1 AND before.version = $2 - 1",
        ask.job.as_uuid(),
        version,
        standing,
        standing_since,
        definition,
        ask.effective_from.as_micros(),
        ask.recorded_through.as_micros(),
        ask.next_fire_time.map(Timestamp::as_micros),
        ask.actor.as_deref(),
        ask.reason.as_deref(),
        overlap,
        ask.next_flex.as_i64(),
        key,
        pause_after,
        deadline,
        calendars.as_deref(),
    )
    .execute(&mut *conn)
    .await?;
    if let Some(asked) = &ask.request {
        let done = sqlx::query!(
            "INSERT INTO operator_request (tenant, request, fingerprint, job, version, at)
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, request) DO NOTHING",
            ask.tenant.as_uuid(),
            &*asked.request,
            asked.fingerprint,
            ask.job.as_uuid(),
            version,
            now,
        )
        .execute(&mut *conn)
        .await?;
        if done.rows_affected() == 0 {
            return Err(Fault::InMotion { table: "operator_request" });
        }
    }
    match ask.change {
        JobChange::Pause => Ok(()),
        JobChange::Edit(_) => notify(conn, job.partition).await,
        JobChange::Resume => {
            sqlx::query!(
                "UPDATE execution SET next_try_at = $2 WHERE job = $1 AND waiting = 'job_paused'",
                ask.job.as_uuid(),
                now,
            )
            .execute(&mut *conn)
            .await?;
            notify(conn, job.partition).await
        }
    }
}
