//! The observer: it counts what a scheduler and a worker do, and puts ended Tasks into the queue
//! for traces.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::KeyValue;
use smol_str::SmolStr;
use tenure_core::event::Body;
use tenure_core::id::{AttemptId, Millis, PoolId};
use tenure_core::task::Attempt;
use tenure_core::view::{ClaimResult, View};
use tenure_core::{Code, Commit, Rejection, RejectionKind, Task};
use tenure_ports::Observer;
use tenure_ports::observer::{Called, HandlerRun, LeaseCall, LinkEnd, WorkerObserver};
use tokio::sync::oneshot;

use crate::belonging::TraceOwners;
use crate::counts::Instruments;
use crate::exemplars::{Exemplar, Exemplars};
use crate::export::queue::ExportQueue;
use crate::names::{self, Metric};
use crate::trace::{
    self, EndedRun, EndedTask, EventOfTask, ParentSpan, Sampler, SpanPlace, TraceNotes,
};

/// The observer of a scheduler or a worker.
#[derive(Debug)]
pub(crate) struct SchedulerWatch {
    /// None: no metrics are exported.
    pub(crate) counts: Option<Arc<Instruments>>,
    /// None: nobody reads exemplars, or no traces are exported.
    pub(crate) exemplars: Option<Arc<Exemplars>>,
    /// None: no traces are exported.
    pub(crate) traces: Option<ExportQueue>,
    /// None: nothing that names traces is exported.
    pub(crate) belonging: Option<Arc<TraceOwners>>,
    pub(crate) sampler: Sampler,
    /// What happens to Tasks beside their Attempts.
    pub(crate) notes: TraceNotes,
}

impl Observer for SchedulerWatch {
    fn appended(&self, task: &Task, commits: &[Arc<Commit>]) {
        if let (Some(belonging), Some(1)) =
            (&self.belonging, commits.first().map(|it| it.first_seq))
        {
            belonging.note(&task.durable());
        }
        if let Some(counts) = &self.counts {
            let exemplars = self.exemplars.as_deref();
            let place = OnceCell::new(); // Ids are digests: most commits measure nothing.
            let traced = || *place.get_or_init(|| self.traced(task));
            for commit in commits {
                count(counts, task, commit, exemplars.map(|all| (all, &traced as _)));
            }
        }
        self.note(task, commits);
        let ends = |commit: &Arc<Commit>| commit.events.iter().any(|event| is_end(&event.body));
        if commits.iter().any(ends) {
            self.trace(task);
        }
    }

    fn opened(&self, task: &Task) {
        if let Some(belonging) = &self.belonging {
            belonging.note(&task.durable());
        }
        if let Some(place) = self.traced(task) {
            self.notes.open(place, now_ms());
        }
    }

    fn ended_before(&self, task: &Task) {
        self.trace(task);
    }

    fn taken(&self) -> Option<oneshot::Receiver<u64>> {
        self.traces.as_ref().map(ExportQueue::taken)
    }

    fn refused(&self, rejection: &Rejection) {
        let Some(counts) = &self.counts else { return };
        counts.note_refused(rejection.code, 1);
        let is_overload = rejection.kind() == Some(RejectionKind::Overloaded);
        if rejection.code == Code::Unavailable && is_overload {
            counts.overloaded.add(1, &[]);
        }
    }

    fn wrote(&self, called: Called) {
        let Some(counts) = &self.counts else { return };
        counts.append_time.record(called.took.as_secs_f64(), failure(called));
        counts.append_size.record(called.items as u64, &[]);
    }

    fn held_up(&self, waited: Duration) {
        static LATE: std::sync::LazyLock<[KeyValue; 1]> =
            std::sync::LazyLock::new(|| [KeyValue::new(names::ERROR, "timeout")]);
        if let Some(counts) = &self.counts {
            counts.append_time.record(waited.as_secs_f64(), &*LATE);
        }
    }

