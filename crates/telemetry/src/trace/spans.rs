//! Makes the spans of an ended Task.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::trace::{
    Event, Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use tenure_core::id::{AttemptId, HandlerName, Millis, PoolId, StepId};
use tenure_core::status::{Outcome, TaskStatus, WaitKind};

use super::text::shown;
use super::{EndedAttempt, EndedTask, attempt_span, part_span, task_span, trace_of};
use crate::names;

/// Why a Step waits that is to be tried again: its backoff, or that somebody makes it ready.
const RETRY: &str = "retry";

/// An ended Task as a trace. Its spans are made in parts: those of a large Task need not be in memory together.
#[derive(Debug)]
pub struct TaskTrace {
    task: EndedTask,
    /// The span of the Task.
    root: SpanContext,
    scope: InstrumentationScope,
    /// For each Attempt the next of its Step.
    next: Vec<Option<usize>>,
}

impl TaskTrace {
    /// How many spans a part has at most: an Attempt's own, those below it, and that of its Step's wait afterwards.
    pub const SPANS_MAX: usize = 5;

    /// The trace of a Task, whose spans are in this scope.
    pub fn of(task: EndedTask, scope: &InstrumentationScope) -> Self {
        let root = SpanContext::new(
            trace_of(&task.session_id, &task.task_id, task.parent),
            task_span(&task.session_id, &task.task_id),
            TraceFlags::SAMPLED,
            false,
            TraceState::NONE,
        );
        let mut next = vec![None; task.attempts.len()];
        for (at, attempt) in task.attempts.iter().enumerate() {
            if let Some(before) = attempt.previous.and_then(|previous| next.get_mut(previous)) {
                *before = Some(at);
            }
        }
        Self { task, root, scope: scope.clone(), next }
    }

    /// How many parts it has: the Task itself, and then each Attempt.
    pub fn parts(&self) -> usize {
        1 + self.task.attempts.len()
    }

    /// Adds the spans of a part; none if there is no such part.
    pub fn put(&self, part: usize, to: &mut Vec<SpanData>) {
        let Some(place) = part.checked_sub(1) else { return to.push(self.of_task()) };
        let Some(of) = self.task.attempts.get(place) else { return };
        let own = attempt_span(of.attempt_id);
        to.push(self.of_attempt(place, of, own));
        to.push(self.part(of, own, names::SPAN_QUEUE, (of.ready_at, of.started_at)));
        to.push(self.lease(of, own));
        to.extend(self.wait_after(place, of));
        let handler = |from| self.part(of, own, names::SPAN_HANDLER, (from, of.ended_at));
        to.extend(of.handler_at.map(handler));
    }

    fn of_task(&self) -> SpanData {
        let task = &self.task;
        let mut attributes = Vec::with_capacity(6);
        attributes.extend([
            text(names::SESSION_ID, task.session_id.as_str()),
            text(names::TASK_ID, task.task_id.as_str()),
            KeyValue::new(names::STATUS, task.status.as_str()),
            KeyValue::new(names::STEPS, count(task.steps)),
            KeyValue::new(names::ATTEMPTS, count(task.attempts.len())),
        ]);
        attributes.extend(task.kind.as_deref().map(|kind| text(names::TASK_KIND, kind)));
        let status = match task.status {
            TaskStatus::Failed => failed(task.code.as_deref().unwrap_or("failed")),
            _ => Status::Unset,
        };
        let context = self.root.clone();
        let mut span = self.span(context, name_of(task).into(), task.created_at, task.ended_at);
        for event in &task.events.events {
            let mut attributes = Vec::new();
            attributes.extend(event.step_id.as_ref().map(|it| text(names::STEP_ID, it.as_str())));
            attributes.extend(event.code.as_deref().map(|code| text(names::CODE, code)));
            let at = event.at.clamp(task.created_at, task.ended_at.max(task.created_at));
            span.events.events.push(Event::new(event.name, time(at), attributes, 0));
        }
        span.events.dropped_count = task.events.left_out;
        span.parent_span_id = task.parent.map_or(SpanId::INVALID, |parent| parent.span);
        span.parent_span_is_remote = task.parent.is_some();
        span.span_kind = SpanKind::Consumer;
        SpanData { attributes, status, ..span }
    }

    fn of_attempt(&self, place: usize, attempt: &EndedAttempt, own: SpanId) -> SpanData {
        let name = of_step(names::SPAN_ATTEMPT, &attempt.step_id, &attempt.handler);
        let context = self.context(own);
        let mut attributes = facts(attempt);
        attributes.extend(attempt.outcome.map(|it| KeyValue::new(names::OUTCOME, it.as_str())));
        let mut links = SpanLinks::default();
        let others = [("previous", attempt.previous), ("next", self.next[place])];
        for (which, other) in others {
            let other = other.and_then(|at| self.task.attempts.get(at));
            links.links.extend(other.map(|other| {
                let context = self.context(attempt_span(other.attempt_id));
                Link::new(context, vec![KeyValue::new(names::LINK, which)], 0)
            }));
        }
        let mut span = self.span(context, name.into(), attempt.ready_at, attempt.ended_at);
        if let Some(why) = attempt.given_back {
            let why = KeyValue::new(names::RELEASE_REASON, why.as_str());
            attributes.push(why.clone());
            let event = Event::new(names::EVENT_GIVEN_BACK, time(attempt.ended_at), vec![why], 0);
            span.events.events.push(event);
        }
        with_error(SpanData { attributes, links, ..span }, attempt)
    }

