//! Scans for leases that ended without a report (LEASE-16), and decides when to trust a scan.

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

/// Scans for ended leases on every tick and notifies their Tasks.
///
/// Each tick first reads the machine's clocks: the machine may have been suspended, or the system's
/// clock set.
///
/// After a gap no lease is judged before every worker had the time to report. A gap is when this
/// process stood still, the store of leases or the log did not answer, the store lost leases, or
/// its clock was set (mechanisms 6). Once per lease duration the scan makes the leases again that
/// the store has lost silently.
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
                judge_from = now + heard; // The workers of this process stood still too.
            }
            if has_moved {
                set_timers(&node);
            }
            if now - ensured >= Duration::from_millis(node.config.limits.lease_ms) {
                ensured = now;
                ensure_all(&node);
            }
            node.forget_signals();
            node.forget_gaps();
            node.close_idle_pools();
            node.ended.sweep();
            node.told.sweep();
            node.long.sweep();
            node.failed.tell_left_out();
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

/// Has every Task set its timer anew.
fn set_timers<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>) {
    for task in node.directory.all() {
        let set = |state: &mut ActorTask<J, L>| {
            state.set_timer(&task);
            true
        };
        if !task.at_rest(set) {
            let _ = task.cast(Msg::Later); // The Task may be over.
        }
    }
}

/// Has every Task raise its leases.
fn raise_all<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>) {
    for task in node.directory.all() {
        let raise = |state: &mut ActorTask<J, L>| {
            state.raise_leases();
            true
        };
        if !task.at_rest(raise) {
            let _ = task.cast(Msg::Raise); // The Task may be over.
        }
    }
}

/// Makes the leases of open Attempts that the store has lost (LEASE-15).
fn ensure_all<J: Journal, L: Leases>(node: &Arc<NodeShared<J, L>>) {
    let mut leases = Vec::new();
    for task in node.directory.all() {
        let look = |state: &mut ActorTask<J, L>| {
            leases.append(&mut state.open_leases());
            true
        };
        if !task.at_rest(look) {
            let _ = task.cast(Msg::Ensure); // The Task may be over.
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
        if node.was_unasked_within(&key, node.reachable_since()) {
            continue; // A later scan finds them again, unless their holders renew them.
        }
        match node.directory.get(&key) {
            // If the Task has just left its address, the next scan notifies its successor.
            Some(actor) => drop(actor.cast(Msg::Over(leases))),
            None => node.drop_leases(leases.into_keys().collect()),
        }
    }
}
