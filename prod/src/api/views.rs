//! What is read for people: jobs and executions as the API shows them.
//!
//! Reads are not part of the store protocol: nothing is decided by them. Every statement names the tenant,
//! and every listing has an index, a cursor and a limit.

use std::sync::Arc;

use fencepost_core::execution::ExecutionState;
use fencepost_core::id::{ExecutionId, JobId, TenantId};
use fencepost_core::job::{JobDefinition, Standing, StoredDefinition};
use fencepost_core::store::row::JobState;
use fencepost_core::time::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::query::Cursor;

mod dead_letter_detail;
mod dead_letter_view;
mod execution_view;
mod ledger_view;

pub(super) use dead_letter_detail::{DeadLetterDetail, ReplayForecast, dead_letter};
pub(super) use dead_letter_view::{DeadLetterLine, ReplayCount, dead_letters, replay_count};
pub(super) use execution_view::{
    ExecutionDetail, ExecutionFilter, ExecutionView, execution, execution_detail, executions,
};
pub(super) use ledger_view::{Stretch, ledger};

/// A page of a listing.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Page<T> {
    items: Vec<T>,
    /// To be given as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// A full page has a next one, which may be empty.
    pub(super) fn of(items: Vec<T>, limit: u32, cursor: impl Fn(&T) -> Cursor) -> Self {
        let full = items.len() >= limit as usize;
        let next_cursor = items.last().filter(|_| full).map(|last| cursor(last).to_text());
        Self { items, next_cursor }
    }
}

/// Instants as RFC 3339 in UTC.
pub(super) fn instant<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

/// The same, or null.
pub(super) fn optional_instant<S: Serializer>(
    at: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

/// A definition as people write it: calendars by their names, whatever days they have.
fn as_written<S: Serializer>(
    definition: &Option<Arc<JobDefinition>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match definition {
        Some(known) if !known.exclude.is_none() => {
            let exclude = known.exclude.by_name();
            JobDefinition { exclude, ..JobDefinition::clone(known) }.serialize(serializer)
        }
        other => other.serialize(serializer),
    }
}

/// A job, as the API shows it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JobView {
    #[schema(value_type = Uuid)]
    id: JobId,
    #[schema(value_type = Option<String>)]
    name: Option<Arc<str>>,
    state: String,
    standing: StandingView,
    /// The optimistic lock; also its `ETag`.
    version: i64,
    partition: i16,
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Null: it will not fire again by itself.
    #[serde(serialize_with = "optional_instant")]
    #[schema(value_type = Option<String>, format = DateTime)]
    next_fire_time: Option<Timestamp>,
    /// Every nominal fire up to here is in the ledger.
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    recorded_through: Timestamp,
    runs: i64,
    /// Null where this version cannot read it; then `unreadable` says why.
    #[serde(serialize_with = "as_written")]
    #[schema(value_type = Option<Object>)]
    definition: Option<Arc<JobDefinition>>,
    unreadable: Option<UnreadableView>,
}

/// Whether a job fires by itself, and how that came about.
#[derive(Debug, Serialize, ToSchema)]
struct StandingView {
    /// `active` or `paused`.
    state: String,
    /// From when on.
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// Who paused or resumed it; null where nobody did.
    actor: Option<String>,
    /// Why.
    reason: Option<String>,
}

/// Why a job's definition cannot be read, and so does not fire.
#[derive(Debug, Serialize, ToSchema)]
struct UnreadableView {
    reason: String,
    schema: u32,
    zone_data: String,
}

impl JobView {
    pub(super) fn created_at(&self) -> Timestamp {
        self.created_at
    }

    pub(super) fn definition(&self) -> Option<&JobDefinition> {
        self.definition.as_deref()
    }

    pub(super) const fn version(&self) -> i64 {
        self.version
    }

    pub(super) fn id(&self) -> Uuid {
        self.id.as_uuid()
    }

    /// Whether it fires by itself as things stand.
    pub(super) fn fires(&self) -> bool {
        self.state == JobState::Active.name() && self.standing.state == Standing::Active.name()
    }

