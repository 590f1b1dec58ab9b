//! `SendStreamingMessage` and `SubscribeToTask`: what happens to a task, while it happens.
//!
//! A stream begins with the task as it stands, and goes on with every update behind that. The `id` of each is
//! its place in the log, so a reader that lost its connection names the last one and misses nothing, at
//! whichever gateway: A2A itself says nothing of that.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::Value as Json;
use tenure_core::id::TaskId;
use tenure_ports::ClientPort;
use tokio::time::timeout;

use super::AgentCall;
use super::follow::{CommitUpdates, TaskFollower, read_on};
use super::send::{DeliveredMessage, KnownTask};
use crate::Backend;
use crate::a2a::agents::AgentAnswers;
use crate::a2a::error::{A2aError, A2aReason};
use crate::a2a::map::TaskFold;
use crate::a2a::wire::{A2aReply, A2aSend, A2aSubscribe, A2aUpdate};
use crate::live::{EventPlace, SseFrame};

/// How a binding writes what a stream tells.
pub(crate) trait StreamShape: Send + 'static {
    /// An update as JSON.
    fn update(&self, update: &A2aUpdate) -> Json;

    /// Why the stream breaks off, as JSON.
    fn error(&self, error: &A2aError) -> Json;

    /// Whether the stream ends here: always at the end of the task.
    fn ends(&self, fold: &TaskFold) -> bool {
        fold.has_ended()
    }
}

/// Where a stream begins.
#[derive(Debug, Clone, Copy)]
enum StreamStart {
    /// With the task at its first commit.
    First,
    /// Behind this place.
    Behind(EventPlace),
}

/// What happens to a task, as frames.
pub(crate) struct UpdateStream<P> {
    follower: Option<TaskFollower<P>>,
    start: StreamStart,
    ready: VecDeque<Bytes>,
    shape: Box<dyn StreamShape>,
    /// After how long without an update the stream ends.
    idle_max: Duration,
}

impl<B: Backend> AgentCall<B> {
    /// Takes a message, and tells what comes of it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(crate) async fn stream(
        &self,
        asked: A2aSend,
        shape: impl StreamShape,
    ) -> Result<UpdateStream<B::Client>, A2aError> {
        if self.agent.answers == AgentAnswers::Message {
            let update = match self.send(asked).await? {
                A2aReply::Message(message) => A2aUpdate::Message(message),
                A2aReply::Task(task) => A2aUpdate::Task(task),
            };
            return Ok(UpdateStream::of_one(&update, shape));
        }
        let DeliveredMessage { task, known } = self.deliver(asked, false).await?;
        if matches!(known, KnownTask::New(_)) {
            let follower = TaskFollower::live(self.client.clone(), task, None);
            let stream = UpdateStream::new(follower, StreamStart::First, shape);
            return Ok(stream.ending_after(self.stream_idle_max()));
        }
        let fold = read_on(&self.client, &task, known.fold()).await?;
        Ok(self.from_now(task, fold, shape))
    }

    /// Tells what happens to a task from now on, or from the place on that the reader has reached.
    ///
    /// # Errors
    /// There is no such task, or it has ended and the reader names no place in it.
    pub(crate) async fn subscribe(
        &self,
        asked: &A2aSubscribe,
        since: Option<EventPlace>,
        shape: impl StreamShape,
    ) -> Result<UpdateStream<B::Client>, A2aError> {
        let (task, fold) = self.find(&asked.id).await?;
        if let Some(since) = since {
            if since.complete() > fold.version() {
                let message = "the task has never been at this place";
                return Err(A2aError::invalid("Last-Event-ID", message));
            }
            let follower = TaskFollower::live(self.client.clone(), task, None);
            let stream = UpdateStream::new(follower, StreamStart::Behind(since), shape);
            return Ok(stream.ending_after(self.stream_idle_max()));
        }
        if fold.has_ended() {
            let message = "the task has ended: nothing more will happen to it";
            return Err(A2aError::new(A2aReason::UnsupportedOperation, message));
        }
        Ok(self.from_now(task, fold, shape))
    }

    /// The stream of a task as it stands, and what happens to it from now on.
    fn from_now(
        &self,
        task: TaskId,
        fold: TaskFold,
        shape: impl StreamShape,
    ) -> UpdateStream<B::Client> {
        let follow = |fold| TaskFollower::live(self.client.clone(), task, Some(fold));
        UpdateStream::from_now(fold, shape, follow).ending_after(self.stream_idle_max())
    }

    fn stream_idle_max(&self) -> Duration {
        self.gateway.settings.stream_idle_max
    }
}

