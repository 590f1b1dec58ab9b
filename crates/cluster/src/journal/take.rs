//! Taking a partition: read it to its end, then write an owner record there. The record's place in
//! the stream is the epoch; nothing of an earlier owner is accepted behind it (mechanisms 3).

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use futures::StreamExt as _;
use tenure_core::event::SCHEMA_VERSION;
use tenure_ports::journal::TaskKey;
use tenure_wire::stored::frame::{
    FRAME_VERSION, FrameError, Header, decode, decode_chunk, encode_header,
};
use tokio::time::timeout;

use super::Settings;
use super::index::Index;
use crate::append::{Appender, Fate};

/// Timeouts for which the fate of an owner record is waited for.
const RECORD: u32 = 4;

pub(super) struct Taking<'a> {
    pub(super) stream: &'a Stream<()>,
    pub(super) settings: &'a Settings,
    /// Of the stream.
    pub(super) name: &'a str,
    /// The last message that was ever acknowledged to this node.
    pub(super) acknowledged: u64,
    /// Names this taking.
    pub(super) taking: String,
}

/// A frame of which some chunks have been read.
#[derive(Debug, Default)]
struct Pending {
    parts: Vec<u8>,
    next: u32,
}

impl Taking<'_> {
    /// Answers with the index of all that is stored, and the epoch.
    pub(super) async fn take(
        &self,
        mut appender: Appender,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(Index, Appender, u64), String> {
        let record = Header::Owner {
            version: FRAME_VERSION,
            node: self.settings.node.clone(),
            taking: self.taking.clone(),
            write_level: u32::from(SCHEMA_VERSION),
        };
        let record: Bytes = encode_header(&record).map_err(|error| error.to_string())?.into();
        let (mut index, mut pending, mut read_to) = (Index::default(), Pending::default(), 0);
        loop {
            let last = self.last_seq().await?;
            if last < self.acknowledged {
                let known = self.acknowledged;
                return Err(format!(
                    "{} ends at {last}, and {known} was acknowledged: the store has lost data",
                    self.name
                ));
            }
            self.read(&mut index, &mut pending, read_to, last).await?;
            read_to = last;
            if !is_wanted() {
                return Err("it was left meanwhile".into());
            }
            // A record that is stored late fences an owner, who takes the partition again; nobody may
            // wait for its fate for ever.
            let record = std::slice::from_ref(&record);
            let fate = timeout(RECORD * self.settings.timeout, appender.append(read_to, record));
            let fate = fate.await.map_err(|_| "the fate of the owner record is not known")?;
            match fate {
                Fate::Stored(epoch) => return Ok((index, appender, epoch)),
                Fate::Never => {} // Another has written meanwhile: read on.
                Fate::Refused(why) | Fate::Unknown(why) => return Err(why),
                Fate::Lost { last } => {
                    return Err(format!("the stream ends at {last}, after {read_to} was read"));
                }
            }
        }
    }

    async fn last_seq(&self) -> Result<u64, String> {
        let info = timeout(self.settings.timeout, self.stream.get_info()).await;
        let info = info.map_err(|_| format!("{} does not answer", self.name))?;
        Ok(info.map_err(|error| error.to_string())?.state.last_sequence)
    }

    /// Takes in the messages behind `from`, up to `to`.
    async fn read(
        &self,
        index: &mut Index,
        pending: &mut Pending,
        from: u64,
        to: u64,
    ) -> Result<(), String> {
        if from >= to {
            return Ok(());
        }
        let config = OrderedConfig {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from + 1 },
            ..OrderedConfig::default()
        };
        let slow = |_| format!("{} does not answer", self.name);
        let consumer = timeout(self.settings.timeout, self.stream.create_consumer(config)).await;
        let consumer = consumer.map_err(slow)?.map_err(|error| error.to_string())?;
        let messages = timeout(self.settings.timeout, consumer.messages()).await;
        let mut messages = messages.map_err(slow)?.map_err(|error| error.to_string())?;
        let mut reached = from;
        while reached < to {
            let message = timeout(self.settings.timeout, messages.next()).await.map_err(slow)?;
            let message = message.ok_or("the reading ended early")?;
            let message = message.map_err(|error| error.to_string())?;
            let info = message.info().map_err(|error| error.to_string())?;
            let (at, left) = (info.stream_sequence, info.pending);
            // A consumer that was made again may begin at the start.
            if at > reached {
                reached = at;
                self.take_message(index, pending, at, &message.payload)?;
            }
            if left == 0 {
                return Ok(()); // What is missing at the end is not there any more.
            }
        }
        Ok(())
    }

    /// A message whose header is damaged is damage that its Tasks' chains will show. One that a later
    /// program wrote is none: who cannot read it must not own it.
    fn take_message(
        &self,
        index: &mut Index,
        pending: &mut Pending,
        at: u64,
        payload: &Bytes,
    ) -> Result<(), String> {
        let frame = match decode_chunk(payload) {
            Some(chunk) => {
                if chunk.index != pending.next {
                    *pending = Pending::default();
                }
                if chunk.index == pending.next {
                    pending.parts.extend_from_slice(chunk.part);
                    pending.next += 1;
                }
                if chunk.index + 1 < chunk.of {
                    return Ok(());
                }
                std::mem::take(pending).parts.into()
            }
            None => payload.clone(),
        };
        match decode(&frame) {
            Ok(frame) => {
                for (head, _) in frame.commits() {
                    let (session_id, task_id) = (head.session_id.clone(), head.task_id.clone());
                    index.take(&TaskKey { session_id, task_id }, head, at);
                }
            }
            Err(error @ (FrameError::Version(_) | FrameError::Header(_))) => {
                return Err(format!("{}: message {at}: {error}", self.name));
            }
            Err(error) => tracing::error!(stream = self.name, at, %error, "a frame is damaged"),
        }
        Ok(())
    }
}
