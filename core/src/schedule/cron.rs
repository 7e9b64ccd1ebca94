//! Cron expressions: what is accepted, what it means, and the errors that say otherwise.
//!
//! Five fields (minute first) or six (second first), or one of the `@` names. A day field that
//! begins with `*` is unrestricted; if either is, a day must match both, and if neither is, one
//! suffices. This is Debian's rule, and it makes `*/2` in one day field a filter on the other.
//!
//! An expression is compiled once, into the walk over local time that `walk.rs` makes of it, and is
//! then shared: a clone is a counted reference. Two expressions are equal, ordered and hashed by
//! their text, which is also how they are stored.
//!
//! Must stay true: parsing takes time linear in the text, a text longer than [`MAX_CHARS`] is not
//! looked at, and an expression that parses fires, in every span of fifty years.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use super::field::CronField;
use super::field::{self, FieldValues, quoted};
use super::walk::{DayRule, Fields, Walk};

/// The longest expression that is read, in characters.
pub const MAX_CHARS: usize = 1_000;

/// A valid cron expression, compiled; cheap to clone.
#[derive(Clone)]
pub struct CronExpr(Arc<Compiled>);

struct Compiled {
    text: String,
    interval_like: bool,
    walk: Walk,
}

/// Why a text is no cron expression, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// It is too long to be looked at.
    #[error("a cron expression has at most {MAX_CHARS} characters; shorten the lists in it")]
    TooLong,
    /// It has neither five nor six fields.
    #[error(
        "a cron expression has five fields (minute first) or six (second first), this has {found}{}",
        if *found == 7 { "; a year field is not supported: use the schedule's start and end" } else { "" }
    )]
    FieldCount {
        /// How many there are.
        found: usize,
    },
    /// It begins with `TZ=…` or another assignment.
    #[error(
        "`{text}`: a cron expression takes no assignments; give the time zone beside it, as its own setting"
    )]
    Assignment {
        /// The assignment.
        text: String,
    },
    /// It begins with `@`, but not with a known name.
    #[error(
        "`{text}` is not known; use one of @yearly @annually @monthly @weekly @daily @midnight @hourly, \
         or five or six fields"
    )]
    UnknownName {
        /// The name.
        text: String,
    },
    /// A list has nothing between two commas, before the first or after the last.
    #[error("{field} field: a list has an empty item; remove the comma that has nothing beside it")]
    EmptyItem {
        /// The field.
        field: CronField,
    },
    /// An item is not of the form that cron knows.
    #[error(
        "{field} field: `{item}` is not understood; use *, a number{names}, a-b, and /n for steps, separated by commas"
    )]
    Item {
        /// The field.
        field: CronField,
        /// The item.
        item: String,
        /// What the field knows beyond numbers.
        names: String,
    },
    /// An item uses what only other dialects have.
    #[error("{field} field: `{item}` uses {extension}, which is not supported; list the values instead")]
    Extension {
        /// The field.
        field: CronField,
        /// The item.
        item: String,
        /// What is not supported.
        extension: &'static str,
    },
    /// A value lies outside the field.
    #[error("{field} field: `{item}` is out of range; values go from {smallest} to {largest}")]
    OutOfRange {
        /// The field.
        field: CronField,
        /// The item.
        item: String,
        /// The field's smallest value.
        smallest: u32,
        /// The field's largest value.
        largest: u32,
    },
    /// A range ends before it begins.
    #[error(
        "{field} field: `{item}` ends before it begins; write it as two ranges, such as 22-23,0-2 for hours"
    )]
    ReversedRange {
        /// The field.
        field: CronField,
        /// The item.
        item: String,
    },
    /// A step is zero or larger than the field's largest value.
    #[error(
        "{field} field: `{item}` has a step that is not from 1 to {largest}; use a smaller step or single values"
    )]
    Step {
        /// The field.
        field: CronField,
        /// The item.
        item: String,
        /// The field's largest value.
        largest: u32,
    },
    /// No month named has a day named.
    #[error(
        "day-of-month field: no month of the month field has such a day, so this never fires; change either"
    )]
    NeverFires,
}

impl CronError {
    /// The field that is wrong, where it is one.
    #[must_use]
    pub const fn field(&self) -> Option<CronField> {
        match self {
            Self::TooLong | Self::FieldCount { .. } | Self::Assignment { .. } | Self::UnknownName { .. } => {
                None
            }
            Self::EmptyItem { field }
            | Self::Item { field, .. }
            | Self::Extension { field, .. }
            | Self::OutOfRange { field, .. }
            | Self::ReversedRange { field, .. }
            | Self::Step { field, .. } => Some(*field),
            Self::NeverFires => Some(CronField::DayOfMonth),
        }
    }
}

impl CronExpr {
    /// Reads an expression.
    ///
    /// # Errors
    /// [`CronError`] for everything that is not exactly such an expression, and for those that never fire.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        // A character has at most four bytes, so most of what is too long is not even counted.
        if text.len() > 4 * MAX_CHARS || text.chars().count() > MAX_CHARS {
            return Err(CronError::TooLong);
        }
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
        let (second, rest) = split(text)?;
        let interval_like =
            second.is_some_and(|field| field.interval_like) || rest[0].interval_like || rest[1].interval_like;
        let [minute, hour, day_of_month, month, day_of_week] = rest;
        let fields = Fields {
            second: second.map(|field| field.values),
            minute: minute.values,
            hour: hour.values,
            day_of_month: day_of_month.values,
            month: month.values,
            day_of_week: day_of_week.values,
            day_rule: if day_of_month.star || day_of_week.star { DayRule::Both } else { DayRule::Either },
        };
        let walk = Walk::new(&fields).ok_or(CronError::NeverFires)?;
        Ok(Self(Arc::new(Compiled { text: text.to_owned(), interval_like, walk })))
    }

    /// The text, as it was given but for white space around it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.text
    }

    /// Whether it has `*`, `/` or `-` in its second, minute or hour field. Then what it asks for is a
    /// distance between fires rather than times of day, and daylight saving is treated accordingly.
    #[must_use]
    pub fn interval_like(&self) -> bool {
        self.0.interval_like
    }

    pub(super) fn walk(&self) -> &Walk {
        &self.0.walk
    }
}

