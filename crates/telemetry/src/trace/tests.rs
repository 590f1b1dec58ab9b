use std::sync::Arc;

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanId, SpanKind, Status, TraceFlags};
use opentelemetry_sdk::trace::SpanData;
use smol_str::SmolStr;
use tenure_core::event::ReleaseReason;
use tenure_core::id::{AgentId, AttemptId, HandlerName, PoolId, RunId, SessionId, StepId, TaskId};
use tenure_core::record::StepSpec;
use tenure_core::status::{Outcome, TaskStatus, WaitKind};
use tenure_core::view::ClaimResult;
use tenure_ports::observer::{HandlerEnd, HandlerRun};
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
        is_retried: matches!(outcome, Outcome::Failed | Outcome::Lost),
        waited_for: None,
        given_back: None,
        heard_at: (outcome == Outcome::Lost).then_some(start + 120),
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
        title: "Report of the\nday".into(),
        events: EventsOfTask::default(),
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
    let scope = InstrumentationScope::builder("test").build();
    let (trace, mut spans) = (TaskTrace::of(task.clone(), &scope), Vec::new());
    for part in 0..trace.parts() {
        let before = spans.len();
        trace.put(part, &mut spans);
        assert!((1..=TaskTrace::SPANS_MAX).contains(&(spans.len() - before)));
    }
    trace.put(trace.parts(), &mut spans); // There is no such part.
    spans
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
    let held = ["attempt a (exec)", "queue", "lease"];
    let (waits, ran) = (["wait a (retry)"], ["handler"]);
    assert_eq!(
        names,
        [&["task report"][..], &held, &waits, &held, &waits, &ran, &held].concat(),
        "one worker said when it began, and there was a backoff after each failure"
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
        } else if span.name.starts_with("wait ") {
            assert_eq!(span.parent_span_id, root.span_context.span_id());
            assert_eq!(
                (span.start_time, text(span, "tenure.step.id")),
                (attempt.end_time, "a".into())
            );
        } else if span != root {
            assert_eq!(span.parent_span_id, attempt.span_context.span_id());
            assert!(span.start_time >= attempt.start_time && span.end_time <= attempt.end_time);
        }
    }
    let millis = |at: std::time::SystemTime| at.duration_since(std::time::UNIX_EPOCH).unwrap();
    let times = |at: usize| {
        (millis(spans[at].start_time).as_millis(), millis(spans[at].end_time).as_millis())
    };
    let of_second = [5, 6, 7, 9].map(times);
    assert_eq!(of_second, [(1_600, 2_300), (1_600, 2_000), (2_000, 2_300), (2_100, 2_300)]);
    assert_eq!([4, 8].map(times), [(1_300, 1_600), (2_300, 2_600)], "the waits between them");
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
fn an_attempt_in_the_hands_of_its_worker_is_a_message_to_its_pool() {
    let spans = made(&task());
    let (attempt, lease) = (&spans[1], &spans[3]);
    assert_eq!((&attempt.span_kind, &lease.span_kind), (&SpanKind::Internal, &SpanKind::Producer));
    assert_eq!((&*lease.name, &lease.status), ("lease", &Status::error("code_1")));
    let said = ["system", "destination.name", "operation.name", "operation.type", "message.id"]
        .map(|name| text(lease, &format!("messaging.{name}")));
    let id = AttemptId(Uuid::from_u128(1)).to_string();
    assert_eq!(said, ["tenure", "default", "lease", "send", id.as_str()]);
}

