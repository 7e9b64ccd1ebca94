//! Statements: one fact each, with a code that stays, its numbers as fields, and a sentence.
//!
//! Each list of statements is an enum whose variants hold typed fields; [`statements!`] writes down with it the code,
//! what it means (for the table in the docs) and the sentence. Fields become JSON in one way: instants as RFC 3339,
//! spans as whole milliseconds in `…_ms`, ids as text, tokens, versions and counts as numbers.

use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::execution::{DeadLetterReason, ExecutionState, SkipReason};
use crate::fencing::FencingToken;
use crate::id::{DispatchNo, ExecutionId, JobVersion, NodeId};
use crate::job::Overlap;
use crate::partition::PartitionId;
use crate::priority::Priority;
use crate::replay::NotReplayable;
use crate::time::{Span, Timestamp};

/// Characters of an error that a sentence quotes; the field has all of it.
const QUOTE_CHARS_MAX: usize = 160;

/// One thing that is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What kind of thing it is, for machines; stable.
    pub code: &'static str,
    /// The same for people.
    pub sentence: String,
    /// Its instants, ids, tokens and numbers.
    pub fields: Vec<(String, Value)>,
}

/// One object: `code`, `sentence`, and the fields in their order.
impl Serialize for Statement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len() + 2))?;
        map.serialize_entry("code", self.code)?;
        map.serialize_entry("sentence", &self.sentence)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// One line of the table of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeEntry {
    /// Of which explanation and list: `execution/past`, `job/now`, …
    pub list: &'static str,
    /// The code.
    pub code: &'static str,
    meaning: &'static str,
    /// Names and units.
    fields: &'static [(&'static str, &'static str)],
}

impl CodeEntry {
    pub(super) const fn new(
        list: &'static str,
        code: &'static str,
        meaning: &'static str,
        fields: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { list, code, meaning, fields }
    }

    /// What it means.
    #[must_use]
    pub fn meaning(&self) -> &'static str {
        self.meaning.trim()
    }

    /// The names of its fields, as in JSON.
    pub fn fields(&self) -> impl Iterator<Item = String> + use<> {
        self.fields.iter().map(|(name, unit)| format!("{name}{unit}"))
    }
}

/// What may stand in a field of a statement.
pub(super) trait Field {
    /// What its name ends in.
    const UNIT: &'static str = "";

    /// It as JSON.
    fn value(&self) -> Value;
}

/// The name of a field with its unit.
pub(super) fn key<F: Field>(name: &str) -> String {
    format!("{name}{}", F::UNIT)
}

macro_rules! fields {
    ($($kind:ty => |$it:ident| $value:expr;)+) => {
        $(impl Field for $kind {
            fn value(&self) -> Value {
                let $it = self;
                $value.into()
            }
        })+
    };
}

fields!(
    Timestamp => |it| it.to_string();
    FencingToken => |it| it.as_i64();
    JobVersion => |it| it.0;
    DispatchNo => |it| it.0;
    PartitionId => |it| it.number();
    NodeId => |it| it.to_string();
    ExecutionId => |it| it.to_string();
    ExecutionState => |it| it.name();
    DeadLetterReason => |it| it.name();
    NotReplayable => |it| it.name();
    SkipReason => |it| it.name();
    Overlap => |it| it.name();
    Priority => |it| it.name();
    Arc<str> => |it| it.as_ref();
    String => |it| it.as_str();
    u16 => |it| *it;
    u32 => |it| *it;
    u64 => |it| *it;
    bool => |it| *it;
);

impl Field for Span {
    const UNIT: &'static str = "_ms";

    fn value(&self) -> Value {
        self.as_millis().into()
    }
}

impl<F: Field> Field for Option<F> {
    const UNIT: &'static str = F::UNIT;

    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Null, Field::value)
    }
}

