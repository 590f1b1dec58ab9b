//! Reads one Task's log in parts, each backwards along its chain: a frame names the Task's frame
//! before it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use bytes::Bytes;
use futures::FutureExt as _;
use tenure_core::Commit;
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_wire::stored::frame::{CommitHead, LAST_OF_LINES, decode_chunk};
use tenure_wire::stored::{Assembler, LineError, decode_line, decode_packed};
use tokio::time::timeout;

use super::JetStreamJournal;
use super::ahead::Ahead;
use super::frame_cache::{FrameCache, OpenedFrame};
use super::index::Newest;
use crate::request::{RequestError, within};

/// Where and how frames are read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frames<'a> {
    pub(super) client: &'a Client,
    pub(super) stream: &'a Stream<()>,
    /// The name of the stream.
    pub(super) name: &'a str,
    pub(super) timeout: Duration,
    /// Whether only the leader may answer: a follower may still have what was overwritten.
    pub(super) asks_leader: bool,
    /// Where others find what is read here.
    pub(super) frame_cache: Option<&'a FrameCache>,
}

/// How long a follower may take to answer. A frozen one never does; then the leader is asked.
pub(super) const FOLLOWER: Duration = Duration::from_millis(500);

/// How many messages are searched for the older end of a broken chain.
const LOOKED_THROUGH_MAX: u64 = 2_000;

/// One reading of a Task.
pub(super) struct Chain<'a> {
    pub(super) frames: Frames<'a>,
    pub(super) key: &'a TaskKey,
    /// Only commits that begin with this event or before it are wanted.
    pub(super) until: u64,
}

/// The error text for a stream that does not answer.
pub(super) fn silence(stream: &str) -> String {
    format!("{stream} does not answer")
}

impl Frames<'_> {
    /// The last message of the stream.
    pub(super) async fn last_seq(self) -> Result<u64, RequestError> {
        let info = within(self.timeout, silence(self.name), self.stream.get_info()).await?;
        Ok(info.state.last_sequence)
    }

    /// The frame that ends with a message, with its header read. Simultaneous requests share one
    /// fetch.
    pub(super) async fn opened(self, at: u64) -> Result<Arc<OpenedFrame>, ReadError> {
        let Some(frame_cache) = self.frame_cache else { return self.open(at).await };
        let fetch = || {
            let (client, stream) = (self.client.clone(), self.stream.clone());
            let (name, timeout, asks_leader) =
                (self.name.to_owned(), self.timeout, self.asks_leader);
            let fetch = async move {
                let (client, stream, name) = (&client, &stream, name.as_str());
                let alone =
                    Frames { client, stream, name, timeout, asks_leader, frame_cache: None };
                alone.open(at).await
            };
            fetch.boxed()
        };
        frame_cache.frame(at, fetch).await
    }

    async fn open(self, at: u64) -> Result<Arc<OpenedFrame>, ReadError> {
        let opened = OpenedFrame::read(self.ending_at(at).await?);
        opened.map(Arc::new).map_err(|error| self.damaged(at, error.to_string()))
    }

    /// The frame that ends with a message.
    pub(super) async fn ending_at(self, at: u64) -> Result<Bytes, ReadError> {
        let last = self.message(at).await?;
        let Some(chunk) = decode_chunk(&last) else { return Ok(last) };
        let (index, of) = (u64::from(chunk.index), u64::from(chunk.of));
        if index + 1 != of || of > at {
            return Err(self.damaged(at, "it is no last chunk".into()));
        }
        let mut parts = vec![last.clone()];
        for index in (0..of - 1).rev() {
            let seq = at + 1 - of + index;
            let part = self.message(seq).await?;
            let fits = decode_chunk(&part)
                .is_some_and(|found| (u64::from(found.index), u64::from(found.of)) == (index, of));
            if !fits {
                return Err(self.damaged(seq, format!("it is not chunk {index} of {of}")));
            }
            parts.push(part);
        }
        let mut whole = Vec::new();
        for part in parts.iter().rev() {
            whole.extend_from_slice(decode_chunk(part).map_or(&[][..], |chunk| chunk.part));
        }
        Ok(whole.into())
    }

    /// A message. A follower may lag behind, so the leader is asked for what it does not have.
    pub(super) async fn message(self, at: u64) -> Result<Bytes, ReadError> {
        if !self.asks_leader
            && let Ok(Ok(found)) =
                timeout(self.timeout.min(FOLLOWER), self.stream.direct_get(at)).await
        {
            return Ok(found.payload);
        }
        let failed =
            |why: String| ReadError::Unavailable(format!("{}: message {at}: {why}", self.name));
        match timeout(self.timeout, self.stream.get_raw_message(at)).await {
            Ok(Ok(found)) => Ok(found.payload),
            Ok(Err(error)) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                Err(self.damaged(at, "the message is not there".into()))
            }
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(_) => Err(failed("no answer in time".into())),
        }
    }

    pub(super) fn damaged(self, at: u64, message: String) -> ReadError {
        ReadError::Damaged { file: self.name.to_owned(), line: at, offset: 0, message }
    }
}