/// The moment from which nobody knows what a lost worker did.
#[test]
fn a_lost_lease_has_the_time_of_its_last_heartbeat() {
    let spans = made(&task());
    let events: Vec<_> =
        spans.iter().flat_map(|it| it.events.iter().map(move |e| (it, e))).collect();
    let [(lease, event)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((&*lease.name, &*event.name), ("lease", "last heartbeat"));
    let at = event.timestamp.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(at.as_millis(), 1_120);
}

/// Almost half of all Attempts were errors once, as workers give back what they have no room for.
#[test]
fn what_a_worker_gives_back_in_good_order_is_no_error_and_says_why() {
    for (why, is_error) in [
        (ReleaseReason::Surplus, false),
        (ReleaseReason::Draining, false),
        (ReleaseReason::Unfit, true),
        (ReleaseReason::Fenced, true),
    ] {
        let mut task = task();
        let back = attempt(1, 1, Outcome::Abandoned, None);
        task.attempts[0] = EndedAttempt { given_back: Some(why), ..back };
        let spans = made(&task);
        for span in [&spans[1], &spans[3]] {
            assert_eq!(span.status != Status::Unset, is_error, "{why}: {}", span.name);
            assert_eq!(text(span, "error.type").is_empty(), !is_error, "{why}: {}", span.name);
        }
        assert_eq!(text(&spans[1], "tenure.release.reason"), why.as_str());
        let events: Vec<_> = spans[1].events.iter().map(|event| &*event.name).collect();
        assert_eq!(events, ["given back"]);
    }
}

#[test]
fn a_step_that_waits_for_somebody_is_a_span_that_says_for_what() {
    let mut task = task();
    task.attempts.truncate(1);
    let waits = attempt(1, 1, Outcome::Blocked, None);
    task.attempts[0] = EndedAttempt { waited_for: Some(WaitKind::Input), ..waits };
    let spans = made(&task);
    let wait = spans.iter().find(|span| span.name == "wait a (input)").unwrap();
    assert_eq!(text(wait, "tenure.reason"), "input");
    assert_eq!(wait.end_time, spans[0].end_time, "nobody has answered");
}

#[test]
fn what_happened_to_a_task_beside_its_attempts_is_an_event_within_it() {
    let mut task = task();
    let step_id = StepId::new("never").ok();
    let code = Some(SmolStr::new("dependency_failed"));
    task.events.push(EventOfTask::new("paused", 100)); // A clock that was set.
    task.events.push(EventOfTask { step_id, code, ..EventOfTask::new("step cancelled", 4_000) });
    task.events.left_out = 7;
    let root = &made(&task)[0];
    let names: Vec<_> = root.events.iter().map(|event| &*event.name).collect();
    assert_eq!((names, root.events.dropped_count), (vec!["paused", "step cancelled"], 7));
    assert_eq!(root.events[0].timestamp, root.start_time);
    let said: Vec<_> = root.events[1].attributes.iter().map(|it| it.value.to_string()).collect();
    assert_eq!(said, ["never", "dependency_failed"]);
}

/// Titles are what people write.
#[test]
fn a_task_without_a_kind_is_named_by_its_title_in_one_short_line() {
    let named = |title: &str| {
        let task = EndedTask { kind: None, title: title.into(), ..task() };
        made(&task)[0].name.to_string()
    };
    assert_eq!(named("Report of the\nday\u{1b}[1m"), "task Report of the day[1m");
    assert_eq!(named(""), "task");
    assert_eq!(named(&"x".repeat(5_000)).chars().count(), 5 + 81);
}

/// The worker is a service of its own: its span is below the lease that was sent to it.
#[test]
fn a_handler_is_a_span_of_its_worker_below_the_lease() {
    let spans = made(&task());
    let (attempt, lease) = (&spans[1], &spans[3]);
    let ids = (attempt.span_context.trace_id(), attempt.span_context.span_id());
    let run = |flags: &str, end, code| {
        let claim = claim(AttemptId(Uuid::from_u128(1)), format!("00-{}-{}-{flags}", ids.0, ids.1));
        let worker = AgentId::new("w-1").unwrap();
        let begun = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
        let took = std::time::Duration::from_millis(250);
        let run = HandlerRun { worker: &worker, claim: &claim, begun, took, end, code };
        EndedRun::of(&run).map(|it| it.span(&InstrumentationScope::builder("test").build()))
    };
    assert!(run("00", HandlerEnd::Completed, None).is_none(), "the task is no trace");
    let span = run("01", HandlerEnd::Completed, None).unwrap();
    assert_eq!((&*span.name, &span.status), ("run a (exec)", &Status::Unset));
    assert_eq!(span.span_context.trace_id(), ids.0);
    assert_eq!(span.parent_span_id, lease.span_context.span_id());
    assert!(spans.iter().all(|it| it.span_context.span_id() != span.span_context.span_id()));
    assert_eq!(span.span_kind, SpanKind::Consumer);
    assert_eq!(span.end_time.duration_since(span.start_time).unwrap().as_millis(), 250);
    let said = ["operation.name", "operation.type", "client.id"];
    let said = said.map(|name| text(&span, &format!("messaging.{name}")));
    assert_eq!(said, ["run", "process", "w-1"]);
    let span = run("01", HandlerEnd::Failed, Some("exit_code")).unwrap();
    assert_eq!(
        (&span.status, text(&span, "error.type")),
        (&Status::error("exit_code"), "exit_code".into())
    );
}

/// A claim of a Step for a handler `exec`.
fn claim(attempt_id: AttemptId, trace: String) -> ClaimResult {
    let step = StepSpec {
        step_id: StepId::new("a").unwrap(),
        handler: HandlerName::new("exec").unwrap(),
        worker_pool_id: PoolId::new("default").unwrap(),
        title: "a".into(),
        summary: SmolStr::default(),
        depends_on_step_ids: Vec::new(),
        inputs_from: None,
        required: true,
        input: None,
        retry_policy: None,
        assignee: None,
        claim_only_by: None,
        ext: None,
    };
    ClaimResult {
        session_id: SessionId::new("main").unwrap(),
        task_id: TaskId::new("t").unwrap(),
        run_id: RunId(Uuid::from_u128(9)),
        attempt_id,
        ordinal: 1,
        was_lost: false,
        host_died: false,
        fencing_token: 1,
        lease_expires_at: 0,
        lease_ms: 1_000,
        step: Arc::new(step),
        retry_policy: None,
        dependencies: Vec::new(),
        input_refs: Arc::new([]),
        input_seen: 0,
        checkpoint_refs: Vec::new(),
        instructions: None,
        bindings: None,
        trace: Some(trace.into()),
    }
}

#[test]
fn two_owners_make_the_same_trace() {
    assert_eq!(made(&task()), made(&task()));
    let mut ids: Vec<_> = made(&task()).iter().map(|it| it.span_context.span_id()).collect();
    ids.sort_by_key(|id| id.to_bytes());
    ids.dedup();
    assert_eq!(ids.len(), 13, "no two spans share an id");
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

#[test]
fn a_traceparent_is_written_as_w3c_says() {
    for (trace, span, is_sampled) in [(u128::MAX - 0xfeed, 0xa0_u64, true), (1, u64::MAX, false)] {
        let said = written(
            TraceId::from_bytes(trace.to_be_bytes()),
            SpanId::from_bytes(span.to_be_bytes()),
            is_sampled,
        );
        let flags = u8::from(is_sampled);
        assert_eq!(said, format!("00-{trace:032x}-{span:016x}-{flags:02x}"));
        let read = ParentSpan::parse(&said).unwrap();
        assert_eq!((read.trace.to_bytes(), read.is_sampled), (trace.to_be_bytes(), is_sampled));
    }
}
