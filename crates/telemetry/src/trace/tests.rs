use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceFlags};
use opentelemetry_sdk::trace::SpanData;
use smol_str::SmolStr;
use tenure_core::id::{AgentId, AttemptId, HandlerName, PoolId, SessionId, StepId, TaskId};
use tenure_core::status::{Outcome, TaskStatus};
use uuid::Uuid;

use super::*;

fn attempt(n: u128, ordinal: u32, outcome: Outcome, previous: Option<usize>) -> EndedAttempt {
    let start = i64::from(ordinal) * 1_000;
    let code = (outcome != Outcome::Completed).then(|| SmolStr::new(format!("code_{n}")));
    EndedAttempt {
        attempt_id: AttemptId(Uuid::from_u128(n)),
        step_id: StepId::new("a").unwrap(),
        handler: HandlerName::new("exec").unwrap(),
        pool: PoolId::new("default").unwrap(),
        worker_id: AgentId::new("w-1").unwrap(),
        ordinal,
        outcome: Some(outcome),
        code,
        ready_at: start - 400,
        started_at: start,
        handler_at: (outcome == Outcome::Failed).then_some(start + 100),
        ended_at: start + 300,
        previous,
    }
}

/// A Task with a Step that was lost, failed after its worker had reported its start, and then
/// completed.
fn task() -> EndedTask {
    EndedTask {
        session_id: SessionId::new("main").unwrap(),
        task_id: TaskId::new("t").unwrap(),
        kind: Some("report".into()),
        parent: None,
        status: TaskStatus::Completed,
        code: None,
        created_at: 500,
        ended_at: 4_000,
        steps: 1,
        attempts: vec![
            attempt(1, 1, Outcome::Lost, None),
            attempt(2, 2, Outcome::Failed, Some(0)),
            attempt(3, 3, Outcome::Completed, Some(1)),
        ],
    }
}

fn made(task: &EndedTask) -> Vec<SpanData> {
    spans(task, &InstrumentationScope::builder("test").build()).collect()
}

fn text(span: &SpanData, key: &str) -> String {
    let found = span.attributes.iter().find(|it| it.key.as_str() == key);
    found.map(|it| it.value.to_string()).unwrap_or_default()
}

#[test]
fn a_task_has_a_span_and_each_attempt_one_below_it_with_its_parts() {
    let task = task();
    let spans = made(&task);
    let names: Vec<_> = spans.iter().map(|span| span.name.as_ref()).collect();
    let held = ["attempt exec", "queue", "lease"];
    let ran = ["attempt exec", "queue", "lease", "handler"];
    assert_eq!(
        names,
        [&["task"][..], &held, &ran, &held].concat(),
        "one worker said when it began"
    );
    let root = &spans[0];
    assert_eq!((root.parent_span_id, root.parent_span_is_remote), (SpanId::INVALID, false));
    let mut attempt = root;
    for span in &spans {
        assert_eq!(span.span_context.trace_id(), root.span_context.trace_id());
        assert_eq!(span.span_context.trace_flags(), TraceFlags::SAMPLED);
        if span.name.starts_with("attempt ") {
            attempt = span;
            assert_eq!(span.parent_span_id, root.span_context.span_id());
        } else if span != root {
            assert_eq!(span.parent_span_id, attempt.span_context.span_id());
            assert!(span.start_time >= attempt.start_time && span.end_time <= attempt.end_time);
        }
    }
    let millis = |at: std::time::SystemTime| at.duration_since(std::time::UNIX_EPOCH).unwrap();
    let times = |at: usize| {
        (millis(spans[at].start_time).as_millis(), millis(spans[at].end_time).as_millis())
    };
    let of_second = [4, 5, 6, 7].map(times);
    assert_eq!(of_second, [(1_600, 2_300), (1_600, 2_000), (2_000, 2_300), (2_100, 2_300)]);
}

#[test]
fn what_went_wrong_is_an_error_with_a_code_and_attempts_name_each_other() {
    let task = task();
    let spans = made(&task);
    let attempts: Vec<_> = spans.iter().filter(|it| it.name.starts_with("attempt")).collect();
    let outcomes: Vec<_> = attempts.iter().map(|it| text(it, "tenure.outcome")).collect();
    assert_eq!(outcomes, ["lost", "failed", "completed"]);
    let errors: Vec<_> = attempts.iter().map(|it| it.status.clone()).collect();
    assert_eq!(errors, [Status::error("code_1"), Status::error("code_2"), Status::Unset]);
    let links: Vec<Vec<_>> = attempts
        .iter()
        .map(|it| it.links.iter().map(|to| to.span_context.span_id()).collect())
        .collect();
    let ids: Vec<_> = attempts.iter().map(|it| it.span_context.span_id()).collect();
    assert_eq!(links, [vec![ids[1]], vec![ids[0], ids[2]], vec![ids[1]]]);
}

/// What tools for messaging look for. It begins with the claim, as a waiting Step is not being
/// processed.
#[test]
fn an_attempt_in_the_hands_of_its_worker_is_a_message_from_its_pool() {
    let spans = made(&task());
    let (attempt, lease) = (&spans[1], &spans[3]);
    assert_eq!((&attempt.span_kind, &lease.span_kind), (&SpanKind::Internal, &SpanKind::Consumer));
    assert_eq!((&*lease.name, &lease.status), ("lease", &Status::error("code_1")));
    let said = ["system", "destination.name", "operation.name", "operation.type", "message.id"]
        .map(|name| text(lease, &format!("messaging.{name}")));
    let id = AttemptId(Uuid::from_u128(1)).to_string();
    assert_eq!(said, ["tenure", "default", "lease", "process", id.as_str()]);
}

#[test]
fn two_owners_make_the_same_trace() {
    assert_eq!(made(&task()), made(&task()));
    let mut ids: Vec<_> = made(&task()).iter().map(|it| it.span_context.span_id()).collect();
    ids.sort_by_key(|id| id.to_bytes());
    ids.dedup();
    assert_eq!(ids.len(), 11, "no two spans share an id");
}

#[test]
fn below_a_span_of_its_maker_a_task_is_a_part_of_that_trace() {
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let spans = made(&EndedTask { parent: ParentSpan::parse(parent), ..task() });
    assert_eq!(spans[0].parent_span_id.to_string(), "00f067aa0ba902b7");
    assert!(spans[0].parent_span_is_remote);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    assert!(spans.iter().all(|it| it.span_context.trace_id().to_string() == trace));
    assert_eq!(spans[1].parent_span_id, spans[0].span_context.span_id());
    assert_eq!(spans[1].span_context.span_id(), made(&task())[1].span_context.span_id());
}

#[test]
fn a_failed_task_is_an_error_and_a_cancelled_one_is_none() {
    let failed = EndedTask { status: TaskStatus::Failed, code: Some("x".into()), ..task() };
    assert_eq!(made(&failed)[0].status, Status::error("x"));
    let cancelled = EndedTask { status: TaskStatus::Cancelled, code: Some("x".into()), ..task() };
    assert_eq!(made(&cancelled)[0].status, Status::Unset);
}