    fn leased(&self, call: LeaseCall, called: Called) {
        let Some(counts) = &self.counts else { return };
        counts.tally.note_leases(&counts.lease_time, call, called);
    }

    fn expired(&self, attempt: AttemptId, late: Duration) {
        if self.traces.is_some() {
            let late = Millis::try_from(late.as_millis()).unwrap_or(Millis::MAX);
            self.notes.note_lost(attempt, now_ms().saturating_sub(late));
        }
        if let Some(counts) = &self.counts {
            counts.late.record(late.as_secs_f64(), &[]);
        }
    }

    fn framed(&self, called: Called) {
        let Some(counts) = &self.counts else { return };
        counts.frame_time.record(called.took.as_secs_f64(), failure(called));
        counts.frame_size.record(called.items as u64, &[]);
    }

    fn took_over(&self, took: Duration) {
        if let Some(counts) = &self.counts {
            counts.takeovers.record(took.as_secs_f64(), &[]);
        }
    }

    fn answered(&self, operation: &'static str, took: Duration, refused: Option<Code>) {
        let Some(counts) = &self.counts else { return };
        let (took, times) = (took.as_secs_f64(), &counts.request_time);
        match refused {
            None => counts.tally.note_answer(times, operation, took),
            Some(code) => {
                let name = KeyValue::new(names::OPERATION, operation);
                times.record(took, &[name, KeyValue::new(names::ERROR, code.as_str())]);
            }
        }
    }

    fn parted(&self, why: LinkEnd) {
        if let Some(counts) = &self.counts {
            counts.note_parted(why, 1);
        }
    }

    fn trace_of(&self, task: &View<'_>, attempt: AttemptId) -> Option<SmolStr> {
        if let Some(belonging) = &self.belonging {
            // The Task may have been forgotten since it was created or opened.
            belonging.note(task);
        }
        self.traces.as_ref().map(|_| trace::traceparent(task, attempt, self.sampler))
    }
}

impl WorkerObserver for SchedulerWatch {
    fn granted(&self, claim: &ClaimResult) {
        if let Some(belonging) = &self.belonging {
            belonging.note_claim(claim);
        }
    }

    fn ran(&self, run: HandlerRun<'_>) {
        if let Some(queue) = &self.traces
            && let Some(ended) = EndedRun::of(&run)
            && let Some(capacity) = queue.capacity_for(0)
        {
            queue.put_run(ended, capacity);
        }
    }

    fn heartbeat(&self, called: Called) {
        if let Some(counts) = &self.counts {
            counts.heartbeats.record(called.took.as_secs_f64(), failure(called));
        }
    }
}

impl SchedulerWatch {
    /// Notes what commits say beside Attempts, if the Task becomes a trace.
    fn note(&self, task: &Task, commits: &[Arc<Commit>]) {
        let is_new = commits.first().is_some_and(|commit| commit.first_seq == 1);
        let is_noted = |commit: &&Arc<Commit>| EventOfTask::is_in(commit);
        if self.traces.is_none() || !(is_new || commits.iter().any(|it| is_noted(&it))) {
            return;
        }
        let Some(place) = self.traced(task) else { return };
        if is_new {
            self.notes.begin(place);
        }
        for commit in commits.iter().filter(is_noted) {
            self.notes.note(place, commit);
        }
    }

    /// The trace and the span of a Task, if they are sent.
    fn traced(&self, task: &Task) -> Option<SpanPlace> {
        self.traces.as_ref()?;
        let spec = &task.head().spec;
        let parent = task.head().trace.as_deref().and_then(ParentSpan::parse);
        let trace = trace::trace_of(&spec.session_id, &spec.task_id, parent);
        let is_taken = self.sampler.takes(trace, parent);
        is_taken.then(|| (trace, trace::task_span(&spec.session_id, &spec.task_id)))
    }

