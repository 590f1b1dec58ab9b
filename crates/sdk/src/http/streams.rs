//! Hints and events, read from the gateway's stream of the session.
//!
//! All who listen in this process share one connection ([`SessionFeed`]): it begins with the first of
//! them, and ends a while after the last. A connection that breaks or is silent is made anew. The
//! stream has no places to go on from: what was told meanwhile is lost, which the port allows. Whoever
//! needs all of it reads the log, and so do public events here ([`published`]).

use std::collections::HashMap;
use std::future::ready;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tenure_core::id::{SessionId, TaskId};
use tenure_core::status::TaskStatus;
use tenure_core::view::RuntimeEvent;
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort as _;
use tenure_ports::client::Changed;
use tenure_ports::supervise::spawn;
use tenure_wire::bus::V;
use tenure_wire::bus::event::{Published, ReadEvents};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::client::HttpClient;
use super::gateways::GatewayLinks;
use super::link::HttpRequest;
use super::sse::{SseEvent, SseReader};
use crate::patience::{Patience, unavailable};
use crate::pauses::Pauses;

/// The media type of a stream of events.
const EVENT_STREAM: &str = "text/event-stream";

/// The names of the events of a session's stream: a Task has changed, or something happened around a Run.
const TASK: &str = "task";
const RUNTIME: &str = "runtime";

/// How many events wait for a listener. A slower one loses some.
const TOLD_MAX: usize = 1_024;

/// How often the reader of a stream looks whether anybody listens, and for so long the stream stays open
/// after the last one: who waits for one Task after another uses the same.
const LOOK: Duration = Duration::from_secs(5);

/// A gateway sends a comment at least every 15 s: one that is silent for longer is gone.
const SILENCE: Duration = Duration::from_secs(40);

/// First and longest pause before a new connection.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// A stream that has lasted so long did not break because of what was wrong before it.
const STEADY: Duration = Duration::from_secs(10);

/// Asks for no commits, only for the Task's version.
const NO_COMMITS: u64 = u64::MAX;

/// What this process receives of a session. Hints and runtime events have a connection each, as few want the latter.
#[derive(Debug)]
pub(super) struct SessionFeeds {
    hints: SessionFeed,
    runtime: SessionFeed,
}

impl SessionFeeds {
    pub(super) fn new(gateways: &Arc<GatewayLinks>, session: &SessionId, within: Duration) -> Self {
        let feed = |query: &str| {
            let path = format!("/v1/sessions/{session}/events{query}");
            let request = HttpRequest::bare(Method::GET, path, EVENT_STREAM);
            let source = FeedSource { gateways: Arc::clone(gateways), request, within };
            SessionFeed { source, listeners: Arc::default(), opens: tokio::sync::Mutex::default() }
        };
        Self { hints: feed(""), runtime: feed("?runtime=true") }
    }

    /// Hints of changes of one Task, or of all.
    pub(super) async fn changes(
        &self,
        task: Option<&TaskId>,
        patience: Duration,
    ) -> Result<BoxStream<'static, Changed>, Rejection> {
        let change = |told| match told {
            SessionNews::Changed(changed) => Some(changed),
            SessionNews::Runtime(_) => None,
        };
        let told = heard(self.hints.join(task, patience).await?);
        Ok(told.filter_map(move |told| ready(change(told))).boxed())
    }

    /// Runtime events of one Task, or of all.
    pub(super) async fn runtime(
        &self,
        task: Option<&TaskId>,
        patience: Duration,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        let event = |told| match told {
            SessionNews::Runtime(event) => Some(event),
            SessionNews::Changed(_) => None,
        };
        let told = heard(self.runtime.join(task, patience).await?);
        Ok(told.filter_map(move |told| ready(event(told))).boxed())
    }
}

/// What a listener receives, to the end of the feed.
fn heard(told: mpsc::Receiver<SessionNews>) -> impl Stream<Item = SessionNews> + Send + 'static {
    stream::unfold(told, async |mut told| Some((told.recv().await?, told)))
}

/// A stream of the session, for all who listen to it in this process.
#[derive(Debug)]
struct SessionFeed {
    source: FeedSource,
    listeners: Arc<Mutex<Listeners>>,
    /// Held by the one who opens the stream.
    opens: tokio::sync::Mutex<()>,
}

impl SessionFeed {
    /// Listens from now on. The first listener opens the stream; others wait for that, no longer than their
    /// patience lasts.
    async fn join(
        &self,
        task: Option<&TaskId>,
        patience: Duration,
    ) -> Result<mpsc::Receiver<SessionNews>, Rejection> {
        let begun = Instant::now();
        let Ok(_turn) = timeout(patience, self.opens.lock()).await else {
            return Err(unavailable("the stream of the session cannot be opened now"));
        };
        if let Some(told) = self.listeners.lock().join(task) {
            return Ok(told);
        }
        let body = self.source.open(patience.saturating_sub(begun.elapsed())).await?;
        let told = self.listeners.lock().begin(task);
        let reader = self.source.clone().read(body, Arc::clone(&self.listeners));
        spawn("the stream of a session", reader);
        Ok(told)
    }
}

