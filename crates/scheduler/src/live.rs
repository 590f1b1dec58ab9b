//! How many Tasks that have not ended a session and a node may have, how long their logs may be, and how much of them
//! is in memory at a time.
//!
//! Every live Task of a node that has an address counts. At a bound of its session a Task is not made, and no command
//! adds to one ([`LiveTasks::admit_task`]); at a bound of the node new Tasks wait. A Task with which nothing happens
//! need not be in memory: when more is there than may be, those that have rested longest are put away, and are read
//! from their logs again when something happens to them (`task/stored.rs`). A Task is not read before there is place
//! for it, so a node that takes over more than it can hold reads them one after another.
//!
//! Step 4 of the walk in docs/architecture.md.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::id::SessionId;
use tenure_core::{Code, Rejection, RejectionKind};
use tenure_ports::map::IdMap;
use tenure_ports::observer::LiveSample;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many bytes a Task takes beside those of its log: itself, and its first Step.
const TASK_BYTES: u64 = 8 << 10;

/// A Task may take one part in so many of the memory for all Tasks. A Task whose log is longer takes no command that
/// adds to it.
const TASK_PART: u64 = 4;

/// How long a Task waits for a place in memory before those who ask for it are told to come again.
const WAITS_FOR_PLACE: Duration = Duration::from_secs(2);

/// After how long a caller asks again whose request was refused until Tasks have ended.
const RETRY_AFTER_MS: u64 = 1_000;

/// Bounds of the Tasks of a node that have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveTaskLimits {
    /// Tasks of one session.
    pub session_tasks: u64,
    /// Bytes of their logs.
    pub session_bytes: u64,
    /// Tasks of all sessions.
    pub tasks: u64,
    /// Bytes of their logs.
    pub bytes: u64,
    /// Bytes of the logs of those that are in memory.
    pub memory: u64,
}

impl Default for LiveTaskLimits {
    fn default() -> Self {
        Self {
            session_tasks: 100_000,
            session_bytes: 4 << 30,
            tasks: 250_000,
            bytes: 16 << 30,
            memory: 1 << 30,
        }
    }
}

/// A number of Tasks, and the bytes of their logs.
#[derive(Debug, Default)]
struct TaskSums {
    tasks: AtomicU64,
    bytes: AtomicU64,
}

/// The live Tasks of a node.
#[derive(Debug)]
pub(crate) struct LiveTasks {
    limits: LiveTaskLimits,
    all: TaskSums,
    sessions: Mutex<IdMap<SessionId, Arc<TaskSums>>>,
    memory: AtomicU64,
    /// The Tasks that wait for a place in memory: by the bytes that they need, how many need so many.
    wanted: Mutex<BTreeMap<u64, usize>>,
    unplaced: AtomicU64,
    /// Notified when Tasks have to be put away.
    pressed: Notify,
    /// Notified when Tasks were put away, or have ended.
    freed: Notify,
    /// A Task found no place, which was logged, and no Task has found one since.
    is_full: AtomicBool,
}

