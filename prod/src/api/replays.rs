//! Replays over HTTP: of one dead letter, or of all that match, page by page; each also as a dry run.
//!
//! One is safe to send again: its number says which replay is meant, or its `Idempotency-Key` remembers which the next
//! was. A page takes only what has no replay yet, so a replay of all that was interrupted is simply begun again.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use fencepost_core::execution::DeadLetterReason;
use fencepost_core::id::{ExecutionId, JobId, TenantId};
use fencepost_core::job::shape::{Field, Shape};
use fencepost_core::limits::REPLAY_PAGE_MAX;
use fencepost_core::replay::NotReplayable;
use fencepost_core::store::command::{
    Command, DeadLetterFilter, OperatorRequest, ReplayDeadLetter, ReplayDeadLetters, ReplayKey, ReplayNumber,
};
use fencepost_core::store::reply::{PageReplay, ReplayReply, Reply};
use fencepost_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::auth::Caller;
use super::dead_letters::a_reason;
use super::fires::AN_INSTANT;
use super::problem::Problem;
use super::query::{idempotency_key, json_body, path_id};
use super::state::ApiState;
use super::views::{self, ExecutionView, ReplayCount, ReplayForecast, instant};

/// Dead letters on a page where the request does not say.
const PAGE_DEFAULT: u32 = 100;

/// Which idempotency key a replay gets.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KeyChoice {
    /// The origin's.
    #[default]
    Same,
    /// One of its own.
    New,
}

impl From<KeyChoice> for ReplayKey {
    fn from(choice: KeyChoice) -> Self {
        match choice {
            KeyChoice::Same => Self::Origin,
            KeyChoice::New => Self::Own,
        }
    }
}

/// A replay's body, where there is one.
const ONE: Shape = Shape::Object(&[
    Field::nullable("number", Shape::Whole(u32::MAX as u64)),
    Field::nullable("key", Shape::Words(&["same", "new"])),
    Field::nullable("dry_run", Shape::Flag),
]);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct OneBody {
    number: Option<u32>,
    key: Option<KeyChoice>,
    dry_run: Option<bool>,
}

/// The body of a replay of many, where there is one.
const MANY: Shape = Shape::Object(&[
    Field::nullable("job_id", Shape::Text),
    Field::nullable("reason", Shape::Text),
    Field::nullable("from", Shape::Text),
    Field::nullable("to", Shape::Text),
    Field::nullable("key", Shape::Words(&["same", "new"])),
    Field::nullable("dry_run", Shape::Flag),
    Field::nullable("cursor", Shape::Text),
    Field::nullable("limit", Shape::Whole(u32::MAX as u64)),
]);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ManyBody {
    job_id: Option<String>,
    reason: Option<String>,
    from: Option<String>,
    to: Option<String>,
    key: Option<KeyChoice>,
    dry_run: Option<bool>,
    cursor: Option<String>,
    limit: Option<u32>,
}

/// A body, checked by its shape first, so that the field that is wrong is named.
fn read<Body: Default + for<'de> Deserialize<'de>>(shape: &Shape, text: &str) -> Result<Body, Problem> {
    if text.trim().is_empty() {
        return Ok(Body::default());
    }
    shape.check(text)?;
    serde_json::from_str(text).map_err(|error| Problem::bad_body(error.to_string()))
}

/// Replay a dead letter. The same number again answers 200 and the execution of the first time; without a number, it is
/// the first replay, or, with an `Idempotency-Key`, the next one, which the key remembers. `{"key": "new"}` gives it an
/// idempotency key of its own; `{"dry_run": true}` says what would happen.
#[utoipa::path(post, path = "/v1/dead-letters/{execution}/replay", params(("execution" = Uuid, Path)),
    request_body = Option<serde_json::Value>, responses(
    (status = 201, description = "The execution that was made", body = ExecutionView),
    (status = 200, description = "The execution that an earlier request had made; or what a dry run says", body = ReplayOrForecast),
    (status = 404, description = "This tenant has no such execution", body = Problem),
    (status = 409, description = "It cannot be replayed, for the reason given", body = Problem),
    (status = 422, description = "The key was used for something else", body = Problem)))]
