//! Shapes: which fields JSON from outside may have, and of which kind, checked before any type is made of it.
//!
//! A derived reader takes an array for an object, does not say which of several fields it did not like, and speaks
//! of Rust types. A [`Shape`] is a table that says what is right, so that an error names the very field in the
//! caller's own terms: missing, unknown, given twice, or of another kind. What a value means is not looked at
//! here: that stays with the type that is made of it.
//!
//! What must stay true: whatever passes, its type can be read from it or refuses a value by name; text below
//! [`Shape::Anything`] is checked as JSON and otherwise left alone, however deep.

use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::parse::DefinitionError;
use super::span_json::MILLIS_MAX;

/// What a value is to be.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Any JSON.
    Anything,
    /// A string.
    Text,
    /// A string out of these.
    Words(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number from 0 to this.
    Whole(u64),
    /// A span: a whole number of milliseconds.
    Millis,
    /// A list of strings.
    Texts,
    /// An object with these fields and no others.
    Object(&'static [Field]),
    /// An object whose field `kind` says which other fields it has.
    Kinds(&'static [(&'static str, &'static [Field])]),
    /// An object whose fields have names of the caller's choice and are strings.
    TextByName,
    /// A string out of these, or an object with these fields.
    WordsOr(&'static [&'static str], &'static [Field]),
}

/// One field of an object.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    name: &'static str,
    presence: Presence,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
    Nullable,
}

impl Field {
    /// A field that must be there.
    #[must_use]
    pub const fn required(name: &'static str, shape: Shape) -> Self {
        Self { name, presence: Presence::Required, shape }
    }

    /// A field that may be left out.
    #[must_use]
    pub const fn optional(name: &'static str, shape: Shape) -> Self {
        Self { name, presence: Presence::Optional, shape }
    }

    /// A field that may be left out or null.
    #[must_use]
    pub const fn nullable(name: &'static str, shape: Shape) -> Self {
        Self { name, presence: Presence::Nullable, shape }
    }
}

impl Shape {
    /// Checks a whole text.
    ///
    /// # Errors
    /// [`DefinitionError`] at the first field that is missing, unknown, given twice or of another kind; at the
    /// whole, with line and column, if it is not JSON.
    pub fn check(&self, json: &str) -> Result<(), DefinitionError> {
        if json.trim().is_empty() {
            return Err(DefinitionError::at("", "the body is not JSON: it is empty (line 1, column 1)"));
        }
        let whole: &RawValue = serde_json::from_str(json).map_err(|error| not_json(&error))?;
        self.check_at("", whole)
    }

    fn check_at(&self, pointer: &str, value: &RawValue) -> Result<(), DefinitionError> {
        let fits = match self {
            Self::Anything => true,
            Self::Text => kind_of(value) == "text",
            Self::Words(words) => is_word(words, value),
            Self::Flag => matches!(value.get(), "true" | "false"),
            Self::Whole(most) => value.get().parse::<u64>().is_ok_and(|number| number <= *most),
            Self::Millis => value.get().parse::<u64>().is_ok_and(|number| number <= MILLIS_MAX),
            Self::Texts => match serde_json::from_str::<Vec<&RawValue>>(value.get()) {
                Ok(items) => {
                    let mut items = items.iter().enumerate();
                    return items
                        .try_for_each(|(at, item)| Self::Text.check_at(&format!("{pointer}/{at}"), item));
                }
                Err(_) => false,
            },
            Self::Object(fields) => return check_fields(pointer, &members(pointer, value)?, fields),
            Self::Kinds(kinds) => return check_kind(pointer, &members(pointer, value)?, kinds),
            Self::TextByName => return check_texts(pointer, &members(pointer, value)?),
            Self::WordsOr(words, fields) => {
                if kind_of(value) == "an object" {
                    return check_fields(pointer, &members(pointer, value)?, fields);
                }
                is_word(words, value)
            }
        };
        if fits {
            Ok(())
        } else {
            Err(DefinitionError::at(pointer, format!("expected {self}, not {}", shown(value))))
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anything => f.write_str("any JSON"),
            Self::Text => f.write_str("text"),
            Self::Words(words) => write!(f, "one of \"{}\"", words.join("\", \"")),
            Self::Flag => f.write_str("true or false"),
            Self::Whole(most) => write!(f, "a whole number from 0 to {most}"),
            Self::Millis => write!(f, "a whole number of milliseconds, at most {MILLIS_MAX}"),
            Self::Texts => f.write_str("a list of texts"),
            Self::Object(_) | Self::Kinds(_) => f.write_str("an object"),
            Self::TextByName => f.write_str("an object of texts"),
            Self::WordsOr(words, fields) => {
                let names: Vec<_> = fields.iter().map(|field| field.name).collect();
                write!(f, "one of \"{}\", or an object with {}", words.join("\", \""), names.join(", "))
            }
        }
    }
}

fn not_json(error: &serde_json::Error) -> DefinitionError {
    let (line, column) = (error.line(), error.column());
    let text = error.to_string();
    let what = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    let what = if error.is_eof() { "it ends too early" } else { what };
    DefinitionError::at("", format!("the body is not JSON: {what} (line {line}, column {column})"))
}

fn check_fields(pointer: &str, members: &Members<'_>, fields: &[Field]) -> Result<(), DefinitionError> {
    for (name, value) in &members.0 {
        let at = below(pointer, name);
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            let known: Vec<_> = fields.iter().map(|field| field.name).collect();
            let detail = if known.is_empty() {
                format!("the field `{name}` is unknown; no field is expected here")
            } else {
                format!("the field `{name}` is unknown; known are {}", known.join(", "))
            };
            return Err(DefinitionError::at(&at, detail));
        };
        if field.presence != Presence::Nullable || value.get() != "null" {
            field.shape.check_at(&at, value)?;
        }
    }
    let missing = |field: &&Field| field.presence == Presence::Required && !members.has(field.name);
    match fields.iter().find(missing) {
        Some(Field { name, .. }) => {
            Err(DefinitionError::at(&below(pointer, name), format!("the field `{name}` is missing")))
        }
        None => Ok(()),
    }
}

