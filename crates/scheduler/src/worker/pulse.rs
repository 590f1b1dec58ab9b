//! Heartbeats: what a Task says of Attempts whose holders renew their leases.
//!
//! A heartbeat looks at the durable state of the Task where it lies, and waits for its actor only if the Task is not in
//! memory. So no reader and no command of that Task can cost a worker its leases (LEASE-14). A worker that holds
//! nothing in a Task that was put away does not have it read, and only what is news to a Task wakes its actor.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use tenure_core::Code;
use tenure_core::command::run_end::nothing_held;
use tenure_core::id::{AgentId, Millis};
use tenure_core::view::View;
use tenure_ports::bus::{Holding, Pulse};
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::Lease;
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};
use tenure_wire::bus::worker::LateInput;

use super::WorkerLink;
use crate::node::INPUTS_AT_ONCE;

/// How long a heartbeat waits for a Task that is being read from its log.
const PULSE: Duration = Duration::from_secs(2);

impl<J: Journal, L: Leases> WorkerLink<J, L> {
    /// Renews leases, and answers for each how many milliseconds it lasts from now.
    ///
    /// While the store of leases does not answer, no node can find that a lease has ended. So they count as renewed,
    /// and are confirmed when the store answers again (mechanisms 6).
    pub async fn pulses(&self, holdings: &[Holding]) -> Vec<(Pulse, u64)> {
        let node = &self.scheduler.node;
        let mut by_task: BTreeMap<&TaskKey, Vec<usize>> = BTreeMap::new();
        for (at, held) in holdings.iter().enumerate() {
            by_task.entry(&held.task).or_default().push(at);
        }
        let mut pulses = vec![(Pulse::Unknown, 0); holdings.len()];
        let mut leases = Vec::new();
        let asked = by_task.into_iter().map(async |(task, places)| {
            let asked: Vec<_> = places.iter().map(|&at| holdings[at].clone()).collect();
            // A Task that cannot be asked now must not cost the others their leases.
            let judged = tokio::time::timeout(PULSE, self.judged(task, asked)).await;
            if judged.is_err() {
                node.note_unasked(task); // Nor may it cost the holders of this Task their leases.
            }
            (places, judged.ok().flatten())
        });
        for (places, judged) in join_all(asked).await {
            let Some(judged) = judged else { continue };
            for (at, (pulse, duration_ms)) in places.into_iter().zip(judged) {
                if matches!(pulse, Pulse::Renewed { .. }) {
                    let held = &holdings[at];
                    let (task, attempt_id) = (held.task.clone(), held.attempt_id);
                    leases.push(Lease { task, attempt_id, duration_ms });
                }
                pulses[at] = (pulse, duration_ms);
            }
        }
        node.renewed.note(&self.worker.id, leases.iter().map(|lease| lease.attempt_id));
        let (count, renew) = (leases.len(), node.leases.renew(leases));
        if let Err(error) = node.watch_leases(LeaseCall::Renew, count, renew).await {
            node.note_leases_failed(LeaseCall::Renew, &error);
        }
        pulses
    }

    /// What a Task says of Attempts; none if it cannot be asked. For a Task that has ended the
    /// index answers, so that its log is not read: workers also renew what they have just reported. A worker that does
    /// not hold an Attempt is told the same of it in every case, which is nothing (PERM-16).
    async fn judged(&self, task: &TaskKey, asked: Vec<Holding>) -> Option<Vec<(Pulse, u64)>> {
        let node = &self.scheduler.node;
        let address = node.directory.get(task);
        let is_its_own = |held: &Holding| node.renewed.is_of(&self.worker.id, held.attempt_id);
        if address.is_none()
            && let Ok(Some(entry)) = node.journal.entry(task).await
            && let Some(end) = entry.ended
        {
            // Only the holder is told so.
            let lost = |held: &Holding| match is_its_own(held) {
                true => (Pulse::Lost(nothing_held(end.status())), 0),
                false => (Pulse::Unknown, 0),
            };
            return Some(asked.iter().map(lost).collect());
        }
        // Nobody holds an Attempt of a Task that was put away, and only who held one learns what became of it.
        let is_stored = address.as_ref().is_some_and(|address| address.shared().is_stored());
        if is_stored && !asked.iter().any(is_its_own) {
            return Some(vec![(Pulse::Unknown, 0); asked.len()]);
        }
        let who = self.worker.id.clone();
        let now = node.clock.now();
        let here = match address {
            Some(address) => {
                let epoch = node.journal.epoch(task)?;
                address.shared().look(Some(epoch), |task| look(task, &who, &asked, now)).await
            }
            None => None,
        };
        let PulseAnswer { judged, unseen, news } = match here {
            Some(answer) => answer,
            None => {
                // The Task is not in memory, or cannot be read.
                let look = move |task: &View<'_>| look(task, &who, &asked, now);
                match self.scheduler.read(task, look).await {
                    Ok(answer) => answer,
                    Err(refused) => {
                        if matches!(refused.code, Code::Unavailable | Code::StorageError) {
                            node.note_unasked(task); // The holders of this Task cannot show now that they are alive.
                        }
                        return None;
                    }
                }
            }
        };
        if !news.is_empty() {
            self.scheduler.note_seen(task, self.worker.id.clone(), news);
        }
        for LateInput { attempt_id, after, input_refs } in unseen {
            node.send_input(&self.worker.id, attempt_id, after, &input_refs);
        }
        Some(judged)
    }
}