pub(super) async fn one(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, Problem> {
    let origin: ExecutionId = path_id("execution", &id)?;
    let asked: OneBody = read(&ONE, &json_body(&headers, body)?)?;
    if asked.dry_run == Some(true) {
        return forecast(&state, tenant, origin).await;
    }
    let key = ReplayKey::from(asked.key.unwrap_or_default());
    let number = match (asked.number, idempotency_key(&headers)?) {
        (Some(number), _) => ReplayNumber::Given(number),
        (None, None) => ReplayNumber::Given(1),
        (None, Some(request)) => {
            ReplayNumber::Next(OperatorRequest { request, fingerprint: fingerprint(origin, key) })
        }
    };
    let command = ReplayDeadLetter { tenant, origin, number, key, node: state.node };
    let reply = state.execute(&Command::ReplayDeadLetter(command)).await?.reply;
    let replayed = match reply {
        Reply::DeadLetterReplayed(reply) => reply,
        other => unreachable!("the store answered a replay with {other:?}"),
    };
    let (status, execution) = match replayed {
        ReplayReply::Created { execution, .. } => (StatusCode::CREATED, execution),
        ReplayReply::Repeated { execution, .. } => (StatusCode::OK, execution),
        other => return Err(refusal(origin, other)),
    };
    let view: ExecutionView = views::execution(&state.reads, tenant, execution)
        .await?
        .ok_or_else(|| Problem::not_found("execution", execution))?;
    Ok((
        status,
        [(LOCATION, format!("/v1/executions/{execution}"))],
        Json(ReplayOrForecast::Replay(Box::new(view))),
    )
        .into_response())
}

/// A replay, or what one would do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum ReplayOrForecast {
    /// It was made, now or earlier.
    Replay(Box<ExecutionView>),
    /// A dry run.
    Forecast(Box<ReplayForecast>),
}

async fn forecast(state: &ApiState, tenant: TenantId, origin: ExecutionId) -> Result<Response, Problem> {
    if let Some(detail) = views::dead_letter(&state.reads, tenant, origin).await? {
        let forecast = ReplayOrForecast::Forecast(Box::new(detail.into_forecast()));
        return Ok(Json(forecast).into_response());
    }
    match views::execution(&state.reads, tenant, origin).await? {
        Some(execution) => Err(not_dead_lettered(origin, execution.state())),
        None => Err(Problem::not_found("execution", origin)),
    }
}

/// The same for the same replay.
fn fingerprint(origin: ExecutionId, key: ReplayKey) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("replay/{origin}/{key:?}").as_bytes())
}

fn not_dead_lettered(origin: ExecutionId, state: &str) -> Problem {
    Problem::not_replayable(format!("execution {origin} is {state}; only what is dead-lettered is replayed"))
}

fn why(origin: ExecutionId, why: NotReplayable) -> String {
    match why {
        NotReplayable::Purged => format!("dead letter {origin} was purged"),
        NotReplayable::JobDeleted => format!("the job of dead letter {origin} is deleted"),
        NotReplayable::UnreadableDefinition => format!(
            "this version cannot read the definition under which dead letter {origin} was made; a newer one may"
        ),
    }
}

/// The problem of a replay that was not made.
fn refusal(origin: ExecutionId, reply: ReplayReply) -> Problem {
    match reply {
        ReplayReply::OtherKey { execution } => Problem::not_replayable(format!(
            "this replay is there, as {execution}, with the other choice of `key`; give another number"
        ))
        .at("/key"),
        ReplayReply::WrongNumber { next } => {
            Problem::not_replayable(format!("replays are numbered without gaps; the next is {next}"))
                .at("/number")
        }
        ReplayReply::RequestReused => Problem::key_reused("this key had been used for something else"),
        ReplayReply::Refused(reason) => Problem::not_replayable(why(origin, reason)),
        ReplayReply::NotDeadLettered { state } => not_dead_lettered(origin, state.name()),
        ReplayReply::NotFound | ReplayReply::Created { .. } | ReplayReply::Repeated { .. } => {
            Problem::not_found("execution", origin)
        }
    }
}

