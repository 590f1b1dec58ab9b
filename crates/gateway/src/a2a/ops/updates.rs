//! `SendStreamingMessage` and `SubscribeToTask`: what happens to a task, while it happens.
//!
//! A stream begins with the task as it stands, and goes on with every update behind that. The `id` of each is
//! its place in the log, so a reader that lost its connection names the last one and misses nothing, at
//! whichever gateway: A2A itself says nothing of that. The streams of a task share one fold of its log
//! ([`SharedFolds`]); one that goes on from a place does so when it has caught up.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use serde_json::Value as Json;
use tenure_core::id::TaskId;
use tenure_mcp::Share;
use tenure_ports::ClientPort;
use tokio::time::timeout;

use super::AgentCall;
use super::follow::{CommitUpdates, TaskFollower, TurnReader};
use super::send::{DeliveredMessage, KnownTask};
use super::shared::{FoldKey, FoldReader, SharedFolds};
use crate::Backend;
use crate::a2a::agents::AgentAnswers;
use crate::a2a::dialect::A2aDialect;
use crate::a2a::error::{A2aError, A2aReason};
use crate::a2a::map::{TaskFold, has_ended};
use crate::a2a::wire::{A2aReply, A2aSend, A2aSubscribe, A2aTask, A2aUpdate};
use crate::live::{EventPlace, SseFrame};

/// How a binding that sends frames of events writes what a stream tells.
pub(crate) trait StreamShape: Send + 'static {
    /// An update as JSON.
    fn update(&self, update: &A2aUpdate) -> Json;

    /// Why the stream breaks off, as JSON.
    fn error(&self, error: &A2aError) -> Json;
}

/// Something that a stream tells.
#[derive(Debug)]
pub(crate) struct PlacedUpdate {
    /// Its place in the log, if it has one.
    place: Option<EventPlace>,
    /// An update, or why the stream breaks off.
    pub(crate) told: Result<A2aUpdate, A2aError>,
}

/// Where a stream begins.
#[derive(Debug, Clone, Copy)]
enum StreamStart {
    /// With the task at its first commit.
    First,
    /// Behind this place.
    Behind(EventPlace),
}

/// What happens to a task.
pub(crate) struct UpdateStream<P> {
    source: UpdateSource<P>,
    start: StreamStart,
    ready: VecDeque<PlacedUpdate>,
    /// The version of the protocol, which says where the stream ends.
    dialect: A2aDialect,
    /// After how long without an update the stream ends.
    idle_max: Duration,
}

/// The task that a stream tells of.
#[derive(Clone)]
struct StreamedTask<P> {
    log: TurnReader<P>,
    key: FoldKey,
    followed: Arc<SharedFolds>,
}

/// A fold that one stream has alone.
struct OwnFold<P> {
    follower: TaskFollower<P>,
    of: StreamedTask<P>,
    /// From which version on it is shared; none: never.
    shared_from: Option<u64>,
    _place: Share,
}

/// Where updates come from.
enum UpdateSource<P> {
    /// From the fold that all streams of this task share.
    Shared(FoldReader, StreamedTask<P>),
    /// From a fold of its own.
    Own(Box<OwnFold<P>>),
    /// From nowhere.
    Over,
}

impl<P: ClientPort> StreamedTask<P> {
    /// From the fold that all share, which begins here: for this stream and all that join.
    fn begin(self, fold: Option<TaskFold>) -> UpdateSource<P> {
        let follower = TaskFollower::live(self.log.clone(), self.key.1.clone(), fold);
        UpdateSource::Shared(self.followed.begin(self.key.clone(), follower), self)
    }

    /// From a fold of its own from the first commit on, which is shared from a version on.
    ///
    /// # Errors
    /// The caller has its share of such folds.
    fn alone(self, shared_from: Option<u64>) -> Result<UpdateSource<P>, A2aError> {
        let _place = self.followed.place(self.log.caller())?;
        let follower = TaskFollower::live(self.log.clone(), self.key.1.clone(), None);
        Ok(UpdateSource::Own(Box::new(OwnFold { follower, of: self, shared_from, _place })))
    }
}

