//! Whose request it is: the tenant of its bearer key.

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use fencepost_core::id::TenantId;

use super::problem::Problem;
use super::state::ApiState;
use crate::access;

/// The tenant that a request speaks for. Taking it as an argument is what makes a handler require a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller(pub(super) TenantId);

impl FromRequestParts<ApiState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Some(value) = parts.headers.get(AUTHORIZATION) else {
            return Err(Problem::unauthorized(
                "send Authorization: Bearer KEY, with a key from `fencepost tenant create`",
            ));
        };
        let key = value
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, key)) = key else {
            return Err(Problem::unauthorized("the Authorization header is not of the form: Bearer KEY"));
        };
        match access::tenant_of(&state.reads, key.trim()).await? {
            Some(tenant) => Ok(Self(tenant)),
            None => Err(Problem::unauthorized("this key is not known")),
        }
    }
}