impl<P: ClientPort> UpdateStream<P> {
    fn new(follower: TaskFollower<P>, start: StreamStart, shape: impl StreamShape) -> Self {
        Self { follower: Some(follower), ..Self::without_follower(start, shape) }
    }

    /// A stream of one update.
    fn of_one(update: &A2aUpdate, shape: impl StreamShape) -> Self {
        let start = StreamStart::Behind(EventPlace::default());
        let mut stream = Self::without_follower(start, shape);
        stream.write(None, update);
        stream
    }

    fn without_follower(start: StreamStart, shape: impl StreamShape) -> Self {
        let (ready, shape, idle_max) = (VecDeque::new(), Box::new(shape), Duration::MAX);
        Self { follower: None, start, ready, shape, idle_max }
    }

    /// A stream that begins with a task as it stands.
    fn from_now(
        fold: TaskFold,
        shape: impl StreamShape,
        follow: impl FnOnce(TaskFold) -> TaskFollower<P>,
    ) -> Self {
        let place = EventPlace::behind(fold.version());
        let mut stream = Self::without_follower(StreamStart::Behind(place), shape);
        stream.write(Some(place), &A2aUpdate::Task(fold.shown().clone()));
        if !stream.shape.ends(&fold) {
            stream.follower = Some(follow(fold));
        }
        stream
    }

    /// The same stream, which ends when nothing happens for so long. Its reader may subscribe again.
    fn ending_after(self, idle_max: Duration) -> Self {
        Self { idle_max, ..self }
    }

    /// The frames, to the end of the stream.
    pub(crate) fn frames(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, async |mut stream| {
            let frame = stream.next().await?;
            Some((frame, stream))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Some(frame);
            }
            let next = timeout(self.idle_max, self.follower.as_mut()?.next()).await;
            match next.ok().flatten()? {
                Ok(told) => self.take(told),
                Err(error) => {
                    tracing::debug!(message = %error.message, "a stream of updates breaks off");
                    self.follower = None;
                    let data = self.shape.error(&error).to_string();
                    self.push(None, &data);
                }
            }
        }
    }

    fn take(&mut self, told: CommitUpdates) {
        let CommitUpdates { seq, updates } = told;
        match self.start {
            StreamStart::First => {
                let fold = self.follower.as_ref().and_then(TaskFollower::fold);
                let snapshot = fold.map(|fold| A2aUpdate::Task(fold.shown().clone()));
                let place = EventPlace::behind(seq);
                if let Some(snapshot) = snapshot {
                    self.write(Some(place), &snapshot);
                }
                self.start = StreamStart::Behind(place);
            }
            StreamStart::Behind(since) => {
                let mut place = EventPlace::default();
                for update in updates {
                    place = place.next(seq);
                    if place > since {
                        self.write(Some(place), &update);
                    }
                }
            }
        }
        let fold = self.follower.as_ref().and_then(TaskFollower::fold);
        if fold.is_some_and(|fold| self.shape.ends(fold)) {
            self.follower = None;
        }
    }

    fn write(&mut self, place: Option<EventPlace>, update: &A2aUpdate) {
        let data = self.shape.update(update).to_string();
        self.push(place, &data);
    }

    fn push(&mut self, place: Option<EventPlace>, data: &str) {
        let id = place.map(|place| place.to_string());
        let mut frame = Vec::with_capacity(data.len() + 32);
        SseFrame { event: None, id: id.as_deref(), data }.write(&mut frame);
        self.ready.push_back(frame.into());
    }
}