    /// Has the trace of an ended Task made and sent, if it is sampled.
    fn trace(&self, task: &Task) {
        let Some(queue) = &self.traces else { return };
        if self.traced(task).is_some()
            && let Some(capacity) = queue.capacity_for(task.durable().attempts_len())
            && let Some(ended) = EndedTask::of(task, &self.notes)
        {
            queue.put(ended, capacity);
        }
    }
}

/// Counts what a commit says. `traced` says where the trace of the Task is, if it is sent: exemplars name it then.
fn count(
    counts: &Instruments,
    task: &Task,
    commit: &Commit,
    traced: Option<(&Exemplars, &dyn Fn() -> Option<SpanPlace>)>,
) {
    let exemplar = |metric: Metric, attributes: &[KeyValue], value: f64, of: Option<AttemptId>| {
        let Some((all, place)) = traced else { return };
        let Some((trace, root)) = place() else { return };
        let span = of.map_or(root, trace::attempt_span);
        all.note(metric, attributes, Exemplar { trace, span, value, at: commit.created_at });
    };
    let tally = &counts.tally;
    if commit.first_seq == 1 {
        tally.note_created();
    }
    for event in &commit.events {
        tally.note(&event.body);
        match &event.body {
            Body::StepClaimed(claim) => {
                let Some(attempt) = task.attempt(claim.attempt_id) else { continue };
                let pool = tally.of(pool(task, attempt));
                let waited = seconds(attempt.ready_at, attempt.started_at);
                let pool = pool.note_claim(&counts.queue_time, waited);
                exemplar(names::QUEUE_TIME, pool, waited, Some(attempt.attempt_id));
            }
            body if is_end(body) => {
                let head = task.head();
                let took = seconds(head.created_at, commit.created_at);
                let status = tally.note_end(&counts.task_time, head.status, took);
                exemplar(names::TASK_TIME, status, took, None);
            }
            body => {
                let ended = ended_attempt(body).and_then(|id| task.attempt(id));
                let Some((attempt, outcome)) = ended.and_then(|it| Some((it, it.outcome?))) else {
                    continue;
                };
                // The processor seldom has these two in its cache. Cloning both first has it fetch them together.
                let (pool, handler) =
                    (pool(task, attempt).clone(), task.step_at(attempt.step).spec.handler.clone());
                let pool = tally.of(&pool);
                let took = seconds(attempt.started_at, commit.created_at);
                let ended = pool.note_end(&counts.run_time, outcome, took);
                exemplar(names::RUN_TIME, ended, took, Some(attempt.attempt_id));
                let code = attempt.failure().map(|reason| &*reason.code);
                counts.handlers.note(handler.as_str(), outcome, took, code);
            }
        }
    }
}

/// The time by the machine's clock, as logs have it.
fn now_ms() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

fn pool<'a>(task: &'a Task, attempt: &Attempt) -> &'a PoolId {
    &task.run_at(attempt.run).worker_pool_id
}

fn is_end(body: &Body) -> bool {
    matches!(body, Body::TaskCompleted(_) | Body::TaskFailed(_) | Body::TaskCancelled(_))
}

/// The Attempt that an event ends.
fn ended_attempt(body: &Body) -> Option<AttemptId> {
    match body {
        Body::StepBlocked(p) => p.attempt_id,
        Body::StepCompleted(p) => p.attempt_id,
        Body::StepFailed(p) => p.attempt_id,
        Body::StepCancelled(p) => p.attempt_id,
        Body::StepLeaseExpired(p) => Some(p.attempt_id),
        _ => None,
    }
}

fn failure(called: Called) -> &'static [KeyValue] {
    static FAILED: std::sync::LazyLock<[KeyValue; 1]> =
        std::sync::LazyLock::new(|| [KeyValue::new(names::ERROR, names::CALL_FAILED)]);
    if called.is_ok { &[] } else { &*FAILED }
}

#[allow(clippy::cast_precision_loss)] // A time in seconds.
fn seconds(from: Millis, to: Millis) -> f64 {
    to.saturating_sub(from).max(0) as f64 / 1_000.0
}
