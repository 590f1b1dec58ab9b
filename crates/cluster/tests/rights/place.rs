//! A server with the roles that are shipped, its users, and a spy that hears everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Subscriber};
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;

use crate::servers::{Server, nats_with};

/// As it is shipped.
const ROLES: &str = include_str!("../../../../deploy/nats/roles.conf");

/// How long a message or a refusal may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A user of [`ROLES`].
struct Known {
    name: &'static str,
    /// The variable of its password.
    variable: &'static str,
    /// What its inboxes begin with.
    inbox: &'static str,
    /// A subject that it may say.
    may_say: &'static str,
    /// One that it may hear.
    may_hear: &'static str,
}

const USERS: [Known; 8] = [
    Known {
        name: "journal",
        variable: "TENURE_JOURNAL_PASSWORD",
        inbox: "_INBOX.scheduler.one",
        may_say: "tenure.index.99",
        may_hear: "_INBOX.scheduler.one.marker",
    },
    Known {
        name: "control",
        variable: "TENURE_CONTROL_PASSWORD",
        inbox: "_INBOX.none",
        may_say: "tenure.v1.node.one.hungry",
        may_hear: "tenure.v1.node.two.marker",
    },
    Known {
        name: "intake",
        variable: "TENURE_INTAKE_PASSWORD",
        inbox: "_INBOX.none",
        may_say: "tenure.v1.event.main.marker",
        may_hear: "tenure.v1.observer.main.marker",
    },
    Known {
        name: "worker-1",
        variable: "TENURE_WORKER_PASSWORD",
        inbox: "_INBOX.worker.worker-1.boot",
        may_say: "tenure.v1.worker.default.worker-1.boot.hello",
        may_hear: "_INBOX.worker.worker-1.boot.marker",
    },
    Known {
        name: "orchestrator-1",
        variable: "TENURE_ORCHESTRATOR_PASSWORD",
        inbox: "_INBOX.orchestrator.orchestrator-1.boot",
        may_say: "tenure.v1.orchestrator.main.orchestrator-1.hello",
        may_hear: "_INBOX.orchestrator.orchestrator-1.boot.marker",
    },
    Known {
        name: "operator",
        variable: "TENURE_OPERATOR_PASSWORD",
        inbox: "_INBOX.orchestrator.operator.boot",
        may_say: "tenure.v1.orchestrator.main.operator.hello",
        may_hear: "_INBOX.orchestrator.operator.boot.marker",
    },
    Known {
        name: "observer-1",
        variable: "TENURE_OBSERVER_PASSWORD",
        inbox: "_INBOX.observer.observer-1.boot",
        may_say: "tenure.v1.observer.main.observer-1.hello",
        may_hear: "_INBOX.observer.observer-1.boot.marker",
    },
    Known {
        name: "gateway",
        variable: "TENURE_GATEWAY_PASSWORD",
        inbox: "_INBOX.orchestrator.ann.boot",
        may_say: "tenure.v1.orchestrator.main.ann.hello",
        may_hear: "_INBOX.orchestrator.ann.boot.marker",
    },
];

/// A server with roles.
pub(crate) struct Place {
    server: Server,
    spy: Client,
    heard: tokio::sync::Mutex<Subscriber>,
    said: AtomicU64,
}

/// A user of the server, and what it was refused.
pub(crate) struct User {
    pub(crate) client: Client,
    refused: Arc<Mutex<Vec<String>>>,
    known: &'static Known,
}

impl Place {
    /// Starts the server, with passwords and one user more, who may do everything.
    pub(crate) async fn open() -> Self {
        let password = |user: &Known| format!("{}: \"{}\"\n", user.variable, secret(user));
        let passwords: String = USERS.iter().map(password).collect();
        let all = "users: [\n{ user: spy, password: spy }";
        let server = nats_with(&(passwords + &ROLES.replacen("users: [", all, 1)));
        let options = ConnectOptions::with_user_and_password("spy".into(), "spy".into());
        let spy = options.connect(address(&server)).await.unwrap();
        let heard = tokio::sync::Mutex::new(spy.subscribe(">").await.unwrap());
        let place = Self { server, spy, heard, said: AtomicU64::new(0) };
        assert!(place.spy_hears_itself().await);
        place
    }

    async fn spy_hears_itself(&self) -> bool {
        self.spy.publish("begin", "begin".into()).await.unwrap();
        let mut heard = self.heard.lock().await;
        let first = tokio::time::timeout(PATIENCE, heard.next()).await;
        first.unwrap().is_some_and(|message| &*message.payload == b"begin")
    }

