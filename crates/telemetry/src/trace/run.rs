//! The span that a worker makes of a handler that it has run.

use std::time::SystemTime;

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use smol_str::SmolStr;
use tenure_core::id::{AgentId, AttemptId, HandlerName, PoolId, SessionId, StepId, TaskId};
use tenure_ports::observer::{HandlerEnd, HandlerRun};

use super::spans::{failed, messaging, of_step, text};
use super::{ParentSpan, part_span};
use crate::names;

/// A handler that has run, in a Task whose trace is sent. Its span is made later, on the thread that sends it.
#[derive(Debug, Clone)]
pub struct EndedRun {
    trace: TraceId,
    session_id: SessionId,
    task_id: TaskId,
    step_id: StepId,
    handler: HandlerName,
    pool: PoolId,
    attempt_id: AttemptId,
    ordinal: u32,
    worker_id: AgentId,
    begun: SystemTime,
    ended: SystemTime,
    end: HandlerEnd,
    code: Option<SmolStr>,
}

impl EndedRun {
    /// The facts of a run; none if its Task becomes no trace.
    pub fn of(run: &HandlerRun<'_>) -> Option<Self> {
        let claim = run.claim;
        let attempt = claim.trace.as_deref().and_then(ParentSpan::parse)?;
        attempt.is_sampled.then(|| Self {
            trace: attempt.trace,
            session_id: claim.session_id.clone(),
            task_id: claim.task_id.clone(),
            step_id: claim.step.step_id.clone(),
            handler: claim.step.handler.clone(),
            pool: claim.step.worker_pool_id.clone(),
            attempt_id: claim.attempt_id,
            ordinal: claim.ordinal,
            worker_id: run.worker.clone(),
            begun: run.begun,
            ended: run.begun + run.took,
            end: run.end,
            code: run.code.map(SmolStr::new),
        })
    }

    /// Its span: below that of the lease, as whoever got the message is below who sent it.
    pub fn span(&self, scope: &InstrumentationScope) -> SpanData {
        let span = part_span(names::SPAN_RUN, self.attempt_id);
        let mut attributes = Vec::with_capacity(16);
        attributes.extend([
            text(names::SESSION_ID, self.session_id.as_str()),
            text(names::TASK_ID, self.task_id.as_str()),
            text(names::STEP_ID, self.step_id.as_str()),
            text(names::HANDLER, self.handler.as_str()),
            text(names::POOL, self.pool.as_str()),
            text(names::ATTEMPT_ID, &self.attempt_id.to_string()),
            KeyValue::new(names::ORDINAL, i64::from(self.ordinal)),
            text(names::WORKER_ID, self.worker_id.as_str()),
            KeyValue::new(names::RUN_END, self.end.as_str()),
        ]);
        attributes.extend(messaging(&self.pool, self.attempt_id, names::OPERATION_PROCESS));
        attributes.push(text(names::MESSAGING_CLIENT, self.worker_id.as_str()));
        let mut status = Status::Unset;
        if self.end == HandlerEnd::Failed {
            let code = self.code.as_deref().unwrap_or("failed");
            attributes.push(text(names::ERROR, code));
            status = failed(code);
        }
        SpanData {
            span_context: SpanContext::new(
                self.trace,
                span,
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            ),
            parent_span_id: self.parent(),
            parent_span_is_remote: true,
            span_kind: SpanKind::Consumer,
            name: of_step(names::SPAN_RUN, &self.step_id, &self.handler).into(),
            start_time: self.begun,
            end_time: self.ended,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status,
            instrumentation_scope: scope.clone(),
        }
    }

    fn parent(&self) -> SpanId {
        part_span(names::SPAN_LEASE, self.attempt_id)
    }
}
