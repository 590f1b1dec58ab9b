//! The writer of a partition: it gathers the commits that wait, and has one append in flight. It stands
//! between the [`Journal`](tenure_ports::Journal) port and the [`Appender`].
//!
//! Step 6 of the walk in docs/architecture.md.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::RwLock;
use tenure_core::Commit;
use tenure_core::event::Body;
use tenure_core::id::{Millis, WalName};
use tenure_core::status::End;
use tenure_ports::Observer;
use tenure_ports::journal::{AppendError, TaskKey};
use tenure_ports::observer::Called;
use tenure_wire::stored::encode_packed;
use tenure_wire::stored::frame::{CommitHead, Named};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::checkpoint::Checkpoints;
use super::gathered::{EncodedFrames, Gathered, encode_frames};
use super::index::{Index, IndexLookup, Newest};
use super::written::WrittenFrames;
use crate::append::{AppendOutcome, Appender};
use crate::owned::Owned;

/// How many commits a frame has at most.
const COMMITS_MAX: usize = 1_000;

/// How many appends of a node are in flight at a time. If many partitions have something to write,
/// the others gather more meanwhile: fewer appends, each longer, cost less.
pub(super) const APPENDS_AT_ONCE: usize = 3;

/// How long an append may delay others. Where appends are slower, each partition has one in flight.
const SLOW: Duration = Duration::from_millis(4);

/// What the maker of a commit knows of its head in a frame.
#[derive(Debug)]
pub(super) struct PendingHead {
    first_seq: u64,
    last_seq: u64,
    created_at: Millis,
    len: u32,
    named: Option<(TaskKey, Named)>,
    ended: Option<End>,
    archived: bool,
}

impl PendingHead {
    /// The head of a commit whose lines take `len` bytes.
    pub(super) fn of(commit: &Commit, len: usize) -> Result<Self, AppendError> {
        let len =
            u32::try_from(len).map_err(|_| AppendError::Failed("a commit is too long".into()))?;
        let mut head = Self {
            first_seq: commit.first_seq,
            last_seq: commit.last_seq(),
            created_at: commit.created_at,
            len,
            named: None,
            ended: None,
            archived: false,
        };
        for event in &commit.events {
            match &event.body {
                // A later `task_created` replaces an unfinished creation (IDEM-10).
                Body::TaskCreated(created) if commit.first_seq == 1 => {
                    let task = &created.task;
                    let (session_id, task_id) = (task.session_id.clone(), task.task_id.clone());
                    let (title, wal_name) = (task.title.to_string(), task.wal_name.clone());
                    let named = Named { title, wal_name, labels: task.labels.clone() };
                    head.named = Some((TaskKey { session_id, task_id }, named));
                }
                Body::TaskArchived(_) => head.archived = true,
                other => head.ended = head.ended.or_else(|| other.end()),
            }
        }
        Ok(head)
    }

    /// Whether the commit creates a Task, with this key and name.
    pub(super) fn creates(&self, key: &TaskKey, wal_name: &WalName) -> bool {
        self.named.as_ref().is_some_and(|(of, named)| of == key && named.wal_name == *wal_name)
    }

    pub(super) fn in_frame(self, key: &TaskKey, prev: u64) -> CommitHead {
        CommitHead {
            session_id: key.session_id.clone(),
            task_id: key.task_id.clone(),
            first_seq: self.first_seq,
            last_seq: self.last_seq,
            created_at: self.created_at,
            prev,
            len: self.len,
            named: self.named.map(|(_, named)| named),
            ended: self.ended.map(End::status),
            failed_as: self.ended.and_then(End::failed_as),
            archived: self.archived,
        }
    }
}

/// The lines of commits that follow event `after`, and what a frame says of each.
pub(super) fn encoded(
    key: &TaskKey,
    after: u64,
    created: Option<&WalName>,
    commits: &[Arc<Commit>],
) -> Result<(Bytes, Vec<PendingHead>), AppendError> {
    let (mut lines, mut heads, mut last) = (Vec::new(), Vec::new(), after);
    for commit in commits {
        if commit.events.is_empty() || commit.first_seq != last + 1 {
            let message = format!("event {} cannot follow event {last}", commit.first_seq);
            return Err(AppendError::Failed(message));
        }
        let start = lines.len();
        encode_packed(commit, &mut lines)
            .map_err(|error| AppendError::Failed(error.to_string()))?;
        heads.push(PendingHead::of(commit, lines.len() - start)?);
        last = commit.last_seq();
    }
    match (created, heads.first_mut()) {
        (_, None) => return Err(AppendError::Failed("nothing is to be written".into())),
        (Some(name), Some(first)) if !first.creates(key, name) => {
            return Err(AppendError::Failed("a log starts with its task_created".into()));
        }
        _ => {}
    }
    Ok((lines.into(), heads))
}

