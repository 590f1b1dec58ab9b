//! Frames that are being read. One that many want at a time is fetched and opened once: who takes a
//! partition reads all its live Tasks, thousands of them, and a few frames have their commits.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_wire::stored::frame::{CommitHead, FrameError, Header, decode};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Frames that may be on their way at a time, of all partitions: a server that is asked for all at
/// once answers none in time, and cuts off a client that is too far behind.
pub(super) const FETCHES: usize = 16;
/// How long a fetch may hold up others.
const SLOW: Duration = Duration::from_millis(500);
/// Bytes of frames of a partition that are kept for who comes next, as long as anybody reads.
const KEPT_BYTES: usize = 8 << 20;

/// A frame whose header has been read.
#[derive(Debug)]
pub(super) struct Opened {
    bytes: Bytes,
    pub(super) version: u32,
    /// Each with the place of its lines.
    commits: Vec<(CommitHead, Range<usize>)>,
}

impl Opened {
    pub(super) fn read(bytes: Bytes) -> Result<Self, FrameError> {
        let frame = decode(&bytes)?;
        let (version, mut next) = (frame.version(), bytes.len() - frame.body.len());
        let heads = match frame.header {
            Header::Commits { commits, .. } => commits,
            Header::Owner { .. } => Vec::new(),
        };
        let placed = heads.into_iter().map(|head| {
            let from = next;
            next += head.len as usize; // `decode` has compared their sum with the body.
            (head, from..next)
        });
        Ok(Self { commits: placed.collect(), version, bytes })
    }

    /// A Task's commits, each with its lines.
    pub(super) fn commits_of(&self, key: &TaskKey) -> impl Iterator<Item = (&CommitHead, &[u8])> {
        let own =
            |head: &CommitHead| head.task_id == key.task_id && head.session_id == key.session_id;
        let own = self.commits.iter().filter(move |(head, _)| own(head));
        own.map(|(head, lines)| (head, &self.bytes[lines.clone()]))
    }
}

type Answer = Result<Arc<Opened>, ReadError>;
/// A frame that is on its way or has come.
type Coming = Shared<BoxFuture<'static, Answer>>;

/// The frames of a partition that are being read.
pub(super) struct Shelf {
    turns: Arc<Semaphore>,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    /// Who reads now.
    readers: usize,
    /// By the last messages of them.
    frames: HashMap<u64, Coming>,
    /// Those that have come, with their bytes: the oldest first.
    come: VecDeque<(u64, usize)>,
    bytes: usize,
}

/// A reader: as long as there is one, frames are kept.
pub(super) struct Reading<'a>(&'a Shelf);

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").finish_non_exhaustive()
    }
}

impl Shelf {
    /// Fetches take turns with those of other shelves.
    pub(super) fn new(turns: Arc<Semaphore>) -> Self {
        Self { turns, kept: Arc::default() }
    }

    pub(super) fn reading(&self) -> Reading<'_> {
        self.kept.lock().readers += 1;
        Reading(self)
    }

    /// The frame that ends with a message: fetched if nobody has asked for it, or it was not kept.
    ///
    /// # Errors
    /// Whatever `fetch` answers; whoever asks next fetches again.
    pub(super) async fn frame(
        &self,
        at: u64,
        fetch: impl FnOnce() -> BoxFuture<'static, Answer>,
    ) -> Answer {
        let coming = self.kept.lock().frames.get(&at).cloned();
        let coming = coming.unwrap_or_else(|| self.begin(at, fetch()));
        let answer = coming.clone().await;
        if answer.is_err() {
            let mut kept = self.kept.lock();
            if kept.frames.get(&at).is_some_and(|it| it.ptr_eq(&coming)) {
                kept.frames.remove(&at);
            }
        }
        answer
    }

    /// Nobody need wait for it: it comes to its end by itself.
    fn begin(&self, at: u64, fetch: BoxFuture<'static, Answer>) -> Coming {
        let (turns, kept) = (Arc::clone(&self.turns), Arc::clone(&self.kept));
        let mut all = self.kept.lock();
        if let Some(other) = all.frames.get(&at) {
            return other.clone();
        }
        let fetched = tokio::spawn(async move {
            let turn = turns.acquire_owned().await;
            let mut fetch = fetch;
            let answer = match timeout(SLOW, &mut fetch).await {
                Ok(answer) => answer,
                Err(_) => {
                    drop(turn); // One stream that does not answer holds up no other.
                    fetch.await
                }
            };
            match &answer {
                Ok(frame) => kept.lock().keep(at, frame.bytes.len()),
                Err(_) => drop(kept.lock().frames.remove(&at)), // Though nobody may wait for it.
            }
            answer
        });
        let or_failed = move |it: Result<Answer, _>| {
            it.unwrap_or_else(|error| Err(ReadError::Failed(format!("message {at}: {error}"))))
        };
        let coming = fetched.map(or_failed).boxed().shared();
        all.frames.insert(at, coming.clone());
        coming
    }
}

