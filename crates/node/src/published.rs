//! How far the logs of a node's partitions are published (RECOVER-08): the node has sent the events
//! to all watchers, and the collector has taken the traces of the Tasks that ended there.
//!
//! Once a second the node finds out how far that is, and sets a mark beside the log. A new owner of
//! a partition publishes what is behind the mark again, for ended Tasks too, once its Tasks are
//! under way (mechanisms 11); nobody waits for that. A receiver recognises a repeated event by its
//! place in the log, and a span by its id.

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

/// What could not be published for so long is given up: otherwise a new owner would have ever more
/// to publish again.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// How many Tasks are published again at a time.
const TASKS_AT_ONCE: usize = 256;

/// For how many Tasks at most a failure is noted, to be tried again.
const FAILED_MAX: usize = 10_000;

/// How often the node tries to publish the past of a partition, and how long it waits after a
/// failure.
const TRIES: u32 = 3;
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Asks the loop that publishes how many commits it has missed since the start. It answers once it
/// has published all others that were sent to it before. None: some are not published.
pub(crate) type MissedQuery = mpsc::Sender<oneshot::Sender<Option<u64>>>;

/// Partitions in which everything that earlier owners wrote is published, each with the epoch of
/// this owner.
#[derive(Debug, Default)]
pub(crate) struct PublishedMarks(Mutex<HashMap<u32, u64>>);

impl PublishedMarks {
    fn is_past_published(&self, of: &Reached) -> bool {
        self.0.lock().get(&of.partition) == Some(&of.epoch)
    }
}

/// When everything was last published or given up, and what had been lost by then, counted since
/// the start.
#[derive(Debug)]
struct LastPublished {
    at: Instant,
    /// Commits that were not published.
    missed: u64,
    /// Traces that were lost.
    untraced: u64,
}

impl LastPublished {
    fn new(at: Instant) -> Self {
        Self { at, missed: 0, untraced: 0 }
    }

    /// Whether marks may be set. A loss holds them back until it is given up, even if nothing more
    /// is lost: the next owner publishes again only what is behind the marks.
    fn passes(&mut self, missed: Option<u64>, untraced: Option<u64>, now: Instant) -> bool {
        let is_published = missed == Some(self.missed) && untraced == Some(self.untraced);
        if !is_published && now.duration_since(self.at) < GIVEN_UP {
            return false;
        }
        self.at = now;
        self.missed = missed.unwrap_or(self.missed);
        self.untraced = untraced.unwrap_or(self.untraced);
        true
    }
}

/// Sets the marks, until the node ends.
pub(crate) async fn mark(gate: Arc<Gate>, ask: MissedQuery) {
    let mut marks: HashMap<u32, u64> = HashMap::new();
    let mut last_published = LastPublished::new(Instant::now());
    loop {
        sleep(EVERY).await;
        let mut reached = gate.fence.journal.reached();
        reached.retain(|it| {
            gate.out.is_past_published(it) && marks.get(&it.partition) != Some(&it.last)
        });
        if reached.is_empty() {
            last_published.at = Instant::now();
            continue;
        }
        // A partition or a collector that hangs holds back the marks of other partitions no longer
        // than a loss does.
        let lost = async {
            gate.scheduler.settled().await;
            tokio::join!(missed_of(&ask), lost_of(&gate))
        };
        // The process may have stood still.
        let given_up = (last_published.at + GIVEN_UP).max(Instant::now() + EVERY);
        let lost = timeout_at(given_up, lost).await;
        let (missed, untraced) = lost.unwrap_or((None, None));
        if !last_published.passes(missed, untraced, Instant::now()) {
            continue;
        }
        for Reached { partition, epoch, last } in reached {
            match gate.fence.journal.note_published(partition, epoch, last).await {
                Ok(()) => drop(marks.insert(partition, last)),
                Err(error) => tracing::debug!(partition, %error, "more is told again than need be"),
            }
        }
    }
}

async fn missed_of(ask: &MissedQuery) -> Option<u64> {
    let (reply, told) = oneshot::channel();
    ask.send(reply).await.ok()?;
    told.await.ok()?
}

