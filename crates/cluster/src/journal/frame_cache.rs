//! Caches the frames that a node is reading, and those that it wrote last. If many readers want a frame at a
//! time, it is fetched and opened once: a new owner of a partition reads thousands of live Tasks, whose
//! commits lie in a few frames. Whoever follows a Task reads what was written a moment ago, and fetches nothing.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_wire::stored::frame::{CommitHead, FrameError, Header, decode};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::written::WrittenFrames;

/// How many frames may be fetched at a time, besides one of each partition. A server that is asked
/// for all at once answers none in time, and cuts off a client that is too far behind.
pub(super) const FETCHES: usize = 8;
/// How many bytes of frames of a partition are cached for the next reader, as long as anybody
/// reads.
const KEPT_BYTES: usize = 8 << 20;
/// And for how long after that: a caller that reads a log page by page finds there what follows a
/// page.
const KEPT: Duration = Duration::from_secs(2);

/// A frame whose header has been read.
#[derive(Debug)]
pub(super) struct OpenedFrame {
    bytes: Bytes,
    pub(super) version: u32,
    /// The head of each commit, with the place of its lines.
    commits: Vec<(CommitHead, Range<usize>)>,
}

impl OpenedFrame {
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

    /// The size of its bytes and of its heads.
    fn size(&self) -> usize {
        self.bytes.len() + size_of_val(self.commits.as_slice())
    }

    /// The heads of its commits.
    pub(super) fn heads(&self) -> impl Iterator<Item = &CommitHead> {
        self.commits.iter().map(|(head, _)| head)
    }

    /// A Task's commits, each with its lines.
    pub(super) fn commits_of(&self, key: &TaskKey) -> impl Iterator<Item = (&CommitHead, &[u8])> {
        let own =
            |head: &CommitHead| head.task_id == key.task_id && head.session_id == key.session_id;
        let own = self.commits.iter().filter(move |(head, _)| own(head));
        own.map(|(head, lines)| (head, &self.bytes[lines.clone()]))
    }
}

type FrameResult = Result<Arc<OpenedFrame>, ReadError>;
/// A frame that is being fetched or has been.
type Coming = watch::Receiver<Option<FrameResult>>;

/// The frames of a partition that are being read.
pub(super) struct FrameCache {
    /// The permit of this partition alone, so that a stream that does not answer holds up no other;
    /// and the permits that all partitions share, which let a busy one fetch more.
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
    kept: Arc<Mutex<CachedFrames>>,
    written: Arc<WrittenFrames>,
}

#[derive(Default)]
struct CachedFrames {
    /// How many readers there are now.
    readers: usize,
    /// How often the last reader has gone.
    left: u64,
    /// By the last message of each frame.
    frames: HashMap<u64, Coming>,
    /// Frames that have been fetched, with their sizes: the oldest first.
    come: VecDeque<(u64, usize)>,
    bytes: usize,
}

/// A reader. As long as there is one, frames are cached.
pub(super) struct Reading<'a>(&'a FrameCache);

impl fmt::Debug for FrameCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameCache").finish_non_exhaustive()
    }
}

impl FrameCache {
    /// A cache for one partition. `shared`: the permits that it shares with other caches. `written`: what its
    /// writer writes.
    pub(super) fn new(shared: Arc<Semaphore>, written: Arc<WrittenFrames>) -> Self {
        Self { own: Arc::new(Semaphore::new(1)), shared, kept: Arc::default(), written }
    }

