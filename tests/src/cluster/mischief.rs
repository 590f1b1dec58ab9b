//! One who makes mischief on the bus: says again what others have said, once or twice and late, and
//! holds back some of it, so that what was said after it is heard first. No message is safe from that,
//! and no harm may come of it (docs/protocol.md).
//!
//! What is said again is marked: it is not said again a second time. What is to be held back the server
//! hands over in the first place, by [`MAPPINGS`] in its configuration.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use async_nats::{Client, Message, Subscriber};
use futures::StreamExt as _;
use futures::stream::{SelectAll, select_all};
use tokio::task::JoinHandle;

use super::client::{runtime, wait};
use super::message::{field, list, text};
use crate::random::Random;

/// What the server has to be told: one message of ten goes to the mischief-maker.
pub const MAPPINGS: &str = r#"
mappings: {
  "tenure.v1.worker.*.*.*.hb": [
    {destination: "late.tenure.v1.worker.$1.$2.$3.hb", weight: 10%}
  ]
  "tenure.v1.worker.*.*.*.*.*": [
    {destination: "late.tenure.v1.worker.$1.$2.$3.$4.$5", weight: 10%}
  ]
  "tenure.v1.orchestrator.*.*.cmd.*": [
    {destination: "late.tenure.v1.orchestrator.$1.$2.cmd.$3", weight: 10%}
  ]
  "_INBOX.worker.*.*.d.*": [
    {destination: "late._INBOX.worker.$1.$2.d.$3", weight: 10%}
  ]
  "_INBOX.orchestrator.*.*.*.*": [
    {destination: "late._INBOX.orchestrator.$1.$2.$3.$4", weight: 10%}
  ]
  "tenure.v1.event.*.*": [
    {destination: "late.tenure.v1.event.$1.$2", weight: 10%}
  ]
  "tenure.v1.system.kin.*": [
    {destination: "late.tenure.v1.system.kin.$1", weight: 10%}
  ]
  "tenure.v1.system.*.*.cmd.*": [
    {destination: "late.tenure.v1.system.$1.$2.cmd.$3", weight: 10%}
  ]
  "_INBOX.system.*.*": [
    {destination: "late._INBOX.system.$1.$2", weight: 10%}
  ]
}
"#;

/// What is listened to: workers, clients, and what nodes say to them and to each other.
const HEARD: [&str; 9] = [
    "tenure.v1.worker.>",
    "tenure.v1.orchestrator.>",
    "tenure.v1.node.>",
    "tenure.v1.system.>",
    "tenure.v1.event.>",
    "_INBOX.worker.>",
    "_INBOX.orchestrator.>",
    "_INBOX.system.>",
    HELD,
];

/// What the server hands over.
const HELD: &str = "late.>";

/// Of a hundred messages so many are said again.
const AGAIN_PERCENT: u64 = 30;

/// What is rare: all of it is said again.
const RARE: [&str; 4] = ["claim", "kin", "question of a node", "answer to a node"];

/// How much later, at most.
const LATE_MS: u64 = 800;

/// The header of what is not news.
const MARK: &str = "Tenure-Mischief";

/// What was done, by what the messages were: verbs, operations of commands, kinds of deliveries.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// Messages that were said again.
    pub again: BTreeMap<String, u64>,
    /// Messages that were held back.
    pub late: BTreeMap<String, u64>,
    /// Of those, how many were overtaken by another of the same sender.
    pub overtaken: u64,
    /// How many messages of each sender were heard.
    heard: BTreeMap<String, u64>,
}

/// A mischief-maker at work.
#[derive(Debug)]
pub struct Mischief {
    done: Arc<Mutex<Done>>,
    hearing: JoinHandle<()>,
}

impl Mischief {
    /// Begins, on a connection of its own.
    ///
    /// # Errors
    /// NATS does not answer.
    pub fn start(url: &str, seed: u64) -> Result<Self> {
        let done = Arc::<Mutex<Done>>::default();
        let hearing = wait(async {
            let nats = async_nats::connect(url).await?;
            let mut heard = Vec::new();
            for subject in HEARD {
                heard.push(nats.subscribe(subject).await?);
            }
            nats.flush().await?;
            let maker = Maker { nats, random: Random::new(seed), done: Arc::clone(&done) };
            Ok::<_, anyhow::Error>(runtime().spawn(maker.make(select_all(heard))))
        })?;
        Ok(Self { done, hearing })
    }

