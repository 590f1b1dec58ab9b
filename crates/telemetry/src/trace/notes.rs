//! What happens to live Tasks beside their Attempts, for the events of their spans: pauses, reopenings, takeovers.
//!
//! The state of an ended Task does not say these any more, so they are noted as they become durable. Only Tasks that
//! become traces are noted, and only so many. Every lost Attempt is noted, as it is not known there whether its Task
//! becomes a trace.

use std::collections::HashMap;
use std::mem;

use opentelemetry::trace::TraceId;
use parking_lot::Mutex;
use smol_str::SmolStr;
use tenure_core::Commit;
use tenure_core::event::{Body, StepReopened};
use tenure_core::id::{AttemptId, Millis, StepId};

use crate::names;

/// How many Tasks are noted, and how many lost Attempts: half of them at least. Some 100 bytes each.
const NOTED_MAX: usize = 16_384;

/// How many events are kept of a Task.
pub(super) const EVENTS_MAX: usize = 128;

/// Something that happened to a Task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventOfTask {
    /// The name of the event.
    pub name: &'static str,
    /// When it happened.
    pub at: Millis,
    /// The Step that it is about.
    pub step_id: Option<StepId>,
    /// Why, as a code.
    pub code: Option<SmolStr>,
}

impl EventOfTask {
    pub(crate) const fn new(name: &'static str, at: Millis) -> Self {
        Self { name, at, step_id: None, code: None }
    }

    /// The event of a Task's span that an event of the log is; `None` if it is none.
    fn of(body: &Body, at: Millis, step_id: Option<&StepId>) -> Option<Self> {
        let (name, code) = match body {
            Body::TaskPaused(stopped) => (names::EVENT_PAUSED, Some(&stopped.reason.code)),
            Body::TaskResumed(_) => (names::EVENT_RESUMED, None),
            Body::TaskBlocked(stopped) => (names::EVENT_BLOCKED, Some(&stopped.reason.code)),
            Body::TaskReopened(_) => (names::EVENT_REOPENED, None),
            Body::TaskCancelRequested(asked) => {
                (names::EVENT_CANCEL_REQUESTED, Some(&asked.reason.code))
            }
            Body::StepReopened(reopened) if !is_retry(reopened) => {
                (names::EVENT_STEP_REOPENED, Some(&reopened.reason.code))
            }
            _ => return None,
        };
        Some(Self { name, at, step_id: step_id.cloned(), code: code.cloned() })
    }

    /// Whether a commit has such an event.
    pub(crate) fn is_in(commit: &Commit) -> bool {
        commit.events.iter().any(|event| match &event.body {
            Body::TaskPaused(_)
            | Body::TaskResumed(_)
            | Body::TaskBlocked(_)
            | Body::TaskReopened(_)
            | Body::TaskCancelRequested(_) => true,
            Body::StepReopened(reopened) => !is_retry(reopened),
            _ => false,
        })
    }
}

/// Whether the Step's own policy tries it again. The span of its wait says that: events of many retries would
/// crowd out the others.
fn is_retry(reopened: &StepReopened) -> bool {
    reopened.reason.code == "auto_retry"
}

/// What has happened to live Tasks whose traces will be sent.
#[derive(Debug, Default)]
pub(crate) struct TraceNotes {
    /// By the span of the Task, as it is at hand and short.
    tasks: Mutex<Generations<SpanPlace, EventsOfTask>>,
    lost: Mutex<Generations<AttemptId, Millis>>,
}

/// A Task by its trace, and by its own span in it.
pub(crate) type SpanPlace = (TraceId, opentelemetry::trace::SpanId);

/// What happened to one Task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventsOfTask {
    /// The events, in their order: the first of them.
    pub events: Vec<EventOfTask>,
    /// How many more there were.
    pub left_out: u32,
}

impl EventsOfTask {
    pub(crate) fn push(&mut self, event: EventOfTask) {
        match self.events.len() < EVENTS_MAX {
            true => self.events.push(event),
            false => self.left_out += 1,
        }
    }
}

impl TraceNotes {
    /// Notes a Task that this process has made.
    pub(crate) fn begin(&self, task: SpanPlace) {
        self.tasks.lock().entry(task);
    }

    /// Notes that this process has read a Task from its log. If it did not know the Task, it has taken it over.
    pub(crate) fn open(&self, task: SpanPlace, now: Millis) {
        let mut tasks = self.tasks.lock();
        let is_known = tasks.has(&task);
        let events = tasks.entry(task);
        if !is_known {
            events.push(EventOfTask::new(names::EVENT_TAKEN_OVER, now));
        }
    }

