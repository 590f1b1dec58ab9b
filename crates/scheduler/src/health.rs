//! Notes whether the node receives from workers, and whether the store of leases and the log
//! answer. After a gap in this, the node judges nobody by silence for a while (mechanisms 6,
//! LEASE-14).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tenure_core::id::Millis;
use tenure_ports::downtime::{Downtime, DowntimeEnd};
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::LeaseError;
use tenure_ports::map::IdMap;
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};
use tokio::time::{Instant, timeout};

use crate::node::NodeShared;

/// How late a tick may be, and how long an append may take, before there is a gap.
const SLACK: Duration = Duration::from_secs(2);

/// For how long no call to the store of leases may fail before the log says that it answers again.
const QUIET: Duration = Duration::from_secs(5);

/// What the node knows of this.
#[derive(Debug)]
pub(crate) struct NodeHealth {
    /// The store of leases answered when it was last asked.
    keeps_leases: AtomicBool,
    /// Leases of open Attempts may be gone: the next scan raises them.
    leases_lost: AtomicBool,
    /// Whether calls to the store of leases fail, and how many did: the log says once that they fail, and once that
    /// they do not any more.
    leases_away: Mutex<Downtime>,
    /// Why partitions' logs take no writes, as their last appends have shown.
    log_troubles: RwLock<IdMap<u32, Arc<str>>>,
    /// Until when no Step fails by its own time limit, on the steady line.
    steps_spared_until: AtomicI64,
    /// When the last scan began, on the steady line.
    ticked: AtomicI64,
    /// When the last gap was noted, on the steady line.
    gap_at: AtomicI64,
}

impl Default for NodeHealth {
    fn default() -> Self {
        Self {
            keeps_leases: AtomicBool::new(true),
            leases_lost: AtomicBool::new(false),
            leases_away: Mutex::new(Downtime::new(QUIET)),
            log_troubles: RwLock::default(),
            steps_spared_until: AtomicI64::new(0),
            ticked: AtomicI64::new(0),
            gap_at: AtomicI64::new(Millis::MIN),
        }
    }
}

impl<J: Journal, L: Leases> NodeShared<J, L> {
    /// Notes whether the store of leases has answered.
    pub(crate) fn note_leases(&self, answered: bool) {
        if !answered || !self.keeps_leases() {
            self.spare_steps();
        }
        self.heard.keeps_leases.store(answered, Ordering::Release);
    }

    /// Whether claims can get their leases.
    pub(crate) fn keeps_leases(&self) -> bool {
        self.heard.keeps_leases.load(Ordering::Acquire)
    }

    /// Why the log of a Task takes no writes: the last append in its partition has failed.
    pub(crate) fn log_trouble(&self, task: &TaskKey) -> Option<Arc<str>> {
        let troubles = self.heard.log_troubles.read();
        troubles.get(&task.partition(self.config.partitions)).cloned()
    }

    /// Partitions whose log takes no writes, as their last appends have shown.
    pub(crate) fn logs_in_trouble(&self) -> Vec<u32> {
        self.heard.log_troubles.read().keys().copied().collect()
    }

    /// Notes what became of an append to the log of a Task, or that it takes long.
    pub(crate) fn note_log(&self, task: &TaskKey, trouble: Option<&str>) {
        let partition = task.partition(self.config.partitions);
        match trouble {
            Some(why) => {
                self.heard.log_troubles.write().insert(partition, why.into());
            }
            None if self.heard.log_troubles.read().is_empty() => {}
            None => {
                self.heard.log_troubles.write().remove(&partition);
            }
        }
    }

    /// Notes that this node takes a partition, of whose log nothing is known yet.
    pub(crate) fn forget_log_trouble(&self, partition: u32) {
        self.heard.log_troubles.write().remove(&partition);
    }

    /// Notes a gap: the next scan makes sure of all leases.
    pub(crate) fn note_leases_lost(&self) {
        self.spare_steps();
        self.heard.leases_lost.store(true, Ordering::Release);
    }

    /// Notes a failed call to the store of leases, which makes a gap. Logs it once until the store
    /// answers again, however many calls fail meanwhile.
    pub(crate) fn note_leases_failed(&self, call: LeaseCall, error: &LeaseError) {
        self.note_leases_lost();
        if self.heard.leases_away.lock().note_failure(Instant::now().into_std()) {
            let (call, at) = (call.as_str(), self.leases.place());
            tracing::warn!(
                %error, at, call,
                "the store of leases fails: claims and ends of leases may wait; this is said once until it answers"
            );
        }
    }

