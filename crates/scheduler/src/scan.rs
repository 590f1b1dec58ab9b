//! Looking for leases that ended without a word (LEASE-16), and when that may be believed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::id::AttemptId;
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::ExpiredLease;
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::node::NodeShared;
use crate::task::{ActorTask, Msg};

/// Looks for ended leases on every tick and tells their Tasks.
///
/// Each time the machine's clocks are looked at first: it may have been suspended, or the system's clock set.
///
/// Nothing is judged before every worker had the time to be heard since the last gap: this process
/// stood still, the store of leases or the log did not answer, the store has lost what it was told, or
/// its clock was set (mechanisms 6). What it lost in silence is made good once in the time of a lease.
pub(crate) fn scan_leases<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>) -> JoinHandle<()> {
    let (node, tick) = (Arc::downgrade(node), node.config.tick);
    tokio::spawn(async move {
        let mut ticks = interval(tick);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut judge_from, mut ensured) = (Instant::now(), Instant::now());
        loop {
            ticks.tick().await;
            let Some(node) = node.upgrade() else { return };
            let heard = node.reachable_since();
            let now = Instant::now();
            let has_moved = node.clock.look(node.config.embedded);
            if node.note_tick() {
                judge_from = now + heard; // The workers of this process stood still with it.
            }
            if has_moved {
                set_timers(&node);
            }
            if now - ensured >= Duration::from_millis(node.config.limits.lease_ms) {
                ensured = now;
                ensure_all(&node);
            }
            node.forget_signals();
            node.ended.sweep();
            node.told.sweep();
            node.long.sweep();
            let scan = node.watch_leases(LeaseCall::Scan, 0, node.leases.expired()).await;
            node.note_leases(scan.is_ok());
            match scan {
                Ok(scan) if scan.doubtful || node.take_leases_lost() => {
                    judge_from = Instant::now() + heard;
                    node.spare_steps();
                    raise_all(&node);
                }
                Ok(scan) => {
                    node.note_leases_answer();
                    if Instant::now() >= judge_from {
                        tell_tasks(&node, scan.ended);
                    }
                }
                Err(error) => {
                    judge_from = Instant::now() + heard;
                    node.note_leases_failed(LeaseCall::Scan, &error);
                }
            }
        }
    })
}

/// Has every Task wait for the instant at which its next thing is due now.
fn set_timers<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>) {
    for task in node.directory.all() {
        let set = |state: &mut ActorTask<J, L>| {
            state.set_timer(&task);
            true
        };
        if !task.at_rest(set) {
            let _ = task.cast(Msg::Later); // It may be over.
        }
    }
}

/// Has every Task make sure of its leases.
fn raise_all<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>) {
    for task in node.directory.all() {
        let raise = |state: &mut ActorTask<J, L>| {
            state.raise_leases();
            true
        };
        if !task.at_rest(raise) {
            let _ = task.cast(Msg::Raise); // It may be over.
        }
    }
}

/// Has the store get what it has lost of the leases of open Attempts (LEASE-15).
fn ensure_all<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>) {
    let mut leases = Vec::new();
    for task in node.directory.all() {
        let look = |state: &mut ActorTask<J, L>| {
            leases.append(&mut state.open_leases());
            true
        };
        if !task.at_rest(look) {
            let _ = task.cast(Msg::Ensure); // It may be over.
        }
    }
    node.ensure_leases(leases);
}

fn tell_tasks<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>, ended: Vec<ExpiredLease>) {
    let now = std::time::Instant::now();
    let mut by_task: BTreeMap<TaskKey, BTreeMap<AttemptId, std::time::Instant>> = BTreeMap::new();
    for ExpiredLease { task, attempt_id, late } in ended {
        let since = now.checked_sub(late).unwrap_or(now);
        by_task.entry(task).or_default().insert(attempt_id, since);
    }
    for (key, leases) in by_task {
        match node.directory.get(&key) {
            // If it has just gone, the next scan tells its successor.
            Some(actor) => drop(actor.cast(Msg::Over(leases))),
            None => node.drop_leases(leases.into_keys().collect()),
        }
    }
}
