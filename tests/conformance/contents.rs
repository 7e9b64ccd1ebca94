//! All that PostgreSQL holds, as the reference semantics would hold it.

use std::sync::Arc;

use fencepost_core::execution::{
    AttemptEnd, CancelState, DeadLetterReason, ExecutionState, LeaseSign, SkipReason, WaitReason,
};
use fencepost_core::fencing::FencingToken;
use fencepost_core::id::{
    DispatchNo, EffectId, ExecutionId, JobId, JobVersion, NodeId, Occurrence, PauseId, TenantId,
};
use fencepost_core::job::{HandlerName, HandlerRef, Payload, Standing, StoredDefinition, Unreadable};
use fencepost_core::lease::LeaseResource;
use fencepost_core::partition::PartitionId;
use fencepost_core::pause::PauseScope;
use fencepost_core::schedule::{Day, Days};
use fencepost_core::store::row::{
    AttemptRow, CalendarRow, DeadLetterRow, ExecutionRow, JobRow, JobState, JobVersionRow, LeaseRow,
    LimitRow, MalformedRow, NodeRole, NodeRow, NodeState, OutboxRow, PauseEnd, PauseRow, RefusalRow,
    RefusedAction, RefusedResource, RequestRow, SkippedRangeRow, TenantRow,
};
use fencepost_core::store::tables::Contents;
use fencepost_core::time::Timestamp;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

fn uuid(row: &PgRow, column: &str) -> Uuid {
    row.get(column)
}

fn number(row: &PgRow, column: &str) -> i64 {
    row.get(column)
}

fn count(row: &PgRow, column: &str) -> u32 {
    let stored: i32 = row.get(column);
    u32::try_from(stored).expect("counts are not negative")
}

fn at(row: &PgRow, column: &str) -> Timestamp {
    Timestamp::from_micros(row.get(column))
}

fn at_or_none(row: &PgRow, column: &str) -> Option<Timestamp> {
    row.get::<Option<i64>, _>(column).map(Timestamp::from_micros)
}

fn text(row: &PgRow, column: &str) -> Arc<str> {
    row.get::<String, _>(column).into()
}

fn text_or_none(row: &PgRow, column: &str) -> Option<Arc<str>> {
    row.get::<Option<String>, _>(column).map(Arc::from)
}

fn token(row: &PgRow, column: &str) -> FencingToken {
    FencingToken::from_i64(row.get(column))
}

fn version(row: &PgRow, column: &str) -> JobVersion {
    JobVersion(u32::try_from(number(row, column)).expect("versions fit"))
}

fn partition(row: &PgRow) -> PartitionId {
    let stored: i16 = row.get("partition");
    PartitionId::new(stored.unsigned_abs()).expect("a partition")
}

fn definition(row: &PgRow) -> Arc<StoredDefinition> {
    Arc::new(StoredDefinition::from_text(text(row, "definition")))
}

fn named<T>(row: &PgRow, column: &str, from: fn(&str) -> Option<T>) -> T {
    from(&text(row, column)).expect("a known name")
}

async fn rows<T>(connection: &mut PgConnection, query: &'static str, read: fn(&PgRow) -> T) -> Vec<T> {
    let rows = sqlx::query(query).fetch_all(connection).await.expect("the tables are there");
    rows.iter().map(read).collect()
}

