//! Follows a task of an agent: by a stream that is resumed where it broke off, and by asking.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tenure_a2a::{A2aTask, A2aUpdate};
use tokio::time::{Instant, sleep, timeout};

use super::client::PeerClient;
use super::error::PeerError;
use crate::http::sse::SseReader;
use crate::jitter::jittered;

/// After so long without news the task is asked for, as a stream may have died unnoticed.
const BACKSTOP: Duration = Duration::from_secs(300);

/// The first pause before a task is asked for again, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));

/// How long an agent may be out of reach before a task is given up.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// How much of the history of a task is asked for.
const HISTORY: u32 = 100;

/// What a stream tells, one update after another.
#[derive(Debug)]
pub struct PeerUpdates {
    client: PeerClient,
    body: Incoming,
    reader: SseReader,
    ready: VecDeque<(Option<String>, String)>,
    last: Option<String>,
}

impl PeerUpdates {
    pub(super) fn new(client: PeerClient, body: Incoming) -> Self {
        Self { client, body, reader: SseReader::default(), ready: VecDeque::new(), last: None }
    }

    /// The next update; none at the end of the stream. May be dropped at any time.
    ///
    /// # Errors
    /// The connection breaks, or what comes is no update.
    pub async fn next(&mut self) -> Result<Option<A2aUpdate>, PeerError> {
        loop {
            if let Some((id, data)) = self.ready.pop_front() {
                let update = self.client.update(&data)?;
                if id.is_some() {
                    self.last = id;
                }
                return Ok(Some(update));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| self.client.lost(error.to_string()))?;
            let Ok(bytes) = frame.into_data() else { continue };
            let events = self.reader.read(&bytes);
            let events = events.map_err(|_| self.client.lost("an event is too long".into()))?;
            self.ready.extend(events.into_iter().map(|event| (event.id, event.data)));
        }
    }

    /// The place of the last update, from which another stream may go on.
    pub fn last_event_id(&self) -> Option<&str> {
        self.last.as_deref()
    }
}

/// Follows a task.
#[derive(Debug)]
pub struct PeerFollower {
    client: PeerClient,
    task: String,
    stream: Option<PeerUpdates>,
    last: Option<String>,
    pause: Duration,
}

impl PeerFollower {
    /// Follows this task from now on.
    pub fn new(client: PeerClient, task: impl Into<String>) -> Self {
        Self { client, task: task.into(), stream: None, last: None, pause: PAUSES.0 }
    }

    /// What happens next: an update of the stream, or the task as it is now. Updates may be left out; the task
    /// that is asked for is always whole. May be dropped at any time.
    ///
    /// # Errors
    /// The agent refuses, or has been out of reach for an hour.
    pub async fn next(&mut self) -> Result<A2aUpdate, PeerError> {
        if let Some(update) = self.told().await {
            // Each stream begins with the task, so one that ends behind that has told nothing new.
            if !matches!(update, A2aUpdate::Task(_)) {
                self.pause = PAUSES.0;
            }
            return Ok(update);
        }
        sleep(jittered(self.pause)).await;
        self.pause = (self.pause * 2).min(PAUSES.1);
        self.task().await.map(A2aUpdate::Task)
    }

    /// The task as it is now.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn task(&self) -> Result<A2aTask, PeerError> {
        with_patience(|| self.client.get(&self.task, Some(HISTORY))).await
    }

    /// What the stream tells next; none if there is no stream now.
    async fn told(&mut self) -> Option<A2aUpdate> {
        if !self.client.card().streams {
            return None;
        }
        if self.stream.is_none() {
            match self.client.subscribe(&self.task, self.last.as_deref()).await {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => {
                    tracing::debug!(task = self.task, %error, "an agent opens no stream");
                    self.last = None; // It may not know the place any more.
                    return None;
                }
            }
        }
        let stream = self.stream.as_mut()?;
        match timeout(BACKSTOP, stream.next()).await {
            Ok(Ok(Some(update))) => {
                self.last = stream.last_event_id().map(str::to_owned).or(self.last.take());
                Some(update)
            }
            Ok(_) | Err(_) => {
                self.stream = None;
                None
            }
        }
    }
}

/// Repeats a request until there is an answer that stays the same, or the patience is at its end.
pub(crate) async fn with_patience<T, F>(ask: impl Fn() -> F) -> Result<T, PeerError>
where
    F: Future<Output = Result<T, PeerError>>,
{
    let (until, mut pause) = (Instant::now() + PATIENCE, PAUSES.0);
    loop {
        match ask().await {
            Err(error) if error.is_retryable() && Instant::now() < until => {
                tracing::debug!(%error, "an agent is asked again");
            }
            answered => return answered,
        }
        sleep(jittered(pause)).await;
        pause = (pause * 2).min(PAUSES.1);
    }
}
