//! What the client library tells of a connection: that it is there, what is wrong with it, and what the
//! server refuses to this principal. That is said beside the answers: whoever waits for one is to hear it, as
//! none will come.

use std::sync::Arc;

use async_nats::{ClientError, ConnectErrorKind, Event, ServerError};
use parking_lot::Mutex;
use tenure_core::{Code, Rejection};
use tokio::sync::watch;

use super::patience::unavailable;

/// What the client library tells of its connection.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) connects: watch::Sender<u64>,
    pub(super) last_error: Mutex<Option<Trouble>>,
    pub(super) denials: Denials,
}

/// What is wrong with a connection.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) what: String,
    /// The login is not let in.
    pub(super) is_denied: bool,
}

impl Trouble {
    fn of(event: &Event) -> Self {
        let denials = [ConnectErrorKind::AuthorizationViolation, ConnectErrorKind::Authentication];
        let is_denied = match event {
            Event::ServerError(ServerError::AuthorizationViolation) => true,
            // The client library has made a text of what a connection was refused for.
            Event::ClientError(ClientError::Other(why)) => {
                denials.iter().any(|kind| *why == kind.to_string())
            }
            _ => false,
        };
        Self { what: event.to_string(), is_denied }
    }
}

impl News {
    pub(super) fn take(&self, event: &Event) {
        match event {
            Event::Connected => {
                tracing::debug!("connected");
                self.denials.clear();
                *self.last_error.lock() = None;
                self.connects.send_modify(|count| *count += 1);
            }
            Event::ServerError(_) | Event::ClientError(_) => {
                tracing::warn!(%event, "the connection has trouble");
                if let Event::ServerError(ServerError::Other(said)) = event {
                    self.denials.take(said);
                }
                *self.last_error.lock() = Some(Trouble::of(event));
            }
            other => tracing::warn!(event = %other, "the connection changed"),
        }
    }

    /// Why nothing can be sent: a login that was let in once, and is not any more, waits for nobody.
    pub(super) fn no_connection(&self) -> Rejection {
        match &*self.last_error.lock() {
            Some(Trouble { what, is_denied: true }) => {
                let message = format!("the server does not let this login in any more: {what}");
                Rejection::new(Code::Unauthenticated, message)
            }
            _ => unavailable("there is no connection to the server"),
        }
    }
}

/// What was refused so far.
#[derive(Debug, Clone, Default)]
struct Denied {
    /// The subject that was refused last.
    last: Option<Arc<str>>,
    /// One below the own inbox, which no answer reaches then.
    inbox: Option<Arc<str>>,
}

/// What the server refuses.
#[derive(Debug, Default)]
pub(super) struct Denials(watch::Sender<Denied>);

impl Denials {
    /// Whoever asks for it now hears what is refused from now on.
    pub(super) fn listen(&self) -> Hears {
        Hears(self.0.subscribe())
    }

    /// The server has said what is wrong: perhaps that a subject is refused.
    pub(super) fn take(&self, said: &str) {
        let Some(subject) = violated(said) else { return };
        let subject = Arc::<str>::from(subject);
        self.0.send_modify(|denied| {
            if subject.starts_with("_INBOX.") {
                denied.inbox = Some(Arc::clone(&subject));
            }
            denied.last = Some(subject);
        });
    }

    /// A new connection: what it may not, it will hear.
    pub(super) fn clear(&self) {
        self.0.send_if_modified(|denied| {
            *denied = Denied::default();
            false
        });
    }

    /// The refusal of this subject, if it was the last.
    pub(super) fn of(&self, subject: &str) -> Option<Rejection> {
        let last = self.0.borrow().last.clone();
        last.filter(|last| **last == *subject).map(|last| refusal(&last))
    }
}

/// Hears what is refused.
#[derive(Debug)]
pub(super) struct Hears(watch::Receiver<Denied>);

impl Hears {
    /// Waits until this subject is refused, or the inbox is or has been.
    pub(super) async fn of(mut self, subject: &str) -> Rejection {
        loop {
            if let Some(inbox) = &self.0.borrow().inbox {
                return refusal(inbox);
            }
            self.change().await;
            if let Some(last) = self.0.borrow().last.as_deref().filter(|last| *last == subject) {
                return refusal(last);
            }
        }
    }

    /// Waits until anything is refused, or has been.
    pub(super) async fn any(mut self) -> Rejection {
        loop {
            if let Some(last) = &self.0.borrow_and_update().last {
                return refusal(last);
            }
            self.change().await;
        }
    }

    async fn change(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await; // The connection is closed for good.
        }
    }
}

fn refusal(subject: &str) -> Rejection {
    let message = format!("the server refuses {subject:?} to this login");
    Rejection::new(Code::Unauthenticated, message).with("subject", subject)
}

/// The subject of `Permissions Violation for Publish to "a.b"`.
fn violated(said: &str) -> Option<&str> {
    said.strip_prefix("Permissions Violation for ")?.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// CTRL-11: a login that is not let in any more is a refusal that stands, until it is let in again.
    #[test]
    fn a_login_that_is_not_let_in_any_more_is_refused() {
        let (news, denied) = (News::default(), ServerError::AuthorizationViolation);
        let code = || news.no_connection().code;
        assert_eq!(code(), Code::Unavailable);
        news.take(&Event::ServerError(denied.clone()));
        assert_eq!(code(), Code::Unauthenticated);
        news.take(&Event::ClientError(ClientError::Other("connection refused".into())));
        assert_eq!(code(), Code::Unavailable, "that was another server, or the same one later");
        news.take(&Event::ServerError(denied));
        news.take(&Event::Connected);
        assert_eq!(code(), Code::Unavailable);
    }

    /// PERM-02: who waits hears of the refusal of its own subject, and of an inbox that is closed to it.
    #[test]
    fn who_waits_hears_what_is_refused_to_it() {
        let denials = Denials::default();
        let hears = |subject| denials.listen().of(subject).now_or_never();
        let mut own = Box::pin(denials.listen().of("a.b"));
        assert!(own.as_mut().now_or_never().is_none());
        denials.take("Stale Connection");
        denials.take("Permissions Violation for Publish to \"a.c\"");
        assert!(own.as_mut().now_or_never().is_none(), "another's");
        denials.take("Permissions Violation for Publish to \"a.b\"");
        assert_eq!(own.now_or_never().map(|no| no.code), Some(Code::Unauthenticated));
        assert!(hears("a.b").is_none(), "it was asked before");
        assert!(denials.of("a.b").is_some() && denials.of("a.c").is_none());
        assert!(denials.listen().any().now_or_never().is_some());
        denials.take("Permissions Violation for Subscription to \"_INBOX.worker.w.1.r.*\"");
        assert!(hears("a.d").unwrap().to_string().contains("_INBOX.worker.w.1.r.*"));
        denials.clear();
        assert!(hears("a.d").is_none(), "on another connection it may be let in");
    }
}