/// Every row of every table, each list ascending by its table's key.
pub(crate) async fn read(connection: &mut PgConnection) -> Contents {
    let mut contents = Contents {
        tenants: rows(connection, "SELECT * FROM tenant ORDER BY id", tenant).await,
        leases: rows(connection, "SELECT * FROM lease ORDER BY resource", lease).await,
        nodes: rows(connection, "SELECT * FROM node ORDER BY id", node).await,
        jobs: rows(connection, "SELECT * FROM job ORDER BY id", job).await,
        job_versions: rows(connection, "SELECT * FROM job_version ORDER BY job, version", job_version).await,
        executions: rows(connection, "SELECT * FROM execution ORDER BY id", execution).await,
        attempts: rows(connection, "SELECT * FROM attempt ORDER BY execution, token", attempt).await,
        outbox: rows(connection, "SELECT * FROM outbox_event ORDER BY execution, dispatch_no", outbox).await,
        dead_letters: rows(connection, "SELECT * FROM dead_letter ORDER BY execution", dead_letter).await,
        skipped_ranges: rows(
            connection,
            "SELECT * FROM skipped_range ORDER BY job, from_fire",
            skipped_range,
        )
        .await,
        refusals: rows(connection, "SELECT * FROM refusal", refusal).await,
        requests: rows(connection, "SELECT * FROM operator_request ORDER BY tenant, request", request).await,
        pauses: rows(connection, "SELECT * FROM pause ORDER BY id", pause).await,
        limits: rows(connection, "SELECT * FROM concurrency_limit ORDER BY tenant, key", limit).await,
        calendars: rows(connection, "SELECT * FROM calendar ORDER BY tenant, name", calendar).await,
        malformed: rows(connection, "SELECT * FROM malformed_message ORDER BY digest", malformed).await,
    };
    contents.refusals.sort_by_key(|row| (row.resource, row.token, row.node, row.action));
    contents
}

pub(crate) fn tenant(row: &PgRow) -> TenantRow {
    TenantRow {
        id: TenantId::from_uuid(uuid(row, "id")),
        name: text(row, "name"),
        created_at: at(row, "created_at"),
    }
}

pub(crate) fn lease(row: &PgRow) -> LeaseRow {
    let resource: i16 = row.get("resource");
    LeaseRow {
        resource: LeaseResource::from_number(resource.unsigned_abs()).expect("a resource"),
        token: token(row, "token"),
        owner: row.get::<Option<Uuid>, _>("owner").map(NodeId::from_uuid),
        nonce: EffectId(number(row, "nonce").cast_unsigned()),
        expires_at: at(row, "expires_at"),
    }
}

pub(crate) fn node(row: &PgRow) -> NodeRow {
    NodeRow {
        id: NodeId::from_uuid(uuid(row, "id")),
        role: named(row, "role", NodeRole::from_name),
        label: text(row, "label"),
        schema: u16::try_from(count(row, "schema")).expect("schemas fit"),
        state: named(row, "state", NodeState::from_name),
        capacity: u32::try_from(number(row, "capacity")).expect("capacities fit"),
        started_at: at(row, "started_at"),
        seen_at: at(row, "seen_at"),
    }
}

pub(crate) fn job(row: &PgRow) -> JobRow {
    let unreadable = text_or_none(row, "unreadable_reason").map(|reason| Unreadable {
        reason,
        schema: u16::try_from(count(row, "unreadable_schema")).expect("schemas fit"),
        zone_data: text(row, "unreadable_zone_data"),
    });
    JobRow {
        id: JobId::from_uuid(uuid(row, "id")),
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        partition: partition(row),
        version: version(row, "version"),
        state: named(row, "state", JobState::from_name),
        standing: named(row, "standing", Standing::from_name),
        standing_since: version(row, "standing_since"),
        definition: definition(row),
        effective_from: at(row, "effective_from"),
        recorded_through: at(row, "recorded_through"),
        next_fire_time: at_or_none(row, "next_fire_time"),
        next_try_at: at(row, "next_try_at"),
        runs: number(row, "runs").unsigned_abs(),
        unreadable,
        created_at: at(row, "created_at"),
    }
}

pub(crate) fn job_version(row: &PgRow) -> JobVersionRow {
    JobVersionRow {
        job: JobId::from_uuid(uuid(row, "job")),
        version: version(row, "version"),
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        definition: definition(row),
        effective_from: at(row, "effective_from"),
        standing: named(row, "standing", Standing::from_name),
        standing_since: version(row, "standing_since"),
        actor: text_or_none(row, "actor"),
        reason: text_or_none(row, "reason"),
    }
}

fn occurrence(row: &PgRow) -> Occurrence {
    match &*text(row, "occurrence") {
        "scheduled" => Occurrence::Scheduled { fire: at(row, "fire") },
        "manual" => Occurrence::Manual { key: text(row, "manual_key") },
        "replay" => Occurrence::Replay {
            origin: ExecutionId::from_uuid(uuid(row, "origin")),
            number: u32::try_from(number(row, "replay_number")).expect("numbers fit"),
        },
        other => panic!("{other:?} is no occurrence"),
    }
}

