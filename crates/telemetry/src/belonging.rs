//! Finds the trace of a log record: that of the Task that the record names.
//!
//! For most Tasks the id of the trace follows from their own ids. The newest of those whose maker put
//! them below a span of its own are remembered.

use std::collections::{HashMap, VecDeque};

use opentelemetry::trace::{SpanId, TraceId};
use parking_lot::Mutex;
use smol_str::{SmolStr, format_smolstr};
use tenure_core::id::{SessionId, TaskId};
use tenure_core::view::{ClaimResult, View};

use crate::trace::{ParentSpan, task_span, trace_of};

/// How many Tasks are remembered: some 100 bytes each.
const REMEMBERED_MAX: usize = 16_384;

/// Traces of Tasks whose maker named a span.
#[derive(Debug, Default)]
pub(crate) struct TraceOwners {
    known: Mutex<TraceIds>,
}

#[derive(Debug, Default)]
struct TraceIds {
    traces: HashMap<SmolStr, TraceId>,
    oldest: VecDeque<SmolStr>,
}

impl TraceOwners {
    /// Remembers a Task if its trace does not follow from its ids.
    pub(crate) fn note(&self, task: &View<'_>) {
        let head = task.head();
        let Some(parent) = head.trace.as_deref().and_then(ParentSpan::parse) else { return };
        self.remember(
            format_smolstr!("{}/{}", head.spec.session_id, head.spec.task_id),
            parent.trace,
        );
    }

    /// Remembers the Task of a claim. The claim's traceparent lies in the trace of the Task.
    pub(crate) fn note_claim(&self, claim: &ClaimResult) {
        let Some(above) = claim.trace.as_deref().and_then(ParentSpan::parse) else { return };
        if above.trace != trace_of(&claim.session_id, &claim.task_id, None) {
            self.remember(format_smolstr!("{}/{}", claim.session_id, claim.task_id), above.trace);
        }
    }

    fn remember(&self, task: SmolStr, trace: TraceId) {
        let known = &mut *self.known.lock();
        if known.traces.insert(task.clone(), trace).is_some() {
            return;
        }
        known.oldest.push_back(task);
        if known.oldest.len() > REMEMBERED_MAX
            && let Some(oldest) = known.oldest.pop_front()
        {
            known.traces.remove(&oldest);
        }
    }

    /// The trace and the span of a Task, which log records name as `session/task`.
    pub(crate) fn of(&self, task: &str) -> Option<(TraceId, SpanId)> {
        let (session, id) = task.rsplit_once('/')?;
        let (session, id) = (SessionId::new(session).ok()?, TaskId::new(id).ok()?);
        let known = self.known.lock().traces.get(task).copied();
        let trace = known.unwrap_or_else(|| trace_of(&session, &id, None));
        Some((trace, task_span(&session, &id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_belongs_to_its_task_and_only_so_many_are_remembered() {
        let (belonging, elsewhere) = (TraceOwners::default(), TraceId::from_bytes([7; 16]));
        let own = belonging.of("main/t-0").unwrap();
        for n in 0..=REMEMBERED_MAX {
            belonging.remember(format_smolstr!("main/t-{n}"), elsewhere);
        }
        assert_eq!(belonging.of("main/t-1").map(|(trace, _)| trace), Some(elsewhere));
        assert_eq!(belonging.of("main/t-0"), Some(own), "the oldest is forgotten");
        assert_eq!(belonging.known.lock().traces.len(), REMEMBERED_MAX);
        assert_eq!(belonging.of("no task"), None);
    }
}
