//! Reading definitions: strictly at the edge, with the field named; and back from the store.
//!
//! A stored text is `{"schema": n, "definition": {…}}`. A definition of a newer schema may mean something
//! that this version would misread, so it is unreadable here rather than read by half.

use serde::{Deserialize, Deserializer, Serialize};
use serde_path_to_error::{Path, Segment};
use std::sync::Arc;
use thiserror::Error;

use super::{HandlerName, JobDefinition, SCHEMA_VERSION, Unreadable, shape};
use crate::limits;
use crate::retry::RetryPolicy;
use crate::schedule::Schedule;
use crate::schedule::zone::TZDATA_VERSION;
use crate::time::Span;

/// Why a definition is refused: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{pointer}: {detail}")]
pub struct DefinitionError {
    /// A JSON pointer to the field, such as `/schedule/expr`; empty for the whole.
    pub pointer: String,
    /// What is wrong with it, and what would be right.
    pub detail: String,
}

impl DefinitionError {
    /// An error at a field.
    #[must_use]
    pub fn at(pointer: &str, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.to_owned(), detail: detail.into() }
    }
}

impl JobDefinition {
    /// Reads and checks a definition that comes from outside.
    ///
    /// # Errors
    /// [`DefinitionError`] at the first field that is missing, unknown, of the wrong type, or whose
    /// value is refused.
    pub fn parse(json: &str) -> Result<Self, DefinitionError> {
        shape::DEFINITION.check(json)?;
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let definition: Self = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| located(&pointer(error.path()), &detail(error.inner())))?;
        deserializer.end().map_err(|error| DefinitionError::at("", detail(&error)))?;
        definition.check()?;
        Ok(definition)
    }

    /// Checks what no single field's type can: bounds between values.
    ///
    /// # Errors
    /// [`DefinitionError`] at the first field whose value is refused.
    pub fn check(&self) -> Result<(), DefinitionError> {
        check_text("/name", &self.name)?;
        if self.handler.version == 0 {
            return Err(DefinitionError::at("/handler/version", "must be at least 1"));
        }
        self.schedule.validate().map_err(|error| located("/schedule", &error.to_string()))?;
        self.bounds.validate().map_err(|error| located("/bounds", &error.to_string()))?;
        self.misfire.validate().map_err(|error| located("/misfire", &error.to_string()))?;
        if self.misfire_grace > limits::MISFIRE_GRACE_MAX {
            return Err(too_long("/misfire_grace_ms", limits::MISFIRE_GRACE_MAX));
        }
        check_flex(self.flex, &self.schedule)?;
        check_exclude(self)?;
        if let Some(most) =
            self.pause_after_failures.filter(|most| !(1..=limits::PAUSE_AFTER_FAILURES_MAX).contains(most))
        {
            let detail = format!("{most} is not between 1 and {}", limits::PAUSE_AFTER_FAILURES_MAX);
            return Err(DefinitionError::at("/pause_after_failures", detail));
        }
        self.overlap.check(self.misfire)?;
        if let Some(key) = &self.concurrency_key {
            check_text("/concurrency_key", key)?;
        }
        if self.attempt_timeout == Span::ZERO {
            return Err(DefinitionError::at("/attempt_timeout_ms", "must be at least 1"));
        }
        if self.attempt_timeout > limits::ATTEMPT_TIMEOUT_MAX {
            return Err(too_long("/attempt_timeout_ms", limits::ATTEMPT_TIMEOUT_MAX));
        }
        check_deadline(self)?;
        check_retry(&self.retry)
    }
}

/// A deadline that leaves no room for one whole attempt contradicts the attempt's own timeout; and nothing is tried again
/// after it, so that an age for retries beyond it would never be looked at.
fn check_deadline(definition: &JobDefinition) -> Result<(), DefinitionError> {
    let Some(deadline) = definition.deadline else { return Ok(()) };
    if deadline > limits::DEADLINE_MAX {
        return Err(too_long("/deadline_ms", limits::DEADLINE_MAX));
    }
    if deadline < definition.attempt_timeout {
        let timeout = definition.attempt_timeout.as_millis();
        let detail = format!("is shorter than one attempt may take, attempt_timeout_ms, {timeout} ms");
        return Err(DefinitionError::at("/deadline_ms", detail));
    }
    match definition.retry.max_age {
        Some(max_age) if max_age > deadline => {
            let detail = format!("is longer than deadline_ms, {} ms", deadline.as_millis());
            Err(DefinitionError::at("/retry/max_age_ms", detail))
        }
        Some(_) | None => Ok(()),
    }
}