    /// Notes what a commit says.
    pub(crate) fn note(&self, task: SpanPlace, commit: &Commit) {
        let mut tasks = self.tasks.lock();
        let events = tasks.entry(task);
        for event in &commit.events {
            let noted = EventOfTask::of(&event.body, commit.created_at, event.step_id.as_ref());
            noted.into_iter().for_each(|it| events.push(it));
        }
    }

    /// What happened to a Task that has ended.
    pub(crate) fn take(&self, task: SpanPlace) -> EventsOfTask {
        self.tasks.lock().remove(&task).unwrap_or_default()
    }

    /// Notes when the lease of an Attempt was over.
    pub(crate) fn note_lost(&self, attempt: AttemptId, over_at: Millis) {
        *self.lost.lock().entry(attempt) = over_at;
    }

    /// When the lease of a lost Attempt was over, if this process has found that.
    pub(crate) fn lease_end(&self, attempt: AttemptId) -> Option<Millis> {
        self.lost.lock().remove(&attempt)
    }
}

/// A map that forgets the older half of its entries when it is full.
#[derive(Debug)]
struct Generations<K, V> {
    new: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self { new: HashMap::new(), old: HashMap::new() }
    }
}

impl<K: std::hash::Hash + Eq, V: Default> Generations<K, V> {
    fn has(&self, key: &K) -> bool {
        self.new.contains_key(key) || self.old.contains_key(key)
    }

    /// The entry of a key, which is there afterwards.
    fn entry(&mut self, key: K) -> &mut V {
        let known = self.remove(&key);
        if self.new.len() >= NOTED_MAX / 2 {
            self.old = mem::take(&mut self.new);
        }
        let entry = self.new.entry(key).or_default();
        if let Some(known) = known {
            *entry = known;
        }
        entry
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        self.new.remove(key).or_else(|| self.old.remove(key))
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::SpanId;
    use tenure_core::record::Reason;
    use tenure_core::status::StepStatus;

    use super::*;

    fn place(n: u64) -> SpanPlace {
        (TraceId::from(u128::from(n) + 1), SpanId::from(n + 1))
    }

    #[test]
    fn only_a_task_that_another_had_is_taken_over() {
        let notes = TraceNotes::default();
        notes.begin(place(0));
        notes.open(place(0), 5);
        assert_eq!(notes.take(place(0)), EventsOfTask::default(), "it was read again");
        notes.open(place(1), 7);
        notes.open(place(1), 9);
        let taken = EventOfTask::new("taken over", 7);
        assert_eq!(notes.take(place(1)).events, [taken]);
        assert_eq!(notes.take(place(1)), EventsOfTask::default(), "it is forgotten then");
    }

    #[test]
    fn a_retry_is_no_event_and_an_answer_is_one() {
        let reopened = |code: &str| {
            let reason = Reason::code(code);
            let (from, not_before, input_refs) = (StepStatus::Failed, None, Vec::new());
            let counters_reset = false;
            let event = StepReopened { from, reason, not_before, input_refs, counters_reset };
            EventOfTask::of(&Body::StepReopened(Box::new(event)), 7, None)
        };
        assert_eq!(reopened("auto_retry"), None);
        let answered = reopened("input_received").unwrap();
        assert_eq!(
            (answered.name, answered.code.as_deref()),
            ("step reopened", Some("input_received"))
        );
    }

    #[test]
    fn what_is_known_of_a_task_outlasts_others() {
        let notes = TraceNotes::default();
        notes.open(place(0), 7);
        for n in 1..NOTED_MAX as u64 * 3 {
            notes.begin(place(n));
            notes.begin(place(0));
        }
        assert_eq!(notes.take(place(0)).events.len(), 1);
    }

    #[test]
    fn what_is_noted_has_a_bound() {
        let notes = TraceNotes::default();
        for n in 0..NOTED_MAX as u64 * 3 {
            notes.begin(place(n));
        }
        let tasks = notes.tasks.lock();
        assert!(tasks.new.len() + tasks.old.len() <= NOTED_MAX);
        assert!(tasks.has(&place(NOTED_MAX as u64 * 3 - 1)));
        drop(tasks);
        let mut events = EventsOfTask::default();
        (0..200).for_each(|at| events.push(EventOfTask::new("paused", at)));
        assert_eq!((events.events.len(), events.left_out), (EVENTS_MAX, 200 - 128));
    }
}