    /// The span of the time in which the worker has the Attempt, with what tools for messaging look
    /// for: the Attempt is a message that the scheduler has sent.
    fn lease(&self, of: &EndedAttempt, own: SpanId) -> SpanData {
        let mut span = self.part(of, own, names::SPAN_LEASE, (of.started_at, of.ended_at));
        if let Some(heard_at) = of.heard_at {
            let event = Event::new(names::EVENT_HEARTBEAT, time(heard_at), Vec::new(), 0);
            span.events.events.push(event);
        }
        let attributes = messaging(&of.pool, of.attempt_id, names::OPERATION_SEND).into();
        with_error(SpanData { span_kind: SpanKind::Producer, attributes, ..span }, of)
    }

    /// The span of the time in which the Step waited after an Attempt, until it was ready again, or until the
    /// Task ended.
    fn wait_after(&self, place: usize, of: &EndedAttempt) -> Option<SpanData> {
        let next = self.next[place].and_then(|at| self.task.attempts.get(at));
        let reason = match (of.outcome, of.waited_for) {
            (Some(Outcome::Blocked), Some(kind)) => kind.as_str(),
            (Some(Outcome::Blocked), None) => WaitKind::Other.as_str(),
            _ if of.is_retried && next.is_some() => RETRY,
            _ => return None,
        };
        let until = next.map_or(self.task.ended_at, |next| next.ready_at);
        if until <= of.ended_at {
            return None;
        }
        let context = self.context(part_span(names::SPAN_WAIT, of.attempt_id));
        let name = format!("{} {} ({reason})", names::SPAN_WAIT, shown(of.step_id.as_str()));
        let span = self.span(context, name.into(), of.ended_at, until);
        let attributes =
            vec![text(names::STEP_ID, of.step_id.as_str()), KeyValue::new(names::REASON, reason)];
        Some(SpanData { attributes, ..span })
    }

    /// A span below an Attempt's own, which has all other attributes.
    fn part(
        &self,
        of: &EndedAttempt,
        own: SpanId,
        name: &'static str,
        (from, to): (Millis, Millis),
    ) -> SpanData {
        let context = self.context(part_span(name, of.attempt_id));
        let span = self.span(context, name.into(), from, to);
        SpanData { parent_span_id: own, ..span }
    }

    fn context(&self, span: SpanId) -> SpanContext {
        SpanContext::new(self.root.trace_id(), span, TraceFlags::SAMPLED, false, TraceState::NONE)
    }

    /// A span below the Task's.
    fn span(
        &self,
        context: SpanContext,
        name: Cow<'static, str>,
        from: Millis,
        to: Millis,
    ) -> SpanData {
        SpanData {
            span_context: context,
            parent_span_id: self.root.span_id(),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name,
            start_time: time(from),
            end_time: time(to),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// The attributes of an Attempt, with capacity for two more.
fn facts(attempt: &EndedAttempt) -> Vec<KeyValue> {
    let mut facts = Vec::with_capacity(8);
    facts.extend([
        text(names::STEP_ID, attempt.step_id.as_str()),
        text(names::HANDLER, attempt.handler.as_str()),
        text(names::POOL, attempt.pool.as_str()),
        text(names::ATTEMPT_ID, &attempt.attempt_id.to_string()),
        KeyValue::new(names::ORDINAL, i64::from(attempt.ordinal)),
        text(names::WORKER_ID, attempt.worker_id.as_str()),
    ]);
    facts
}

/// The same in the terms of messaging, for an operation of the conventions.
pub(super) fn messaging(
    pool: &PoolId,
    attempt: AttemptId,
    operation: &'static str,
) -> [KeyValue; 5] {
    let name = match operation {
        names::OPERATION_SEND => names::SPAN_LEASE,
        _ => names::SPAN_RUN,
    };
    [
        KeyValue::new(names::MESSAGING_SYSTEM, "tenure"),
        text(names::MESSAGING_DESTINATION, pool.as_str()),
        KeyValue::new(names::MESSAGING_OPERATION, name),
        KeyValue::new(names::MESSAGING_OPERATION_TYPE, operation),
        text(names::MESSAGING_MESSAGE, &attempt.to_string()),
    ]
}

/// The name of the span of a Task: with its kind, or else its title.
fn name_of(task: &EndedTask) -> String {
    let said = task.kind.as_deref().filter(|kind| !kind.is_empty()).unwrap_or(&task.title);
    match shown(said) {
        said if said.is_empty() => names::SPAN_TASK.to_owned(),
        said => format!("{} {said}", names::SPAN_TASK),
    }
}

/// The name of a span about a Step.
pub(super) fn of_step(what: &str, step: &StepId, handler: &HandlerName) -> String {
    format!("{what} {} ({})", shown(step.as_str()), shown(handler.as_str()))
}

/// Marks the span as an error, with a code, if the Attempt went wrong.
fn with_error(mut span: SpanData, attempt: &EndedAttempt) -> SpanData {
    if let Some(
        outcome @ (Outcome::Failed | Outcome::Lost | Outcome::TimedOut | Outcome::Abandoned),
    ) = attempt.outcome
        && !attempt.went_back_in_order()
    {
        let code = attempt.code.as_deref().unwrap_or(outcome.as_str());
        span.attributes.push(text(names::ERROR, code));
        span.status = failed(code);
    }
    span
}

pub(super) fn text(key: &'static str, value: &str) -> KeyValue {
    KeyValue::new(key, value.to_owned())
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn failed(code: &str) -> Status {
    Status::error(code.to_owned())
}

fn time(at: Millis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(at).unwrap_or(0))
}