/// Declares a list of statements: the enum, its codes, and what becomes of each as a [`Statement`].
macro_rules! statements {
    ($list:literal, $(#[doc = $doc:literal])+ $name:ident {
        $(#[doc = $meaning:literal]
        $variant:ident = $code:literal { $($field:ident: $kind:ty),* $(,)? } => $sentence:expr;)+
    }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug)]
        pub(in crate::explain) enum $name {
            $(#[doc = $meaning] $variant { $($field: $kind),* },)+
        }

        impl $name {
            /// Its codes.
            pub(in crate::explain) const CODES: &'static [$crate::explain::statement::CodeEntry] = &[
                $($crate::explain::statement::CodeEntry::new($list, $code, $meaning, &[$((
                    stringify!($field),
                    <$kind as $crate::explain::statement::Field>::UNIT,
                )),*]),)+
            ];
        }

        impl From<$name> for $crate::explain::statement::Statement {
            fn from(told: $name) -> Self {
                match told {
                    $($name::$variant { $($field),* } => {
                        let fields = vec![$((
                            $crate::explain::statement::key::<$kind>(stringify!($field)),
                            $crate::explain::statement::Field::value(&$field),
                        )),*];
                        let sentence: String = $sentence.into();
                        // A field is told as such; the sentence need not name it.
                        $(let _ = &$field;)*
                        Self { code: $code, sentence, fields }
                    })+
                }
            }
        }
    };
}
pub(super) use statements;

/// An error as a sentence quotes it, with a colon before it; nothing where there is none.
pub(super) fn quoted(error: Option<&Arc<str>>) -> String {
    let Some(error) = error else { return String::new() };
    let line: Vec<&str> = error.split_whitespace().collect();
    let line = line.join(" ");
    if line.chars().count() <= QUOTE_CHARS_MAX {
        return format!(": \"{line}\"");
    }
    let head: String = line.chars().take(QUOTE_CHARS_MAX).collect();
    format!(": \"{head}…\"")
}

/// ` of 5`, or nothing where the limit is not known.
pub(super) fn of_most(most: Option<u32>) -> String {
    most.map(|most| format!(" of {most}")).unwrap_or_default()
}

/// ` on NODE`, or nothing.
pub(super) fn on_worker(worker: Option<&NodeId>) -> String {
    worker.map(|worker| format!(" on worker {worker}")).unwrap_or_default()
}

/// `once`, `2 times`.
pub(super) fn times(count: u32) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// `1 worker`, `2 workers`.
pub(super) fn many(count: u32, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// A span as people say it: its two largest units, cut off below; milliseconds only under a minute.
pub(super) fn in_words(span: Span) -> String {
    let millis = span.as_millis();
    let (seconds, minutes, hours, days) =
        (millis / 1_000, millis / 60_000, millis / 3_600_000, millis / 86_400_000);
    let two = |large: u64, name: &str, small: u64, small_name: &str| {
        if small == 0 { format!("{large}{name}") } else { format!("{large}{name} {small}{small_name}") }
    };
    if days > 0 {
        two(days, "d", hours % 24, "h")
    } else if hours > 0 {
        two(hours, "h", minutes % 60, "m")
    } else if minutes > 0 {
        two(minutes, "m", seconds % 60, "s")
    } else if millis == 0 && span > Span::ZERO {
        format!("{}us", span.as_micros())
    } else if seconds > 0 && millis.is_multiple_of(1_000) {
        format!("{seconds}s")
    } else if seconds > 0 {
        format!("{seconds}.{:03}s", millis % 1_000)
    } else {
        format!("{millis}ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_explains_an_error_quotes_one_line_of_it_and_not_all_of_a_long_one() {
        let error: Arc<str> = "a\n  b".into();
        assert_eq!(quoted(Some(&error)), r#": "a b""#);
        let long: Arc<str> = "ä".repeat(500).into();
        assert_eq!(quoted(Some(&long)).chars().count(), QUOTE_CHARS_MAX + 5);
        assert_eq!(quoted(None), "");
    }

    #[test]
    fn what_explains_a_span_says_its_two_largest_units() {
        let said = [
            (0, "0ms"),
            (7, "7us"),
            (931_640, "931ms"),
            (1_916_015, "1.916s"),
            (60_000_000, "1m"),
            (598_500_000, "9m 58s"),
            (3_720_000_000, "1h 2m"),
            (90_000_000_000, "1d 1h"),
        ];
        for (micros, words) in said {
            assert_eq!(in_words(Span::from_micros(micros)), words);
        }
        assert_eq!(many(1, "worker"), "1 worker");
    }
}
