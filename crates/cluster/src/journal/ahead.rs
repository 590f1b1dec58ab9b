//! Reads ahead in a stream. A reader that goes backwards along a chain whose frames stand close
//! together asks for a stretch of the stream in one request, and finds the rest of it in the
//! [`frame_cache`](super::frame_cache). A stretch is longer where the last one was well used, and
//! shorter where it was not, so that few frames are read in vain. A frame that does not come with
//! its stretch is asked for alone.

use std::sync::Arc;

use async_nats::{Message, Subscriber};
use bytes::Bytes;
use futures::StreamExt as _;
use serde::Serialize;
use tenure_wire::stored::frame::decode_chunk;
use tokio::time::timeout;

use super::frame_cache::OpenedFrame;
use super::read::{FOLLOWER, Frames};

/// How many messages a stretch has at most.
const LENGTH_MAX: u64 = 256;
/// About how many bytes a stretch has.
const BYTES: u64 = 1 << 20;
/// After how many bytes the server ends a stretch.
const BYTES_MAX: u64 = 2 << 20;

/// The state of a reader that reads ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    /// The first and the last message of the last stretch.
    first: u64,
    last: u64,
    /// How many bytes its messages had.
    bytes: u64,
    /// How many of its messages were wanted.
    used: u64,
}

impl Ahead {
    pub(super) fn new() -> Self {
        Self { first: 1, last: 0, bytes: 0, used: 0 }
    }

    /// The reader wants frame `at`, and will want none before `floor`. Fetches it and those before
    /// it in one stretch, if that pays.
    pub(super) async fn reach(&mut self, frames: Frames<'_>, at: u64, floor: u64) {
        let Some(frame_cache) = frames.frame_cache else { return };
        self.used += u64::from((self.first..=self.last).contains(&at));
        if frame_cache.has(at) {
            return;
        }
        let length = self.next_length().min((at + 1).saturating_sub(floor)).max(1);
        (self.first, self.last, self.used) = (at + 1 - length, at, 1);
        while self.first < at && frame_cache.has(self.first) {
            self.first += 1;
        }
        self.bytes = match self.first < at {
            true => frames.stretch(self.first, at).await,
            false => 0, // The reader fetches this one alone.
        };
    }

    fn next_length(&self) -> u64 {
        let length = (self.last + 1).saturating_sub(self.first);
        let next = match self.used * 4 >= length * 3 {
            true => length * 2,
            false => length / 2,
        };
        let each = (self.bytes / length.max(1)).max(1);
        next.min(LENGTH_MAX).min(BYTES / each)
    }
}

/// The request for a stretch.
#[derive(Serialize)]
struct Stretch {
    seq: u64,
    batch: u64,
    max_bytes: u64,
}

impl Frames<'_> {
    /// Caches the frames that end in a stretch of the stream, as far as they come. Answers how many
    /// bytes came.
    async fn stretch(self, first: u64, last: u64) -> u64 {
        let Some(frame_cache) = self.frame_cache else { return 0 };
        let _turn = frame_cache.turn().await;
        let Some(mut messages) = self.ask_for(first, last).await else { return 0 };
        let (mut parts, mut bytes) = (ChunkJoiner::default(), 0);
        // Any replica may answer, and may hang; the others wait for its permit meanwhile.
        let mut patience = self.timeout.min(FOLLOWER);
        while let Ok(Some(message)) = timeout(patience, messages.next()).await {
            patience = self.timeout;
            let Some(at) = place(&message).filter(|at| *at <= last) else { break };
            bytes += message.payload.len() as u64;
            let whole = parts.take(&message.payload);
            if let Some(Ok(opened)) = whole.map(OpenedFrame::read) {
                frame_cache.put(at, Arc::new(opened));
            }
            if at == last {
                break;
            }
        }
        bytes
    }

    async fn ask_for(self, first: u64, last: u64) -> Option<Subscriber> {
        let asked = Stretch { seq: first, batch: last + 1 - first, max_bytes: BYTES_MAX };
        let asked = serde_json::to_vec(&asked).ok()?;
        let inbox = self.client.new_inbox();
        let ask = async {
            let messages = self.client.subscribe(inbox.clone()).await.ok()?;
            let subject = format!("$JS.API.DIRECT.GET.{}", self.name);
            self.client.publish_with_reply(subject, inbox, asked.into()).await.ok()?;
            Some(messages)
        };
        timeout(self.timeout, ask).await.ok()?
    }
}

/// The place of a message of a stretch; none if the message says that no more come.
fn place(message: &Message) -> Option<u64> {
    if message.status.is_some() {
        return None;
    }
    message.headers.as_ref()?.get("Nats-Sequence")?.as_str().parse().ok()
}

/// Joins the chunks of frames, which come one after another.
#[derive(Debug, Default)]
pub(super) struct ChunkJoiner {
    /// The chunks of a frame that have come.
    bytes: Vec<u8>,
    /// The index of the next chunk.
    next: u32,
}

impl ChunkJoiner {
    /// The frame that this message completes.
    pub(super) fn take(&mut self, payload: &Bytes) -> Option<Bytes> {
        let Some(chunk) = decode_chunk(payload) else { return Some(payload.clone()) };
        if chunk.index != self.next {
            *self = Self::default();
        }
        if chunk.index == self.next {
            self.bytes.extend_from_slice(chunk.part);
            self.next += 1;
        }
        if chunk.index + 1 < chunk.of {
            return None;
        }
        self.next = 0;
        Some(std::mem::take(&mut self.bytes).into())
    }
}