/// Commits of a Task that follow event `after`, to be written.
#[derive(Debug)]
pub(super) struct AppendRequest {
    pub(super) key: TaskKey,
    pub(super) after: u64,
    /// What was known of the Task, unless it is live: an older ended Task has no row in the index.
    pub(super) known: IndexLookup,
    pub(super) heads: Vec<PendingHead>,
    /// The lines of all these commits.
    pub(super) lines: Bytes,
    pub(super) reply: AppendWaiter,
}

/// The receiver of an answer, and the capacity that is held until then.
#[derive(Debug)]
pub(super) struct AppendWaiter {
    pub(super) to: oneshot::Sender<Result<(), AppendError>>,
    pub(super) capacity: OwnedSemaphorePermit,
}

impl AppendWaiter {
    fn send(self, result: Result<(), AppendError>) {
        drop(self.capacity); // Freed first, so that the caller finds it free.
        let _ = self.to.send(result); // The caller may have gone.
    }
}

/// A partition's writer.
#[derive(Debug)]
pub(super) struct Writing {
    pub(super) appender: Appender,
    pub(super) epoch: u64,
    pub(super) index: Arc<RwLock<Index>>,
    /// The last message of the stream that this writer knows of, as it wrote it.
    pub(super) last_seq: Arc<AtomicU64>,
    /// Where readers find what was written last.
    pub(super) written: Arc<WrittenFrames>,
    /// How many bytes a message may have.
    pub(super) message_bytes: usize,
    /// The name of the stream.
    pub(super) name: String,
    pub(super) owned: Arc<Owned>,
    pub(super) partition: u32,
    /// The last message that was ever acknowledged to this node.
    pub(super) acknowledged: Arc<AtomicU64>,
    pub(super) checkpoints: Arc<Checkpoints>,
    /// Permits to append, shared by all writers of the node.
    pub(super) turns: Arc<Semaphore>,
    /// The observer, which gets the times of appends.
    pub(super) observer: Option<Arc<dyn Observer>>,
}

impl Writing {
    /// Serves requests until the partition closes or another node owns it. Every request that was
    /// accepted before gets its answer.
    pub(super) async fn run(
        mut self,
        mut requests: mpsc::Receiver<AppendRequest>,
        mut closes: watch::Receiver<bool>,
    ) {
        let mut waiting = VecDeque::new();
        loop {
            if waiting.is_empty() {
                let request = tokio::select! {
                    request = requests.recv() => request,
                    // If the sender of `closes` has been dropped, the partition was left as well.
                    _ = closes.wait_for(|closes| *closes), if !requests.is_closed() => {
                        requests.close();
                        continue;
                    }
                };
                match request {
                    Some(request) => waiting.push_back(request),
                    None => return,
                }
            }
            let turn = Arc::clone(&self.turns).acquire_owned().await.ok();
            while let Ok(request) = requests.try_recv() {
                waiting.push_back(request);
            }
            let gathered = self.gather(&mut waiting);
            if gathered.replies.is_empty() {
                continue;
            }
            if let Err(stopped) = in_turn(turn, self.append(gathered)).await {
                let (stream, why) = (&self.name, &stopped.why);
                match stopped.cause {
                    Cause::Superseded => tracing::info!(%stream, why, "the partition is left"),
                    Cause::InDoubt => tracing::warn!(%stream, why, "the partition is taken anew"),
                    Cause::Lost => {
                        tracing::error!(%stream, why, "the partition is not written any more");
                    }
                }
                requests.close();
                while let Some(request) = requests.recv().await {
                    waiting.push_back(request);
                }
                for request in waiting {
                    request.reply.send(Err(stopped.of_those_behind()));
                }
                return;
            }
        }
    }

    /// Takes the requests that fit into a frame. A Task's second request waits for the next frame:
    /// only then is it known whether it follows.
    fn gather(&self, waiting: &mut VecDeque<AppendRequest>) -> Gathered {
        let mut gathered = Gathered::default();
        let mut index = self.index.write();
        let mut later = VecDeque::new();
        while let Some(request) = waiting.pop_front() {
            let size = gathered.bytes + request.lines.len();
            let is_full = !gathered.replies.is_empty()
                && (size > self.message_bytes / 2 || gathered.heads.len() >= COMMITS_MAX);
            if is_full || gathered.tasks.contains(&request.key) {
                later.push_back(request);
                if is_full {
                    break;
                }
                continue;
            }
            let newest = index.newest(&request.key, &request.known);
            match newest.and_then(|newest| check(&request, newest).map(|()| newest)) {
                Ok(newest) => gathered.add(request, newest.map_or(0, |n| n.stream_seq)),
                Err(no) => request.reply.send(Err(no)),
            }
        }
        while let Some(request) = later.pop_back() {
            waiting.push_front(request);
        }
        gathered
    }

