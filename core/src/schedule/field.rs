//! One field of a cron expression: text into a set of values.
//!
//! A field is a comma-separated list of `*`, `a`, `a-b`, each optionally with `/n`. `a/n` means from
//! `a` to the field's largest value by `n`. Months and weekdays have three-letter names in any case.
//! Weekdays run from 0 to 7 while a field is read, so that `5-7` and `FRI-SUN` are ranges like any
//! other; afterwards 7 is folded into 0. Everything else is refused with the field named.
//!
//! Relied upon: the set is never empty, holds only values of the field, and reading it takes time
//! linear in the text, whatever the text is.

use core::fmt;

use super::cron::CronError;

/// A field of a cron expression, named as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CronField {
    /// 0 to 59; only in expressions of six fields.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31.
    DayOfMonth,
    /// 1 to 12, or `JAN` to `DEC`.
    Month,
    /// 0 to 7, Sunday being 0 and 7, or `SUN` to `SAT`.
    DayOfWeek,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// The longest piece of a refused expression that an error repeats.
const QUOTED_CHARS: usize = 40;

impl CronField {
    /// The smallest value.
    #[must_use]
    pub const fn smallest(self) -> u32 {
        match self {
            Self::Second | Self::Minute | Self::Hour | Self::DayOfWeek => 0,
            Self::DayOfMonth | Self::Month => 1,
        }
    }

    /// The largest value, which is also the largest step.
    #[must_use]
    pub const fn largest(self) -> u32 {
        match self {
            Self::Second | Self::Minute => 59,
            Self::Hour => 23,
            Self::DayOfMonth => 31,
            Self::Month => 12,
            Self::DayOfWeek => 7,
        }
    }

    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Second | Self::Minute | Self::Hour | Self::DayOfMonth => &[],
            Self::Month => &MONTHS,
            Self::DayOfWeek => &WEEKDAYS,
        }
    }
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day-of-month",
            Self::Month => "month",
            Self::DayOfWeek => "day-of-week",
        })
    }
}

/// A set of field values, one bit each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ValueSet(u64);

impl ValueSet {
    const EMPTY: Self = Self(0);
    /// Nothing but the value 0.
    pub(super) const ZERO: Self = Self(1);

    pub(super) const fn contains(self, value: u32) -> bool {
        value < u64::BITS && self.0 & (1 << value) != 0
    }

    const fn with(self, value: u32) -> Self {
        Self(self.0 | 1 << value)
    }

    /// The smallest value from `value` on.
    pub(super) const fn at_or_after(self, value: u32) -> Option<u32> {
        if value >= u64::BITS || self.0 >> value == 0 {
            None
        } else {
            Some(value + (self.0 >> value).trailing_zeros())
        }
    }

    /// The largest value below `value`.
    pub(super) const fn before(self, value: u32) -> Option<u32> {
        let below = if value >= u64::BITS { self.0 } else { self.0 & ((1 << value) - 1) };
        below.checked_ilog2()
    }

    pub(super) fn values(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |value| self.contains(*value))
    }
}

/// What a field says: its values, and the two things that its text decides beyond them.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldValues {
    pub(super) values: ValueSet,
    /// It begins with `*`: as a day field it is unrestricted.
    pub(super) star: bool,
    /// It holds `*`, `/` or `-`: as a second, minute or hour field it is interval-like.
    pub(super) interval_like: bool,
}

/// One end of an item as it was written: the value, and whether it was Sunday's name.
#[derive(Clone, Copy)]
struct Value {
    number: u32,
    sunday_by_name: bool,
}

pub(super) fn parse(field: CronField, text: &str) -> Result<FieldValues, CronError> {
    let mut values = ValueSet::EMPTY;
    for item in text.split(',') {
        if item.is_empty() {
            return Err(CronError::EmptyItem { field });
        }
        values = add_item(field, item, values)?;
    }
    if field == CronField::DayOfWeek && values.contains(7) {
        values = ValueSet(values.0 & !(1 << 7)).with(0);
    }
    Ok(FieldValues { values, star: text.starts_with('*'), interval_like: text.contains(['*', '/', '-']) })
}

fn add_item(field: CronField, item: &str, values: ValueSet) -> Result<ValueSet, CronError> {
    let (base, step) = match item.split_once('/') {
        Some((base, step)) => (base, Some(parse_step(field, item, step)?)),
        None => (item, None),
    };
    let (start, end) = match base.split_once('-') {
        _ if base == "*" => (field.smallest(), field.largest()),
        Some((start, end)) => parse_range(field, item, start, end)?,
        None => {
            let start = parse_value(field, item, base)?.number;
            (start, if step.is_some() { field.largest() } else { start })
        }
    };
    let step = step.unwrap_or(1) as usize;
    Ok((start..=end).step_by(step).fold(values, ValueSet::with))
}

fn parse_step(field: CronField, item: &str, step: &str) -> Result<u32, CronError> {
    let number = digits(step).ok_or_else(|| refuse(field, item))?;
    if number == 0 || number > field.largest() {
        return Err(CronError::Step { field, item: quoted(item), largest: field.largest() });
    }
    Ok(number)
}