/// Waits for the collector: how often traces were lost. None: that is not known.
async fn lost_of(gate: &Gate) -> Option<u64> {
    match gate.scheduler.observer().and_then(|observer| observer.taken()) {
        Some(taken) => timeout(GIVEN_UP, taken).await.ok()?.ok(),
        None => Some(0),
    }
}

/// Publishes what an earlier owner of this partition may not have published. What fails is tried
/// again, at most three times in all.
pub(crate) async fn tell_past(gate: Arc<Gate>, partition: u32, epoch: u64) {
    let mut past =
        PastPublisher { gate: &gate, next: None, parts: DueParts::default(), hangs: false };
    for _ in 0..TRIES {
        match past.tell(partition, epoch).await {
            Ok(0) => break,
            Ok(failed) => tracing::warn!(partition, failed, "not all can be told again"),
            Err(error) => tracing::warn!(partition, %error, "the past cannot be told again"),
        }
        sleep(AFTER_FAILURE).await;
    }
    gate.out.0.lock().insert(partition, epoch);
}

/// What is to be published of a Task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// The event of its log behind which it begins.
    after: u64,
    last: u64,
    ended: Option<TaskStatus>,
}

impl Part {
    /// What is left when watchers have the events: the trace of its end.
    fn told(self) -> Self {
        Self { after: self.last, ..self }
    }

    /// Extends this part to cover the other, and what lies between them.
    fn join(&mut self, other: Self) {
        self.after = self.after.min(other.after);
        self.last = self.last.max(other.last);
        self.ended = self.ended.or(other.ended);
    }
}

/// Parts to be published now, and parts that failed, for another time.
#[derive(Debug, Default)]
struct DueParts {
    now: HashMap<TaskKey, Part>,
    failed: HashMap<TaskKey, Part>,
    /// How many failed for which there was no capacity.
    given_up: u64,
}

impl DueParts {
    /// Adds a commit. Commits of one Task that follow each other are published together.
    fn note(&mut self, commit: Stored) {
        let Stored { key, after, last, ended } = commit;
        match self.now.entry(key) {
            Entry::Occupied(mut here) => {
                let part = here.get_mut();
                (part.last, part.ended) = (last, ended.or(part.ended));
            }
            Entry::Vacant(here) => {
                here.insert(Part { after, last, ended });
            }
        }
    }

    /// Takes some of those to be published now.
    fn take(&mut self) -> Vec<(TaskKey, Part)> {
        let some: Vec<TaskKey> = self.now.keys().take(TASKS_AT_ONCE).cloned().collect();
        let part = |key: TaskKey| self.now.remove(&key).map(|part| (key, part));
        some.into_iter().filter_map(part).collect()
    }

    fn fail(&mut self, key: TaskKey, part: Part) {
        let is_full = self.failed.len() >= FAILED_MAX;
        match self.failed.entry(key) {
            Entry::Occupied(mut here) => here.get_mut().join(part),
            Entry::Vacant(_) if is_full => self.given_up += 1,
            Entry::Vacant(here) => drop(here.insert(part)),
        }
    }

    /// Has the parts that failed published now. Answers how many failed or were given up.
    fn again(&mut self) -> u64 {
        let failed = std::mem::take(&mut self.failed);
        let count = failed.len() as u64 + std::mem::take(&mut self.given_up);
        for (key, part) in failed {
            self.now.entry(key).and_modify(|here| here.join(part)).or_insert(part);
        }
        count
    }
}

/// Publishes what an earlier owner may not have published.
struct PastPublisher<'a> {
    gate: &'a Gate,
    /// The message that is read next; none before the first.
    next: Option<u64>,
    parts: DueParts,
    /// Whether the collector has not answered: then nothing waits for it again.
    hangs: bool,
}

