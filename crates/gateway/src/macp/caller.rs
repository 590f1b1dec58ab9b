//! Who calls, and as what it is let into the sessions.

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Router, body::Body};
use tenure_core::id::PoolId;
use tenure_core::status::Role;
use tenure_macp::{MacpCode, MacpRefusal, MacpSession};

use super::{MACP_POOL, MacpSettings, asks_itself};
use crate::identity::Identity;

/// The other header in which a client may bring its token.
const TOKEN: HeaderName = HeaderName::from_static("x-macp-token");

/// What stands before a token.
const SCHEME: &str = "bearer ";

/// How long the name of a sender may be, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// The name that a token gives its bearer, where tokens are trusted. It is there before anybody has looked at it.
#[derive(Debug, Clone)]
struct TokenName(String);

/// A caller of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MacpCaller {
    /// Its name, which is that of the sender in its messages (MACP-16).
    pub(super) name: String,
    /// Its role.
    role: Role,
}

impl MacpCaller {
    /// The caller of a request.
    ///
    /// # Errors
    /// UNAUTHENTICATED, or FORBIDDEN for a login that is not let in.
    pub(super) fn of(parts: &Extensions, settings: &MacpSettings) -> Result<Self, MacpRefusal> {
        if settings.trusts_tokens {
            let TokenName(name) = parts.get().cloned().ok_or_else(no_login)?;
            return Ok(Self { name, role: Role::Orchestrator });
        }
        let who = parts.get::<Identity>().ok_or_else(no_login)?;
        let may = match who.role {
            Role::Worker => PoolId::new(MACP_POOL).is_ok_and(|pool| who.pools.admits(&pool)),
            _ => who.sessions.admits(&settings.session),
        };
        if !may {
            let message =
                "this login is let neither into the session of the Tasks nor into the pool macp";
            return Err(MacpRefusal::new(MacpCode::Forbidden, message));
        }
        Ok(Self { name: who.principal.as_str().to_owned(), role: who.role })
    }

    /// Tenure itself, under one of its names.
    pub(super) fn of_tenure(name: &str) -> Self {
        Self { name: name.to_owned(), role: Role::Orchestrator }
    }

    /// Refuses who may only look on.
    ///
    /// # Errors
    /// FORBIDDEN.
    pub(super) fn check_sends(&self) -> Result<(), MacpRefusal> {
        match self.role {
            Role::Observer => {
                Err(MacpRefusal::new(MacpCode::Forbidden, "an observer sends no messages"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses who may not make Tasks.
    ///
    /// # Errors
    /// FORBIDDEN.
    pub(super) fn check_starts(&self) -> Result<(), MacpRefusal> {
        match self.role {
            Role::Orchestrator => Ok(()),
            role => {
                let message = format!(
                    "a {role} starts no session: its login must be that of an orchestrator"
                );
                Err(MacpRefusal::new(MacpCode::Forbidden, message))
            }
        }
    }

    /// Whether it may read a session: an observer may read every one.
    pub(super) fn may_read(&self, session: &MacpSession) -> bool {
        self.role == Role::Observer || session.may_read(&self.name)
    }
}

fn no_login() -> MacpRefusal {
    let message = "bring a token that is valid here, as authorization: Bearer <token>";
    MacpRefusal::new(MacpCode::Unauthenticated, message)
}

/// The same routes, before which a token is found where clients of MACP bring it. This stands before the guard.
pub(crate) fn with_credentials(routes: Router) -> Router {
    routes.layer(from_fn(async |mut request: Request<Body>, next: Next| -> Response {
        if asks_itself(request.uri().path()) {
            let brought = brought(request.headers());
            if let Some(name) = brought.as_deref().filter(|it| is_name(it)) {
                request.extensions_mut().insert(TokenName(name.to_owned()));
            }
            let value = brought.and_then(|it| HeaderValue::try_from(format!("Bearer {it}")).ok());
            if let Some(value) = value.filter(|_| !request.headers().contains_key(AUTHORIZATION)) {
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            request.headers_mut().remove(TOKEN);
        }
        next.run(request).await
    }))
}

/// The token that a request brings.
fn brought(headers: &HeaderMap) -> Option<String> {
    let text = |value: &HeaderValue| value.to_str().ok().map(str::trim).map(str::to_owned);
    let Some(said) = headers.get(AUTHORIZATION) else { return headers.get(TOKEN).and_then(text) };
    let said = text(said)?;
    let (scheme, token) = said.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim().to_owned())
}

fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn a_token_stands_in_one_of_two_headers() {
        let of = |pairs: &[_]| brought(&headers(pairs));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("authorization", "Bearer planner")]), Some("planner".into()));
        assert_eq!(of(&[("authorization", "bearer agent://x ")]), Some("agent://x".into()));
        assert_eq!(of(&[("x-macp-token", "planner")]), Some("planner".into()));
        assert_eq!(of(&[("authorization", "Basic a"), ("x-macp-token", "b")]), None);
        for name in ["", "a\nb", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(!is_name(name));
        }
    }
}
