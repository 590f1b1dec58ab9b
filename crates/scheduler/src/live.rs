//! How many Tasks that have not ended a session and a node may have, how long their logs may be, and how much of them
//! is in memory at a time.
//!
//! Every live Task of a node that has an address counts. At a bound of its session a Task is not made, and no command
//! adds to one ([`LiveTasks::admit_growth`]); at a bound of the node new Tasks wait. Whoever makes Tasks has a share of
//! what a node may have, and Tasks at work of a session or of a maker have a share of the memory, which leaves some to
//! others. A Task with which nothing happens
//! need not be in memory: when more is there than may be, those that have rested longest are put away, and are read
//! from their logs again when something happens to them (`task/stored.rs`). A Task is not read before there is place
//! for it, so a node that takes over more than it can hold reads them one after another.
//!
//! Step 4 of the walk in docs/architecture.md.

mod refusals;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::id::{AgentId, SessionId};
use tenure_core::{Code, Rejection};
use tenure_ports::map::IdMap;
use tenure_ports::observer::LiveSample;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::refusals::{at_bound, at_quota, at_share, at_work_share, no_place};

/// How many bytes a Task takes beside those of its log: itself, and its first Step.
const TASK_BYTES: u64 = 8 << 10;

/// A Task may take one part in so many of the memory for all Tasks. A Task whose log is longer takes no command that
/// adds to it.
const TASK_PART: u64 = 4;

/// One session, or one maker of Tasks, may have so many times as much as all of them leave free. So the first finds
/// three quarters, and there is always something left for the next.
const SHARE_TIMES: u64 = 3;

/// Reads of Tasks that have ended leave one part in so many of the memory free.
const SHARE_PARTS: u64 = SHARE_TIMES + 1;

/// How long a Task waits for a place in memory before those who ask for it are told to come again.
const WAITS_FOR_PLACE: Duration = Duration::from_secs(2);

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

/// A number of Tasks, the bytes of their logs, and the bytes that those at work take in memory.
#[derive(Debug, Default)]
struct TaskSums {
    tasks: AtomicU64,
    bytes: AtomicU64,
    at_work: AtomicU64,
}

/// The live Tasks of a node.
#[derive(Debug)]
pub(crate) struct LiveTasks {
    limits: LiveTaskLimits,
    all: TaskSums,
    sessions: SumsById<SessionId>,
    makers: SumsById<AgentId>,
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
            makers: Mutex::default(),
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

    /// LIVE-01: whether this agent may make one more Task in a session.
    ///
    /// # Errors
    /// `quota_exceeded` at a bound of the session; `unavailable` at one of the node, or while the session or the agent
    /// has its share.
    pub(crate) fn admit_task(&self, session: &SessionId, maker: &AgentId) -> Result<(), Rejection> {
        let limits = &self.limits;
        if let Some(own) = sums_of(&self.sessions, session) {
            at_quota("live tasks", &own.tasks, limits.session_tasks, "session-tasks")?;
            at_quota("bytes of live tasks", &own.bytes, limits.session_bytes, "session-bytes")?;
            self.check_work(&own)?;
        }
        at_bound("live tasks", &self.all.tasks, limits.tasks, "live-tasks")?;
        at_bound("bytes of live tasks", &self.all.bytes, limits.bytes, "live-bytes")?;
        if let Some(own) = sums_of(&self.makers, maker) {
            let limit = share_of(limits.tasks, &self.all.tasks);
            at_share("live tasks", &own.tasks, limit, "live-tasks")?;
            self.check_bytes(&own)?;
            self.check_work(&own)?;
        }
        if self.memory.load(Ordering::Relaxed) >= limits.memory {
            self.pressed.notify_one();
            return Err(no_place(limits.memory));
        }
        Ok(())
    }

    /// LIVE-01: whether a command may add to a Task whose log has so many bytes.
    ///
    /// # Errors
    /// `quota_exceeded` at a bound of the session or of the Task; `unavailable` at one of the node, or while its
    /// session or its maker has its share.
    pub(crate) fn admit_growth(&self, of: &LiveShare) -> Result<(), Rejection> {
        let (limits, bytes) = (&self.limits, of.bytes);
        let most = limits.memory / TASK_PART;
        if bytes >= most {
            let message = format!(
                "the log of the task has {bytes} bytes, and may have {most}: complete or cancel it, and go on in \
                 another, or have the nodes allow more (--memory)"
            );
            let refused = Rejection::new(Code::QuotaExceeded, message);
            return Err(refused.with("used", bytes).with("limit", most).with("quota", "memory"));
        }
        let LiveOwners { session, maker, .. } = &of.owners;
        at_quota("bytes of live tasks", &session.bytes, limits.session_bytes, "session-bytes")?;
        for own in [session, maker] {
            self.check_work(own)?;
        }
        at_bound("bytes of live tasks", &self.all.bytes, limits.bytes, "live-bytes")?;
        self.check_bytes(maker)
    }

