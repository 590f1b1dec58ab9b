//! [`Denial`]: why a request does not reach its route, or does not get its answer.

use std::time::Duration;

use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use tenure_core::{Code, Rejection};

use crate::identity::LoginRefused;
use crate::problem::HttpProblem;

/// After how long callers come back to a gateway that stops: another one is there by then.
const COME_BACK_MS: u64 = 1_000;

/// Why a request does not reach its route, or why its answer is not waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Denial {
    /// It does not say, or says twice, to which host it is sent.
    Host,
    /// It is sent to a name that is not this machine's.
    ForeignHost,
    /// A page of another site has sent it.
    ForeignOrigin,
    /// It has no credentials.
    NoLogin,
    /// It has credentials that are not valid.
    Login(LoginRefused),
    /// Its credentials are not looked at, as too many from there were not valid.
    TooManyLogins(Duration),
    /// Its body has more bytes than any may have.
    BodyTooLarge(usize),
    /// The bodies that are being read take all the memory that they may.
    TooManyBodies,
    /// The bodies of its caller take all the memory that those of one may.
    TooManyOwnBodies,
    /// It took too long.
    TooLate {
        /// Whether it may have changed something all the same.
        is_in_doubt: bool,
    },
    /// There is no room for its answer.
    Unanswered(Rejection),
    /// The gateway stops.
    Stopping,
}

impl Denial {
    /// The refusal of a request of this method that took too long.
    pub(super) fn too_late(method: &Method) -> Self {
        Self::TooLate { is_in_doubt: !matches!(*method, Method::GET | Method::HEAD) }
    }

    /// The refusal of a request of this method for whose answer there is no room.
    pub(super) fn unanswered(method: &Method, refused: Rejection) -> Self {
        Self::Unanswered(match *method {
            Method::GET | Method::HEAD => refused,
            // The command was carried out: whoever repeats it gets its answer.
            _ => Rejection::in_doubt(refused.message),
        })
    }
}

impl From<Denial> for HttpProblem {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Host => Self::malformed("the request does not name its host once"),
            Denial::ForeignHost => Self::forbidden(
                "the request is for a host that is not this machine: without authentication only \
                 localhost and the names that the gateway was given are answered",
            ),
            Denial::ForeignOrigin => Self::forbidden("a page of another site has sent the request"),
            Denial::NoLogin => Self::unauthenticated(),
            Denial::Login(why) => challenge(&why),
            Denial::TooManyLogins(wait) => too_many_logins(wait),
            Denial::BodyTooLarge(limit) => Self::too_large(limit),
            Denial::TooManyBodies => unavailable(
                "the bodies of other requests take all the memory that there is for them",
            ),
            Denial::TooManyOwnBodies => {
                let message = "your other requests take all the memory that there is for the bodies of one caller: \
                     send fewer at a time";
                let refused = Rejection::new(Code::Unavailable, message);
                let refused = refused.with("retry_after_ms", COME_BACK_MS);
                Self::new(StatusCode::TOO_MANY_REQUESTS, refused)
            }
            Denial::TooLate { is_in_doubt: true } => {
                Rejection::in_doubt("the request took too long").into()
            }
            Denial::TooLate { is_in_doubt: false } => unavailable("the request took too long"),
            Denial::Unanswered(refused) => refused.into(),
            Denial::Stopping => unavailable("the gateway stops"),
        }
    }
}

impl IntoResponse for Denial {
    fn into_response(self) -> Response {
        HttpProblem::from(self).into_response()
    }
}

fn unavailable(message: &str) -> HttpProblem {
    Rejection::new(Code::Unavailable, message).with("retry_after_ms", COME_BACK_MS).into()
}

/// 401 with what was wrong, in the form of RFC 6750.
fn challenge(why: &LoginRefused) -> HttpProblem {
    let message = why.to_string();
    let quoted: String = message.chars().filter(|it| !matches!(it, '"' | '\\')).collect();
    let said = format!("Bearer error=\"invalid_token\", error_description=\"{quoted}\"");
    let said = HeaderValue::try_from(said)
        .unwrap_or(HeaderValue::from_static("Bearer error=\"invalid_token\""));
    let problem = HttpProblem::from(Rejection::new(Code::Unauthenticated, message));
    problem.with_header(WWW_AUTHENTICATE, said)
}

fn too_many_logins(wait: Duration) -> HttpProblem {
    let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let message = "too many requests with credentials that are not valid came from this address";
    let refused = Rejection::new(Code::Unauthenticated, message).with("retry_after_ms", wait);
    HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, refused)
}

#[cfg(test)]
mod tests {
    use axum::http::header::RETRY_AFTER;

    use super::*;

    #[test]
    fn each_reason_has_its_status() {
        for (denial, status) in [
            (Denial::Host, 400),
            (Denial::ForeignHost, 403),
            (Denial::ForeignOrigin, 403),
            (Denial::NoLogin, 401),
            (Denial::Login(LoginRefused::Invalid), 401),
            (Denial::TooManyLogins(Duration::ZERO), 429),
            (Denial::BodyTooLarge(1), 413),
            (Denial::TooManyBodies, 503),
            (Denial::TooManyOwnBodies, 429),
            (Denial::too_late(&Method::GET), 503),
            (Denial::too_late(&Method::POST), 503),
            (Denial::Stopping, 503),
        ] {
            assert_eq!(HttpProblem::from(denial.clone()).status(), status, "{denial:?}");
        }
        let post = HttpProblem::from(Denial::too_late(&Method::POST));
        assert!(post.rejection().is_ambiguous(), "the command may have been carried out");
        let get = HttpProblem::from(Denial::too_late(&Method::GET));
        assert!(!get.rejection().is_ambiguous());
    }

    #[test]
    fn who_is_refused_is_told_how_to_do_it_right() {
        let expired = Denial::Login(LoginRefused::Expired).into_response();
        let said = expired.headers()[WWW_AUTHENTICATE].to_str().unwrap();
        let expected =
            "Bearer error=\"invalid_token\", error_description=\"the credentials have expired\"";
        assert_eq!(said, expected);
        let quotes = LoginRefused::Claims("the claim \"a\\b\r\nx: y".to_owned());
        let odd = Denial::Login(quotes).into_response();
        assert_eq!(odd.headers()[WWW_AUTHENTICATE], "Bearer error=\"invalid_token\"");
        let many = Denial::TooManyLogins(Duration::from_millis(2_500)).into_response();
        assert_eq!(many.headers()[RETRY_AFTER], "3");
        assert!(Denial::NoLogin.into_response().headers().contains_key(WWW_AUTHENTICATE));
    }
}
