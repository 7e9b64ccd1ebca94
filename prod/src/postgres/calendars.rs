//! Calendars: set together with the next version of every job that names them.
//!
//! Whoever makes or edits a job shares the keys of the calendars that it names, so that none of them is set until that has
//! committed; setting one locks it first and then finds, with a new snapshot, every job that names it. So the days in a
//! job's definition are always those of the calendar. Lock order: tenant, calendar, job.

use std::sync::Arc;

use fencepost_core::id::{JobId, TenantId};
use fencepost_core::job::StoredDefinition;
use fencepost_core::schedule::{Day, Days};
use fencepost_core::store::command::SetCalendar;
use fencepost_core::store::reply::{Reply, SetCalendarReply, StoreReply};
use fencepost_core::store::row::CalendarRow;
use fencepost_core::time::Timestamp;
use sqlx::{Connection, PgConnection, PgPool};

use super::change_job::{Columns, Planned};
use super::context::Context;
use super::fault::Fault;
use super::read;

/// The names of the calendars in a definition, as a job's row says them again; `None` where there is none.
pub(super) fn names(definition: &StoredDefinition) -> Option<Vec<String>> {
    let exclude = &definition.read().ok()?.exclude;
    let names = exclude.all().iter().map(|known| known.calendar.to_string());
    (!exclude.is_none()).then(|| names.collect())
}

/// Whether each calendar that a definition names is there, under the version that the definition has the days of. It
/// stays so until the transaction ends.
pub(super) async fn share(
    conn: &mut PgConnection,
    tenant: TenantId,
    definition: &StoredDefinition,
) -> Result<bool, Fault> {
    let Some(names) = names(definition) else { return Ok(true) };
    let rows = sqlx::query!(
        "SELECT name, version FROM calendar WHERE tenant = $1 AND name = ANY($2) AND days IS NOT NULL
         ORDER BY name FOR KEY SHARE",
        tenant.as_uuid(),
        &names,
    )
    .fetch_all(conn)
    .await?;
    let mut exclude = definition.read().into_iter().flat_map(|definition| definition.exclude.all());
    Ok(exclude.all(|known| {
        let row = rows.iter().find(|row| *row.name == *known.calendar);
        row.is_some_and(|row| u64::try_from(row.version) == Ok(known.version))
    }))
}

pub(super) async fn set(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &SetCalendar,
) -> Result<StoreReply, Fault> {
    let mut tx = conn.begin().await?;
    let (now, reply) = set_within(cx, &mut tx, ask).await?;
    tx.commit().await?;
    Ok(cx.reply(now, Reply::CalendarSet(reply)))
}

async fn set_within(
    cx: &Context<'_>,
    conn: &mut PgConnection,
    ask: &SetCalendar,
) -> Result<(i64, SetCalendarReply), Fault> {
    let tenant =
        sqlx::query_scalar!("SELECT id FROM tenant WHERE id = $1 FOR KEY SHARE", ask.tenant.as_uuid())
            .fetch_optional(&mut *conn)
            .await?;
    let known = sqlx::query!(
        r#"SELECT version, days IS NOT NULL AS "is_there!" FROM calendar WHERE tenant = $1 AND name = $2 FOR UPDATE"#,
        ask.tenant.as_uuid(),
        &*ask.name,
    )
    .fetch_optional(&mut *conn)
    .await?;
    let naming = lock_naming(conn, ask).await?;
    let now = cx.clock(conn).await?;
    let reply = |reply| Ok((now, reply));
    if tenant.is_none() {
        return reply(SetCalendarReply::NoTenant);
    }
    if let Some(known) = known_request(conn, ask).await? {
        return reply(known);
    }
    let (version, is_there) = known.map_or((0, false), |row| (row.version.unsigned_abs(), row.is_there));
    if version != ask.expected_version {
        return reply(SetCalendarReply::VersionChanged { current: version });
    }
    if ask.days.is_none() && !is_there {
        return reply(SetCalendarReply::NotFound);
    }
    if ask.days.is_none() && !naming.is_empty() {
        let jobs = naming.into_iter().map(|(job, _)| job).collect();
        return reply(SetCalendarReply::InUse { jobs });
    }
    let at = Timestamp::from_micros(now);
    let mut planned = Vec::with_capacity(naming.len());
    for (plan, (job, columns)) in ask.jobs.iter().zip(&naming) {
        planned.extend(Planned::new(plan, columns, at).filter(|_| plan.job == *job));
    }
    if planned.len() != naming.len() || ask.jobs.len() != naming.len() {
        return reply(SetCalendarReply::PlanExpired);
    }
    for change in &planned {
        if change.is_behind(conn).await? {
            return reply(SetCalendarReply::LedgerBehind { job: change.job() });
        }
    }
    write(conn, ask, now).await?;
    for change in &planned {
        change.write(conn, now).await?;
    }
    reply(SetCalendarReply::Set { version: version + 1 })
}