    /// Appends frames and answers. An error says why this writer must stop.
    async fn append(&mut self, gathered: Gathered) -> Result<(), WriterStop> {
        let last_seq = self.last_seq.load(Ordering::Acquire);
        let (frames, replies) = gathered.into_frames(self.message_bytes);
        let encoded = encode_frames(frames, self.epoch, last_seq, self.message_bytes);
        let EncodedFrames { messages, placed } = match encoded {
            Ok(encoded) => encoded,
            Err(error) => {
                answer_all(replies, || AppendError::Failed(error.to_string()));
                return Ok(());
            }
        };
        let commits = placed.iter().map(|(heads, _)| heads.len()).sum();
        let begun = Instant::now();
        let outcome = self.appender.append(last_seq, &messages).await;
        if let Some(observer) = &self.observer {
            let is_ok = matches!(outcome, AppendOutcome::Stored(_));
            observer.framed(Called { took: begun.elapsed(), items: commits, is_ok });
        }
        match outcome {
            AppendOutcome::Stored(seq) => {
                self.last_seq.store(seq, Ordering::Release);
                self.acknowledged.fetch_max(seq, Ordering::AcqRel);
                self.written.note(last_seq + 1, &messages); // Before the index leads readers there.
                let mut index = self.index.write();
                for (heads, end) in &placed {
                    for head in heads {
                        let (session_id, task_id) = (head.session_id.clone(), head.task_id.clone());
                        index.take(&TaskKey { session_id, task_id }, head, *end);
                    }
                }
                index.cover(seq);
                drop(index);
                self.checkpoints.count(commits);
                replies.into_iter().for_each(|reply| reply.send(Ok(())));
                Ok(())
            }
            AppendOutcome::Refused(why) => {
                answer_all(replies, || AppendError::Failed(why.clone()));
                Ok(())
            }
            AppendOutcome::Unsettled(why) => {
                let error = || AppendError::Unsettled(why.clone());
                Err(self.stop(replies, Cause::InDoubt, &why, error))
            }
            AppendOutcome::Superseded => {
                let why = "another node has taken the partition";
                Err(self.stop(replies, Cause::Superseded, why, || AppendError::NotOwner))
            }
            AppendOutcome::Lost { last } => {
                let why = format!(
                    "the stream ends at {last}, and {last_seq} was acknowledged: \
                     the store has lost data"
                );
                let error = || AppendError::MustReread(why.clone());
                Err(self.stop(replies, Cause::Lost, &why, error))
            }
        }
    }

    /// Stops this writer: a caller that gets its answer finds that this node does not own the
    /// partition.
    fn stop(
        &self,
        replies: Vec<AppendWaiter>,
        cause: Cause,
        why: &str,
        error: impl Fn() -> AppendError,
    ) -> WriterStop {
        self.owned.lose(self.partition, self.epoch);
        answer_all(replies, error);
        WriterStop { cause, why: why.to_owned() }
    }
}

/// Why a writer stops.
struct WriterStop {
    cause: Cause,
    why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Another node owns the partition.
    Superseded,
    /// The outcome of an append is not known. The next owner finds it out: this node or another.
    InDoubt,
    /// The store has lost data: nobody may write there.
    Lost,
}

impl WriterStop {
    /// The answer to requests that waited behind the append: nothing of them was written, and the
    /// next owner can accept them.
    fn of_those_behind(&self) -> AppendError {
        match self.cause {
            Cause::Superseded | Cause::InDoubt => AppendError::NotOwner,
            Cause::Lost => AppendError::Failed(self.why.clone()),
        }
    }
}

/// Appends while it holds the permit, but gives the permit back if that takes too long.
async fn in_turn<T>(turn: Option<OwnedSemaphorePermit>, append: impl Future<Output = T>) -> T {
    let mut append = pin!(append);
    if let Ok(done) = timeout(SLOW, append.as_mut()).await {
        return done;
    }
    drop(turn);
    append.await
}

/// Whether a request follows what is stored of its Task.
fn check(request: &AppendRequest, newest: Option<Newest>) -> Result<(), AppendError> {
    let creates = request.heads.first().is_some_and(|head| head.named.is_some());
    match newest {
        Some(_) if creates => Err(AppendError::TaskExists),
        None if !creates => {
            Err(AppendError::Failed(format!("task {} does not exist", request.key)))
        }
        Some(newest) if newest.wal_seq != request.after => {
            Err(AppendError::Fenced { expected: request.after, last: newest.wal_seq })
        }
        _ => Ok(()),
    }
}

fn answer_all(replies: Vec<AppendWaiter>, error: impl Fn() -> AppendError) {
    replies.into_iter().for_each(|reply| reply.send(Err(error())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_append_gives_its_turn_to_others() {
        let turns = Arc::new(Semaphore::new(1));
        let turn = Arc::clone(&turns).acquire_owned().await.ok();
        let (ends, end) = oneshot::channel::<u32>();
        let slow = tokio::spawn(in_turn(turn, end));
        let other = Arc::clone(&turns).acquire_owned().await.ok();
        assert!(!slow.is_finished(), "it goes on, and is waited for");
        assert_eq!(in_turn(other, async { turns.available_permits() }).await, 0);
        assert_eq!(turns.available_permits(), 1);
        ends.send(7).unwrap();
        assert_eq!(slow.await.unwrap(), Ok(7));
    }
}