impl PastPublisher<'_> {
    /// Goes on where it stopped. Answers for how many Tasks it failed.
    async fn tell(&mut self, partition: u32, epoch: u64) -> Result<u64, ReadError> {
        let gate = self.gate;
        let journal = &gate.fence.journal;
        let mut next = match self.next {
            Some(next) => next,
            None => journal.out(partition, epoch).await? + 1,
        };
        while next < epoch {
            self.next = Some(next);
            for commit in journal.stored_at(partition, epoch, next).await? {
                self.parts.note(commit);
            }
            next += 1;
            self.next = Some(next);
            if self.parts.now.len() >= TASKS_AT_ONCE {
                self.tell_some().await;
            }
        }
        while !self.parts.now.is_empty() {
            self.tell_some().await;
        }
        Ok(self.parts.again())
    }

    /// Publishes the events first. A trace is made only once the events of its Task are sent.
    async fn tell_some(&mut self) {
        let (gate, some) = (self.gate, self.parts.take());
        let (untold, mut ended): (Vec<_>, Vec<_>) =
            some.into_iter().partition(|(_, part)| part.after < part.last);
        let told = each(untold, |key, part| tell_of(gate, key, part)).await;
        let has_settled = settle(&gate.intake).await;
        for ((key, part), is_told) in told {
            match is_told && has_settled {
                true => ended.extend(part.ended.map(|_| (key, part.told()))),
                false => self.parts.fail(key, part),
            }
        }
        if ended.is_empty() {
            return;
        }
        let before = self.lost().await;
        let traced = match before {
            Some(_) => each(ended, |key, part| trace_of(gate, key, part.last)).await,
            None => ended.into_iter().map(|it| (it, false)).collect(),
        };
        let is_taken = before.is_some() && self.lost().await == before;
        for ((key, part), is_traced) in traced {
            if !is_traced || !is_taken {
                self.parts.fail(key, part);
            }
        }
    }

    /// As [`lost_of`]; once the collector has not answered, this does not wait for it again.
    async fn lost(&mut self) -> Option<u64> {
        unless_it_hangs(&mut self.hangs, lost_of(self.gate)).await
    }
}

/// The answer; none from then on, once it was none.
async fn unless_it_hangs<T>(
    hangs: &mut bool,
    answer: impl Future<Output = Option<T>>,
) -> Option<T> {
    if *hangs {
        return None;
    }
    let answer = answer.await;
    *hangs = answer.is_none();
    answer
}

async fn tell_of(gate: &Gate, key: TaskKey, part: Part) -> Result<(), Rejection> {
    let Part { after, last, ended } = part;
    let _turn = gate.event_reads.acquire().await; // It is never closed.
    let events = gate.scheduler.read_again(&key, after, last).await?;
    tell(gate, &key, events).await;
    let task_id = key.task_id.clone();
    hint(gate, &key, Changed { task_id, version: last, ended }).await;
    Ok(())
}

async fn trace_of(gate: &Gate, key: TaskKey, last: u64) -> Result<(), Rejection> {
    let _turn = gate.event_reads.acquire().await; // As above.
    gate.scheduler.observe_again(&key, last).await
}

/// Does the work for each Task, some at a time. Answers whether it succeeded.
async fn each<D: Future<Output = Result<(), Rejection>>>(
    all: Vec<(TaskKey, Part)>,
    work: impl Fn(TaskKey, Part) -> D,
) -> Vec<((TaskKey, Part), bool)> {
    let mut begun = Vec::with_capacity(all.len());
    for (key, part) in all {
        let done = work(key.clone(), part);
        begun.push(async move {
            let done = done.await;
            if let Err(error) = &done {
                tracing::debug!(task = %key, %error, "a task is not told of again");
            }
            ((key, part), done.is_ok())
        });
    }
    stream::iter(begun).buffer_unordered(READ_AT_ONCE).collect().await
}

#[cfg(test)]
mod tests {
    use tenure_testkit::conformance::History;

    use super::*;