    pub(super) fn reading(&self) -> Reading<'_> {
        self.kept.lock().readers += 1;
        Reading(self)
    }

    /// The frame that ends with a message; fetched, if nobody has asked for it or it is no longer
    /// cached.
    ///
    /// # Errors
    /// Whatever `fetch` answers; the next request fetches again.
    pub(super) async fn frame(
        &self,
        at: u64,
        fetch: impl FnOnce() -> BoxFuture<'static, FrameResult>,
    ) -> FrameResult {
        self.open_written(at);
        let begin = || self.begin(at, fetch());
        let mut coming = self.kept.lock().frames.entry(at).or_insert_with(begin).clone();
        let answer = coming.wait_for(Option::is_some).await.map(|answer| answer.clone());
        let gone = || Err(ReadError::Failed(format!("message {at}: the fetch was broken off")));
        answer.ok().flatten().unwrap_or_else(gone)
    }

    /// Whether a frame is cached or being fetched.
    pub(super) fn has(&self, at: u64) -> bool {
        self.open_written(at);
        self.kept.lock().frames.contains_key(&at)
    }

    /// Opens a frame that was written lately, if nobody has yet.
    fn open_written(&self, at: u64) {
        if self.kept.lock().frames.contains_key(&at) {
            return;
        }
        let opened = self.written.find(at).map(OpenedFrame::read);
        if let Some(Ok(frame)) = opened {
            self.put(at, Arc::new(frame));
        }
    }

    /// Caches a frame that was fetched before anybody asked for it.
    pub(super) fn put(&self, at: u64, frame: Arc<OpenedFrame>) {
        let (mut kept, size) = (self.kept.lock(), frame.size());
        if let Entry::Vacant(place) = kept.frames.entry(at) {
            place.insert(watch::channel(Some(Ok(frame))).1);
            kept.keep(at, size);
        }
    }

    /// Waits for a permit to fetch.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        turn(Arc::clone(&self.own), Arc::clone(&self.shared)).await
    }

    /// Drops a frame that was found to be damaged: the next request fetches it again, perhaps from
    /// another server.
    pub(super) fn forget(&self, at: u64) {
        self.written.forget(at);
        let mut kept = self.kept.lock();
        kept.frames.remove(&at);
        if let Some(place) = kept.come.iter().position(|(come, _)| *come == at)
            && let Some((_, bytes)) = kept.come.remove(place)
        {
            kept.bytes -= bytes;
        }
    }

    /// Starts a fetch, which ends whether anybody waits for it or not.
    fn begin(&self, at: u64, fetch: BoxFuture<'static, FrameResult>) -> Coming {
        let (own, shared) = (Arc::clone(&self.own), Arc::clone(&self.shared));
        let kept = Arc::downgrade(&self.kept);
        let (sender, coming) = watch::channel(None);
        tokio::spawn(async move {
            let _turn = turn(own, shared).await;
            // The cache is not locked while the fetch runs: requests that come meanwhile find the
            // pending entry.
            if kept.strong_count() == 0 {
                return; // The partition was left, and nobody reads there any more.
            }
            let fetched = AssertUnwindSafe(fetch).catch_unwind().await;
            let defect = |_| Err(ReadError::Failed(format!("message {at}: the fetch panicked")));
            let answer = fetched.unwrap_or_else(defect);
            if let Some(kept) = kept.upgrade() {
                let mut kept = kept.lock();
                match &answer {
                    Ok(frame) => kept.keep(at, frame.size()),
                    Err(_) => drop(kept.frames.remove(&at)),
                }
            }
            sender.send_replace(Some(answer));
        });
        coming
    }
}

/// The semaphores are never closed.
async fn turn(own: Arc<Semaphore>, shared: Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        biased;
        turn = own.acquire_owned() => turn.ok(),
        turn = shared.acquire_owned() => turn.ok(),
    }
}

impl CachedFrames {
    fn keep(&mut self, at: u64, bytes: usize) {
        if self.readers == 0 {
            self.frames.remove(&at);
            return;
        }
        self.come.push_back((at, bytes));
        self.bytes += bytes;
        while self.bytes > KEPT_BYTES {
            let Some((at, bytes)) = self.come.pop_front() else { return };
            self.frames.remove(&at);
            self.bytes -= bytes;
        }
    }