impl<P: ClientPort> OwnFold<P> {
    /// Joins those who follow the task, or is the first of them, if it has come as far as they have.
    async fn join(mut self: Box<Self>) -> UpdateSource<P> {
        let version = self.follower.fold().map_or(0, TaskFold::version);
        if self.shared_from.is_none_or(|from| version < from) {
            return UpdateSource::Own(self);
        }
        match self.of.followed.find(&self.of.key).await {
            Some((_, behind)) if behind > version => {
                self.shared_from = Some(behind);
                UpdateSource::Own(self)
            }
            Some((reader, _)) => UpdateSource::Shared(reader, self.of),
            None => {
                let reader = self.of.followed.begin(self.of.key.clone(), self.follower);
                UpdateSource::Shared(reader, self.of)
            }
        }
    }
}

impl<P: ClientPort> UpdateSource<P> {
    /// The next commit. Something may be lost if the returned future is dropped.
    async fn next(&mut self) -> Option<Result<Arc<CommitUpdates>, A2aError>> {
        *self = match std::mem::replace(self, Self::Over) {
            Self::Own(own) => own.join().await,
            other => other,
        };
        if let Self::Shared(reader, of) = self {
            match reader.next().await {
                Some(told) => return Some(Ok(told)),
                // It was too slow, or the log cannot be read. The latter it learns by itself.
                None => match of.clone().alone(None) {
                    Ok(own) => *self = own,
                    Err(refused) => return Some(Err(refused)),
                },
            }
        }
        match self {
            Self::Own(own) => own.follower.next().await.map(|told| told.map(Arc::new)),
            Self::Shared(..) | Self::Over => None,
        }
    }
}

impl<B: Backend> AgentCall<B> {
    /// Takes a message, and tells what comes of it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) async fn stream(&self, asked: A2aSend) -> Result<UpdateStream<B::Client>, A2aError> {
        if self.agent.answers == AgentAnswers::Message {
            let update = match self.send(asked).await? {
                A2aReply::Message(message) => A2aUpdate::Message(message),
                A2aReply::Task(task) => A2aUpdate::Task(task),
            };
            return Ok(UpdateStream::of_one(update, self.dialect));
        }
        let DeliveredMessage { task, known } = self.deliver(asked, false).await?;
        if matches!(known, KnownTask::New(_)) {
            let source = self.streamed(task).begin(None);
            let stream = UpdateStream::new(source, StreamStart::First, self.dialect);
            return Ok(stream.ending_after(self.stream_idle_max()));
        }
        let fold = self.reader().read_on(&task, known.fold()).await?;
        self.going_on(task, fold).await
    }

    /// Tells what happens to a task from now on, or from the place on that the reader has reached.
    ///
    /// # Errors
    /// There is no such task, or it has ended and the reader names no place in it.
    pub(crate) async fn subscribe(
        &self,
        asked: &A2aSubscribe,
        since: Option<EventPlace>,
    ) -> Result<UpdateStream<B::Client>, A2aError> {
        let (task, fold) = self.find(&asked.id).await?;
        if let Some(since) = since {
            if since.complete() > fold.version() {
                let message = "the task has never been at this place";
                return Err(A2aError::invalid("Last-Event-ID", message));
            }
            let source = self.streamed(task).alone(Some(fold.version()))?;
            let stream = UpdateStream::new(source, StreamStart::Behind(since), self.dialect);
            return Ok(stream.ending_after(self.stream_idle_max()));
        }
        if fold.has_ended() {
            let message = "the task has ended: nothing more will happen to it";
            return Err(A2aError::new(A2aReason::UnsupportedOperation, message));
        }
        self.going_on(task, fold).await
    }

    /// The stream of a task as it stands, and what happens to it from now on.
    async fn going_on(
        &self,
        task: TaskId,
        mut fold: TaskFold,
    ) -> Result<UpdateStream<B::Client>, A2aError> {
        let of = self.streamed(task);
        let joined = of.followed.find(&of.key).await;
        // The fold that is shared may have come further, or not as far: then what is known is passed over.
        if joined.as_ref().is_some_and(|(_, behind)| *behind > fold.version()) {
            fold = of.log.read_on(&of.key.1, Some(fold)).await?;
        }
        let (version, now) = (fold.version(), fold.shown().clone());
        let source = match joined {
            _ if self.dialect.ends(now.status.state) => UpdateSource::Over,
            Some((reader, _)) => UpdateSource::Shared(reader, of),
            None => of.begin(Some(fold)),
        };
        let stream = UpdateStream::from_now(version, now, source, self.dialect);
        Ok(stream.ending_after(self.stream_idle_max()))
    }

    fn streamed(&self, task: TaskId) -> StreamedTask<B::Client> {
        let (log, followed) = (self.reader(), Arc::clone(&self.gateway.followed));
        StreamedTask { log, key: (self.agent.session.clone(), task), followed }
    }

    fn stream_idle_max(&self) -> Duration {
        self.gateway.settings.stream_idle_max
    }
}