/// A page of replays.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReplayPageView {
    /// How many were replayed.
    replayed: usize,
    items: Vec<ReplayedView>,
    /// What matched and cannot be replayed.
    passed_over: Vec<PassedOver>,
    /// Only what was dead-lettered before this instant is replayed, however long the pages take.
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    to: Timestamp,
    /// To be given as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// A replay that was made.
#[derive(Debug, Serialize, ToSchema)]
struct ReplayedView {
    /// The dead letter.
    #[schema(value_type = Uuid)]
    dead_letter: ExecutionId,
    /// Its replay.
    #[schema(value_type = Uuid)]
    execution_id: ExecutionId,
}

/// A dead letter that was not replayed.
#[derive(Debug, Serialize, ToSchema)]
struct PassedOver {
    #[schema(value_type = Uuid)]
    dead_letter: ExecutionId,
    /// `job_deleted` or `unreadable_definition`.
    #[schema(value_type = String)]
    why_not: NotReplayable,
}

/// What a dry run of a replay of many says.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReplayCountView {
    #[serde(flatten)]
    counts: ReplayCount,
    /// What dies from this instant on is not counted; give it as `to` to replay exactly these.
    #[serde(serialize_with = "instant")]
    #[schema(value_type = String, format = DateTime)]
    to: Timestamp,
}

/// A page of replays, or how many there would be.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum PageOrCount {
    /// A page.
    Page(ReplayPageView),
    /// A dry run.
    Count(ReplayCountView),
}

/// Where a replay of many goes on: after a place, up to an instant that its first page fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageCursor {
    after: (Timestamp, ExecutionId),
    to: Timestamp,
}

impl PageCursor {
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('_');
        let mut instant = || parts.next()?.parse().ok().map(Timestamp::from_micros);
        let (to, at) = (instant()?, instant()?);
        let execution = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { after: (at, execution), to })
    }

    fn to_text(self) -> String {
        let (at, execution) = self.after;
        format!("{}_{}_{}", self.to.as_micros(), at.as_micros(), execution.as_uuid().simple())
    }
}

/// A field's text, parsed.
fn field<T>(
    name: &str,
    text: Option<&String>,
    parse: impl Fn(&str) -> Option<T>,
    is: &str,
) -> Result<Option<T>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let problem = || Problem::bad_parameter(&format!("/{name}"), format!("{text:?} is not {is}"));
    parse(text).map(Some).ok_or_else(problem)
}

impl ManyBody {
    fn filter(&self) -> Result<DeadLetterFilter, Problem> {
        let filter = DeadLetterFilter {
            job: field("job_id", self.job_id.as_ref(), |text| text.parse::<JobId>().ok(), "a job's id")?,
            reason: field("reason", self.reason.as_ref(), DeadLetterReason::from_name, &a_reason())?,
            from: field("from", self.from.as_ref(), Timestamp::parse_rfc3339, AN_INSTANT)?,
            to: field("to", self.to.as_ref(), Timestamp::parse_rfc3339, AN_INSTANT)?,
        };
        if filter.from.zip(filter.to).is_some_and(|(from, to)| to < from) {
            return Err(Problem::bad_parameter("/to", "lies before `from`"));
        }
        Ok(filter)
    }

    fn limit(&self) -> Result<u32, Problem> {
        let limit = self.limit.unwrap_or(PAGE_DEFAULT);
        if (1..=REPLAY_PAGE_MAX).contains(&limit) {
            return Ok(limit);
        }
        let detail = format!("{limit} is not a number from 1 to {REPLAY_PAGE_MAX}");
        Err(Problem::bad_parameter("/limit", detail))
    }
}

/// Replay all dead letters that match and have no replay yet, a page with each request, the oldest first. Begun again
/// after an interruption, whether with a cursor or from the start, it replays each once. `{"dry_run": true}` counts.
#[utoipa::path(post, path = "/v1/dead-letters/replay", request_body = Option<serde_json::Value>, responses(
    (status = 200, description = "What this page replayed, and the cursor of the next; or what a dry run counted", body = PageOrCount),
    (status = 400, description = "A field is refused", body = Problem)))]