    /// Drops all frames, as nobody reads any more.
    fn clear(&mut self) {
        for (at, _) in std::mem::take(&mut self.come) {
            self.frames.remove(&at);
        }
        self.bytes = 0;
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut kept = self.0.kept.lock();
        kept.readers -= 1;
        if kept.readers > 0 {
            return;
        }
        kept.left += 1;
        let (left, later) = (kept.left, Arc::downgrade(&self.0.kept));
        let Ok(runtime) = Handle::try_current() else { return kept.clear() };
        runtime.spawn(async move {
            tokio::time::sleep(KEPT).await;
            let Some(kept) = later.upgrade() else { return };
            let mut kept = kept.lock();
            if (kept.readers, kept.left) == (0, left) {
                kept.clear();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures::future::{join_all, pending};
    use tokio::sync::oneshot;
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::super::written::tests::{chunk, frame_of};
    use super::*;

    /// Longer than anything takes on a clock that advances whenever nothing else happens.
    const EVER: Duration = Duration::from_secs(3_600);

    fn frame_cache() -> FrameCache {
        FrameCache::new(Arc::new(Semaphore::new(FETCHES)), Arc::default())
    }

    fn opened(bytes: usize) -> Arc<OpenedFrame> {
        Arc::new(OpenedFrame { bytes: vec![0; bytes].into(), version: 2, commits: Vec::new() })
    }

    /// A store that counts how many requests it gets, and how many at a time.
    #[derive(Debug, Default)]
    struct Asked {
        all: AtomicUsize,
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Asked {
        /// Answers with a frame of so many bytes, or never.
        fn fetch(self: &Arc<Self>, bytes: Option<usize>) -> BoxFuture<'static, FrameResult> {
            let asked = Arc::clone(self);
            let answer = async move {
                asked.all.fetch_add(1, Ordering::SeqCst);
                let now = asked.now.fetch_add(1, Ordering::SeqCst) + 1;
                asked.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(1)).await;
                asked.now.fetch_sub(1, Ordering::SeqCst);
                let bytes = bytes.ok_or_else(|| ReadError::Failed("no answer".into()))?;
                Ok(opened(bytes))
            };
            answer.boxed()
        }

        fn all(&self) -> usize {
            self.all.load(Ordering::SeqCst)
        }

        fn most(&self) -> usize {
            self.most.load(Ordering::SeqCst)
        }
    }

    /// Mechanisms 5: a frame that thousands of Tasks share is fetched once for all of them, and
    /// only a few frames are fetched at a time.
    #[tokio::test(start_paused = true)]
    async fn a_frame_is_fetched_once_for_all_who_read() {
        let (frame_cache, asked) = (frame_cache(), Arc::new(Asked::default()));
        let read = async |at| {
            let _reading = frame_cache.reading();
            frame_cache.frame(at, || asked.fetch(Some(100))).await.unwrap()
        };
        join_all((0..3_000).map(|i| read(i / 100))).await;
        assert_eq!((asked.all(), asked.most()), (30, FETCHES + 1), "with the partition's own turn");
        assert!(!frame_cache.kept.lock().frames.is_empty(), "the next may want them");
        tokio::time::sleep(2 * KEPT).await;
        assert!(frame_cache.kept.lock().frames.is_empty(), "nobody reads any more");
    }

    #[tokio::test(start_paused = true)]
    async fn the_newest_frames_are_kept_as_long_as_anybody_reads() {
        let (frame_cache, asked) = (frame_cache(), Arc::new(Asked::default()));
        let frame = async |at| frame_cache.frame(at, || asked.fetch(Some(KEPT_BYTES / 2))).await;
        let reading = frame_cache.reading();
        for at in [1, 2, 2, 1] {
            frame(at).await.unwrap();
        }
        assert_eq!(asked.all(), 2, "both have room");
        for at in [3, 2, 1] {
            frame(at).await.unwrap();
        }
        assert_eq!(asked.all(), 4, "the first had to go");
        drop(reading);
        tokio::time::sleep(KEPT / 2).await;
        drop(frame_cache.reading());
        tokio::time::sleep(KEPT * 3 / 4).await;
        frame(1).await.unwrap();
        assert_eq!(asked.all(), 4, "somebody has read since");
        tokio::time::sleep(KEPT).await;
        frame(1).await.unwrap();
        let kept = frame_cache.kept.lock();
        assert_eq!((asked.all(), kept.frames.len(), kept.bytes), (5, 0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_did_not_come_is_asked_for_again() {
        let (frame_cache, asked) = (frame_cache(), Arc::new(Asked::default()));
        let _reading = frame_cache.reading();
        let (one, other) = (
            frame_cache.frame(1, || asked.fetch(None)),
            frame_cache.frame(1, || asked.fetch(None)),
        );
        let (one, other) = futures::future::join(one, other).await;
        assert_eq!((one.is_err(), other.is_err(), asked.all()), (true, true, 1));
        frame_cache.frame(1, || asked.fetch(Some(1))).await.unwrap();
        assert_eq!(asked.all(), 2);
    }

    /// Whoever follows a Task reads what its writer wrote last, and asks no server for it.
    #[tokio::test(start_paused = true)]
    async fn what_was_written_last_is_not_fetched() {
        let (frame_cache, asked) = (frame_cache(), Arc::new(Asked::default()));
        let written = [frame_of(0), chunk(), frame_of(0)];
        frame_cache.written.note(7, &written);
        let _reading = frame_cache.reading();
        for (at, fetched) in [(7, 0), (9, 0), (8, 1), (10, 2), (7, 2)] {
            assert_eq!(frame_cache.has(at), !matches!(at, 8 | 10));
            frame_cache.frame(at, || asked.fetch(Some(1))).await.unwrap();
            assert_eq!(asked.all(), fetched, "{at}");
        }
        frame_cache.forget(9);
        frame_cache.frame(9, || asked.fetch(Some(1))).await.unwrap();
        assert_eq!(asked.all(), 3, "a damaged frame is fetched");
    }

    /// The request that began a fetch may have gone: the next one does not wait for ever.
    #[tokio::test(start_paused = true)]
    async fn a_frame_comes_though_nobody_waits() {
        let (frame_cache, asked) = (frame_cache(), Arc::new(Asked::default()));
        let _reading = frame_cache.reading();
        for at in 0..100 {
            let gone = frame_cache.frame(at, || asked.fetch(Some(1)));
            assert!(gone.now_or_never().is_none());
        }
        frame_cache.frame(100, || asked.fetch(Some(1))).await.unwrap();
        assert_eq!(asked.all(), 101);
        assert!(frame_cache.frame(200, || asked.fetch(None)).now_or_never().is_none());
        tokio::time::sleep(Duration::from_secs(1)).await;
        frame_cache.frame(200, || asked.fetch(Some(1))).await.unwrap();
    }

    /// OWN-06: a stream that does not answer holds up no Task of another partition.
    #[tokio::test(start_paused = true)]
    async fn a_stream_that_does_not_answer_holds_up_no_other() {
        let shared = Arc::new(Semaphore::new(FETCHES));
        let of_partition = || FrameCache::new(Arc::clone(&shared), Arc::default());
        let (dead, live) = (of_partition(), of_partition());
        let asked = Arc::new(Asked::default());
        for at in 0..100 {
            let waits = dead.frame(at, || pending().boxed());
            assert!(waits.now_or_never().is_none());
        }
        let all = join_all((0..100).map(|at| live.frame(at, || asked.fetch(Some(1)))));
        let all = timeout(EVER, all).await.expect("the other does not wait");
        assert!(all.iter().all(Result::is_ok));
        assert_eq!((shared.available_permits(), asked.most()), (0, 1), "it has its own turn alone");
    }

    #[tokio::test(start_paused = true)]
    async fn frames_of_a_partition_that_was_left_are_not_fetched() {
        let (frame_cache, asked) = (frame_cache(), Arc::new(Asked::default()));
        for at in 1..100 {
            let gone = frame_cache.frame(at, || asked.fetch(Some(1)));
            assert!(gone.now_or_never().is_none());
        }
        frame_cache.frame(1, || asked.fetch(Some(1))).await.unwrap();
        let (own, shared, begun) =
            (frame_cache.own.clone(), frame_cache.shared.clone(), asked.all());
        assert!(begun < 99, "most wait for their turns");
        drop(frame_cache);
        // Permits are given in order: one that gets all of them comes after all that waited.
        let _shared = shared.acquire_many(u32::try_from(FETCHES).unwrap()).await.unwrap();
        let _own = own.acquire().await.unwrap();
        assert_eq!(asked.all(), begun);
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_wait_any_more_takes_nobodys_answer() {
        let (frame_cache, asked) = (Arc::new(frame_cache()), Arc::new(Asked::default()));
        let _reading = frame_cache.reading();
        let (go, gate) = oneshot::channel();
        let fetch = async { gate.await.map_err(|_| ReadError::Failed("gone".into())) };
        let mut first = Box::pin(frame_cache.frame(1, || fetch.boxed()));
        assert!(futures::poll!(&mut first).is_pending());
        let (same, counted) = (Arc::clone(&frame_cache), Arc::clone(&asked));
        let other = async move { same.frame(1, || counted.fetch(Some(1))).await };
        let other = tokio::spawn(other);
        yield_now().await; // The second fetch waits behind the first.
        go.send(opened(1)).unwrap();
        yield_now().await;
        drop(first); // The waiter was woken, and then dropped.
        timeout(EVER, other).await.expect("the other is woken").unwrap().unwrap();
        assert_eq!(asked.all(), 0, "it waited for the same");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fetch_that_panics_fails_and_is_made_again() {
        let (frame_cache, asked) = (frame_cache(), Arc::new(Asked::default()));
        let _reading = frame_cache.reading();
        let panics = || -> BoxFuture<'static, FrameResult> { async { panic!("a defect") }.boxed() };
        let failed = frame_cache.frame(1, panics).await;
        assert!(matches!(failed, Err(ReadError::Failed(_))), "{failed:?}");
        let nobody_waits = frame_cache.frame(2, panics);
        assert!(nobody_waits.now_or_never().is_none());
        for at in [1, 2] {
            // The second fetch has panicked before the first has ended.
            frame_cache.frame(at, || asked.fetch(Some(1))).await.unwrap();
        }
    }

    /// RECOVER-04: another server may have the whole frame.
    #[tokio::test(start_paused = true)]
    async fn a_frame_that_is_found_damaged_is_fetched_again() {
        let (frame_cache, asked) = (frame_cache(), Arc::new(Asked::default()));
        let reading = frame_cache.reading();
        for _ in 0..2 {
            frame_cache.frame(1, || asked.fetch(Some(1))).await.unwrap();
            frame_cache.forget(1);
        }
        drop(reading);
        let kept = frame_cache.kept.lock();
        assert_eq!((asked.all(), kept.frames.len(), kept.bytes), (2, 0, 0));
    }
}