impl JetStreamJournal {
    /// Passes the commits of a Task behind event `after` to `each`, oldest first, up to those that
    /// begin with event `until` or before it. It reads part by part, and holds one part in memory
    /// at a time.
    pub(super) async fn read_chain(
        &self,
        key: &TaskKey,
        after: u64,
        until: u64,
        mut each: impl FnMut(Commit) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        let partition = self.of(key).ok_or(ReadError::NotOwner)?;
        let _reading = partition.frame_cache.reading();
        let row = self.known(key, &partition).await?.row.ok_or(ReadError::NotFound)?;
        let name = self.settings.stream(key.partition(self.settings.partitions));
        let frames = self.frames(&partition.stream, &name, Some(&partition.frame_cache));
        let (chain, mut ahead) = (Chain { frames, key, until }, Ahead::new());
        for (start, end) in row.marks.parts(after, until, row.newest) {
            match chain.read(start, end, after, &mut ahead, &mut each).await {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(())) => return Ok(()),
                Err(error) => {
                    if let ReadError::Damaged { .. } = &error {
                        let mut index = partition.index.write();
                        if index.adopt(key, &row) {
                            index.note_damage(key);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Chain<'_> {
    /// Passes the commits of a part that are behind event `after` to `each`, oldest first.
    async fn read(
        &self,
        start: Newest,
        end: Newest,
        after: u64,
        ahead: &mut Ahead,
        each: &mut impl FnMut(Commit) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ReadError> {
        let (mut frames, mut damage) = (Vec::new(), None);
        let (mut at, mut last) = (end.stream_seq, end.wal_seq);
        let after = after.max(start.wal_seq);
        while last > after {
            ahead.reach(self.frames, at, start.stream_seq).await;
            let frame = self.frames.opened(at).await;
            let found = match frame.and_then(|frame| self.commits(at, &frame, after, last)) {
                Err(error @ ReadError::Damaged { .. }) => {
                    frames.clear();
                    damage = Some(error);
                    match self.before(at, last).await? {
                        Some(before) => {
                            (at, last) = before;
                            continue;
                        }
                        None => break,
                    }
                }
                found => found?,
            };
            let FrameCommits { commits, broken, before } = found;
            if let Some(broken) = broken {
                frames.clear(); // Commits that follow damage are no history.
                damage = Some(broken);
            }
            frames.push(commits);
            (at, last) = before;
        }
        for commit in frames.into_iter().rev().flatten() {
            if each(commit).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        damage.map_or(Ok(ControlFlow::Continue(())), Err)
    }

    /// The last frame before a message that has a commit of the Task, and that commit's last event.
    /// Where the chain is broken, this searches older frames for where it goes on.
    async fn before(&self, at: u64, last: u64) -> Result<Option<(u64, u64)>, ReadError> {
        for at in (at.saturating_sub(LOOKED_THROUGH_MAX).max(1)..at).rev() {
            let frame = match self.frames.opened(at).await {
                Ok(frame) => frame,
                Err(ReadError::Damaged { .. }) => continue,
                Err(error) => return Err(error),
            };
            let own = frame.commits_of(self.key);
            if let Some(found) = own.map(|(head, _)| head.last_seq).filter(|l| *l < last).max() {
                return Ok(Some((at, found)));
            }
        }
        Ok(None)
    }

    /// The wanted commits of the Task in a frame: those behind event `after`, of which the last
    /// ends with event `last`.
    fn commits(
        &self,
        at: u64,
        frame: &OpenedFrame,
        after: u64,
        last: u64,
    ) -> Result<FrameCommits, ReadError> {
        let (mut commits, mut broken, mut before) = (Vec::new(), None, None);
        let mut next = None;
        let own = frame.commits_of(self.key).filter(|(head, _)| head.last_seq <= last);
        for (head, lines) in own.filter(|(head, _)| head.last_seq > after) {
            if next.is_some_and(|next| next != head.first_seq) {
                let message = format!("event {} is out of place", head.first_seq);
                return Err(self.damaged(at, message));
            }
            next = Some(head.last_seq + 1);
            before.get_or_insert((head.prev, head.first_seq.saturating_sub(1)));
            let is_behind = head.first_seq > self.until;
            if broken.is_none() && !is_behind {
                let commit = match frame.version {
                    ..=LAST_OF_LINES => self.of_lines(head, lines),
                    _ => decode_packed(lines.strip_suffix(b"\n").unwrap_or(lines)),
                };
                match self.checked(at, head, commit) {
                    Ok(commit) => commits.push(commit),
                    Err(error) => broken = Some(error),
                }
            }
        }
        match before.filter(|_| next == Some(last + 1)) {
            Some(before) => Ok(FrameCommits { commits, broken, before }),
            None => {
                let message = format!("it has no commit of the task that ends with event {last}");
                Err(self.damaged(at, message))
            }
        }
    }

    /// The commit in a frame of the first version.
    fn of_lines(&self, head: &CommitHead, lines: &[u8]) -> Result<Commit, LineError> {
        let (session, task) = (self.key.session_id.clone(), self.key.task_id.clone());
        let mut assembler = Assembler::after(session, task, head.first_seq.saturating_sub(1));
        let mut whole = None;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            if whole.is_some() {
                return Err(LineError::Commit("a line behind its end"));
            }
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            whole = assembler.push(decode_line(text)?)?;
        }
        whole.ok_or(LineError::Commit("its end"))
    }

    fn checked(
        &self,
        at: u64,
        head: &CommitHead,
        commit: Result<Commit, LineError>,
    ) -> Result<Commit, ReadError> {
        let commit = commit.map_err(|error| self.damaged(at, error.to_string()))?;
        if (commit.first_seq, commit.last_seq()) != (head.first_seq, head.last_seq) {
            let message = format!("it is no commit from {} to {}", head.first_seq, head.last_seq);
            return Err(self.damaged(at, message));
        }
        Ok(commit)
    }

    /// The error for damage in a frame that could be opened; removes the frame from the cache.
    fn damaged(&self, at: u64, message: String) -> ReadError {
        if let Some(frame_cache) = self.frames.frame_cache {
            frame_cache.forget(at);
        }
        self.frames.damaged(at, message)
    }
}

/// Commits of one Task in one frame.
struct FrameCommits {
    /// The commits before any damage.
    commits: Vec<Commit>,
    /// The damage behind them.
    broken: Option<ReadError>,
    /// The place of the frame with the commit before them, and that commit's last event.
    before: (u64, u64),
}