fn check_kind(
    pointer: &str,
    members: &Members<'_>,
    kinds: &[(&'static str, &'static [Field])],
) -> Result<(), DefinitionError> {
    let at = below(pointer, "kind");
    let known = kinds.iter().map(|(kind, _)| *kind).collect::<Vec<_>>().join(", ");
    let Some((_, value)) = members.0.iter().find(|(name, _)| name == "kind") else {
        return Err(DefinitionError::at(&at, format!("the field `kind` is missing; it is one of {known}")));
    };
    let kind = serde_json::from_str::<String>(value.get()).unwrap_or_default();
    match kinds.iter().find(|(name, _)| *name == kind) {
        Some((_, fields)) => check_fields(pointer, members, fields),
        None => Err(DefinitionError::at(&at, format!("expected one of {known}, not {}", shown(value)))),
    }
}

fn check_texts(pointer: &str, members: &Members<'_>) -> Result<(), DefinitionError> {
    members.0.iter().try_for_each(|(name, value)| Shape::Text.check_at(&below(pointer, name), value))
}

fn is_word(words: &[&str], value: &RawValue) -> bool {
    serde_json::from_str::<String>(value.get()).is_ok_and(|text| words.contains(&text.as_str()))
}

/// The fields of an object, each once.
fn members<'a>(pointer: &str, value: &'a RawValue) -> Result<Members<'a>, DefinitionError> {
    if kind_of(value) != "an object" {
        return Err(DefinitionError::at(pointer, format!("expected an object, not {}", shown(value))));
    }
    let members: Members<'_> = serde_json::from_str(value.get()).map_err(|error| {
        DefinitionError::at(pointer, format!("the name of a field cannot be read: {error}"))
    })?;
    for (at, (name, _)) in members.0.iter().enumerate() {
        if members.0[..at].iter().any(|(earlier, _)| earlier == name) {
            return Err(DefinitionError::at(
                &below(pointer, name),
                format!("the field `{name}` is given twice"),
            ));
        }
    }
    Ok(members)
}

fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn kind_of(value: &RawValue) -> &'static str {
    match value.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "text",
        Some(b't') => "true",
        Some(b'f') => "false",
        Some(b'n') => "null",
        Some(_) | None => "a number",
    }
}

/// A short value itself, otherwise what it is: callers may send secrets, and long ones.
fn shown(value: &RawValue) -> String {
    const SHORT: usize = 24;
    let kind = kind_of(value);
    match kind {
        "text" if value.get().len() <= SHORT => format!("the text {}", value.get()),
        "a number" if value.get().len() <= SHORT => value.get().to_owned(),
        _ => kind.to_owned(),
    }
}

/// The fields of an object as they were written: in order, repeated ones too.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl Members<'_> {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reading;
        impl<'de> Visitor<'de> for Reading {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reading)
    }
}