/// What a gateway tells of a session.
#[derive(Debug, Clone)]
enum SessionNews {
    Changed(Changed),
    Runtime(RuntimeEvent),
}

impl SessionNews {
    /// What an event of the stream says. One that cannot be read counts as lost.
    fn of(event: &SseEvent) -> Option<Self> {
        match event.name.as_str() {
            TASK => read(&event.data).map(|GivenHint { task_id, version, ended }| {
                Self::Changed(Changed { task_id, version, ended })
            }),
            RUNTIME => read(&event.data).map(Self::Runtime),
            _ => None,
        }
    }

    fn task(&self) -> &TaskId {
        match self {
            Self::Changed(changed) => &changed.task_id,
            Self::Runtime(event) => &event.task_id,
        }
    }
}

/// A hint as the gateway writes it.
#[derive(Deserialize)]
struct GivenHint {
    task_id: TaskId,
    version: u64,
    #[serde(default)]
    ended: Option<TaskStatus>,
}

fn read<T: DeserializeOwned>(data: &str) -> Option<T> {
    serde_json::from_str(data).ok()
}

/// Those who listen to a stream, by the Task that they want to hear of; none: they want all.
#[derive(Debug, Default)]
struct Listeners {
    of: HashMap<Option<TaskId>, Vec<mpsc::Sender<SessionNews>>>,
    /// Whether the stream is open, or is being opened anew.
    is_open: bool,
}

impl Listeners {
    /// Adds a listener to an open stream.
    fn join(&mut self, task: Option<&TaskId>) -> Option<mpsc::Receiver<SessionNews>> {
        self.is_open.then(|| self.begin(task))
    }

    /// Adds a listener to a stream that is open now.
    fn begin(&mut self, task: Option<&TaskId>) -> mpsc::Receiver<SessionNews> {
        self.is_open = true;
        let (to, told) = mpsc::channel(TOLD_MAX);
        self.of.entry(task.cloned()).or_default().push(to);
        told
    }

    /// Tells those who want to hear of the Task. One who has not taken what was told before loses this.
    fn tell(&self, told: &SessionNews) {
        for wanted in [Some(told.task().clone()), None] {
            for to in self.of.get(&wanted).into_iter().flatten() {
                let _ = to.try_send(told.clone());
            }
        }
    }

    /// Drops those who have gone, and answers whether nobody is left: then the stream is over.
    fn drop_gone(&mut self) -> bool {
        self.of.retain(|_, all| {
            all.retain(|to| !to.is_closed());
            !all.is_empty()
        });
        self.is_open = !self.of.is_empty();
        !self.is_open
    }

    /// Ends the stream for all.
    fn close(&mut self) {
        *self = Self::default();
    }
}

/// Where a stream comes from.
#[derive(Debug, Clone)]
struct FeedSource {
    gateways: Arc<GatewayLinks>,
    request: HttpRequest,
    /// How long the gateway may take to begin.
    within: Duration,
}

impl FeedSource {
    /// Opens the stream. When the gateway has answered, it listens for the caller.
    async fn open(&self, patience: Duration) -> Result<Incoming, Rejection> {
        let mut patience = Patience::of(patience);
        loop {
            let within = patience.for_a_try(self.within);
            match self.gateways.open(&self.request, within).await {
                Err(refused) if patience.outlasts(&refused).await => {}
                answer => return patience.conclude(answer),
            }
        }
    }

    /// Reads the stream, and opens it anew when it breaks, until nobody listens or the gateway refuses
    /// it for good.
    async fn read(self, mut body: Incoming, listeners: Arc<Mutex<Listeners>>) {
        let mut pauses = Pauses::between(PAUSES.0, PAUSES.1);
        loop {
            let begun = Instant::now();
            if hear(body, &listeners).await == StreamEnd::Alone {
                return;
            }
            if begun.elapsed() >= STEADY {
                pauses = Pauses::between(PAUSES.0, PAUSES.1);
            }
            body = match self.open_anew(&mut pauses, &listeners).await {
                Some(body) => body,
                None => return,
            };
        }
    }

    /// Opens the stream again after a pause, unless nobody listens by then or the gateway refuses it for good.
    async fn open_anew(
        &self,
        pauses: &mut Pauses,
        listeners: &Mutex<Listeners>,
    ) -> Option<Incoming> {
        let mut refused = unavailable("the stream broke off");
        loop {
            sleep(pauses.after(&refused)).await;
            if listeners.lock().drop_gone() {
                return None;
            }
            match self.gateways.open(&self.request, self.within).await {
                Ok(body) => return Some(body),
                Err(again) if again.code.is_retryable() => refused = again,
                Err(last) => {
                    tracing::warn!(refused = %last, "no more hints and events come");
                    listeners.lock().close();
                    return None;
                }
            }
        }
    }
}

/// Why the reading of a stream ended.
#[derive(Debug, PartialEq, Eq)]
enum StreamEnd {
    /// The stream broke, or was silent for too long.
    Broken,
    /// Nobody listens. Whoever comes after that opens a stream of its own.
    Alone,
}

