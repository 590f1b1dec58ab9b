//! Makes the trace of an ended Task: a pure function of its log.
//!
//! This reads no clock, and ids follow from ids: two owners that both saw a Task end make the same
//! spans. If the maker of the Task named a span of its own (W3C `traceparent`), the Task is a part
//! of that trace, below that span; otherwise it is a trace of its own.

mod ended;
mod ids;
mod notes;
mod parent;
mod run;
mod sampler;
mod spans;
mod text;

#[cfg(test)]
mod tests;

pub use ended::{EndedAttempt, EndedTask};
pub use ids::{attempt_span, part_span, task_span, trace_of};
pub use notes::{EventOfTask, EventsOfTask};
pub(crate) use notes::{SpanPlace, TraceNotes};
pub use parent::ParentSpan;
pub use run::EndedRun;
pub use sampler::Sampler;
pub use spans::{SpansOf, spans};

use smol_str::{SmolStr, format_smolstr};
use tenure_core::id::AttemptId;
use tenure_core::view::View;

/// The traceparent of an Attempt's own span, below which its handler's spans go.
pub fn traceparent(task: &View<'_>, attempt: AttemptId, sampler: Sampler) -> SmolStr {
    let head = task.head();
    let parent = head.trace.as_deref().and_then(ParentSpan::parse);
    let trace = trace_of(&head.spec.session_id, &head.spec.task_id, parent);
    let flags = u8::from(sampler.takes(trace, parent));
    format_smolstr!("00-{trace}-{}-{flags:02x}", attempt_span(attempt))
}