    /// What was done so far.
    pub fn done(&self) -> Done {
        lock(&self.done).clone()
    }
}

impl Drop for Mischief {
    fn drop(&mut self) {
        self.hearing.abort();
    }
}

struct Maker {
    nats: Client,
    random: Random,
    done: Arc<Mutex<Done>>,
}

impl Maker {
    async fn make(mut self, mut heard: SelectAll<Subscriber>) {
        while let Some(message) = heard.next().await {
            let is_marked = message.headers.as_ref().is_some_and(|all| all.get(MARK).is_some());
            match message.subject.strip_prefix("late.") {
                Some(subject) => self.hold(subject.to_owned(), message.clone()),
                None if is_marked => {}
                None => self.repeat(&message),
            }
        }
    }

    fn repeat(&mut self, message: &Message) {
        let (subject, what) = (message.subject.as_str(), what(&message.subject, message));
        *lock(&self.done).heard.entry(sender(subject)).or_default() += 1;
        if !RARE.contains(&what.as_str()) && !self.random.percent(AGAIN_PERCENT) {
            return;
        }
        *lock(&self.done).again.entry(what).or_default() += 1;
        for _ in 0..=self.random.below(2) {
            let (nats, later) = (self.nats.clone(), self.later());
            let (subject, message) = (subject.to_owned(), message.clone());
            tokio::spawn(async move {
                tokio::time::sleep(later).await;
                say(&nats, subject, message).await;
            });
        }
    }

    fn hold(&mut self, subject: String, message: Message) {
        let (nats, done, later) = (self.nats.clone(), Arc::clone(&self.done), self.later());
        let (what, sender) = (what(&subject, &message), sender(&subject));
        let heard = lock(&done).heard.get(&sender).copied();
        tokio::spawn(async move {
            tokio::time::sleep(later).await;
            {
                let mut done = lock(&done);
                *done.late.entry(what).or_default() += 1;
                done.overtaken += u64::from(done.heard.get(&sender).copied() > heard);
            }
            say(&nats, subject, message).await;
        });
    }

    fn later(&mut self) -> Duration {
        Duration::from_millis(self.random.below(LATE_MS))
    }
}

fn lock(done: &Mutex<Done>) -> MutexGuard<'_, Done> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says what somebody else has said, with its headers and to whom the answer goes.
async fn say(nats: &Client, subject: String, message: Message) {
    let mut headers = message.headers.unwrap_or_default();
    headers.insert(MARK, "1");
    let payload = message.payload;
    // What cannot be said is no mischief.
    let _ = match message.reply {
        Some(reply) => nats.publish_with_reply_and_headers(subject, reply, headers, payload).await,
        None => nats.publish_with_headers(subject, headers, payload).await,
    };
}

/// Who has said something, and to whom: the order of such messages is a sender's own.
fn sender(subject: &str) -> String {
    subject.split('.').take(6).collect::<Vec<_>>().join(".")
}

/// What a message is.
fn what(subject: &str, message: &Message) -> String {
    let tokens: Vec<&str> = subject.split('.').collect();
    let body = || rmpv::decode::read_value(&mut message.payload.as_ref()).ok();
    let what = match tokens[..] {
        ["_INBOX", _, _, _, "d", _] => return body().map_or_else(String::new, |it| delivered(&it)),
        ["_INBOX", "worker", ..] => "answer",
        ["_INBOX", "orchestrator", ..] => "answer to a client",
        ["_INBOX", ..] => "answer to a node",
        ["tenure", _, "event", ..] => "hint",
        ["tenure", _, "system", "kin", _] => "kin",
        ["tenure", _, "system", _, _, "cmd", _] => "question of a node",
        ["tenure", _, "worker", _, _, _, verb, ..] | ["tenure", _, "node", _, verb] => verb,
        ["tenure", _, "orchestrator", _, _, "cmd", _] => {
            let body = body();
            return body
                .and_then(|it| text(&it, "operation").map(str::to_owned))
                .unwrap_or_default();
        }
        _ => "",
    };
    what.to_owned()
}

/// What a list of deliveries brings first.
fn delivered(deliveries: &rmpv::Value) -> String {
    let first = list(deliveries, "deliveries").first();
    let kinds = ["grant", "run", "cancel_requested", "lost", "drain"];
    let kind = kinds.into_iter().find(|kind| first.is_some_and(|it| field(it, kind).is_some()));
    kind.unwrap_or_default().to_owned()
}