/// A window that no fire could use, or that would reach over the next fire of an interval, is refused. That of a cron
/// schedule ends at the next fire by itself, since its distances differ.
fn check_flex(flex: Span, schedule: &Schedule) -> Result<(), DefinitionError> {
    if flex > limits::FLEX_MAX {
        return Err(too_long("/flex_ms", limits::FLEX_MAX));
    }
    match schedule {
        Schedule::Interval { every, .. } if flex >= *every => {
            let detail = format!("the window is not shorter than the interval, {} ms", every.as_millis());
            Err(DefinitionError::at("/flex_ms", detail))
        }
        Schedule::Manual if flex > Span::ZERO => Err(DefinitionError::at(
            "/flex_ms",
            "a job that runs only when it is triggered has no fires to move",
        )),
        Schedule::Cron { .. } | Schedule::Interval { .. } | Schedule::OneShot { .. } | Schedule::Manual => {
            Ok(())
        }
    }
}

/// What is looked up by name later has to be one; and whoever has no fires has none to exclude.
fn check_exclude(definition: &JobDefinition) -> Result<(), DefinitionError> {
    let exclude = &definition.exclude;
    if let Some((at, detail)) = exclude.fault() {
        let pointer = at.map_or_else(|| "/exclude".to_owned(), |at| format!("/exclude/{at}"));
        return Err(DefinitionError::at(&pointer, detail));
    }
    for (at, exclusion) in exclude.all().iter().enumerate() {
        check_text(&format!("/exclude/{at}"), &exclusion.calendar)?;
    }
    if definition.schedule == Schedule::Manual && !exclude.is_none() {
        let detail = "a job that runs only when it is triggered has no fires to exclude";
        return Err(DefinitionError::at("/exclude", detail));
    }
    Ok(())
}

fn check_retry(retry: &RetryPolicy) -> Result<(), DefinitionError> {
    let most = limits::ATTEMPTS_MAX;
    for (pointer, least, value) in [
        ("/retry/max_attempts", 1, retry.max_attempts),
        ("/retry/max_rescues", 0, retry.max_rescues),
        ("/retry/max_lost_starts", 0, retry.max_lost_starts),
    ] {
        if value < least || value > most {
            return Err(DefinitionError::at(pointer, format!("{value} is not between {least} and {most}")));
        }
    }
    if retry.cap > limits::RETRY_CAP_MAX {
        return Err(too_long("/retry/cap_ms", limits::RETRY_CAP_MAX));
    }
    if retry.base > retry.cap {
        let detail = format!("{} is longer than cap_ms, {}", retry.base, retry.cap);
        return Err(DefinitionError::at("/retry/base_ms", detail));
    }
    Ok(())
}

/// Checks a name, a key or a request id: not empty, not too long, no control characters.
///
/// # Errors
/// [`DefinitionError`] at `pointer`.
pub fn check_text(pointer: &str, text: &str) -> Result<(), DefinitionError> {
    let most = limits::NAME_CHARS_MAX;
    let chars = text.chars().count();
    if chars == 0 || chars > most {
        return Err(DefinitionError::at(pointer, format!("has {chars} characters, not 1 to {most}")));
    }
    if text.chars().any(char::is_control) {
        return Err(DefinitionError::at(pointer, "holds a control character"));
    }
    Ok(())
}

fn too_long(pointer: &str, most: Span) -> DefinitionError {
    DefinitionError::at(pointer, format!("is longer than the longest allowed, {} ms", most.as_millis()))
}

/// Schedules, bounds and misfire policies are checked as a whole, and their errors begin with the name of the
/// field in them: that belongs into the pointer.
fn located(pointer: &str, detail: &str) -> DefinitionError {
    let within = |name: &str| {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        is_name && ["/schedule", "/bounds", "/misfire"].contains(&pointer)
    };
    match detail.split_once(": ") {
        // The one policy that has fields holds them a level deeper.
        Some((name, rest)) if within(name) && pointer == "/misfire" => {
            DefinitionError::at(&format!("/misfire/catch_up/{name}"), rest)
        }
        Some((name, rest)) if within(name) => DefinitionError::at(&format!("{pointer}/{name}"), rest),
        Some(_) | None => DefinitionError::at(pointer, detail),
    }
}