impl<P: ClientPort> UpdateStream<P> {
    fn new(source: UpdateSource<P>, start: StreamStart, dialect: A2aDialect) -> Self {
        Self { source, start, ready: VecDeque::new(), dialect, idle_max: Duration::MAX }
    }

    /// A stream of one update.
    fn of_one(update: A2aUpdate, dialect: A2aDialect) -> Self {
        let start = StreamStart::Behind(EventPlace::default());
        let mut stream = Self::new(UpdateSource::Over, start, dialect);
        stream.push(None, update);
        stream
    }

    /// A stream that begins with a task as it stands.
    fn from_now(version: u64, now: A2aTask, source: UpdateSource<P>, dialect: A2aDialect) -> Self {
        let place = EventPlace::behind(version);
        let mut stream = Self::new(source, StreamStart::Behind(place), dialect);
        stream.push(Some(place), A2aUpdate::Task(now));
        stream
    }

    /// The same stream, which ends when nothing happens for so long. Its reader may subscribe again.
    fn ending_after(self, idle_max: Duration) -> Self {
        Self { idle_max, ..self }
    }

    /// What it tells, to its end.
    pub(crate) fn told(self) -> impl Stream<Item = PlacedUpdate> + Send {
        stream::unfold(self, async |mut stream| {
            let told = stream.next().await?;
            Some((told, stream))
        })
    }

    /// The same as frames of events.
    pub(crate) fn frames(self, shape: impl StreamShape) -> impl Stream<Item = Bytes> + Send {
        self.told().map(move |PlacedUpdate { place, told }| {
            let data = match &told {
                Ok(update) => shape.update(update),
                Err(error) => shape.error(error),
            };
            frame(place, &data.to_string())
        })
    }

    async fn next(&mut self) -> Option<PlacedUpdate> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Some(told);
            }
            let next = timeout(self.idle_max, self.source.next()).await;
            match next.ok().flatten()? {
                Ok(told) => self.take(&told),
                Err(error) => {
                    tracing::debug!(message = %error.message, "a stream of updates breaks off");
                    self.source = UpdateSource::Over;
                    return Some(PlacedUpdate { place: None, told: Err(error) });
                }
            }
        }
    }

    fn take(&mut self, told: &CommitUpdates) {
        let end = EventPlace::behind(told.seq);
        let mut is_news = false;
        let since = match self.start {
            StreamStart::First => {
                if let Some(task) = &told.begun {
                    self.push(Some(end), A2aUpdate::Task((**task).clone()));
                    is_news = true;
                }
                end
            }
            StreamStart::Behind(since) => {
                let mut place = EventPlace::default();
                for update in &told.updates {
                    place = place.next(told.seq);
                    if place > since {
                        self.push(Some(place), update.clone());
                        is_news = true;
                    }
                }
                since.max(end)
            }
        };
        self.start = StreamStart::Behind(since);
        // A question that the reader knows ends no stream of one who goes on behind it.
        if self.dialect.ends(told.state) && (is_news || has_ended(told.state)) {
            self.source = UpdateSource::Over;
        }
    }

    fn push(&mut self, place: Option<EventPlace>, update: A2aUpdate) {
        self.ready.push_back(PlacedUpdate { place, told: Ok(update) });
    }
}