fn parse_range(field: CronField, item: &str, start: &str, end: &str) -> Result<(u32, u32), CronError> {
    let start = parse_value(field, item, start)?.number;
    let end = parse_value(field, item, end)?;
    // `FRI-SUN` names no number, and Sunday is 7 as well as 0; `5-0` says 0 and is reversed.
    let end = if end.sunday_by_name && start > 0 { field.largest() } else { end.number };
    if start > end {
        return Err(CronError::ReversedRange { field, item: quoted(item) });
    }
    Ok((start, end))
}

fn parse_value(field: CronField, item: &str, text: &str) -> Result<Value, CronError> {
    if let Some(number) = digits(text) {
        if number < field.smallest() || number > field.largest() {
            let (smallest, largest) = (field.smallest(), field.largest());
            return Err(CronError::OutOfRange { field, item: quoted(item), smallest, largest });
        }
        return Ok(Value { number, sunday_by_name: false });
    }
    let named = field.names().iter().position(|name| name.eq_ignore_ascii_case(text));
    match named.and_then(|index| u32::try_from(index).ok()) {
        Some(index) => Ok(Value {
            number: index + field.smallest(),
            sunday_by_name: field == CronField::DayOfWeek && index == 0,
        }),
        None => Err(refuse(field, item)),
    }
}

/// A number of nothing but ASCII digits; one that is too large for `u32` becomes its largest value.
fn digits(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u32::MAX))
}

/// The error for an item that is no item: other dialects' extensions get a hint of their own.
fn refuse(field: CronField, item: &str) -> CronError {
    let is_extension = |part: &str| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        ["L", "W", "LW", "WL"].iter().any(|extension| rest.eq_ignore_ascii_case(extension))
    };
    let extension = match item {
        _ if item.contains('?') => Some("?"),
        _ if item.contains('#') => Some("#"),
        _ if item.split(['-', '/']).any(is_extension) => Some("L and W"),
        _ => None,
    };
    match extension {
        Some(extension) => CronError::Extension { field, item: quoted(item), extension },
        None => CronError::Item {
            field,
            item: quoted(item),
            names: match field.names() {
                [] => String::new(),
                [first, .., last] | [first @ last] => format!(" or a name, {first} to {last}"),
            },
        },
    }
}

/// A piece of refused text for an error: short, and without control characters.
pub(super) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(QUOTED_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().nth(QUOTED_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(field: CronField, text: &str) -> Vec<u32> {
        parse(field, text).expect("a valid field").values.values().collect()
    }

    #[test]
    fn a_number_with_a_step_runs_to_the_end_of_the_field() {
        assert_eq!(values(CronField::Minute, "7/20"), [7, 27, 47]);
        assert_eq!(values(CronField::Month, "JUN/3"), [6, 9, 12]);
        assert_eq!(values(CronField::DayOfWeek, "1/2"), [0, 1, 3, 5]);
    }

    #[test]
    fn sunday_is_zero_and_seven_and_ends_a_range_by_name() {
        assert_eq!(values(CronField::DayOfWeek, "7"), [0]);
        assert_eq!(values(CronField::DayOfWeek, "5-7"), [0, 5, 6]);
        assert_eq!(values(CronField::DayOfWeek, "fri-Sun"), [0, 5, 6]);
        assert_eq!(values(CronField::DayOfWeek, "SUN-TUE"), [0, 1, 2]);
        assert_eq!(values(CronField::DayOfWeek, "SUN-SUN"), [0]);
        assert!(matches!(parse(CronField::DayOfWeek, "5-0"), Err(CronError::ReversedRange { .. })));
    }

    #[test]
    fn the_largest_step_is_the_largest_value() {
        assert_eq!(values(CronField::Minute, "*/59"), [0, 59]);
        assert_eq!(values(CronField::DayOfWeek, "*/7"), [0]);
        for (field, text) in [
            (CronField::Minute, "*/60"),
            (CronField::Hour, "0-5/24"),
            (CronField::DayOfMonth, "*/32"),
            (CronField::Month, "1/13"),
            (CronField::DayOfWeek, "*/8"),
            (CronField::Second, "*/99999999999999999999"),
            (CronField::Second, "*/000"),
        ] {
            assert!(matches!(parse(field, text), Err(CronError::Step { .. })), "{field} {text}");
        }
    }

    #[test]
    fn what_other_dialects_add_is_refused_with_the_field_named() {
        for text in ["?", "L", "5L", "15W", "LW", "L-3", "MON#2", "2#1"] {
            let error = parse(CronField::DayOfMonth, text).expect_err("an extension");
            assert!(matches!(error, CronError::Extension { .. }), "{text}: {error:?}");
            assert!(error.to_string().starts_with("day-of-month field: "), "{error}");
        }
    }

    #[test]
    fn what_is_no_item_is_refused_without_repeating_all_of_it() {
        for text in [
            "-", "1-", "-1", "+1", "1-2-3", "1/2/3", "**", "*-5", "a", "/5", "*/", "1 ", "\u{0}", "é",
            "JANUARY",
        ] {
            let error = parse(CronField::Month, text).expect_err("no item");
            assert!(matches!(error, CronError::Item { .. }), "{text}: {error:?}");
        }
        let long = parse(CronField::Minute, &"x".repeat(900)).expect_err("no item");
        assert!(long.to_string().len() < 200, "{long}");
    }
}