pub(crate) fn execution(row: &PgRow) -> ExecutionRow {
    let (sign, cancel): (bool, bool) = (row.get("start_seen"), row.get("cancel_requested"));
    ExecutionRow {
        id: ExecutionId::from_uuid(uuid(row, "id")),
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        job: JobId::from_uuid(uuid(row, "job")),
        job_version: version(row, "job_version"),
        partition: partition(row),
        occurrence: occurrence(row),
        key: text(row, "key"),
        payload: text_or_none(row, "payload").map(Payload::from_stored),
        state: named(row, "state", ExecutionState::from_name),
        skip_reason: text_or_none(row, "skip_reason")
            .map(|name| SkipReason::from_name(&name).expect("a known name")),
        due_at: at(row, "due_at"),
        deadline_at: at_or_none(row, "deadline_at"),
        made_under: token(row, "made_under"),
        token: token(row, "token"),
        owner: row.get::<Option<Uuid>, _>("owner").map(NodeId::from_uuid),
        nonce: EffectId(number(row, "nonce").cast_unsigned()),
        nonce_node: row.get::<Option<Uuid>, _>("nonce_node").map(NodeId::from_uuid),
        expires_at: at(row, "expires_at"),
        sign: if sign { LeaseSign::Started } else { LeaseSign::None },
        cancel: if cancel { CancelState::Requested } else { CancelState::None },
        attempts: count(row, "attempts"),
        rescues: count(row, "rescues"),
        lost_starts: count(row, "lost_starts"),
        next_try_at: at_or_none(row, "next_try_at"),
        waiting: text_or_none(row, "waiting").map(|name| WaitReason::from_name(&name).expect("a known name")),
        held_by: pause_or_none(row, "held_by"),
        waits: count(row, "waits"),
        dispatch_no: DispatchNo(count(row, "dispatch_no")),
        dispatched_at: at_or_none(row, "dispatched_at"),
        redispatches: count(row, "redispatches"),
        materialised_at: at(row, "materialised_at"),
        published_at: at_or_none(row, "published_at"),
        received_at: at_or_none(row, "received_at"),
        leased_at: at_or_none(row, "leased_at"),
        started_at: at_or_none(row, "started_at"),
        finished_at: at_or_none(row, "finished_at"),
        lag_clamped: row.get("lag_clamped"),
        error: text_or_none(row, "error"),
    }
}

pub(crate) fn attempt(row: &PgRow) -> AttemptRow {
    AttemptRow {
        execution: ExecutionId::from_uuid(uuid(row, "execution")),
        token: token(row, "token"),
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        node: row.get::<Option<Uuid>, _>("node").map(NodeId::from_uuid),
        attempt: u32::try_from(number(row, "attempt")).expect("counts fit"),
        end: named(row, "ended", AttemptEnd::from_name),
        error: text_or_none(row, "error"),
        at: at(row, "at"),
    }
}

pub(crate) fn outbox(row: &PgRow) -> OutboxRow {
    OutboxRow {
        execution: ExecutionId::from_uuid(uuid(row, "execution")),
        dispatch_no: DispatchNo(count(row, "dispatch_no")),
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        partition: partition(row),
        created_by: NodeId::from_uuid(uuid(row, "created_by")),
        created_at: at(row, "created_at"),
        next_try_at: at(row, "next_try_at"),
        tries: count(row, "tries"),
    }
}

pub(crate) fn dead_letter(row: &PgRow) -> DeadLetterRow {
    DeadLetterRow {
        execution: ExecutionId::from_uuid(uuid(row, "execution")),
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        job: JobId::from_uuid(uuid(row, "job")),
        reason: named(row, "reason", DeadLetterReason::from_name),
        error: text_or_none(row, "error"),
        attempts: count(row, "attempts"),
        rescues: count(row, "rescues"),
        lost_starts: count(row, "lost_starts"),
        at: at(row, "at"),
        replays: u32::try_from(number(row, "replays")).expect("counts fit"),
        purged_at: at_or_none(row, "purged_at"),
    }
}

pub(crate) fn skipped_range(row: &PgRow) -> SkippedRangeRow {
    SkippedRangeRow {
        job: JobId::from_uuid(uuid(row, "job")),
        from: at(row, "from_fire"),
        through: at(row, "through_fire"),
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        reason: named(row, "reason", SkipReason::from_name),
        job_version: version(row, "job_version"),
        made_under: token(row, "made_under"),
        decided_at: at(row, "decided_at"),
        zone_data: text(row, "zone_data"),
    }
}