/// Passes on what the stream tells, until it breaks or is silent, or nobody listens.
async fn hear(mut body: Incoming, listeners: &Mutex<Listeners>) -> StreamEnd {
    let mut reader = SseReader::default();
    let (mut heard_at, mut looked_at) = (Instant::now(), Instant::now());
    while heard_at.elapsed() < SILENCE {
        match timeout(LOOK, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                heard_at = Instant::now();
                let Ok(events) = reader.read(frame.data_ref().map_or(&[], |it| it)) else { break };
                let listeners = listeners.lock();
                events.iter().filter_map(SessionNews::of).for_each(|told| listeners.tell(&told));
            }
            Ok(_) => break,
            Err(_) => {}
        }
        if looked_at.elapsed() >= LOOK {
            looked_at = Instant::now();
            if listeners.lock().drop_gone() {
                return StreamEnd::Alone;
            }
        }
    }
    StreamEnd::Broken
}

/// The public events of a Task: whenever a hint says that it has changed, the client reads those that
/// it has not had.
pub(super) async fn published(
    client: &HttpClient,
    task: &TaskId,
) -> Result<BoxStream<'static, Published>, Rejection> {
    let hints = client.changes(Some(task)).await?;
    let through = match client.log(task, NO_COMMITS).await {
        Ok(page) => page.version,
        Err(gone) if gone.code == Code::TaskNotFound => 0, // It may yet be created.
        Err(refused) => return Err(refused),
    };
    let (client, task) = (client.clone(), task.clone());
    let reader = EventReader { client, task, hints, through };
    Ok(stream::unfold(reader, EventReader::next).boxed())
}

struct EventReader {
    client: HttpClient,
    task: TaskId,
    hints: BoxStream<'static, Changed>,
    /// The last event of the log whose public events were read.
    through: u64,
}

impl EventReader {
    async fn next(mut self) -> Option<(Published, Self)> {
        loop {
            let hint = self.hints.next().await?;
            if hint.version <= self.through {
                continue;
            }
            // What cannot be read now is read after the next hint.
            let asked = ReadEvents { after: self.through };
            let Ok(page) = self.client.ask(&self.task, asked).await else { continue };
            if page.through > self.through {
                let after = mem::replace(&mut self.through, page.through);
                return Some((Published { v: V, after, page }, self));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(task: &str, version: u64) -> SessionNews {
        SessionNews::Changed(Changed { task_id: task.parse().unwrap(), version, ended: None })
    }

    fn versions(told: &mut mpsc::Receiver<SessionNews>) -> Vec<u64> {
        let mut all = Vec::new();
        while let Ok(SessionNews::Changed(changed)) = told.try_recv() {
            all.push(changed.version);
        }
        all
    }

    #[test]
    fn a_listener_hears_of_its_task_or_of_all() {
        let mut listeners = Listeners::default();
        let (t, u): (TaskId, TaskId) = ("t".parse().unwrap(), "u".parse().unwrap());
        assert!(listeners.join(None).is_none(), "the stream is not open");
        let mut all = listeners.begin(None);
        let (mut of_t, mut of_u) =
            (listeners.join(Some(&t)).unwrap(), listeners.join(Some(&u)).unwrap());
        for (task, version) in [("t", 1), ("u", 2), ("v", 3), ("t", 4)] {
            listeners.tell(&hint(task, version));
        }
        assert_eq!(versions(&mut all), [1, 2, 3, 4]);
        assert_eq!(versions(&mut of_t), [1, 4]);
        assert_eq!(versions(&mut of_u), [2]);
    }

    #[test]
    fn a_slow_listener_loses_what_comes_last() {
        let mut listeners = Listeners::default();
        let mut slow = listeners.begin(None);
        (0..=TOLD_MAX as u64).for_each(|version| listeners.tell(&hint("t", version)));
        assert_eq!(versions(&mut slow).len(), TOLD_MAX);
    }

    #[test]
    fn a_stream_is_over_when_all_have_gone() {
        let mut listeners = Listeners::default();
        let (one, other) = (listeners.begin(None), listeners.begin(Some(&"t".parse().unwrap())));
        drop(one);
        assert!(!listeners.drop_gone());
        drop(other);
        assert!(listeners.drop_gone() && listeners.join(None).is_none());
        let mut closed = listeners.begin(None);
        listeners.close();
        assert_eq!(closed.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
    }

    #[test]
    fn an_event_of_another_kind_is_passed_over() {
        let event =
            |name: &str, data: &str| SseEvent { name: name.into(), data: data.into(), id: None };
        let told = SessionNews::of(&event(
            "task",
            r#"{"task_id":"t","version":3,"ended":"completed","new":1}"#,
        ));
        assert!(
            matches!(told, Some(SessionNews::Changed(it)) if it.ended == Some(TaskStatus::Completed))
        );
        assert!(SessionNews::of(&event("task", "{}")).is_none());
        assert!(SessionNews::of(&event("gap", r#"{"reason":"missed"}"#)).is_none());
    }
}