    /// Commits of one Task are published together: from where the log was published, up to the last
    /// commit, with the Task's end.
    #[test]
    fn commits_of_a_task_are_told_of_together() {
        let (mut parts, key) = (DueParts::default(), History::of("s", "t").key);
        let ends = [None, Some(TaskStatus::Failed), None];
        for (at, ended) in (4..).zip(ends) {
            parts.note(Stored { key: key.clone(), after: at, last: at + 1, ended });
        }
        let whole = Part { after: 4, last: 7, ended: Some(TaskStatus::Failed) };
        assert_eq!(parts.take(), [(key, whole)]);
        assert_eq!(parts.take(), []);
    }

    /// RECOVER-08: only what failed is published again. Where watchers have the events, only the
    /// end is traced.
    #[test]
    fn what_failed_alone_is_told_once_more() {
        let mut parts = DueParts::default();
        let key = |n: usize| History::of("s", &format!("t{n}")).key;
        let ended = Some(TaskStatus::Completed);
        for n in 0..3 {
            parts.note(Stored { key: key(n), after: 4, last: 7, ended });
        }
        for (of, part) in parts.take() {
            if of == key(1) {
                parts.fail(of, part);
            } else if of == key(2) {
                parts.fail(of, part.told());
            }
        }
        parts.fail(key(1), Part { after: 7, last: 9, ended: None });
        assert_eq!((parts.now.len(), parts.again()), (0, 2));
        let mut again = parts.take();
        again.sort_by_key(|(_, part)| part.after);
        let (untold, untraced) =
            (Part { after: 4, last: 9, ended }, Part { after: 7, last: 7, ended });
        assert_eq!(again, [(key(1), untold), (key(2), untraced)]);
        assert_eq!(parts.again(), 0);

        (0..FAILED_MAX + 5).for_each(|n| parts.fail(key(n), untold));
        assert_eq!((parts.again(), parts.now.len()), (FAILED_MAX as u64 + 5, FAILED_MAX));
    }

    /// A collector that hangs delays the publishing of the past once, however much there is.
    #[tokio::test(start_paused = true)]
    async fn who_hangs_is_waited_for_once() {
        let (mut hangs, begun) = (false, Instant::now());
        assert_eq!(unless_it_hangs(&mut hangs, async { Some(1) }).await, Some(1));
        for _ in 0..5 {
            let never = async { timeout(GIVEN_UP, std::future::pending::<u64>()).await.ok() };
            assert_eq!(unless_it_hangs(&mut hangs, never).await, None);
        }
        assert_eq!(begun.elapsed(), GIVEN_UP);
    }

    /// RECOVER-08: this holds also when nothing more is lost.
    #[test]
    fn no_mark_passes_what_was_lost_until_it_is_given_up() {
        let begun = Instant::now();
        for (missed, untraced) in [(Some(3), Some(0)), (Some(0), Some(2)), (Some(3), Some(2))] {
            let mut last_published = LastPublished::new(begun);
            assert!(last_published.passes(Some(0), Some(0), begun + EVERY), "nothing is lost yet");
            let given_up = begun + EVERY + GIVEN_UP;
            let mut now = begun + 2 * EVERY;
            while now < given_up {
                assert!(!last_published.passes(missed, untraced, now), "{missed:?}, {untraced:?}");
                now += EVERY;
            }
            assert!(last_published.passes(missed, untraced, given_up), "{missed:?}, {untraced:?}");
            assert!(last_published.passes(missed, untraced, given_up + EVERY), "it counts no more");
        }
    }

    /// RECOVER-08: events are published when the server has them, and traces when the collector has
    /// taken them.
    #[test]
    fn what_is_not_known_to_be_out_waits() {
        for (missed, untraced) in [(None, Some(0)), (Some(0), None), (None, None)] {
            let begun = Instant::now();
            let mut last_published = LastPublished::new(begun);
            assert!(!last_published.passes(missed, untraced, begun + EVERY));
            assert!(last_published.passes(Some(0), Some(0), begun + 2 * EVERY));
            let given_up = begun + 2 * EVERY + GIVEN_UP;
            assert!(!last_published.passes(missed, untraced, given_up - EVERY));
            assert!(last_published.passes(missed, untraced, given_up), "it is given up");
        }
    }
}