/// The fields of an expression: the second where there is one, then the other five in order.
type Split = (Option<FieldValues>, [FieldValues; 5]);

fn split(text: &str) -> Result<Split, CronError> {
    const ORDER: [CronField; 5] =
        [CronField::Minute, CronField::Hour, CronField::DayOfMonth, CronField::Month, CronField::DayOfWeek];
    let text = if text.starts_with('@') { expand(text)? } else { text };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if let Some(assignment) = words.first().filter(|word| word.contains('=')) {
        return Err(CronError::Assignment { text: quoted(assignment) });
    }
    let (second, words) = match words.as_slice() {
        [second, rest @ ..] if rest.len() == ORDER.len() => {
            (Some(field::parse(CronField::Second, second)?), rest)
        }
        words => (None, words),
    };
    let &[minute, hour, day_of_month, month, day_of_week] = words else {
        return Err(CronError::FieldCount { found: words.len() });
    };
    let texts = [minute, hour, day_of_month, month, day_of_week];
    let mut parsed = [field::parse(ORDER[0], texts[0])?; 5];
    for (slot, (field, text)) in parsed.iter_mut().zip(ORDER.into_iter().zip(texts)).skip(1) {
        *slot = field::parse(field, text)?;
    }
    Ok((second, parsed))
}

fn expand(name: &str) -> Result<&'static str, CronError> {
    const NAMES: [(&str, &str); 7] = [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ];
    let known = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, fields)| *fields).ok_or_else(|| CronError::UnknownName { text: quoted(name) })
}

impl FromStr for CronExpr {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        Self::parse(text)
    }
}

impl fmt::Display for CronExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CronExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CronExpr").field(&self.as_str()).finish()
    }
}

impl PartialEq for CronExpr {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for CronExpr {}

impl PartialOrd for CronExpr {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CronExpr {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl Hash for CronExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl Serialize for CronExpr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for CronExpr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> CronError {
        CronExpr::parse(text).expect_err("a refused expression")
    }

    #[test]
    fn interval_like_is_decided_by_the_fields_of_the_clock_alone() {
        let like = |text: &str| CronExpr::parse(text).expect("a valid expression").interval_like();
        for text in ["*/5 2 * * *", "0 9-17 * * *", "0 * * * *", "@hourly", "* 0 0 * * *", "7/20 3 * * *"] {
            assert!(like(text), "{text}");
        }
        for text in ["30 2 * * *", "0 30 2 */2 * 1-5", "0,15 1,2 * * *", "@daily", "@weekly"] {
            assert!(!like(text), "{text}");
        }
    }

    #[test]
    fn the_number_of_fields_is_never_guessed() {
        assert_eq!(error(""), CronError::FieldCount { found: 0 });
        assert_eq!(error("* * * *"), CronError::FieldCount { found: 4 });
        assert!(error("0 0 0 1 1 * 2030").to_string().contains("year field"));
        assert_eq!(error("@daily 1"), CronError::UnknownName { text: "@daily 1".into() });
        assert_eq!(error("@reboot"), CronError::UnknownName { text: "@reboot".into() });
        assert_eq!(error("TZ=UTC 0 3 * * *"), CronError::Assignment { text: "TZ=UTC".into() });
    }

    #[test]
    fn a_thousand_characters_are_read_and_one_more_is_not() {
        let spaced = |chars: usize| format!("* * * *{}*", " ".repeat(chars - 8));
        assert!(CronExpr::parse(&spaced(1_000)).is_ok());
        assert_eq!(error(&spaced(1_001)), CronError::TooLong);
        assert_eq!(error(&"é".repeat(1_001)), CronError::TooLong);
        assert_eq!(error(&"é".repeat(1_000)), CronError::FieldCount { found: 1 });
    }

    #[test]
    fn a_day_that_no_month_has_never_fires_unless_a_weekday_suffices() {
        assert_eq!(error("0 0 30 2 *"), CronError::NeverFires);
        assert_eq!(error("0 0 31 4,6,9,11 */2"), CronError::NeverFires);
        assert!(CronExpr::parse("0 0 30 2 MON").is_ok());
        assert!(CronExpr::parse("0 0 29 2 */7").is_ok());
    }

    #[test]
    fn expressions_are_equal_ordered_and_stored_by_their_text() {
        let spaced = CronExpr::parse(" 0 3 * * * ").expect("white space around it is dropped");
        let plain: CronExpr = serde_json::from_str("\"0 3 * * *\"").expect("stored text is parsed");
        assert_eq!(spaced, plain);
        assert_eq!(serde_json::to_string(&spaced).expect("text"), "\"0 3 * * *\"");
        let refused = serde_json::from_str::<CronExpr>("\"0 25 * * *\"").expect_err("out of range");
        assert!(refused.to_string().contains("hour field"), "{refused}");
    }
}
