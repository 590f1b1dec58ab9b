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
pub use spans::TaskTrace;

use opentelemetry::trace::{SpanId, TraceId};
use smol_str::SmolStr;
use tenure_core::id::AttemptId;
use tenure_core::view::View;

/// The traceparent of an Attempt's own span, below which its handler's spans go.
pub fn traceparent(task: &View<'_>, attempt: AttemptId, sampler: Sampler) -> SmolStr {
    let head = task.head();
    let parent = head.trace.as_deref().and_then(ParentSpan::parse);
    let trace = trace_of(&head.spec.session_id, &head.spec.task_id, parent);
    written(trace, attempt_span(attempt), sampler.takes(trace, parent))
}

/// A `traceparent` of W3C. Each claim has one, and `format!` takes several times as long.
fn written(trace: TraceId, span: SpanId, is_sampled: bool) -> SmolStr {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = *b"00-................................-................-00";
    let bytes = [&trace.to_bytes()[..], &span.to_bytes()[..]];
    for (at, bytes) in [3, 36].into_iter().zip(bytes) {
        for (to, byte) in text[at..].chunks_exact_mut(2).zip(bytes) {
            to[0] = DIGITS[usize::from(byte >> 4)];
            to[1] = DIGITS[usize::from(byte & 15)];
        }
    }
    text[54] = b'0' + u8::from(is_sampled);
    SmolStr::new(str::from_utf8(&text).unwrap_or_default()) // Always text.
}