    /// Scheduled executions so far.
    pub(super) fn runs(&self) -> u64 {
        u64::try_from(self.runs).unwrap_or_default()
    }
}

struct JobColumns {
    id: Uuid,
    state: String,
    standing: String,
    standing_from: i64,
    actor: Option<String>,
    reason: Option<String>,
    version: i64,
    partition: i16,
    created_at: i64,
    next_fire_time: Option<i64>,
    recorded_through: i64,
    runs: i64,
    definition: String,
    unreadable_reason: Option<String>,
    unreadable_schema: Option<i32>,
    unreadable_zone_data: Option<String>,
}

impl From<JobColumns> for JobView {
    fn from(row: JobColumns) -> Self {
        let stored = StoredDefinition::from_text(row.definition.into());
        let noted = row.unreadable_reason.map(|reason| UnreadableView {
            reason,
            schema: row.unreadable_schema.and_then(|schema| u32::try_from(schema).ok()).unwrap_or_default(),
            zone_data: row.unreadable_zone_data.unwrap_or_default(),
        });
        let (definition, unreadable) = match stored.read() {
            Ok(definition) => (Some(Arc::clone(definition)), noted),
            Err(why) => {
                let here = UnreadableView {
                    reason: why.reason.to_string(),
                    schema: why.schema.into(),
                    zone_data: why.zone_data.to_string(),
                };
                (None, Some(here))
            }
        };
        Self {
            id: JobId::from_uuid(row.id),
            name: definition.as_ref().map(|definition| Arc::clone(&definition.name)),
            state: row.state,
            standing: StandingView {
                state: row.standing,
                since: Timestamp::from_micros(row.standing_from),
                actor: row.actor,
                reason: row.reason,
            },
            version: row.version,
            partition: row.partition,
            created_at: Timestamp::from_micros(row.created_at),
            next_fire_time: row.next_fire_time.map(Timestamp::from_micros),
            recorded_through: Timestamp::from_micros(row.recorded_through),
            runs: row.runs,
            definition,
            unreadable,
        }
    }
}

/// One job of a tenant.
pub(super) async fn job(pool: &PgPool, tenant: TenantId, job: JobId) -> Result<Option<JobView>, sqlx::Error> {
    let row = sqlx::query_as!(
        JobColumns,
        "SELECT j.id, j.state, j.standing, s.effective_from AS standing_from, s.actor, s.reason, j.version, j.partition,
                j.created_at, j.next_fire_time, j.recorded_through, j.runs, j.definition, j.unreadable_reason,
                j.unreadable_schema, j.unreadable_zone_data
         FROM job j JOIN job_version s ON s.job = j.id AND s.version = j.standing_since
         WHERE j.id = $1 AND j.tenant = $2",
        job.as_uuid(),
        tenant.as_uuid(),
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(JobView::from))
}

/// A page of a tenant's jobs, the newest first.
pub(super) async fn jobs(
    pool: &PgPool,
    tenant: TenantId,
    before: Cursor,
    limit: u32,
) -> Result<Vec<JobView>, sqlx::Error> {
    let rows = sqlx::query_as!(
        JobColumns,
        "SELECT j.id, j.state, j.standing, s.effective_from AS standing_from, s.actor, s.reason, j.version, j.partition,
                j.created_at, j.next_fire_time, j.recorded_through, j.runs, j.definition, j.unreadable_reason,
                j.unreadable_schema, j.unreadable_zone_data
         FROM (
           SELECT * FROM job WHERE tenant = $1 AND state = 'active' AND (created_at, id) < ($2, $3)
           ORDER BY created_at DESC, id DESC LIMIT $4) AS j
         JOIN job_version s ON s.job = j.id AND s.version = j.standing_since
         ORDER BY j.created_at DESC, j.id DESC",
        tenant.as_uuid(),
        before.at.as_micros(),
        before.id,
        i64::from(limit),
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(JobView::from).collect())
}

/// JSON text as it is, without reading it once more.
pub(super) fn raw_json(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}
