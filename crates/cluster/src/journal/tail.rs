//! Reads a part of a partition's stream in order, into an index.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use bytes::Bytes;
use futures::StreamExt as _;
use tenure_core::id::SessionId;
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_wire::stored::frame::{CommitHead, FrameError, Header, decode};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::ahead::ChunkJoiner;
use super::index::{Index, IndexHit};
use super::read::{Frames, silence};
use crate::request::{RequestError, within};

/// How many messages are pulled at once, and how many bytes. With an ordered consumer the bytes
/// could not be bounded.
const PULLED_MAX: (usize, usize) = (2_000, 2 << 20);
/// How many streams are read at a time: the server cuts off a client that is more than 64 MiB
/// behind. It counts what it writes until all of that is written, and the next pulls may be asked for
/// just before: twice as much as is pulled at once may count.
pub(super) const PULLS_AT_ONCE: usize = 4;
/// How many consumers in a row may bring nothing.
const IDLE_MAX: u32 = 3;

/// How long to wait for a server that lags behind its leader.
const LAG: Duration = Duration::from_millis(200);
/// How long a consumer stays that is no longer used.
const INACTIVE_MIN: Duration = Duration::from_secs(30);

/// Why the stream of a partition could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// JetStream does not answer, or refuses.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A frame of it could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A message is no frame that this program can read.
    #[error("{stream}: message {at}: {error}")]
    Frame {
        /// The stream.
        stream: String,
        /// The place of the message.
        at: u64,
        /// What is wrong with it.
        error: FrameError,
    },
    /// The stream ends before a message that was acknowledged.
    #[error("{stream} ends at {last}, and {acknowledged} was acknowledged")]
    Short {
        /// The stream.
        stream: String,
        /// The last message of the stream.
        last: u64,
        /// The last message that is known to have been acknowledged.
        acknowledged: u64,
    },
}

/// How the reading with a consumer ended.
enum TailEnd {
    Reached,
    /// The consumer does not go on; another has to be made.
    Broken,
}

/// The result of one pull.
#[derive(Default)]
struct Pulled {
    /// Messages with their places in the stream.
    messages: Vec<(u64, Bytes)>,
    /// Whether the server has no more messages.
    is_all: bool,
    /// Whether messages behind these were lost on their way.
    has_gap: bool,
}

/// A stream to be read.
pub(super) struct StreamTail<'a> {
    pub(super) frames: Frames<'a>,
    /// Permits to read a stream, shared by all readers.
    turns: &'a Semaphore,
    /// The chunks of a frame that have been read so far.
    parts: ChunkJoiner,
    /// The session whose Tasks alone are taken in.
    only: Option<&'a SessionId>,
}

impl<'a> StreamTail<'a> {
    pub(super) fn of(frames: Frames<'a>, turns: &'a Semaphore) -> Self {
        Self { frames, turns, parts: ChunkJoiner::default(), only: None }
    }

    /// The same for the Tasks of one session alone.
    pub(super) fn only(mut self, session: Option<&'a SessionId>) -> Self {
        self.only = session;
        self
    }

    /// Takes in the messages behind `from`, up to `to`.
    pub(super) async fn read(
        &mut self,
        index: &mut Index,
        from: u64,
        to: u64,
    ) -> Result<(), StreamError> {
        let (mut reached, mut idle) = (from, 0);
        while reached < to {
            let before = reached;
            let read = self.read_on(index, &mut reached, to).await;
            idle = if reached > before { 0 } else { idle + 1 };
            match read? {
                TailEnd::Reached => return Ok(()),
                TailEnd::Broken if idle < IDLE_MAX => {}
                TailEnd::Broken => {
                    return Err(RequestError::Silent(silence(self.frames.name)).into());
                }
            }
        }
        Ok(())
    }

