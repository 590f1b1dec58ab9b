//! How far the logs of a node's partitions are out (RECOVER-08): whoever watches was told of them, and
//! whoever keeps traces has taken those of the Tasks that ended there.
//!
//! Once a second the node finds out how far that is, and sets a mark beside the log. Who takes a
//! partition tells what is behind its mark again, of ended Tasks too, once its Tasks are under way
//! (mechanisms 11): nobody waits for that. Whoever is told twice knows it by the places in the log, and
//! a span again by its id.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use tenure_cluster::journal::{Reached, Stored};
use tenure_core::Rejection;
use tenure_core::status::TaskStatus;
use tenure_ports::client::Changed;
use tenure_ports::journal::{ReadError, TaskKey};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::events::{READ_AT_ONCE, hint, tell};
use crate::gate::Gate;
use crate::partitions::settle;

/// How often the marks are set.
const EVERY: Duration = Duration::from_secs(1);

/// What nobody takes in so long is given up: else whoever takes a partition would have ever more to tell.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// Tasks that are told of again at a time.
const TASKS_AT_ONCE: usize = 256;

/// How often it is tried to tell again what cannot be read, and when.
const TRIES: u32 = 3;
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Asks who publishes how many commits were missed since the start, when all others that were sent
/// there are published. None: they are not.
pub(crate) type Ask = mpsc::Sender<oneshot::Sender<Option<u64>>>;

/// Partitions of which all is out that other owners wrote, each with the epoch of this one.
#[derive(Debug, Default)]
pub(crate) struct Out(Mutex<HashMap<u32, u64>>);

impl Out {
    fn is_past_out(&self, of: &Reached) -> bool {
        self.0.lock().get(&of.partition) == Some(&of.epoch)
    }
}

/// When all was out last, or given up, and what had been lost by then, counted since the start.
#[derive(Debug)]
struct LastOut {
    at: Instant,
    /// Commits that were not published.
    missed: u64,
    /// Traces.
    untraced: u64,
}

impl LastOut {
    fn new(at: Instant) -> Self {
        Self { at, missed: 0, untraced: 0 }
    }

    /// Whether marks may be set. What was lost holds them back until it is given up, also when nothing
    /// more is lost: it is told again only while it is behind them.
    fn passes(&mut self, missed: Option<u64>, untraced: Option<u64>, now: Instant) -> bool {
        let is_out = missed == Some(self.missed) && untraced == Some(self.untraced);
        if !is_out && now.duration_since(self.at) < GIVEN_UP {
            return false;
        }
        self.at = now;
        self.missed = missed.unwrap_or(self.missed);
        self.untraced = untraced.unwrap_or(self.untraced);
        true
    }
}

/// Sets the marks, until the node ends.
pub(crate) async fn mark(gate: Arc<Gate>, ask: Ask) {
    let mut marks: HashMap<u32, u64> = HashMap::new();
    let mut last_out = LastOut::new(Instant::now());
    loop {
        sleep(EVERY).await;
        let mut reached = gate.fence.journal.reached();
        reached.retain(|it| gate.out.is_past_out(it) && marks.get(&it.partition) != Some(&it.last));
        if reached.is_empty() {
            last_out.at = Instant::now();
            continue;
        }
        // What hangs in one partition, or in whoever keeps traces, holds the marks of others no longer
        // than what is lost.
        let lost = async {
            gate.scheduler.settled().await;
            tokio::join!(missed_of(&ask), lost_of(&gate))
        };
        let given_up = (last_out.at + GIVEN_UP).max(Instant::now() + EVERY); // It may have stood still.
        let lost = timeout_at(given_up, lost).await;
        let (missed, untraced) = lost.unwrap_or((None, None));
        if !last_out.passes(missed, untraced, Instant::now()) {
            continue;
        }
        for Reached { partition, epoch, last } in reached {
            match gate.fence.journal.note_out(partition, epoch, last).await {
                Ok(()) => drop(marks.insert(partition, last)),
                Err(error) => tracing::debug!(partition, %error, "more is told again than need be"),
            }
        }
    }
}

async fn missed_of(ask: &Ask) -> Option<u64> {
    let (reply, told) = oneshot::channel();
    ask.send(reply).await.ok()?;
    told.await.ok()?
}

/// Waits for those who keep traces: how often some were lost. None: it is not known.
async fn lost_of(gate: &Gate) -> Option<u64> {
    match gate.scheduler.observer().and_then(|observer| observer.taken()) {
        Some(taken) => timeout(GIVEN_UP, taken).await.ok()?.ok(),
        None => Some(0),
    }
}

/// Tells what may not be out of a partition that was taken, until it is left.
pub(crate) async fn tell_past(gate: Arc<Gate>, partition: u32, epoch: u64) {
    for _ in 0..TRIES {
        match Past::new(&gate).tell(partition, epoch).await {
            Ok(0) => break,
            Ok(failed) => tracing::warn!(partition, failed, "not all can be told again"),
            Err(error) => tracing::warn!(partition, %error, "the past cannot be told again"),
        }
        sleep(AFTER_FAILURE).await;
    }
    gate.out.0.lock().insert(partition, epoch);
}

/// What is to be told of a Task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// Behind this event of its log, up to and with the last.
    after: u64,
    last: u64,
    ended: Option<TaskStatus>,
}

/// What may not be out.
struct Past<'a> {
    gate: &'a Gate,
    /// Some of it.
    tasks: HashMap<TaskKey, Part>,
    /// How much could not be told, or was not taken.
    failed: u64,
}