impl Kept {
    fn keep(&mut self, at: u64, bytes: usize) {
        self.come.push_back((at, bytes));
        self.bytes += bytes;
        while self.bytes > KEPT_BYTES || self.readers == 0 {
            let Some((at, bytes)) = self.come.pop_front() else { return };
            self.frames.remove(&at);
            self.bytes -= bytes;
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut kept = self.0.kept.lock();
        kept.readers -= 1;
        if kept.readers == 0 {
            for (at, _) in std::mem::take(&mut kept.come) {
                kept.frames.remove(&at);
            }
            kept.bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn shelf() -> Shelf {
        Shelf::new(Arc::new(Semaphore::new(FETCHES)))
    }

    /// A store that counts what is asked of it, and how much at a time.
    #[derive(Debug, Default)]
    struct Asked {
        all: AtomicUsize,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Asked {
        /// Answers with a frame of so many bytes, or not at all.
        fn fetch(self: &Arc<Self>, bytes: Option<usize>) -> BoxFuture<'static, Answer> {
            let asked = Arc::clone(self);
            let answer = async move {
                asked.all.fetch_add(1, Ordering::SeqCst);
                let now = asked.now.fetch_add(1, Ordering::SeqCst) + 1;
                asked.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                asked.now.fetch_sub(1, Ordering::SeqCst);
                let bytes = bytes.ok_or_else(|| ReadError::Failed("no answer".into()))?;
                let bytes = vec![0; bytes].into();
                Ok(Arc::new(Opened { bytes, version: 2, commits: Vec::new() }))
            };
            answer.boxed()
        }

        fn all(&self) -> usize {
            self.all.load(Ordering::SeqCst)
        }
    }

    /// Mechanisms 5: a frame that thousands of Tasks share is fetched once for all of them, and few are
    /// on their way at a time.
    #[tokio::test(start_paused = true)]
    async fn a_frame_is_fetched_once_for_all_who_read() {
        let (shelf, asked) = (shelf(), Arc::new(Asked::default()));
        let read = async |at| {
            let _reading = shelf.reading();
            shelf.frame(at, || asked.fetch(Some(100))).await.unwrap()
        };
        futures::future::join_all((0..3_000).map(|i| read(i / 100))).await;
        assert_eq!((asked.all(), asked.most.load(Ordering::SeqCst)), (30, FETCHES));
        assert!(shelf.kept.lock().frames.is_empty(), "nobody reads any more");
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_frames_are_kept_as_long_as_anybody_reads() {
        let (shelf, asked) = (shelf(), Arc::new(Asked::default()));
        let frame = async |at| shelf.frame(at, || asked.fetch(Some(KEPT_BYTES / 2))).await;
        let reading = shelf.reading();
        for at in [1, 2, 2, 1] {
            frame(at).await.unwrap();
        }
        assert_eq!(asked.all(), 2, "both have room");
        for at in [3, 2, 1] {
            frame(at).await.unwrap();
        }
        assert_eq!(asked.all(), 4, "the first had to go");
        drop(reading);
        frame(1).await.unwrap();
        let kept = shelf.kept.lock();
        assert_eq!((asked.all(), kept.frames.len(), kept.bytes), (5, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_did_not_come_is_asked_for_again() {
        let (shelf, asked) = (shelf(), Arc::new(Asked::default()));
        let _reading = shelf.reading();
        let (one, other) =
            (shelf.frame(1, || asked.fetch(None)), shelf.frame(1, || asked.fetch(None)));
        let (one, other) = futures::future::join(one, other).await;
        assert_eq!((one.is_err(), other.is_err(), asked.all()), (true, true, 1));
        shelf.frame(1, || asked.fetch(Some(1))).await.unwrap();
        assert_eq!(asked.all(), 2);
    }

    /// Who asked may have gone: the next one does not wait for ever.
    #[tokio::test(start_paused = true)]
    async fn a_frame_comes_though_nobody_waits() {
        let (shelf, asked) = (shelf(), Arc::new(Asked::default()));
        let _reading = shelf.reading();
        for at in 0..100 {
            let gone = shelf.frame(at, || asked.fetch(Some(1)));
            assert!(gone.now_or_never().is_none());
        }
        shelf.frame(100, || asked.fetch(Some(1))).await.unwrap();
        assert_eq!(asked.all(), 101);
        assert!(shelf.frame(200, || asked.fetch(None)).now_or_never().is_none());
        tokio::time::sleep(Duration::from_secs(1)).await;
        shelf.frame(200, || asked.fetch(Some(1))).await.unwrap();
    }
}
