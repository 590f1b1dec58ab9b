//! Takes the events of the client library's connection: it is open, it has an error, or the server
//! refuses a subject to this principal. These come apart from the answers, so this passes them to
//! the requests that wait, which will get no answer.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_nats::{ClientError, ConnectErrorKind, Event, ServerError};
use parking_lot::Mutex;
use tenure_core::{Code, Rejection};
use tokio::sync::watch;

use crate::patience::unavailable;

/// How many different events are told while there is no connection.
const TOLD_MAX: usize = 64;

/// What the client library has reported about its connection.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) connects: watch::Sender<u64>,
    pub(super) last_error: Mutex<Option<Trouble>>,
    pub(super) denials: Denials,
    told: Mutex<Notified>,
}

/// What was told while there is no connection: the same errors come every second then.
#[derive(Debug, Default)]
struct Notified {
    /// With a connection everything is told.
    is_connected: bool,
    texts: BTreeSet<String>,
}

impl Notified {
    /// Notes an event. Answers whether to tell of it.
    fn note(&mut self, event: &Event) -> bool {
        self.is_connected || (self.texts.len() < TOLD_MAX && self.texts.insert(event.to_string()))
    }
}

/// The last error of a connection.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) what: String,
    /// The server does not let the login in.
    pub(super) is_denied: bool,
}

impl Trouble {
    fn of(event: &Event) -> Self {
        let denials = [ConnectErrorKind::AuthorizationViolation, ConnectErrorKind::Authentication];
        let is_denied = match event {
            Event::ServerError(ServerError::AuthorizationViolation) => true,
            // The client library gives the reason of a refused connection only as text.
            Event::ClientError(ClientError::Other(why)) => {
                let begins_so = |kind: &ConnectErrorKind| {
                    let rest = why.strip_prefix(&kind.to_string());
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
                };
                denials.iter().any(begins_so)
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
                self.denials.clear();
                *self.last_error.lock() = None;
                let connected = Notified { is_connected: true, ..Notified::default() };
                match std::mem::replace(&mut *self.told.lock(), connected).texts.is_empty() {
                    true => tracing::debug!("connected"),
                    false => tracing::info!("NATS is connected again"), // It was told that it is not.
                }
                self.connects.send_modify(|count| *count += 1);
            }
            Event::ServerError(_) | Event::ClientError(_) => {
                self.warn(event, "the connection has trouble");
                if let Event::ServerError(ServerError::Other(said)) = event {
                    self.denials.take(said);
                }
                *self.last_error.lock() = Some(Trouble::of(event));
            }
            Event::Disconnected => {
                *self.told.lock() = Notified::default();
                self.warn(event, "the connection changed");
            }
            other => self.warn(other, "the connection changed"),
        }
    }

    /// Warns of an event; while there is no connection, once of each.
    fn warn(&self, event: &Event, what: &str) {
        let is_new = self.told.lock().note(event);
        if is_new {
            tracing::warn!(%event, "{what}");
        }
    }

    /// Why nothing can be sent. If the server no longer lets in a login that it accepted before,
    /// the refusal is final.
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

/// The subjects that the server has refused so far.
#[derive(Debug, Clone, Default)]
struct Denied {
    /// The last refused subject.
    last: Option<Arc<str>>,
    /// A refused subject below the own inbox: then no answer arrives.
    inbox: Option<Arc<str>>,
}

/// Passes on the subjects that the server refuses.
#[derive(Debug, Default)]
pub(super) struct Denials(watch::Sender<Denied>);

impl Denials {
    /// A receiver of everything that the server refuses from now on.
    pub(super) fn listen(&self) -> Hears {
        Hears(self.0.subscribe())
    }

    /// Takes an error of the server, which may be that it refuses a subject.
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

    /// Forgets all refusals when a new connection begins: the server refuses again what it still
    /// does not allow.
    pub(super) fn clear(&self) {
        self.0.send_if_modified(|denied| {
            *denied = Denied::default();
            false
        });
    }

    /// The refusal of this subject, if it is the last that the server refused.
    pub(super) fn of(&self, subject: &str) -> Option<Rejection> {
        let last = self.0.borrow().last.clone();
        last.filter(|last| **last == *subject).map(|last| refusal(&last))
    }
}

/// Receives refused subjects.
#[derive(Debug)]
pub(super) struct Hears(watch::Receiver<Denied>);

impl Hears {
    /// Waits until the server refuses this subject, or refuses the inbox or has done so.
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

    /// Waits until the server refuses anything, or has done so.
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

    /// CTRL-11: the refusal of a login that the server no longer lets in is final, until the server
    /// lets it in again.
    #[test]
    fn a_login_that_is_not_let_in_any_more_is_refused() {
        let (news, denied) = (News::default(), ServerError::AuthorizationViolation);
        let code = || news.no_connection().code;
        assert_eq!(code(), Code::Unavailable);
        news.take(&Event::ServerError(denied.clone()));
        assert_eq!(code(), Code::Unauthenticated);
        news.take(&Event::ClientError(ClientError::Other("connection refused".into())));
        assert_eq!(code(), Code::Unavailable, "that was another server, or the same one later");
        let why = |why: &str| Event::ClientError(ClientError::Other(why.into()));
        news.take(&why("authorization violation: closed by the server"));
        assert_eq!(code(), Code::Unauthenticated, "the library says why with the kind of error");
        news.take(&why("authorization violations are rare"));
        assert_eq!(code(), Code::Unavailable);
        news.take(&Event::ServerError(denied));
        news.take(&Event::Connected);
        assert_eq!(code(), Code::Unavailable);
    }

    /// While there is no connection, the same error comes again and again, and is told once.
    #[test]
    fn the_same_trouble_is_told_once_until_there_is_a_connection() {
        let news = News::default();
        let trouble = |what: &str| Event::ClientError(ClientError::Other(what.into()));
        for what in ["connection refused", "connection refused", "timed out"] {
            news.take(&trouble(what));
        }
        assert_eq!(news.told.lock().texts.len(), 2);
        news.take(&Event::Connected);
        for _ in 0..2 {
            assert!(news.told.lock().note(&trouble("slow")), "with a connection all is told");
        }
        (0..2 * TOLD_MAX).for_each(|number| news.take(&trouble(&number.to_string())));
        news.take(&Event::Disconnected);
        assert!(news.told.lock().texts.contains("disconnected"));
        assert!(!news.told.lock().note(&Event::Disconnected));
        assert!(news.told.lock().note(&trouble("connection refused")));
    }

    /// PERM-02: a waiting request learns that the server refuses its subject, or the inbox.
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