fn frame(place: Option<EventPlace>, data: &str) -> Bytes {
    let id = place.map(|place| place.to_string());
    let mut frame = Vec::with_capacity(data.len() + 32);
    SseFrame { event: None, id: id.as_deref(), data }.write(&mut frame);
    frame.into()
}

#[cfg(test)]
mod tests {
    use tenure_core::command::AppendProgress;
    use tenure_core::record::Progress;

    use super::*;
    use crate::live::double::waiting_task;

    /// Updates as they are.
    struct BareShape;

    impl StreamShape for BareShape {
        fn update(&self, update: &A2aUpdate) -> Json {
            A2aDialect::V1.update(update)
        }

        fn error(&self, error: &A2aError) -> Json {
            error.to_http(A2aDialect::V1)
        }
    }

    /// A reader that was too slow for the fold that it shares gets what it missed from the log, and nothing twice.
    #[tokio::test]
    async fn a_slow_reader_is_told_everything_once() {
        let (client, task, _) = waiting_task().await;
        let folds = Arc::new(SharedFolds::default());
        let key = (client.port().session().clone(), task.clone());
        let log = TurnReader::of_test(&client);
        let of = StreamedTask { log: log.clone(), key: key.clone(), followed: Arc::clone(&folds) };
        let shared = |reader| UpdateSource::Shared(reader, of.clone());
        let quick = UpdateStream::new(of.clone().begin(None), StreamStart::First, A2aDialect::V1);
        let mut quick = quick.frames(BareShape).boxed();
        quick.next().await.unwrap();
        let (reader, _) = folds.find(&key).await.unwrap();
        let now = log.load(&task).await.unwrap();
        let (version, now) = (now.version(), now.into_shown());
        let slow = UpdateStream::from_now(version, now, shared(reader), A2aDialect::V1);
        let mut seen = Vec::new();
        for number in 0..40 {
            let summary = Some(number.to_string());
            let progress = Some(Progress { summary, ..Progress::default() });
            let note = AppendProgress { progress, ..AppendProgress::default() };
            client.note(&task, note).await.unwrap();
            seen.push(quick.next().await.unwrap());
        }
        client.cancel(&task, "test").await.unwrap();
        seen.extend(quick.collect::<Vec<_>>().await);
        let late: Vec<Bytes> = slow.frames(BareShape).collect().await;
        assert_eq!(late[1..], seen);
    }

    /// Mechanisms 15: streams that go on from a place have folds of their own until they have caught up, and a caller
    /// has few of these at a time.
    #[tokio::test]
    async fn streams_that_go_on_share_a_fold_when_they_have_caught_up() {
        let (client, task, version) = waiting_task().await;
        let folds = Arc::new(SharedFolds::default());
        let key = (client.port().session().clone(), task.clone());
        let of = StreamedTask { log: TurnReader::of_test(&client), key, followed: folds.clone() };
        let behind = StreamStart::Behind(EventPlace::behind(version));
        let mut streams = Vec::new();
        for _ in 0..200 {
            let own = loop {
                match of.clone().alone(Some(version)) {
                    Ok(own) => break own,
                    Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            };
            let stream = UpdateStream::new(own, behind, A2aDialect::V1).frames(BareShape);
            streams.push(tokio::spawn(stream.collect::<Vec<_>>()));
        }
        let catching_up = || std::iter::from_fn(|| of.clone().alone(None).ok()).collect::<Vec<_>>();
        while catching_up().len() < 48 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(folds.count(), 1, "all streams share it");
        let held = catching_up();
        assert_eq!(held.len(), 48, "a caller leaves some to others");
        let refused = of.clone().alone(None).err().unwrap();
        assert_eq!(refused.reason, A2aReason::Unavailable);
        client.cancel(&task, "test").await.unwrap();
        let mut told = Vec::new();
        for stream in streams {
            told.push(stream.await.unwrap());
        }
        assert!(!told[0].is_empty() && told.iter().all(|one| *one == told[0]));
    }
}