fn refused_resource(text: &str) -> RefusedResource {
    let (kind, name) = text.split_once('/').expect("KIND/NAME");
    match kind {
        "lease" => {
            let number = name.parse().expect("a number");
            RefusedResource::Lease(LeaseResource::from_number(number).expect("a resource"))
        }
        "execution" => RefusedResource::Execution(name.parse().expect("an id")),
        other => panic!("{other:?} is no kind of resource"),
    }
}

pub(crate) fn refusal(row: &PgRow) -> RefusalRow {
    RefusalRow {
        resource: refused_resource(&text(row, "resource")),
        token: token(row, "token"),
        node: NodeId::from_uuid(uuid(row, "node")),
        action: named(row, "action", RefusedAction::from_name),
        current: token(row, "current"),
        first_at: at(row, "first_at"),
        last_at: at(row, "last_at"),
        count: number(row, "count").unsigned_abs(),
    }
}

pub(crate) fn request(row: &PgRow) -> RequestRow {
    RequestRow {
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        request: text(row, "request"),
        fingerprint: uuid(row, "fingerprint"),
        job: row.get::<Option<Uuid>, _>("job").map(JobId::from_uuid),
        execution: row.get::<Option<Uuid>, _>("execution").map(ExecutionId::from_uuid),
        version: row
            .get::<Option<i64>, _>("version")
            .map(|version| JobVersion(u32::try_from(version).expect("versions fit"))),
        pause: pause_or_none(row, "pause"),
        at: at(row, "at"),
    }
}

fn pause_or_none(row: &PgRow, column: &str) -> Option<PauseId> {
    row.get::<Option<Uuid>, _>(column).map(PauseId::from_uuid)
}

pub(crate) fn pause(row: &PgRow) -> PauseRow {
    let scope = match text_or_none(row, "handler") {
        None => PauseScope::Tenant,
        Some(handler) => PauseScope::Queue(HandlerRef {
            name: HandlerName::parse(&handler).expect("a handler's name"),
            version: u32::try_from(number(row, "handler_version")).expect("versions fit"),
        }),
    };
    assert_eq!(*scope.name(), *text(row, "scope"), "the scope says what is there");
    let ended = at_or_none(row, "ended_at").map(|at| PauseEnd {
        at,
        actor: text(row, "ended_by"),
        reason: text(row, "ended_reason"),
    });
    PauseRow {
        id: PauseId::from_uuid(uuid(row, "id")),
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        scope,
        since: at(row, "since"),
        actor: text(row, "actor"),
        reason: text(row, "reason"),
        ended,
        lift_until: at_or_none(row, "lift_until"),
    }
}

pub(crate) fn limit(row: &PgRow) -> LimitRow {
    LimitRow {
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        key: text(row, "key"),
        max_running: row
            .get::<Option<i32>, _>("max_running")
            .map(|most| u32::try_from(most).expect("limits are positive")),
        actor: text(row, "actor"),
        reason: text(row, "reason"),
        set_at: at(row, "set_at"),
    }
}

pub(crate) fn calendar(row: &PgRow) -> CalendarRow {
    let days = |days: Vec<i32>| Days::new(days.into_iter().map(Day::from_number).collect()).expect("few");
    CalendarRow {
        tenant: TenantId::from_uuid(uuid(row, "tenant")),
        name: text(row, "name"),
        version: number(row, "version").unsigned_abs(),
        days: row.get::<Option<Vec<i32>>, _>("days").map(days),
        actor: text(row, "actor"),
        reason: text(row, "reason"),
        set_at: at(row, "set_at"),
    }
}

pub(crate) fn malformed(row: &PgRow) -> MalformedRow {
    MalformedRow {
        digest: uuid(row, "digest"),
        reason: text(row, "reason"),
        excerpt: row.get::<Vec<u8>, _>("excerpt").into(),
        node: NodeId::from_uuid(uuid(row, "node")),
        first_at: at(row, "first_at"),
        last_at: at(row, "last_at"),
        count: number(row, "count").unsigned_abs(),
    }
}
