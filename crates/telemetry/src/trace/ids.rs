//! Makes the ids of traces and spans from the ids of Tasks and Attempts.

use opentelemetry::trace::{SpanId, TraceId};
use sha2::{Digest as _, Sha256};
use tenure_core::id::{AttemptId, SessionId, TaskId};

use super::ParentSpan;

/// The trace of a Task: that of its maker's span, or its own.
pub fn trace_of(session: &SessionId, task: &TaskId, parent: Option<ParentSpan>) -> TraceId {
    parent.map_or_else(|| TraceId::from_bytes(digest("trace", session, task)), |it| it.trace)
}

/// The span of a Task.
pub fn task_span(session: &SessionId, task: &TaskId) -> SpanId {
    SpanId::from_bytes(digest("task", session, task))
}

/// The span of an Attempt: the second half of its id, which is unlike all others in its Task. Each claim names it,
/// and a digest would take longer.
pub fn attempt_span(attempt: AttemptId) -> SpanId {
    SpanId::from(attempt.0.as_u64_pair().1.max(1)) // That of zeros alone is invalid.
}

/// The span of a part of an Attempt, by its name.
pub fn part_span(part: &str, attempt: AttemptId) -> SpanId {
    SpanId::from_bytes(hash(&[part.as_bytes(), attempt.0.as_bytes()]))
}

fn digest<const N: usize>(what: &str, session: &SessionId, task: &TaskId) -> [u8; N] {
    hash(&[what.as_bytes(), session.as_str().as_bytes(), task.as_str().as_bytes()])
}

/// The first bytes of a SHA-256 over the parts with a zero byte behind each. Ids of zeros alone are
/// invalid, and are avoided.
fn hash<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
        hasher.update([0]);
    }
    let mut out = [0; N];
    out.iter_mut().zip(hasher.finalize()).for_each(|(to, from)| *to = from);
    out[N - 1] |= u8::from(out == [0; N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_everywhere_and_for_ever() {
        let (session, task) = (SessionId::new("main").unwrap(), TaskId::new("t-1").unwrap());
        // printf 'trace\0main\0t-1\0' | sha256sum
        let trace = trace_of(&session, &task, None);
        assert_eq!(trace.to_string(), hex("trace\0main\0t-1\0")[..32]);
        assert_eq!(task_span(&session, &task).to_string(), hex("task\0main\0t-1\0")[..16]);
        let other = SessionId::new("mai").unwrap();
        let shifted = TaskId::new("nt-1").unwrap();
        assert_ne!(trace, trace_of(&other, &shifted, None), "parts do not run together");
    }

    fn hex(text: &str) -> String {
        Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn an_attempt_and_its_parts_have_spans_of_their_own() {
        let id = "019ad0f2-5c3e-7aaa-8bbb-0123456789ab".parse().unwrap();
        assert_eq!(attempt_span(AttemptId(id)).to_string(), "8bbb0123456789ab");
        assert_ne!(attempt_span(AttemptId(uuid::Uuid::nil())), SpanId::INVALID);
        let attempt = AttemptId(uuid::Uuid::from_u128(7));
        assert_ne!(attempt_span(attempt), part_span("queue", attempt));
        assert_ne!(part_span("lease", attempt), part_span("queue", attempt));
        assert_ne!(attempt_span(attempt), attempt_span(AttemptId(uuid::Uuid::from_u128(8))));
    }
}