/// The parser's own words, without the position: the pointer says where.
fn detail(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(end) if !error.is_syntax() && !error.is_eof() => text[..end].to_owned(),
        Some(_) | None => text,
    }
}

fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => pointer.push_str(&format!("/{index}")),
            Segment::Map { key } => {
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
            }
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    pointer
}

impl HandlerName {
    /// Checks a handler's name.
    ///
    /// # Errors
    /// A sentence that says which names are allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-');
        let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
        if !starts || text.len() > limits::HANDLER_CHARS_MAX || !text.chars().all(allowed) {
            let most = limits::HANDLER_CHARS_MAX;
            return Err(format!(
                "{text:?} is no handler name: a lower-case letter, then up to {} of a-z 0-9 . _ -",
                most - 1
            ));
        }
        Ok(Self(text.into()))
    }
}

impl<'de> Deserialize<'de> for HandlerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Arc::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize)]
struct Stored<'a> {
    schema: u16,
    definition: &'a JobDefinition,
}

#[derive(Deserialize)]
struct StoredSchema {
    schema: u16,
}

#[derive(Deserialize)]
struct StoredBody {
    definition: JobDefinition,
}

pub(super) fn to_stored_text(definition: &JobDefinition) -> Arc<str> {
    let stored = Stored { schema: SCHEMA_VERSION, definition };
    serde_json::to_string(&stored).expect("a definition has no map keys that are not text").into()
}