impl LiveTasks {
    pub(crate) fn new(limits: LiveTaskLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            all: TaskSums::default(),
            sessions: Mutex::default(),
            memory: AtomicU64::new(0),
            wanted: Mutex::default(),
            unplaced: AtomicU64::new(0),
            pressed: Notify::new(),
            freed: Notify::new(),
            is_full: AtomicBool::new(false),
        })
    }

    /// The sums at this moment.
    pub(crate) fn now(&self) -> LiveSample {
        LiveSample {
            tasks: self.all.tasks.load(Ordering::Relaxed),
            tasks_max: self.limits.tasks,
            bytes: self.all.bytes.load(Ordering::Relaxed),
            bytes_max: self.limits.bytes,
            memory: self.memory.load(Ordering::Relaxed),
            memory_max: self.limits.memory,
            unplaced: self.unplaced.load(Ordering::Relaxed),
            over_rate: 0,
        }
    }

    /// LIVE-01: whether a session may have one more Task.
    ///
    /// # Errors
    /// `quota_exceeded` at a bound of the session, `unavailable` at one of the node.
    pub(crate) fn admit_task(&self, session: &SessionId) -> Result<(), Rejection> {
        let limits = &self.limits;
        if let Some(own) = self.sums_of(session) {
            at_quota("live tasks", &own.tasks, limits.session_tasks, "session-tasks")?;
            at_quota("bytes of live tasks", &own.bytes, limits.session_bytes, "session-bytes")?;
        }
        at_bound("live tasks", &self.all.tasks, limits.tasks, "live-tasks")?;
        at_bound("bytes of live tasks", &self.all.bytes, limits.bytes, "live-bytes")?;
        if self.memory.load(Ordering::Relaxed) >= limits.memory {
            self.pressed.notify_one();
            return Err(no_place(limits.memory));
        }
        Ok(())
    }

    /// LIVE-01: whether a command may add to a Task of a session.
    ///
    /// # Errors
    /// As [`admit_task`](Self::admit_task).
    pub(crate) fn admit_growth(&self, session: &SessionId, bytes: u64) -> Result<(), Rejection> {
        let limits = &self.limits;
        let most = limits.memory / TASK_PART;
        if bytes >= most {
            let message = format!(
                "the log of the task has {bytes} bytes, and may have {most}: complete or cancel it, and go on in \
                 another, or have the nodes allow more (--memory)"
            );
            let refused = Rejection::new(Code::QuotaExceeded, message);
            return Err(refused.with("used", bytes).with("limit", most).with("quota", "memory"));
        }
        if let Some(own) = self.sums_of(session) {
            at_quota("bytes of live tasks", &own.bytes, limits.session_bytes, "session-bytes")?;
        }
        at_bound("bytes of live tasks", &self.all.bytes, limits.bytes, "live-bytes")
    }

    fn sums_of(&self, session: &SessionId) -> Option<Arc<TaskSums>> {
        self.sessions.lock().get(session).cloned()
    }

    /// Counts a live Task whose log has so many bytes and that is in memory.
    pub(crate) fn count(
        self: &Arc<Self>,
        session: &SessionId,
        bytes: u64,
        place: Option<MemoryPlace>,
    ) -> LiveShare {
        let mut sessions = self.sessions.lock();
        let own = match sessions.get(session) {
            Some(own) => Arc::clone(own),
            None => Arc::clone(sessions.entry(session.clone()).or_default()),
        };
        own.tasks.fetch_add(1, Ordering::Relaxed);
        drop(sessions);
        own.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.all.tasks.fetch_add(1, Ordering::Relaxed);
        self.all.bytes.fetch_add(bytes, Ordering::Relaxed);
        let place = Some(place.unwrap_or_else(|| self.hold(bytes)));
        LiveShare { live: Arc::clone(self), session: session.clone(), own, bytes, place }
    }

    /// Takes a place in memory for a Task, even if that is more than may be in memory.
    fn hold(self: &Arc<Self>, bytes: u64) -> MemoryPlace {
        let bytes = bytes.saturating_add(TASK_BYTES);
        self.memory.fetch_add(bytes, Ordering::Relaxed);
        self.press();
        MemoryPlace { live: Arc::clone(self), bytes }
    }

    /// Takes a place in memory, if there is one. The first of all gets one whatever its size: it could not be read
    /// otherwise.
    fn try_hold(self: &Arc<Self>, bytes: u64) -> Result<MemoryPlace, u64> {
        let bytes = bytes.saturating_add(TASK_BYTES);
        let more = |held: u64| {
            let all = held.saturating_add(bytes);
            (held == 0 || all <= self.limits.memory).then_some(all)
        };
        self.memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)?;
        self.press();
        Ok(MemoryPlace { live: Arc::clone(self), bytes })
    }

    fn press(&self) {
        if self.memory.load(Ordering::Relaxed) > self.limits.memory / 4 * 3 {
            self.pressed.notify_one();
        }
    }

    /// Waits for a place in memory for a Task whose log has so many bytes.
    ///
    /// # Errors
    /// No place became free in time, or the Task needs more than all the memory.
    pub(crate) async fn place(self: &Arc<Self>, bytes: u64) -> Result<MemoryPlace, String> {
        let until = Instant::now() + WAITS_FOR_PLACE;
        let mut waiter = None;
        loop {
            let freed = self.freed.notified();
            let held = match self.try_hold(bytes) {
                Ok(place) => {
                    self.is_full.store(false, Ordering::Relaxed);
                    return Ok(place);
                }
                Err(held) => held,
            };
            waiter.get_or_insert_with(|| PlaceWaiter::of(self, bytes.saturating_add(TASK_BYTES)));
            self.pressed.notify_one();
            if tokio::time::timeout_at(until, freed).await.is_err() {
                self.unplaced.fetch_add(1, Ordering::Relaxed);
                let why = format!(
                    "{held} bytes of tasks at work are in memory, of {}, and this one has {bytes}: it is read when \
                     others have ended or rest; more nodes, or --memory, make place",
                    self.limits.memory
                );
                if !self.is_full.swap(true, Ordering::Relaxed) {
                    tracing::warn!("a task cannot be read for now: {why}");
                }
                return Err(why);
            }
        }
    }

    /// Waits until Tasks have to be put away.
    pub(crate) async fn pressed(&self) {
        self.pressed.notified().await;
    }

    /// How many bytes of Tasks to put away: enough for the Tasks that wait for a place; and when the memory is nearly
    /// full, so many that half of it is free.
    pub(crate) fn surplus(&self) -> u64 {
        let (held, most) = (self.memory.load(Ordering::Relaxed), self.limits.memory);
        let wanted = self.wanted.lock().last_key_value().map_or(0, |(bytes, _)| *bytes);
        let beside = most.saturating_sub(wanted);
        if held <= beside.min(most / 4 * 3) { 0 } else { held - beside.min(most / 2).min(held) }
    }
}