/// The jobs that name it, by id, locked.
async fn lock_naming(conn: &mut PgConnection, ask: &SetCalendar) -> Result<Vec<(JobId, Columns)>, Fault> {
    let rows = sqlx::query!(
        "SELECT id, version, state, standing, standing_since, recorded_through, partition FROM job
         WHERE tenant = $1 AND calendars IS NOT NULL AND $2 = ANY(calendars) AND state = 'active'
         ORDER BY id FOR NO KEY UPDATE",
        ask.tenant.as_uuid(),
        &*ask.name,
    )
    .fetch_all(conn)
    .await?;
    let columns = rows.into_iter().map(|row| {
        let columns = Columns {
            version: row.version,
            state: row.state,
            standing: row.standing,
            standing_since: row.standing_since,
            recorded_through: row.recorded_through,
            partition: row.partition,
        };
        (JobId::from_uuid(row.id), columns)
    });
    Ok(columns.collect())
}

async fn write(conn: &mut PgConnection, ask: &SetCalendar, now: i64) -> Result<(), Fault> {
    let days = ask.days.as_ref().map(|days| days.all().iter().map(|day| day.number()).collect::<Vec<_>>());
    let done = sqlx::query!(
        "INSERT INTO calendar (tenant, name, version, days, actor, reason, set_at) VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (tenant, name) DO UPDATE SET version = excluded.version, days = excluded.days,
           actor = excluded.actor, reason = excluded.reason, set_at = excluded.set_at
         WHERE calendar.version = excluded.version - 1",
        ask.tenant.as_uuid(),
        &*ask.name,
        ask.expected_version.cast_signed() + 1,
        days.as_deref(),
        &*ask.actor,
        &*ask.reason,
        now,
    )
    .execute(&mut *conn)
    .await?;
    if done.rows_affected() == 0 {
        return Err(Fault::InMotion { table: "calendar" });
    }
    let Some(asked) = &ask.request else { return Ok(()) };
    let done = sqlx::query!(
        "INSERT INTO operator_request (tenant, request, fingerprint, at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (tenant, request) DO NOTHING",
        ask.tenant.as_uuid(),
        &*asked.request,
        asked.fingerprint,
        now,
    )
    .execute(conn)
    .await?;
    if done.rows_affected() == 0 {
        return Err(Fault::InMotion { table: "operator_request" });
    }
    Ok(())
}

async fn known_request(
    conn: &mut PgConnection,
    ask: &SetCalendar,
) -> Result<Option<SetCalendarReply>, Fault> {
    let Some(asked) = &ask.request else { return Ok(None) };
    let known = sqlx::query!(
        "SELECT fingerprint, job, pause FROM operator_request WHERE tenant = $1 AND request = $2",
        ask.tenant.as_uuid(),
        &*asked.request,
    )
    .fetch_optional(conn)
    .await?;
    Ok(known.map(|known| {
        let is_this = known.fingerprint == asked.fingerprint && known.job.is_none() && known.pause.is_none();
        if is_this { SetCalendarReply::Repeated } else { SetCalendarReply::RequestReused }
    }))
}

/// The calendars of a tenant by name, those that were taken away among them; all, or those of these names.
pub(crate) async fn rows(
    pool: &PgPool,
    tenant: TenantId,
    names: Option<&[String]>,
) -> Result<Vec<CalendarRow>, Fault> {
    let rows = sqlx::query!(
        "SELECT name, version, days, actor, reason, set_at FROM calendar
         WHERE tenant = $1 AND ($2::text[] IS NULL OR name = ANY($2)) ORDER BY name",
        tenant.as_uuid(),
        names,
    )
    .fetch_all(pool)
    .await?;
    let row = |row: (String, i64, Option<Vec<i32>>, String, String, i64)| {
        let days = row.2.map(|days| Days::new(days.into_iter().map(Day::from_number).collect()));
        let days = days
            .transpose()
            .map_err(|count| Fault::Unknown { column: "calendar.days", value: format!("{count} days") })?;
        Ok(CalendarRow {
            tenant,
            name: row.0.into(),
            version: read::count("calendar.version", row.1).map(u64::from)?,
            days,
            actor: Arc::from(row.3),
            reason: Arc::from(row.4),
            set_at: Timestamp::from_micros(row.5),
        })
    };
    let columns =
        rows.into_iter().map(|it| row((it.name, it.version, it.days, it.actor, it.reason, it.set_at)));
    columns.collect()
}

/// The jobs that name a calendar, by id: at most so many, and one more where there are more.
pub(crate) async fn named_by(
    pool: &PgPool,
    tenant: TenantId,
    name: &str,
    most: usize,
) -> Result<Vec<JobId>, Fault> {
    let ids = sqlx::query_scalar!(
        "SELECT id FROM job WHERE tenant = $1 AND calendars IS NOT NULL AND $2 = ANY(calendars) AND state = 'active'
         ORDER BY id LIMIT $3",
        tenant.as_uuid(),
        name,
        i64::try_from(most + 1).unwrap_or(i64::MAX),
    )
    .fetch_all(pool)
    .await?;
    Ok(ids.into_iter().map(JobId::from_uuid).collect())
}