    /// Notes that the store of leases has answered a scan, and that nothing failed since the last.
    pub(crate) fn note_leases_answer(&self) {
        let over = self.heard.leases_away.lock().note_answer(Instant::now().into_std());
        if let Some(DowntimeEnd { lasted, failed }) = over {
            let (at, seconds) = (self.leases.place(), lasted.as_secs());
            tracing::info!(at, seconds, failed, "the store of leases answers again");
        }
    }

    /// Whether leases are to be raised; resets the note.
    pub(crate) fn take_leases_lost(&self) -> bool {
        self.heard.leases_lost.swap(false, Ordering::AcqRel)
    }

    /// Notes that a scan begins. Answers whether it is so late that this process must have stood
    /// still.
    pub(crate) fn note_tick(&self) -> bool {
        let is_late = self.is_tick_late();
        if is_late {
            self.spare_steps();
        }
        self.heard.ticked.store(self.clock.passed(), Ordering::Release);
        is_late
    }

    fn is_tick_late(&self) -> bool {
        let since = self.clock.passed().saturating_sub(self.heard.ticked.load(Ordering::Acquire));
        let since = Duration::from_millis(u64::try_from(since).unwrap_or(0));
        since > self.config.tick + SLACK
    }

    /// There is a gap. From now on judges no Step by its time limits before every worker had the time
    /// to report, and to be given Steps.
    pub(crate) fn spare_steps(&self) {
        self.heard.gap_at.fetch_max(self.clock.passed(), Ordering::AcqRel);
        self.heard.steps_spared_until.fetch_max(self.after_grace(), Ordering::AcqRel);
    }

    /// LEASE-14: whether there was a gap within this time. Leases that the store has lost are made anew
    /// after a gap was noted: so this looks back a little further.
    pub(crate) fn saw_gap_within(&self, time: Duration) -> bool {
        let back = Millis::try_from((time + self.config.tick).as_millis()).unwrap_or(Millis::MAX);
        self.heard.gap_at.load(Ordering::Acquire) >= self.clock.passed().saturating_sub(back)
    }

    /// The time, on the steady line, by which every worker will have had the time to report from
    /// now on. It is the same as for leases: they are raised to one and a half heartbeat intervals,
    /// and not judged for a little over one.
    pub(crate) fn after_grace(&self) -> Millis {
        let heard = u64::try_from(self.reachable_since().as_millis()).unwrap_or(u64::MAX);
        self.clock.passed().saturating_add_unsigned(heard.max(self.config.limits.lease_ms / 2))
    }

    /// How long after a gap no lease is judged: a heartbeat interval and a little.
    pub(crate) fn reachable_since(&self) -> Duration {
        Duration::from_millis(self.config.limits.lease_ms / 3) + SLACK
    }

    /// Until when Steps are spared, as far as has been noted, on the steady line.
    pub(crate) fn steps_spared_until(&self) -> Millis {
        self.heard.steps_spared_until.load(Ordering::Acquire)
    }

    /// The same for a caller that judges now: a gap may not have been noted yet, or go on.
    pub(crate) fn look_at_gaps(&self) -> Millis {
        if !self.keeps_leases() || self.is_tick_late() {
            self.spare_steps();
        }
        self.steps_spared_until()
    }

    /// Waits for an append. While it takes too long, the log cannot be written, and workers'
    /// reports are not accepted. So no lease is judged, least of all those of the claims in this
    /// append. Each note of it has all leases raised, and holds for a while.
    pub(crate) async fn unless_held_up<T>(
        &self,
        task: &TaskKey,
        mut append: Pin<&mut impl Future<Output = T>>, // It is large, so it is not moved.
    ) -> T {
        if let Ok(done) = timeout(SLACK, append.as_mut()).await {
            return done;
        }
        self.note_log(task, Some("an append has had no answer for seconds"));
        let begun = Instant::now() - SLACK;
        loop {
            self.note_leases_lost();
            if let Some(observer) = &self.config.observer {
                observer.held_up(begun.elapsed());
            }
            if let Ok(done) = timeout(self.reachable_since() / 2, append.as_mut()).await {
                self.note_leases_lost();
                return done;
            }
        }
    }
}