pub(super) async fn many(
    State(state): State<ApiState>,
    Caller(tenant): Caller,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<PageOrCount>, Problem> {
    let asked: ManyBody = read(&MANY, &json_body(&headers, body)?)?;
    let (filter, limit) = (asked.filter()?, asked.limit()?);
    let cursor = field("cursor", asked.cursor.as_ref(), PageCursor::parse, "a cursor of an earlier page")?;
    // What dies meanwhile, a replay among it, is for another time: or a replay of all would have no end.
    let until = match cursor {
        Some(cursor) => cursor.to,
        None => state.execute(&Command::ReadClock).await?.now,
    };
    let to = filter.to.map_or(until, |to| to.min(until));
    let filter = DeadLetterFilter { to: Some(to), ..filter };
    if asked.dry_run == Some(true) {
        let counts = views::replay_count(&state.reads, tenant, &filter).await?;
        return Ok(Json(PageOrCount::Count(ReplayCountView { counts, to })));
    }
    let command = ReplayDeadLetters {
        tenant,
        filter,
        after: cursor.map(|cursor| cursor.after),
        limit,
        key: asked.key.unwrap_or_default().into(),
        node: state.node,
    };
    let reply = state.execute(&Command::ReplayDeadLetters(command)).await?.reply;
    let page = match reply {
        Reply::DeadLettersReplayed(page) => page,
        other => unreachable!("the store answered a page of replays with {other:?}"),
    };
    let (mut items, mut passed_over) = (Vec::new(), Vec::new());
    for (dead_letter, became) in page.letters {
        match became {
            PageReplay::Created { execution } => {
                items.push(ReplayedView { dead_letter, execution_id: execution });
            }
            PageReplay::Refused(why_not) => passed_over.push(PassedOver { dead_letter, why_not }),
        }
    }
    let next_cursor = page.next.map(|after| PageCursor { after, to: until }.to_text());
    let page = ReplayPageView { replayed: items.len(), items, passed_over, to, next_cursor };
    Ok(Json(PageOrCount::Page(page)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(problem: Problem) -> serde_json::Value {
        serde_json::to_value(problem).expect("a problem is JSON")["pointer"].clone()
    }

    #[test]
    fn bodies_are_refused_by_the_field() {
        for (body, at) in [
            (r#"{"numbr": 1}"#, "/numbr"),
            (r#"{"number": -1}"#, "/number"),
            (r#"{"number": "1"}"#, "/number"),
            (r#"{"key": "another"}"#, "/key"),
            (r#"{"dry_run": 1}"#, "/dry_run"),
            ("[]", ""),
        ] {
            let problem = read::<OneBody>(&ONE, body).expect_err(body);
            assert_eq!(pointer(problem), at, "{body}");
        }
        for (body, at) in [
            (r#"{"job_id": "x"}"#, "/job_id"),
            (r#"{"reason": "no_reason"}"#, "/reason"),
            (r#"{"from": "yesterday"}"#, "/from"),
            (r#"{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}"#, "/to"),
        ] {
            let asked = read::<ManyBody>(&MANY, body).expect("it has the right types");
            assert_eq!(pointer(asked.filter().expect_err(body)), at, "{body}");
        }
        let asked = read::<ManyBody>(&MANY, r#"{"limit": 0}"#).expect("it has the right types");
        assert_eq!(pointer(asked.limit().expect_err("too few")), "/limit");
        assert!(read::<OneBody>(&ONE, "").expect("nothing is a body").number.is_none());
    }

    #[test]
    fn a_cursor_is_read_back() {
        let cursor = PageCursor {
            after: (Timestamp::from_micros(5), ExecutionId::from_u128(7)),
            to: Timestamp::from_micros(-9),
        };
        assert_eq!(PageCursor::parse(&cursor.to_text()), Some(cursor));
        for text in ["", "1_2", "1_2_x", "1_2_00000000000000000000000000000007_1"] {
            assert_eq!(PageCursor::parse(text), None, "{text}");
        }
    }
}