impl<'a> Past<'a> {
    fn new(gate: &'a Gate) -> Self {
        Self { gate, tasks: HashMap::new(), failed: 0 }
    }

    /// Answers how much could not be told, or was not taken.
    async fn tell(mut self, partition: u32, epoch: u64) -> Result<u64, ReadError> {
        let gate = self.gate;
        let journal = &gate.fence.journal;
        for at in journal.out(partition, epoch).await? + 1..epoch {
            for commit in journal.stored_at(partition, epoch, at).await? {
                note(&mut self.tasks, commit);
            }
            if self.tasks.len() >= TASKS_AT_ONCE {
                self.tell_some().await;
            }
        }
        self.tell_some().await;
        Ok(self.failed)
    }

    /// First the events: traces wait until others were taken, so that no more are made than that.
    async fn tell_some(&mut self) {
        let (gate, tasks) = (self.gate, std::mem::take(&mut self.tasks));
        let told = tasks.iter().map(|(key, part)| tell_of(gate, key, *part)).collect();
        self.failed += failures(told).await;
        self.failed += u64::from(!settle(&gate.intake).await);
        let lost = lost_of(gate).await;
        let ended = tasks.iter().filter(|(_, part)| part.ended.is_some());
        let traced = ended.map(|(key, part)| trace_of(gate, key, part.last)).collect();
        self.failed += failures(traced).await;
        let is_taken = lost.is_some() && lost_of(gate).await == lost;
        self.failed += u64::from(!is_taken);
    }
}

async fn tell_of(gate: &Gate, key: &TaskKey, part: Part) -> Result<(), Rejection> {
    let Part { after, last, ended } = part;
    let _turn = gate.event_reads.acquire().await; // It is never closed.
    let events = gate.scheduler.read_again(key, after, last).await?;
    tell(&gate.intake, key, events).await;
    let task_id = key.task_id.clone();
    hint(&gate.intake, key, Changed { task_id, version: last, ended }).await;
    Ok(())
}

async fn trace_of(gate: &Gate, key: &TaskKey, last: u64) -> Result<(), Rejection> {
    let _turn = gate.event_reads.acquire().await; // As above.
    gate.scheduler.observe_again(key, last).await
}

/// Waits for all, of which some go on at a time and share what they read. How many did not succeed.
async fn failures(all: Vec<impl Future<Output = Result<(), Rejection>>>) -> u64 {
    let mut all = stream::iter(all).buffer_unordered(READ_AT_ONCE);
    let mut failed = 0;
    while let Some(done) = all.next().await {
        if let Err(error) = done {
            tracing::debug!(%error, "a task is not told of again");
            failed += 1;
        }
    }
    failed
}

/// Commits of a Task that come together are told of together.
fn note(tasks: &mut HashMap<TaskKey, Part>, commit: Stored) {
    let Stored { key, after, last, ended } = commit;
    match tasks.entry(key) {
        Entry::Occupied(mut here) => {
            let part = here.get_mut();
            (part.last, part.ended) = (last, ended.or(part.ended));
        }
        Entry::Vacant(here) => {
            here.insert(Part { after, last, ended });
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_ports::conformance::History;

    use super::*;

    /// What is told of a Task begins where it was out, ends with its last commit, and has its end.
    #[test]
    fn commits_of_a_task_are_told_of_together() {
        let (mut tasks, key) = (HashMap::new(), History::of("s", "t").key);
        let ends = [None, Some(TaskStatus::Failed), None];
        for (at, ended) in (4..).zip(ends) {
            note(&mut tasks, Stored { key: key.clone(), after: at, last: at + 1, ended });
        }
        let whole = Part { after: 4, last: 7, ended: Some(TaskStatus::Failed) };
        assert_eq!(tasks.into_iter().collect::<Vec<_>>(), [(key, whole)]);
    }

    /// RECOVER-08: also when nothing more is lost.
    #[test]
    fn no_mark_passes_what_was_lost_until_it_is_given_up() {
        let begun = Instant::now();
        for (missed, untraced) in [(Some(3), Some(0)), (Some(0), Some(2)), (Some(3), Some(2))] {
            let mut last_out = LastOut::new(begun);
            assert!(last_out.passes(Some(0), Some(0), begun + EVERY), "nothing is lost yet");
            let given_up = begun + EVERY + GIVEN_UP;
            let mut now = begun + 2 * EVERY;
            while now < given_up {
                assert!(!last_out.passes(missed, untraced, now), "{missed:?}, {untraced:?}");
                now += EVERY;
            }
            assert!(last_out.passes(missed, untraced, given_up), "{missed:?}, {untraced:?}");
            assert!(last_out.passes(missed, untraced, given_up + EVERY), "it counts no more");
        }
    }

    /// RECOVER-08: what the server does not have is out when it has it, and so with whoever keeps traces.
    #[test]
    fn what_is_not_known_to_be_out_waits() {
        for (missed, untraced) in [(None, Some(0)), (Some(0), None), (None, None)] {
            let begun = Instant::now();
            let mut last_out = LastOut::new(begun);
            assert!(!last_out.passes(missed, untraced, begun + EVERY));
            assert!(last_out.passes(Some(0), Some(0), begun + 2 * EVERY));
            let given_up = begun + 2 * EVERY + GIVEN_UP;
            assert!(!last_out.passes(missed, untraced, given_up - EVERY));
            assert!(last_out.passes(missed, untraced, given_up), "it is given up");
        }
    }
}