/// What a Task says to a heartbeat.
struct PulseAnswer {
    /// Of each Attempt, whether its lease is renewed, and for how long.
    judged: Vec<(Pulse, u64)>,
    /// What holders have not seen of the Task's `input_refs`.
    unseen: Vec<LateInput>,
    /// How much of the input the holders have seen, as far as the Task does not know it yet.
    news: Vec<Holding>,
}

fn look(task: &View<'_>, who: &AgentId, asked: &[Holding], now: Millis) -> PulseAnswer {
    let is_news = |held: &&Holding| {
        let is_newer = |seen| task.is_news_of_input(held.attempt_id, seen);
        held.input_seen.is_some_and(is_newer)
            && task.check_holder(who, held.attempt_id, held.fencing_token).is_ok()
    };
    PulseAnswer {
        judged: judge(task, who, asked, now),
        unseen: unseen(task, who, asked),
        news: asked.iter().filter(is_news).cloned().collect(),
    }
}

/// Judges by the durable state: whatever an append in flight may end, or ask for, has not happened,
/// as it may fail or take long.
pub(super) fn judge(
    task: &View<'_>,
    who: &AgentId,
    holdings: &[Holding],
    now: Millis,
) -> Vec<(Pulse, u64)> {
    let lease_ms = |held: &Holding| task.attempt(held.attempt_id).map_or(0, |a| a.lease_ms);
    holdings.iter().map(|held| (pulse(task, who, held, now), lease_ms(held))).collect()
}

fn pulse(task: &View<'_>, who: &AgentId, held: &Holding, now: Millis) -> Pulse {
    if task.attempt(held.attempt_id).is_none_or(|attempt| attempt.worker_id != *who) {
        // The same is said of a Task that is not there, or has ended (PERM-16).
        return Pulse::Unknown;
    }
    match task.check_holder(who, held.attempt_id, held.fencing_token) {
        Ok(()) => {
            let attempt = task.attempt(held.attempt_id);
            let cancel_requested = attempt.is_some_and(|attempt| task.is_asked_to_stop(attempt));
            let time_left_ms = attempt.and_then(|attempt| task.time_to_stop(attempt, now));
            Pulse::Renewed { cancel_requested, time_left_ms }
        }
        // An Attempt that is not known here may be another owner's, or come into the log in a
        // moment.
        Err(_) if task.is_behind(held.fencing_token) => Pulse::Unknown,
        Err(_) if task.may_go_on(who, held.attempt_id, held.fencing_token) => Pulse::Unknown,
        Err(rejection) => Pulse::Lost(rejection),
    }
}

/// What has come to the Task's `input_refs` and these holders have not seen (CTRL-12): it is sent again with each
/// heartbeat, as it may have been lost with a link. A worker skips what it has.
pub(super) fn unseen(task: &View<'_>, who: &AgentId, holdings: &[Holding]) -> Vec<LateInput> {
    if task.pushed_inputs() == 0 {
        return Vec::new();
    }
    let of = |held: &Holding| {
        let attempt = task.attempt(held.attempt_id)?;
        task.check_holder(who, held.attempt_id, held.fencing_token).ok()?;
        let seen = held.input_seen.and_then(|seen| u32::try_from(seen).ok()).unwrap_or(0);
        let (after, refs) = task.inputs_for(attempt, seen);
        let input_refs = refs[..refs.len().min(INPUTS_AT_ONCE)].to_vec();
        let attempt_id = held.attempt_id;
        (!input_refs.is_empty()).then_some(LateInput { attempt_id, after, input_refs })
    };
    holdings.iter().filter_map(of).collect()
}