const WHOLE_32: Shape = Shape::Whole(u32::MAX as u64);

const CRON: &[Field] = &[
    Field::required("kind", Shape::Text),
    Field::required("expr", Shape::Text),
    Field::optional("zone", Shape::Text),
    Field::nullable("gap", Shape::Words(&["after", "skip"])),
    Field::nullable("repeat", Shape::Words(&["first", "last", "both"])),
];
const INTERVAL: &[Field] = &[
    Field::required("kind", Shape::Text),
    Field::required("start", Shape::Text),
    Field::required("every_ms", Shape::Millis),
];
const ONE_SHOT: &[Field] = &[Field::required("kind", Shape::Text), Field::required("at", Shape::Text)];
const MANUAL: &[Field] = &[Field::required("kind", Shape::Text)];
const CATCH_UP: &[Field] = &[Field::required("cap", WHOLE_32), Field::nullable("window_ms", Shape::Millis)];

/// A job's definition.
pub(super) const DEFINITION: Shape = Shape::Object(&[
    Field::required("name", Shape::Text),
    Field::required(
        "handler",
        Shape::Object(&[Field::required("name", Shape::Text), Field::optional("version", WHOLE_32)]),
    ),
    Field::optional("payload", Shape::Anything),
    Field::required(
        "schedule",
        Shape::Kinds(&[("cron", CRON), ("interval", INTERVAL), ("one_shot", ONE_SHOT), ("manual", MANUAL)]),
    ),
    Field::optional(
        "bounds",
        Shape::Object(&[
            Field::nullable("start", Shape::Text),
            Field::nullable("end", Shape::Text),
            Field::nullable("max_runs", Shape::Whole(u64::MAX)),
        ]),
    ),
    Field::optional(
        "misfire",
        Shape::WordsOr(&["fire_once", "skip"], &[Field::required("catch_up", Shape::Object(CATCH_UP))]),
    ),
    Field::optional("misfire_grace_ms", Shape::Millis),
    Field::nullable("concurrency_key", Shape::Text),
    Field::optional("priority", Shape::Words(&["high", "normal", "low"])),
    Field::optional("flex_ms", Shape::Millis),
    Field::optional("exclude", Shape::Texts),
    Field::nullable("pause_after_failures", WHOLE_32),
    Field::optional("overlap", Shape::Words(&["allow", "skip", "buffer_one", "cancel_running"])),
    Field::optional(
        "retry",
        Shape::Object(&[
            Field::optional("max_attempts", WHOLE_32),
            Field::optional("base_ms", Shape::Millis),
            Field::optional("cap_ms", Shape::Millis),
            Field::nullable("max_age_ms", Shape::Millis),
            Field::optional("max_rescues", WHOLE_32),
            Field::optional("max_lost_starts", WHOLE_32),
        ]),
    ),
    Field::optional("attempt_timeout_ms", Shape::Millis),
    Field::nullable("deadline_ms", Shape::Millis),
    Field::optional("dead_letter", Shape::Words(&["on", "off"])),
    Field::optional("run_if_past", Shape::Flag),
]);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::job::JobDefinition;

    /// Definitions in which every field that there is stands, so that the table is compared with the types.
    fn full() -> Vec<Value> {
        let job = |schedule: Value, misfire: Value| {
            json!({
                "name": "n", "handler": {"name": "noop", "version": 1}, "payload": {"a": [1]},
                "schedule": schedule, "misfire": misfire, "misfire_grace_ms": 1, "flex_ms": 0, "pause_after_failures": 1,
                "bounds": {"start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z", "max_runs": 3},
                "retry": {"max_attempts": 1, "base_ms": 1, "cap_ms": 2, "max_age_ms": 3, "max_rescues": 1,
                          "max_lost_starts": 1},
                "overlap": "skip", "concurrency_key": "k", "priority": "low", "attempt_timeout_ms": 1, "deadline_ms": 3,
                "dead_letter": "off", "run_if_past": true
            })
        };
        let cron = json!({"kind": "cron", "expr": "@daily", "zone": "UTC", "gap": "skip", "repeat": "last"});
        let interval = json!({"kind": "interval", "start": "2026-01-01T00:00:00Z", "every_ms": 1000});
        vec![
            job(cron, json!("skip")),
            job(interval, json!({"catch_up": {"cap": 1, "window_ms": 1}})),
            job(json!({"kind": "one_shot", "at": "2026-01-01T00:00:00Z"}), json!("fire_once")),
            job(json!({"kind": "manual"}), json!("fire_once")),
        ]
    }

    /// The pointers of everything below a value, payloads left out.
    fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        let Value::Object(fields) = value else { return };
        for (name, value) in fields.iter().filter(|(name, _)| *name != "payload") {
            pointers(value, &below(at, name), found);
        }
    }

    fn refused(value: &Value) -> DefinitionError {
        JobDefinition::parse(&value.to_string()).expect_err(&value.to_string())
    }

    fn plain(error: &DefinitionError) -> bool {
        ["struct", "i64", "u64", "u32", "usize", "variant", "sequence", "ScheduleWire"]
            .iter()
            .all(|word| !error.detail.contains(word))
    }

    #[test]
    fn every_field_of_another_kind_is_refused_at_its_place_in_plain_words() {
        let fraction: Value = serde_json::from_str("1.5").expect("a number");
        for job in full() {
            assert!(JobDefinition::parse(&job.to_string()).is_ok(), "{job}");
            let mut places = Vec::new();
            pointers(&job, "", &mut places);
            for place in places {
                let right = job.pointer(&place).expect("it was found there").clone();
                let fields: Vec<Value> =
                    right.as_object().map(|fields| fields.values().cloned().collect()).unwrap_or_default();
                for wrong in
                    [json!([]), json!(fields), json!([right]), fraction.clone(), json!(-1), json!({"x": 1})]
                {
                    let mut changed = job.clone();
                    *changed.pointer_mut(&place).expect("it was found there") = wrong;
                    let error = refused(&changed);
                    assert!(error.pointer.starts_with(&place) && plain(&error), "{changed}: {error}");
                }
            }
        }
    }

    #[test]
    fn every_object_refuses_fields_that_it_does_not_know_and_fields_given_twice() {
        for job in full() {
            let mut places = Vec::new();
            pointers(&job, "", &mut places);
            for place in places.iter().filter(|place| job.pointer(place).is_some_and(Value::is_object)) {
                let mut changed = job.clone();
                changed.pointer_mut(place).expect("it was found there")["surprise"] = json!(1);
                assert_eq!(refused(&changed).pointer, format!("{place}/surprise"));
                let twice = changed.to_string().replace(r#""surprise":1"#, r#""kind":1,"kind":1"#);
                assert!(JobDefinition::parse(&twice).is_err(), "{twice}");
            }
        }
        let twice = r#"{"name":"a","name":"b","handler":{"name":"noop"},"schedule":{"kind":"manual"}}"#;
        let error = JobDefinition::parse(twice).expect_err("twice");
        assert_eq!(
            (error.pointer.as_str(), error.detail.as_str()),
            ("/name", "the field `name` is given twice")
        );
    }

    #[test]
    fn a_missing_field_is_pointed_at() {
        for (job, place) in [
            (json!({}), "/name"),
            (json!({"name": "n"}), "/handler"),
            (json!({"name": "n", "handler": {}}), "/handler/name"),
            (json!({"name": "n", "handler": {"name": "noop"}, "schedule": {}}), "/schedule/kind"),
            (
                json!({"name": "n", "handler": {"name": "noop"}, "schedule": {"kind": "interval", "start": "x"}}),
                "/schedule/every_ms",
            ),
        ] {
            assert_eq!(refused(&job).pointer, place, "{job}");
        }
    }

    #[test]
    fn a_duration_in_quotes_is_told_what_it_should_be() {
        let mut job = full().remove(1);
        job["schedule"]["every_ms"] = json!("1000");
        let error = refused(&job);
        assert_eq!(error.pointer, "/schedule/every_ms");
        assert!(error.detail.starts_with("expected a whole number of milliseconds"), "{error}");
        assert!(error.detail.ends_with(r#"not the text "1000""#), "{error}");
    }

    #[test]
    fn a_body_that_is_no_json_is_told_where_it_stops_being_json() {
        for (text, place) in [
            ("", "(line 1, column 1)"),
            (" \n", "(line 1, column 1)"),
            ("{\n\"name\"", "(line 2, column 6)"),
            ("nonsense", "(line 1, column 2)"),
            ("{} x", "(line 1, column 4)"),
        ] {
            let error = JobDefinition::parse(text).expect_err(text);
            assert_eq!(error.pointer, "");
            assert!(
                error.detail.starts_with("the body is not JSON: ") && error.detail.ends_with(place),
                "{error}"
            );
        }
    }
}