    /// Connects as one of [`USERS`].
    pub(crate) async fn user(&self, name: &str) -> User {
        let known = USERS.iter().find(|user| user.name == name).unwrap();
        let refused = Arc::new(Mutex::new(Vec::new()));
        let noting = Arc::clone(&refused);
        let client = ConnectOptions::with_user_and_password(name.into(), secret(known))
            .custom_inbox_prefix(known.inbox)
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    noting.lock().push(error.to_string().to_lowercase());
                }
                std::future::ready(())
            })
            .connect(address(&self.server))
            .await
            .unwrap();
        User { client, refused, known }
    }

    /// Whether what the user says there is delivered to anybody.
    pub(crate) async fn delivers(&self, user: &User, subject: &str) -> bool {
        self.delivers_with(user, subject, None, HeaderMap::new()).await
    }

    /// The same with a reply subject, or with headers.
    pub(crate) async fn delivers_with(
        &self,
        user: &User,
        subject: &str,
        reply: Option<&str>,
        headers: HeaderMap,
    ) -> bool {
        let (what, marker) = (self.unique(), self.unique());
        let (to, payload) = (subject.to_owned(), what.clone().into());
        match reply {
            Some(reply) => user.client.publish_with_reply(to, reply.to_owned(), payload).await,
            None if headers.is_empty() => user.client.publish(to, payload).await,
            None => user.client.publish_with_headers(to, headers, payload).await,
        }
        .unwrap();
        // What one connection says comes in order: with the marker there, nothing can come before it.
        user.client.publish(user.known.may_say, marker.clone().into()).await.unwrap();
        let mut heard = self.heard.lock().await;
        let mut delivered = false;
        loop {
            let message = tokio::time::timeout(PATIENCE, heard.next()).await;
            let message = message.expect("the marker is heard").unwrap();
            if *message.payload == *marker.as_bytes() {
                return delivered;
            }
            delivered |= *message.payload == *what.as_bytes() && &*message.subject == subject;
        }
    }

    /// Whether the user hears what is said on `subject` when it subscribes to `pattern`.
    pub(crate) async fn hears(&self, user: &User, pattern: &str, subject: &str) -> bool {
        let subscribed = user.client.subscribe(pattern.to_owned()).await.unwrap();
        self.comes_to(user, subscribed, subject).await
    }

    /// The same in a queue group.
    pub(crate) async fn hears_in_group(&self, user: &User, pattern: &str, subject: &str) -> bool {
        let group = "tenure".to_owned();
        let subscribed = user.client.queue_subscribe(pattern.to_owned(), group).await.unwrap();
        self.comes_to(user, subscribed, subject).await
    }

    async fn comes_to(&self, user: &User, mut subscribed: Subscriber, subject: &str) -> bool {
        let mut own = user.client.subscribe(user.known.may_hear).await.unwrap();
        assert!(
            self.delivers(user, user.known.may_say).await,
            "the subscriptions are at the server"
        );
        let (what, marker) = (self.unique(), self.unique());
        self.spy.publish(subject.to_owned(), what.clone().into()).await.unwrap();
        self.spy.publish(user.known.may_hear, marker.clone().into()).await.unwrap();
        let last = tokio::time::timeout(PATIENCE, own.next()).await;
        assert_eq!(*last.expect("the marker is heard").unwrap().payload, *marker.as_bytes());
        let came = subscribed.next().now_or_never().flatten();
        came.is_some_and(|message| *message.payload == *what.as_bytes())
    }

    fn unique(&self) -> String {
        format!("message {}", self.said.fetch_add(1, Ordering::Relaxed))
    }
}

impl User {
    /// Waits until the server has refused this.
    pub(crate) async fn is_refused(&self, what: &str, subject: &str) {
        let expected = format!("permissions violation for {what} to \"{subject}\"").to_lowercase();
        let begun = Instant::now();
        while !self.refused.lock().iter().any(|refused| refused.contains(&expected)) {
            assert!(begun.elapsed() < PATIENCE, "no {expected:?} in {:#?}", self.refused.lock());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether the server has refused nothing.
    pub(crate) fn was_never_refused(&self) -> bool {
        self.refused.lock().is_empty()
    }
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port)
}

fn secret(user: &Known) -> String {
    format!("secret of {}", user.name)
}