    /// LIVE-02: refuses if Tasks at work, which cannot be put away, have all of the memory that they may.
    fn check_work(&self, own: &TaskSums) -> Result<(), Rejection> {
        at_work_share(&own.at_work, share_of(self.limits.memory, &self.all.at_work))
    }

    /// LIVE-01: refuses if the Tasks of a maker have as many bytes as they may.
    fn check_bytes(&self, own: &TaskSums) -> Result<(), Rejection> {
        let limit = share_of(self.limits.bytes, &self.all.bytes);
        at_share("bytes of live tasks", &own.bytes, limit, "live-bytes")
    }

    /// Counts a live Task whose log has so many bytes and that is in memory.
    pub(crate) fn count(
        self: &Arc<Self>,
        session: &SessionId,
        maker: &AgentId,
        bytes: u64,
        place: Option<MemoryPlace>,
    ) -> LiveShare {
        let owners = LiveOwners {
            session: counted(&self.sessions, session),
            maker: counted(&self.makers, maker),
            ids: (session.clone(), maker.clone()),
        };
        for sums in [&owners.session, &owners.maker, &self.all] {
            sums.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        self.all.tasks.fetch_add(1, Ordering::Relaxed);
        let place = Some(place.unwrap_or_else(|| self.hold(bytes)));
        LiveShare { live: Arc::clone(self), owners, bytes, place, at_work: 0 }
    }

    /// Takes a place in memory for a Task, even if that is more than may be in memory.
    fn hold(self: &Arc<Self>, bytes: u64) -> MemoryPlace {
        let bytes = bytes.saturating_add(TASK_BYTES);
        self.memory.fetch_add(bytes, Ordering::Relaxed);
        self.press();
        MemoryPlace { live: Arc::clone(self), bytes }
    }

    /// Takes a place in memory, if there is one that leaves so many bytes free. The first of all gets one whatever its
    /// size: it could not be read otherwise.
    fn try_hold(self: &Arc<Self>, bytes: u64, free: u64) -> Result<MemoryPlace, u64> {
        let bytes = bytes.saturating_add(TASK_BYTES);
        let more = |held: u64| {
            let all = held.saturating_add(bytes);
            (held == 0 || all.saturating_add(free) <= self.limits.memory).then_some(all)
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
    /// No place became free in time, or the Tasks at work of the same owners have all that they may.
    pub(crate) async fn place(
        self: &Arc<Self>,
        of: PlaceOwner<'_>,
        bytes: u64,
    ) -> Result<MemoryPlace, String> {
        let until = Instant::now() + WAITS_FOR_PLACE;
        let free = match of {
            PlaceOwner::Ended => self.limits.memory / SHARE_PARTS,
            PlaceOwner::Unread | PlaceOwner::Share(_) => 0,
        };
        let mut waiter = None;
        loop {
            let freed = self.freed.notified();
            let held = match self.check_owner(of) {
                Ok(()) => self.try_hold(bytes, free).map_err(|held| {
                    format!(
                        "{held} bytes of tasks at work are in memory, of {}, and this one has {bytes}: it is read \
                         when others have ended or rest; more nodes, or --memory, make place",
                        self.limits.memory
                    )
                }),
                Err(over) => Err(over.message),
            };
            let why = match held {
                Ok(place) => {
                    self.is_full.store(false, Ordering::Relaxed);
                    return Ok(place);
                }
                Err(why) => why,
            };
            let needs = bytes.saturating_add(TASK_BYTES).saturating_add(free);
            waiter.get_or_insert_with(|| PlaceWaiter::of(self, needs));
            self.pressed.notify_one();
            if tokio::time::timeout_at(until, freed).await.is_err() {
                self.unplaced.fetch_add(1, Ordering::Relaxed);
                if !self.is_full.swap(true, Ordering::Relaxed) {
                    tracing::warn!("a task cannot be read for now: {why}");
                }
                return Err(why);
            }
        }
    }

    /// LIVE-02: refuses a place if the owners have as much at work as they may.
    fn check_owner(&self, of: PlaceOwner<'_>) -> Result<(), Rejection> {
        match of {
            PlaceOwner::Ended | PlaceOwner::Unread => Ok(()),
            PlaceOwner::Share(LiveShare { owners, .. }) => {
                self.check_work(&owners.session)?;
                self.check_work(&owners.maker)
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

/// For which Task there is to be a place in memory.
#[derive(Clone, Copy)]
pub(crate) enum PlaceOwner<'a> {
    /// One that has ended and is read. Such reads leave a part of the memory to live Tasks.
    Ended,
    /// One that was never in memory here. Somebody may be at work on it, so it is bounded by the memory alone.
    Unread,
    /// One that was put away.
    Share(&'a LiveShare),
}

/// The session of a Task, and whoever made it: the sums in which the Task counts.
#[derive(Debug)]
struct LiveOwners {
    session: Arc<TaskSums>,
    maker: Arc<TaskSums>,
    ids: (SessionId, AgentId),
}

/// What one live Task adds to the sums. Dropping this takes it out of them.
#[derive(Debug)]
pub(crate) struct LiveShare {
    live: Arc<LiveTasks>,
    owners: LiveOwners,
    bytes: u64,
    place: Option<MemoryPlace>,
    /// How many bytes of its place count as at work.
    at_work: u64,
}

impl LiveShare {
    fn sums(&self) -> [&TaskSums; 3] {
        [&self.owners.session, &self.owners.maker, &self.live.all]
    }

    /// Notes how many bytes the log has now.
    pub(crate) fn note_bytes(&mut self, bytes: u64) {
        // Wrapping arithmetic: the sums are right in whatever order threads add to them.
        let more = bytes.wrapping_sub(self.bytes);
        if more == 0 {
            return;
        }
        self.bytes = bytes;
        for sums in self.sums() {
            sums.bytes.fetch_add(more, Ordering::Relaxed);
        }
        if let Some(place) = &mut self.place {
            place.bytes = place.bytes.wrapping_add(more);
            self.live.memory.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Notes whether the Task is at work, so that it cannot be put away.
    pub(crate) fn note_work(&mut self, is_at_work: bool) {
        let now = if is_at_work { self.in_memory() } else { 0 };
        let more = now.wrapping_sub(self.at_work); // As above.
        self.at_work = now;
        if more == 0 {
            return;
        }
        for sums in self.sums() {
            sums.at_work.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// How many bytes it takes in memory.
    pub(crate) fn in_memory(&self) -> u64 {
        self.place.as_ref().map_or(0, |place| place.bytes)
    }

    /// The Task is no longer in memory.
    pub(crate) fn put_away(&mut self) {
        self.note_work(false);
        self.place = None;
    }

    /// The Task is in memory again.
    pub(crate) fn bring_back(&mut self, place: MemoryPlace) {
        self.place = Some(place);
    }
}

impl Drop for LiveShare {
    fn drop(&mut self) {
        self.note_work(false);
        for sums in self.sums() {
            sums.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.live.all.tasks.fetch_sub(1, Ordering::Relaxed);
        let LiveOwners { session, maker, ids } = &self.owners;
        uncount(&self.live.sessions, &ids.0, session);
        uncount(&self.live.makers, &ids.1, maker);
    }
}

type SumsById<K> = Mutex<IdMap<K, Arc<TaskSums>>>;

fn sums_of<K: Eq + Hash>(all: &SumsById<K>, id: &K) -> Option<Arc<TaskSums>> {
    all.lock().get(id).cloned()
}

/// Counts one more Task in the sums of an id.
fn counted<K: Eq + Hash + Clone>(all: &SumsById<K>, id: &K) -> Arc<TaskSums> {
    let mut all = all.lock();
    let own = match all.get(id) {
        Some(own) => Arc::clone(own),
        None => Arc::clone(all.entry(id.clone()).or_default()),
    };
    own.tasks.fetch_add(1, Ordering::Relaxed);
    own
}

/// Counts one Task less, and forgets the id with its last.
fn uncount<K: Eq + Hash>(all: &SumsById<K>, id: &K, own: &TaskSums) {
    let mut all = all.lock();
    if own.tasks.fetch_sub(1, Ordering::Relaxed) == 1 {
        all.remove(id);
    }
}

/// How much of a bound one owner may have, if all have so much.
fn share_of(most: u64, all: &AtomicU64) -> u64 {
    most.saturating_sub(all.load(Ordering::Relaxed)).saturating_mul(SHARE_TIMES)
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

#[cfg(test)]
mod tests;