/// A Task that waits for a place in memory. Until this is dropped, other Tasks are put away for it.
struct PlaceWaiter<'a> {
    live: &'a LiveTasks,
    bytes: u64,
}

impl<'a> PlaceWaiter<'a> {
    fn of(live: &'a LiveTasks, bytes: u64) -> Self {
        *live.wanted.lock().entry(bytes).or_default() += 1;
        Self { live, bytes }
    }
}

impl Drop for PlaceWaiter<'_> {
    fn drop(&mut self) {
        let mut wanted = self.live.wanted.lock();
        if let Entry::Occupied(mut count) = wanted.entry(self.bytes) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// What one live Task adds to the sums. Dropping this takes it out of them.
#[derive(Debug)]
pub(crate) struct LiveShare {
    live: Arc<LiveTasks>,
    session: SessionId,
    own: Arc<TaskSums>,
    bytes: u64,
    place: Option<MemoryPlace>,
}

impl LiveShare {
    /// Notes how many bytes the log has now.
    pub(crate) fn note_bytes(&mut self, bytes: u64) {
        // Wrapping arithmetic: the sums are right in whatever order threads add to them.
        let more = bytes.wrapping_sub(self.bytes);
        if more == 0 {
            return;
        }
        self.bytes = bytes;
        self.own.bytes.fetch_add(more, Ordering::Relaxed);
        self.live.all.bytes.fetch_add(more, Ordering::Relaxed);
        if let Some(place) = &mut self.place {
            place.bytes = place.bytes.wrapping_add(more);
            self.live.memory.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// How many bytes the log has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many bytes it takes in memory.
    pub(crate) fn in_memory(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.bytes)
    }

    /// The Task is no longer in memory.
    pub(crate) fn put_away(&mut self) {
        self.place = None;
    }

    /// The Task is in memory again.
    pub(crate) fn bring_back(&mut self, place: MemoryPlace) {
        self.place = Some(place);
    }
}

impl Drop for LiveShare {
    fn drop(&mut self) {
        self.own.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.live.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.live.all.tasks.fetch_sub(1, Ordering::Relaxed);
        let mut sessions = self.live.sessions.lock();
        if self.own.tasks.fetch_sub(1, Ordering::Relaxed) == 1 {
            sessions.remove(&self.session);
        }
    }
}

/// The place of a Task in memory, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryPlace {
    live: Arc<LiveTasks>,
    bytes: u64,
}

impl Drop for MemoryPlace {
    fn drop(&mut self) {
        self.live.memory.fetch_sub(self.bytes, Ordering::Relaxed);
        self.live.freed.notify_waiters();
    }
}

fn at_quota(what: &str, used: &AtomicU64, limit: u64, option: &str) -> Result<(), Rejection> {
    let used = used.load(Ordering::Relaxed);
    if used < limit {
        return Ok(());
    }
    let message = format!(
        "the session has {used} {what} on this node, and may have {limit}: complete or cancel some, use another \
         session, or have the nodes allow more (--{option})"
    );
    let refused = Rejection::new(Code::QuotaExceeded, message);
    Err(refused.with("used", used).with("limit", limit).with("quota", option.replace('-', "_")))
}

fn at_bound(what: &str, used: &AtomicU64, limit: u64, option: &str) -> Result<(), Rejection> {
    let used = used.load(Ordering::Relaxed);
    if used < limit {
        return Ok(());
    }
    let message = format!(
        "this node has {used} {what}, and may have {limit}: come again when some have ended; more nodes, or \
         --{option}, make place"
    );
    Err(full(message).with("used", used).with("limit", limit))
}

fn no_place(limit: u64) -> Rejection {
    let message = format!(
        "as many bytes of tasks are in memory as may be, {limit}: come again in a moment; more nodes, or --memory, \
         make place"
    );
    full(message).with("limit", limit)
}

fn full(message: String) -> Rejection {
    let refused = Rejection::new(Code::Unavailable, message).of_kind(RejectionKind::Overloaded);
    refused.with("retry_after_ms", RETRY_AFTER_MS)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use super::*;

    fn session(id: &str) -> SessionId {
        SessionId::new(id).unwrap()
    }

    const FEW: LiveTaskLimits = LiveTaskLimits {
        session_tasks: 2,
        session_bytes: 1_000,
        tasks: 3,
        bytes: 10_000,
        memory: 4 * TASK_BYTES,
    };

    /// LIVE-01: a session at its bound costs no other session its Tasks, and nothing is remembered of what has ended.
    #[test]
    fn each_session_has_its_bounds_and_the_node_has_its_own() {
        let live = LiveTasks::new(FEW);
        let (eve, bob, ann) = (session("eve"), session("bob"), session("ann"));
        let mut of_eve = vec![live.count(&eve, 10, None), live.count(&eve, 10, None)];
        let refused = live.admit_task(&eve).unwrap_err();
        assert_eq!(
            (refused.code, refused.details["limit"].as_u64()),
            (Code::QuotaExceeded, Some(2))
        );
        assert!(refused.message.contains("--session-tasks"), "{refused}");
        live.admit_task(&bob).unwrap();
        let of_bob = live.count(&bob, 10, None);
        let refused = live.admit_task(&ann).unwrap_err();
        assert_eq!(refused.code, Code::Unavailable);
        assert!(refused.message.contains("--live-tasks"), "{refused}");
        of_eve.pop();
        live.admit_task(&ann).unwrap();
        of_eve[0].note_bytes(1_000);
        assert_eq!(live.admit_growth(&eve, 0).unwrap_err().code, Code::QuotaExceeded);
        live.admit_growth(&bob, 0).unwrap();
        assert_eq!(live.now().bytes, 1_010);
        of_eve[0].note_bytes(20);
        live.admit_growth(&eve, 0).unwrap();
        let refused = live.admit_growth(&bob, FEW.memory).unwrap_err();
        assert!(refused.message.contains("--memory"), "{refused}");
        drop((of_eve, of_bob));
        let LiveSample { tasks, bytes, memory, .. } = live.now();
        assert_eq!((tasks, bytes, memory), (0, 0, 0));
        assert!(live.sessions.lock().is_empty());
    }

    /// LIVE-02: a Task gets a place when another is put away, and is refused for now if none is.
    #[tokio::test(start_paused = true)]
    async fn a_task_waits_for_its_place() {
        let live = LiveTasks::new(FEW);
        let mut all: Vec<LiveShare> = (0..4).map(|_| live.count(&session("s"), 0, None)).collect();
        assert_eq!(live.admit_task(&session("other")).unwrap_err().code, Code::Unavailable);
        let why = live.place(0).await.map(drop).unwrap_err();
        assert!(why.contains("--memory"), "{why}");
        assert!(live.surplus() > 0);
        let waits = tokio::spawn({
            let live = Arc::clone(&live);
            async move { live.place(0).await }
        });
        tokio::task::yield_now().await;
        all[0].put_away();
        let place = waits.await.unwrap().unwrap();
        all[0].bring_back(place);
        drop(all);
        let small = live.count(&session("s"), 0, None);
        let large = tokio::spawn({
            let live = Arc::clone(&live);
            async move { live.place(3 * TASK_BYTES).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(live.surplus(), TASK_BYTES, "there is little, and not enough beside it");
        assert_eq!(live.surplus(), TASK_BYTES, "nothing was put away, and it waits as before");
        drop(small);
        drop(large.await.unwrap().unwrap());
        assert!(live.wanted.lock().is_empty(), "nobody waits");
        let whole = live.place(1 << 40).await.unwrap();
        assert_eq!(live.now().memory, (1 << 40) + TASK_BYTES);
        drop(whole);
        assert_eq!((live.now().memory, live.now().unplaced), (0, 1));
    }
}