pub(super) fn from_stored_text(text: &str) -> Result<JobDefinition, Unreadable> {
    let unreadable = |reason: String| Unreadable {
        reason: reason.into(),
        schema: SCHEMA_VERSION,
        zone_data: TZDATA_VERSION.into(),
    };
    let StoredSchema { schema } = serde_json::from_str(text)
        .map_err(|error| unreadable(format!("not a stored definition: {error}")))?;
    if schema > SCHEMA_VERSION {
        return Err(unreadable(format!("it has schema {schema}; this version reads up to {SCHEMA_VERSION}")));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let body: StoredBody = serde_path_to_error::deserialize(&mut deserializer)
        .map_err(|error| unreadable(format!("{}: {}", pointer(error.path()), detail(error.inner()))))?;
    body.definition.check().map_err(|error| unreadable(format!("/definition{error}")))?;
    Ok(body.definition)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(field: &str) -> String {
        format!(r#"{{"name":"n","handler":{{"name":"noop"}},"schedule":{{"kind":"manual"}}{field}}}"#)
    }

    fn refused(json: &str) -> DefinitionError {
        JobDefinition::parse(json).expect_err(json)
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        for (json, pointer) in [
            (with(r#","surprise":1"#), "/surprise"),
            (with(r#","retry":{"base_ms":-1}"#), "/retry/base_ms"),
            (with(r#","retry":{"base_ms":99999999999999999999}"#), "/retry/base_ms"),
            (with(r#","retry":{"base_ms":2000,"cap_ms":1000}"#), "/retry/base_ms"),
            (with(r#","retry":{"max_attempts":0}"#), "/retry/max_attempts"),
            (with(r#","retry":{"tries":3}"#), "/retry/tries"),
            (with(r#","attempt_timeout_ms":0"#), "/attempt_timeout_ms"),
            (with(r#","attempt_timeout_ms":"1s""#), "/attempt_timeout_ms"),
            (with(r#","misfire_grace_ms":9223372036854775807"#), "/misfire_grace_ms"),
            (with(r#","deadline_ms":0"#), "/deadline_ms"),
            (with(r#","deadline_ms":999,"attempt_timeout_ms":1000"#), "/deadline_ms"),
            (with(r#","deadline_ms":31536000001"#), "/deadline_ms"),
            (
                with(r#","deadline_ms":2000,"attempt_timeout_ms":1000,"retry":{"max_age_ms":2001}"#),
                "/retry/max_age_ms",
            ),
            (with(r#","pause_after_failures":0"#), "/pause_after_failures"),
            (with(r#","pause_after_failures":1001"#), "/pause_after_failures"),
            (with(r#","exclude":["a"]"#), "/exclude"),
            (with(r#","exclude":"a""#), "/exclude"),
            (with(r#","exclude":["a",1]"#), "/exclude/1"),
            (with(r#","exclude":[{"calendar":"a","version":1,"days":[]}]"#), "/exclude/0"),
            (with(r#","exclude":["a","b","a"]"#), "/exclude/2"),
            (with(r#","exclude":["a","b","c","d","e"]"#), "/exclude"),
            (with(r#","exclude":[""]"#), "/exclude/0"),
            (with(r#","flex_ms":1000"#), "/flex_ms"),
            (with(r#","flex_ms":-1"#), "/flex_ms"),
            (with(r#","flex_ms":86400001"#), "/flex_ms"),
            (
                with(r#","flex_ms":60000"#).replace(
                    r#"{"kind":"manual"}"#,
                    r#"{"kind":"interval","start":"2026-01-01T00:00:00Z","every_ms":60000}"#,
                ),
                "/flex_ms",
            ),
            (with(r#","misfire":{"catch_up":{"cap":0}}"#), "/misfire/catch_up/cap"),
            (with(r#","bounds":{"max_runs":0}"#), "/bounds/max_runs"),
            (with(r#","overlap":"never""#), "/overlap"),
            (with(r#","concurrency_key":"""#), "/concurrency_key"),
            (with(r#","concurrency_key":"\u0000""#), "/concurrency_key"),
            (with(r#","overlap":"skip","misfire":{"catch_up":{"cap":2}}"#), "/overlap"),
            (with(r#","overlap":"buffer_one","misfire":{"catch_up":{"cap":3}}"#), "/overlap"),
            (with(r#","overlap":"cancel_running","misfire":{"catch_up":{"cap":2}}"#), "/overlap"),
            (with(r#","payload":"\u0000""#), "/payload"),
            (with("").replace(r#""n""#, r#""""#), "/name"),
            (with("").replace("noop", "No Op"), "/handler/name"),
            (
                with("").replace(r#"{"kind":"manual"}"#, r#"{"kind":"cron","expr":"61 * * * *"}"#),
                "/schedule/expr",
            ),
            (
                with("")
                    .replace(r#"{"kind":"manual"}"#, r#"{"kind":"cron","expr":"* * * * *","zone":"PST"}"#),
                "/schedule/zone",
            ),
            (
                with("").replace(
                    r#"{"kind":"manual"}"#,
                    r#"{"kind":"interval","start":"2026-01-01T00:00:00Z","every_ms":999}"#,
                ),
                "/schedule/every_ms",
            ),
        ] {
            assert_eq!(refused(&json).pointer, pointer, "{json}: {}", refused(&json));
        }
    }

    #[test]
    fn a_missing_field_is_named_in_the_words() {
        let error = refused(r#"{"name":"n","schedule":{"kind":"manual"}}"#);
        assert!(error.detail.contains("handler"), "{error}");
        assert!(!refused("{").detail.is_empty());
        assert!(!refused(&(with("") + "x")).detail.is_empty());
    }

    #[test]
    fn a_definition_is_read_back_from_its_stored_text() {
        let definition = JobDefinition::parse(&with(r#","payload":{"a":1.10}"#)).expect("valid");
        assert_eq!(from_stored_text(&to_stored_text(&definition)), Ok(definition));
    }

    #[test]
    fn a_stored_text_of_a_newer_schema_is_unreadable_rather_than_half_read() {
        let definition = JobDefinition::parse(&with("")).expect("valid");
        let text = to_stored_text(&definition).replace(r#""schema":1"#, r#""schema":2"#);
        let unreadable = from_stored_text(&text).expect_err("newer");
        assert!(unreadable.reason.contains("schema 2"), "{unreadable:?}");
        let text = to_stored_text(&definition).replace("manual", "lunar");
        let unreadable = from_stored_text(&text).expect_err("unknown schedule");
        assert!(unreadable.reason.contains("/definition/schedule"), "{unreadable:?}");
    }
}
