//! Whether workers, the store of leases and the log can be heard, and could without a gap: before that
//! nobody is judged by silence (mechanisms 6, LEASE-14).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tenure_core::id::Millis;
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::LeaseError;
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};
use tokio::time::timeout;

use crate::node::NodeShared;

/// How late a tick may be, and how long an append may take, before there is a gap.
const SLACK: Duration = Duration::from_secs(2);

/// What a node has heard.
#[derive(Debug)]
pub(crate) struct NodeHealth {
    /// The store of leases answered when it was last asked.
    keeps_leases: AtomicBool,
    /// Leases of open Attempts could not be made sure of: it is tried again.
    leases_lost: AtomicBool,
    /// That the store of leases fails has been said, and not yet that it answers again.
    failure_said: AtomicBool,
    /// Why partitions' logs take no writes, as their last appends have shown.
    log_troubles: RwLock<HashMap<u32, Arc<str>>>,
    /// Until when no Step fails by a time limit of its own, on the steady line.
    steps_spared_until: AtomicI64,
    /// When leases were looked at last, on the steady line.
    ticked: AtomicI64,
}

impl Default for NodeHealth {
    fn default() -> Self {
        Self {
            keeps_leases: AtomicBool::new(true),
            leases_lost: AtomicBool::new(false),
            failure_said: AtomicBool::new(false),
            log_troubles: RwLock::default(),
            steps_spared_until: AtomicI64::new(0),
            ticked: AtomicI64::new(0),
        }
    }
}

impl<J: Journal, L: Leases> NodeShared<J, L> {
    /// The store of leases has answered, or has not.
    pub(crate) fn note_leases(&self, answered: bool) {
        if !answered || !self.keeps_leases() {
            self.spare_steps();
        }
        self.heard.keeps_leases.store(answered, Ordering::Release);
    }

    /// Whether claims can have their leases.
    pub(crate) fn keeps_leases(&self) -> bool {
        self.heard.keeps_leases.load(Ordering::Acquire)
    }

    /// Why the log of a Task takes no writes: the last append to its partition's has failed.
    pub(crate) fn log_trouble(&self, task: &TaskKey) -> Option<Arc<str>> {
        let troubles = self.heard.log_troubles.read();
        troubles.get(&task.partition(self.config.partitions)).cloned()
    }

    /// What became of an append to the log of a Task, or that it takes long.
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

    /// There is a gap: leases are made sure of at the next look at them.
    pub(crate) fn note_leases_lost(&self) {
        self.spare_steps();
        self.heard.leases_lost.store(true, Ordering::Release);
    }

    /// The store of leases has not taken something, which makes a gap. That is said once until it answers
    /// again, however many calls fail meanwhile.
    pub(crate) fn note_leases_failed(&self, call: LeaseCall, error: &LeaseError) {
        self.note_leases_lost();
        if !self.heard.failure_said.swap(true, Ordering::AcqRel) {
            let call = call.as_str();
            tracing::warn!(%error, call, "the store of leases fails: claims and ends of leases may wait");
        }
    }

    /// The store of leases has answered, and nothing failed for as long as a scan takes.
    pub(crate) fn note_leases_answer(&self) {
        if self.heard.failure_said.swap(false, Ordering::AcqRel) {
            tracing::info!("the store of leases answers again");
        }
    }

    /// Whether leases are to be made sure of, told once.
    pub(crate) fn take_leases_lost(&self) -> bool {
        self.heard.leases_lost.swap(false, Ordering::AcqRel)
    }

    /// Leases are looked at. Answers whether that is so late that this process must have stood still.
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

    /// Steps are not judged by their time limits before workers had the time to be heard, and to be
    /// given Steps, from now on.
    pub(crate) fn spare_steps(&self) {
        self.heard.steps_spared_until.fetch_max(self.after_grace(), Ordering::AcqRel);
    }

    /// When every worker has had the time to be heard from now on, on the steady line. As leases: they are
    /// raised to one and a half heartbeat intervals, and not judged for one and some more.
    pub(crate) fn after_grace(&self) -> Millis {
        let heard = u64::try_from(self.reachable_since().as_millis()).unwrap_or(u64::MAX);
        self.clock.passed().saturating_add_unsigned(heard.max(self.config.limits.lease_ms / 2))
    }

    /// How long after a gap no lease is judged: a heartbeat interval and a little.
    pub(crate) fn reachable_since(&self) -> Duration {
        Duration::from_millis(self.config.limits.lease_ms / 3) + SLACK
    }

    /// Until when Steps are spared, as far as it is known, on the steady line.
    pub(crate) fn steps_spared_until(&self) -> Millis {
        self.heard.steps_spared_until.load(Ordering::Acquire)
    }

    /// The same, for whoever judges now: what makes a gap may not have been noted yet, or go on.
    pub(crate) fn look_at_gaps(&self) -> Millis {
        if !self.keeps_leases() || self.is_tick_late() {
            self.spare_steps();
        }
        self.steps_spared_until()
    }

    /// Waits for an append. While that takes too long the log cannot be written, and workers' words are
    /// not taken: no lease is judged, least of all of the claims that are written with it. Each note of it
    /// has all leases raised, and holds for a while.
    pub(crate) async fn unless_held_up<T>(
        &self,
        task: &TaskKey,
        mut append: Pin<&mut impl Future<Output = T>>, // It is large: it is moved nowhere.
    ) -> T {
        if let Ok(done) = timeout(SLACK, append.as_mut()).await {
            return done;
        }
        self.note_log(task, Some("an append has had no answer for seconds"));
        loop {
            self.note_leases_lost();
            if let Ok(done) = timeout(self.reachable_since() / 2, append.as_mut()).await {
                self.note_leases_lost();
                return done;
            }
        }
    }
}
