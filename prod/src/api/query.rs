//! Reading requests strictly: bodies, parameters, ids and keys, each refused by name.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use fencepost_core::job::check_text;
use fencepost_core::time::Timestamp;

use super::BODY_BYTES_MAX;
use super::problem::Problem;

/// Rows on a page where the request does not say.
const PAGE_DEFAULT: u32 = 100;
/// Rows on a page at most.
const PAGE_MAX: u32 = 1_000;
/// Before every instant and after every id that exists: where a listing from newest to oldest begins.
const FROM_THE_NEWEST: Timestamp = Timestamp::MAX;

/// A body that is JSON text, or empty.
pub(super) fn json_body(headers: &HeaderMap, body: Result<Bytes, BytesRejection>) -> Result<String, Problem> {
    let body = body.map_err(|error| match error {
        BytesRejection::FailedToBufferBody(_) => {
            Problem::too_large(format!("a body has at most {BODY_BYTES_MAX} bytes"))
        }
        other => Problem::bad_body(other.to_string()),
    })?;
    let is_json = headers.get(CONTENT_TYPE).is_none_or(|value| {
        value
            .to_str()
            .is_ok_and(|text| text.split(';').next().is_some_and(|kind| kind.trim().ends_with("json")))
    });
    if !is_json && !body.is_empty() {
        return Err(Problem::not_json());
    }
    String::from_utf8(body.into()).map_err(|_| Problem::bad_body("the body is not UTF-8"))
}

/// The caller's key of this request, if it gives one.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<Arc<str>>, Problem> {
    const NAME: &str = "Idempotency-Key";
    let mut values = headers.get_all(NAME).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::bad_parameter(NAME, "is given more than once"));
    }
    let text = value.to_str().map_err(|_| Problem::bad_parameter(NAME, "holds other than visible ASCII"))?;
    check_text(NAME, text).map_err(|error| Problem::bad_parameter(NAME, error.detail))?;
    Ok(Some(text.into()))
}

/// An id in a path. One that cannot be an id is one that is not there.
pub(super) fn path_id<Id: FromStr>(what: &str, text: &str) -> Result<Id, Problem> {
    text.parse().map_err(|_| Problem::not_found(what, text))
}

/// The parameters of a listing.
#[derive(Debug)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Reads them; one that is not among `known`, or is given twice, is refused.
    pub(super) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut parameters = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !known.contains(&name.as_ref()) {
                let detail = format!("is not a parameter of this path; it takes {}", known.join(", "));
                return Err(Problem::bad_parameter(&name, detail));
            }
            if parameters.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(Problem::bad_parameter(&name, "is given more than once"));
            }
        }
        Ok(Self(parameters))
    }

    /// A parameter, parsed.
    pub(super) fn parse<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
        is: &str,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.0.get(name) else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| Problem::bad_parameter(name, format!("{text:?} is not {is}")))
    }

    /// How many rows a page has.
    pub(super) fn limit(&self) -> Result<u32, Problem> {
        let parse = |text: &str| text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
        Ok(self.parse("limit", parse, &format!("a number from 1 to {PAGE_MAX}"))?.unwrap_or(PAGE_DEFAULT))
    }

    /// Where the page before ended.
    pub(super) fn cursor(&self) -> Result<Cursor, Problem> {
        Ok(self.parse("cursor", Cursor::parse, "a cursor of an earlier page")?.unwrap_or(Cursor::NEWEST))
    }
}

/// A place in a listing from newest to oldest: rows come strictly before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) at: Timestamp,
    pub(super) id: uuid::Uuid,
}

impl Cursor {
    const NEWEST: Self = Self { at: FROM_THE_NEWEST, id: uuid::Uuid::max() };

    fn parse(text: &str) -> Option<Self> {
        let (at, id) = text.split_once('_')?;
        Some(Self { at: Timestamp::from_micros(at.parse().ok()?), id: id.parse().ok()? })
    }

    pub(super) fn to_text(self) -> String {
        format!("{}_{}", self.at.as_micros(), self.id.simple())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        assert!(Parameters::read(Some("limit=1&x=2"), &["limit"]).is_err());
        assert!(Parameters::read(Some("limit=1&limit=2"), &["limit"]).is_err());
        for limit in ["0", "-1", "1001", "ten", ""] {
            let parameters = Parameters::read(Some(&format!("limit={limit}")), &["limit"]).expect("known");
            assert!(parameters.limit().is_err(), "{limit}");
        }
    }

    #[test]
    fn a_cursor_is_read_back() {
        let cursor = Cursor { at: Timestamp::from_micros(-5), id: uuid::Uuid::from_u128(7) };
        assert_eq!(Cursor::parse(&cursor.to_text()), Some(cursor));
        for text in ["", "_", "1_", "x_00000000000000000000000000000007"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }
}