    /// Reads with one consumer until it has everything, or the consumer does not go on.
    async fn read_on(
        &mut self,
        index: &mut Index,
        reached: &mut u64,
        to: u64,
    ) -> Result<TailEnd, StreamError> {
        let Frames { stream, name, timeout: wait, .. } = self.frames;
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: *reached + 1 },
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: wait.max(INACTIVE_MIN),
            ..pull::Config::default()
        };
        let consumer = within(wait, silence(name), stream.create_consumer(config)).await?;
        let start = *reached;
        loop {
            let before = *reached;
            let pulled = self.pull(&consumer, start, before, to).await?;
            for (at, payload) in &pulled.messages {
                *reached = *at;
                self.take_message(index, *at, payload).await?;
            }
            if *reached >= to {
                return Ok(TailEnd::Reached);
            }
            if pulled.is_all {
                return Ok(self.judge_end(to).await);
            }
            if pulled.has_gap || *reached == before {
                return Ok(TailEnd::Broken);
            }
        }
    }

    /// Pulls the messages behind `reached` with a consumer that began behind `start`. They are
    /// taken in only after this has given its permit back: taking them in may ask for other frames,
    /// which may not come.
    async fn pull(
        &self,
        consumer: &PullConsumer,
        start: u64,
        reached: u64,
        to: u64,
    ) -> Result<Pulled, RequestError> {
        let (mut found, mut last) = (Pulled::default(), reached);
        let wait = self.frames.timeout;
        let _turn = self.turns.acquire().await;
        let pulled = consumer.batch().max_messages(PULLED_MAX.0).max_bytes(PULLED_MAX.1);
        let Ok(Ok(mut pulled)) = timeout(wait, pulled.expires(wait).messages()).await else {
            return Ok(found);
        };
        // The pull ends with an error if the next message would exceed the bytes.
        while let Ok(Some(Ok(message))) = timeout(wait, pulled.next()).await {
            let info = message.info().map_err(RequestError::failed)?;
            let is_first = last == start && info.consumer_sequence == 1;
            // A gap before the consumer's first message is in the stream; a gap before any other
            // means that messages were lost on their way.
            found.has_gap = info.stream_sequence != last + 1 && !is_first;
            if found.has_gap {
                break;
            }
            (last, found.is_all) = (info.stream_sequence, info.pending == 0);
            found.messages.push((last, message.payload.clone()));
            if last >= to || found.is_all {
                break;
            }
        }
        Ok(found)
    }

    /// Judges why the server that was read has no more messages, although the stream went on to
    /// `to`: either that message is gone, or this server lags behind its leader, which is asked.
    async fn judge_end(&self, to: u64) -> TailEnd {
        let leader = Frames { asks_leader: true, ..self.frames };
        match leader.message(to).await {
            Err(ReadError::Damaged { .. } | ReadError::NotFound) => TailEnd::Reached,
            Ok(_) | Err(_) => {
                tokio::time::sleep(LAG).await;
                TailEnd::Broken
            }
        }
    }

    /// Takes in a message. If the header of its frame is damaged, the chains of its Tasks will show
    /// that. A frame that a later program wrote is an error: a node that cannot read it must not
    /// own the partition.
    async fn take_message(
        &mut self,
        index: &mut Index,
        at: u64,
        payload: &Bytes,
    ) -> Result<(), StreamError> {
        let Some(frame) = self.parts.take(payload) else { return Ok(()) };
        let name = self.frames.name;
        match decode(&frame) {
            Ok(frame) => {
                if let Header::Owner { features, .. } = &frame.header {
                    index.note_features(features);
                }
                let is_asked_for =
                    |head: &CommitHead| self.only.is_none_or(|session| head.session_id == *session);
                for (head, _) in frame.commits().filter(|(head, _)| is_asked_for(head)) {
                    let (session_id, task_id) = (head.session_id.clone(), head.task_id.clone());
                    let key = TaskKey { session_id, task_id };
                    if head.first_seq > 1 {
                        self.adopt(index, &key).await?;
                    }
                    index.take(&key, head, at);
                }
                index.cover(at);
            }
            Err(error @ (FrameError::Version(_) | FrameError::Header(_))) => {
                return Err(StreamError::Frame { stream: name.to_owned(), at, error });
            }
            Err(error) => tracing::error!(stream = name, at, %error, "a frame is damaged"),
        }
        Ok(())
    }

    /// Gives a Task its row again that had ended and goes on.
    async fn adopt(&self, index: &mut Index, key: &TaskKey) -> Result<(), ReadError> {
        let IndexHit::Among(among) = index.find(key) else { return Ok(()) };
        if let Some(row) = self.frames.row(key, &among).await? {
            index.adopt(key, &row);
        }
        Ok(())
    }
}
