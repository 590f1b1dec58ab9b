//! QUERY: `agent.task_query_steps`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views;
use common::*;
use tenure_core::command::{RunOutcome, Why};
use tenure_core::event::LeaseEnd;
use tenure_core::status::{Role, StepStatus, TaskStatus};
use tenure_core::view::query::{PAGE_DEFAULT, WORK_DEFAULT};
use tenure_core::view::{Known, QueryInput, StepPage, query_ready, query_steps};
use tenure_core::{Caller, Code, Command, Limits, Rejection};
use views::*;

fn query(t: &Fixture, caller: &Caller, input: &QueryInput) -> Result<StepPage, Rejection> {
    query_steps(&t.task.durable(), caller, input, &known(), &t.limits)
}

fn ids(page: &StepPage) -> String {
    page.steps.iter().map(|s| s.spec.step_id.as_str()).collect::<Vec<_>>().join(" ")
}

fn all() -> QueryInput {
    QueryInput { include_terminal_steps: true, ..QueryInput::default() }
}

fn ready() -> QueryInput {
    QueryInput { statuses: Some(vec![StepStatus::Ready]), ..QueryInput::default() }
}

fn asked(t: &Fixture, caller: &Caller, input: &QueryInput) -> String {
    ids(&query(t, caller, input).expect("the query is in order"))
}

/// QUERY-01, PERM-15: orchestrators and observers of the session see every Step; another session
/// sees none.
#[test]
fn whoever_sees_the_whole_task_sees_every_step() {
    let mut t = Fixture::manual("a b@gpu c<-a");
    let held = t.claim("a");
    for who in [orchestrator(), observer(), system()] {
        assert_eq!(asked(&t, &who, &all()), "a b c");
    }
    let page = query(&t, &orchestrator(), &all()).unwrap();
    let holder = page.steps[0].holder.as_ref().expect("a is held");
    assert_eq!(holder.claimed_by_run_id, held.run_id);
    let session_id = "elsewhere".parse().unwrap();
    let stranger = Caller { session_id, ..orchestrator() };
    assert_eq!(query(&t, &stranger, &all()).unwrap_err().code, Code::PermissionDenied);
    let sub_agent = caller("sub", Role::SubAgent);
    assert_eq!(query(&t, &sub_agent, &all()).unwrap_err().code, Code::ToolNotAvailable);
}

/// QUERY-02: an ended Task can be queried, and nothing changes by it.
#[test]
fn an_ended_task_is_read_only() {
    let mut t = Fixture::auto("a");
    t.do_step("a");
    let before = t.task.clone();
    assert_eq!(asked(&t, &orchestrator(), &all()), "a");
    assert_eq!(t.task, before);
}

/// QUERY-03, QUERY-04: a worker sees the Steps of its Run's pool and list, and the Step it holds
/// even after it left the scope.
#[test]
fn a_worker_sees_its_scope_and_what_it_holds() {
    let mut t = Fixture::manual("a b@gpu c d<-a");
    let free = t.dispatch("main");
    assert_eq!(asked(&t, &worker("ant", "main", Some(free)), &all()), "a c d");
    let bound = t.dispatch_for("main", Some(&["b", "c", "d"]));
    assert_eq!(asked(&t, &worker("ant", "main", Some(bound)), &all()), "c d");
    let held = t.claim("c");
    let moved = json!([
        {"op": "update_step", "step_id": "c", "fields": {"worker_pool_id": "gpu"}},
        {"op": "update_step", "step_id": "d", "fields": {"worker_pool_id": "gpu"}},
    ]);
    t.ok(t.patch(moved));
    assert_eq!(asked(&t, &held.caller(), &all()), "a c", "c is still held, d has left the scope");
    assert_eq!(asked(&t, &worker("ant", "main", Some(bound)), &all()), "");
}

/// QUERY-05, PERM-16: a Run of another Task, an unknown one, another pool's and another worker's
/// are refused in the same words.
#[test]
fn a_worker_without_a_run_here_is_refused_alike() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch("main");
    let held = t.claim("a");
    let mut other = Fixture::manual("x");
    other.dispatch("main");
    let foreign = {
        other.dispatch("main");
        other.dispatch("main");
        other.dispatch("main")
    };
    let refused = [
        worker("ant", "main", None),
        worker("ant", "main", Some(foreign)),
        worker("ant", "gpu", Some(run)),
        worker("bee", "main", Some(held.run_id)),
    ];
    let mut answers = refused.map(|who| query(&t, &who, &all()).unwrap_err());
    assert_eq!(answers[0].code, Code::PermissionDenied);
    answers.sort_by(|a, b| a.message.cmp(&b.message));
    assert!(answers.iter().all(|a| *a == answers[0]), "{answers:?}");
}

/// QUERY-06: statuses, pool and holder filter, and all of them together.
#[test]
fn filters_narrow_the_answer() {
    let mut t = Fixture::manual("a b@gpu c d<-c e@gpu");
    t.claim_by("ant", "a");
    t.claim_by("bee", "b");
    let by = |input: QueryInput| asked(&t, &orchestrator(), &input);
    let statuses = Some(vec![StepStatus::Claimed, StepStatus::Pending]);
    assert_eq!(by(QueryInput { statuses: statuses.clone(), ..all() }), "a b d");
    assert_eq!(by(QueryInput { worker_pool_id: Some(pool_id("gpu")), ..all() }), "b e");
    assert_eq!(by(QueryInput { claimed_by_agent_id: Some(agent_id("bee")), ..all() }), "b");
    let claimed_by_agent_id = Some(agent_id("ant"));
    let worker_pool_id = Some(pool_id("gpu"));
    assert_eq!(by(QueryInput { claimed_by_agent_id, worker_pool_id, ..all() }), "");
}

/// QUERY-07: settled Steps are left out unless asked for, also when their status is named.
#[test]
fn settled_steps_need_to_be_asked_for() {
    let mut t = Fixture::manual("a b c d");
    t.do_step("a");
    t.bring("b", StepStatus::Failed);
    t.bring("c", StepStatus::Cancelled);
    assert_eq!(asked(&t, &orchestrator(), &QueryInput::default()), "d");
    let statuses = Some(vec![StepStatus::Completed, StepStatus::Failed, StepStatus::Cancelled]);
    let named = QueryInput { statuses, ..QueryInput::default() };
    assert_eq!(asked(&t, &orchestrator(), &named), "");
    let asked_for = QueryInput { include_terminal_steps: true, ..named };
    assert_eq!(asked(&t, &orchestrator(), &asked_for), "a b c");
}

/// QUERY-08, QUERY-15: pages of 50, or as asked; `next_offset` and `truncated` say that there is
/// more, and only then.
#[test]
fn pages_follow_limit_and_offset() {
    let notation: Vec<String> = (0..120).map(|n| format!("s{n}")).collect();
    let t = Fixture::manual(&notation.join(" "));
    let first = query(&t, &orchestrator(), &QueryInput::default()).unwrap();
    assert_eq!((first.steps.len(), first.truncated), (PAGE_DEFAULT, true));
    assert_eq!(first.next_offset, Some(50));
    let last = QueryInput { offset: 100, ..QueryInput::default() };
    let last = query(&t, &orchestrator(), &last).unwrap();
    assert_eq!((last.steps.len(), last.truncated, last.next_offset), (20, false, None));
    let exact = QueryInput { offset: 20, limit: Some(100), ..QueryInput::default() };
    let exact = query(&t, &orchestrator(), &exact).unwrap();
    assert_eq!((exact.steps.len(), exact.truncated, exact.next_offset), (100, false, None));
    for limit in [0, t.limits.page_max + 1] {
        let wrong = QueryInput { limit: Some(limit), ..QueryInput::default() };
        let no = query(&t, &orchestrator(), &wrong).unwrap_err();
        assert_eq!((no.code, no.details["field"].as_str()), (Code::ValidationError, Some("limit")));
    }
}

/// QUERY-06: all statuses may be named; more than there are would only cost.
#[test]
fn statuses_are_no_more_than_there_are() {
    let t = Fixture::manual("a b");
    let named = |statuses: Vec<StepStatus>| {
        let input = QueryInput { statuses: Some(statuses), ..QueryInput::default() };
        query(&t, &orchestrator(), &input)
    };
    assert_eq!(named(StepStatus::ALL.to_vec()).unwrap().steps.len(), 2);
    let no = named([StepStatus::ALL, &[StepStatus::Ready]].concat()).unwrap_err();
    assert_eq!((no.code, no.details["field"].as_str()), (Code::ValidationError, Some("statuses")));
}

/// QUERY-09, QUERY-10: oldest first, ties by position; status and edits change nothing in that.
#[test]
fn the_order_is_that_of_creation() {
    let mut t = Fixture::manual("z m a");
    t.ok(t.patch(json!([{"op": "add_step", "step": {"step_id": "b", "title": "", "summary": "",
        "depends_on_step_ids": []}}])));
    t.bring("m", StepStatus::Running);
    t.bring("a", StepStatus::Blocked);
    assert_eq!(asked(&t, &orchestrator(), &all()), "z m a b");
    let page = query(&t, &orchestrator(), &all()).unwrap();
    let keys: Vec<_> = page.steps.iter().map(|s| (s.created_at, s.position)).collect();
    assert!(keys.is_sorted(), "{keys:?}");
}

/// QUERY-11: a worker that looks for work finds ready Steps of its pool alone, and none that only
/// another may claim.
#[test]
fn a_worker_finds_ready_steps_of_its_pool_only() {
    let mut t = Fixture::manual("a b@gpu c<-a d e f");
    t.claim("d");
    t.bring("e", StepStatus::Blocked);
    let mine = json!([{"op": "update_step", "step_id": "f", "fields": {"claim_only_by": "bee"}}]);
    t.ok(t.patch(mine));
    let run = t.dispatch("main");
    assert_eq!(asked(&t, &worker("ant", "main", Some(run)), &ready()), "a");
    assert_eq!(asked(&t, &worker("bee", "main", Some(run)), &ready()), "a f");
}

/// QUERY-11: many handlers in one pool: the order is still that of creation.
#[test]
fn work_of_several_handlers_comes_in_creation_order() {
    let mut given = create_input("a b c d e");
    for (step, handler) in given.steps.iter_mut().zip(["x", "y", "x", "z", "y"]) {
        step.handler = Some(handler.parse().unwrap());
    }
    let mut t = Fixture::create(given, tenure_core::status::Policy::Manual);
    let run = t.dispatch("main");
    let input = QueryInput { offset: 1, limit: Some(3), ..ready() };
    assert_eq!(asked(&t, &worker("ant", "main", Some(run)), &input), "b c d");
}

/// QUERY-12: five Steps for a worker that looks for work; any other query has the general default.
#[test]
fn a_worker_that_looks_for_work_gets_five() {
    let notation: Vec<String> = (0..9).map(|n| format!("s{n}")).collect();
    let mut t = Fixture::manual(&notation.join(" "));
    let run = t.dispatch("main");
    let ant = worker("ant", "main", Some(run));
    let page = query(&t, &ant, &ready()).unwrap();
    assert_eq!((page.steps.len(), page.next_offset), (WORK_DEFAULT, Some(5)));
    assert_eq!(query(&t, &ant, &QueryInput::default()).unwrap().steps.len(), 9);
    assert_eq!(query(&t, &orchestrator(), &ready()).unwrap().steps.len(), 9);
    let more = QueryInput { limit: Some(7), ..ready() };
    assert_eq!(query(&t, &ant, &more).unwrap().steps.len(), 7);
}

/// QUERY-13: `allowed_step_ids` narrow it further, and a Step in scope that is not ready stays out.
#[test]
fn the_list_of_the_run_narrows_the_work() {
    let mut t = Fixture::manual("a b c<-a");
    let run = t.dispatch_for("main", Some(&["b", "c"]));
    assert_eq!(asked(&t, &worker("ant", "main", Some(run)), &ready()), "b");
}

/// A lease that ended is judged before; what it held is found again.
#[test]
fn a_step_of_an_ended_lease_is_found_again() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let run = t.dispatch("main");
    let ant = worker("ant", "main", Some(run));
    assert_eq!(asked(&t, &ant, &ready()), "");
    let attempt_ids = vec![held.attempt_id];
    t.ok_as(&system(), Command::ExpireLeases { attempt_ids, reason: LeaseEnd::LeaseExpired });
    assert_eq!(asked(&t, &ant, &ready()), "a");
}

/// QUERY-15, DISP-12: an empty answer to a worker that looks for work says so; no other does.
#[test]
fn an_empty_answer_says_that_there_is_no_work() {
    let mut t = Fixture::manual("a b@gpu");
    let run = t.dispatch("gpu");
    let gpu = worker("gnu", "gpu", Some(run));
    assert_eq!(query(&t, &gpu, &ready()).unwrap().no_step_available, None);
    t.bring("b", StepStatus::Blocked);
    let page = query(&t, &gpu, &ready()).unwrap();
    assert_eq!((page.no_step_available, page.version), (Some(true), t.task.version()));
    assert_eq!(page.task_status, None);
    assert_eq!(
        query(&t, &gpu, &QueryInput { offset: 5, ..ready() }).unwrap().no_step_available,
        None
    );
    let blocked = QueryInput { statuses: Some(vec![StepStatus::Running]), ..all() };
    assert_eq!(query(&t, &gpu, &blocked).unwrap().no_step_available, None);
    let page = query(&t, &orchestrator(), &blocked).unwrap();
    assert_eq!((page.steps.len(), page.no_step_available), (0, None));
}

/// QUERY-16: a worker that looks for work learns that its Run has ended; what it may read, it still reads.
#[test]
fn nothing_is_looked_for_under_a_run_that_has_ended() {
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    let ant = worker("ant", POOL, Some(run));
    let looks = |t: &Fixture, who| query_ready(&t.task.durable(), who, 0, &known(), &t.limits);
    assert_eq!(ids(&looks(&t, &ant).unwrap()), "a");
    let other = worker("ant", "gpu", Some(run));
    assert_eq!(looks(&t, &other).unwrap_err().code, Code::PermissionDenied);
    t.ok(cancel_run(run));
    assert_eq!(looks(&t, &ant).unwrap_err().code, Code::RunEnded);
    assert_eq!(looks(&t, &other).unwrap_err().code, Code::PermissionDenied, "it learns nothing");
    assert_eq!(asked(&t, &ant, &all()), "a");
}

/// VIEW-16, TASK-13: where a Task gives out nothing, a worker that looks for work finds none, and learns
/// that its Run does not end for that: it is offered again later.
#[test]
fn a_task_that_gives_out_nothing_shows_nothing_to_claim() {
    let stops: [(Command, &str); 4] = [
        (Command::PauseTask(Why::default()), "paused"),
        (block_task(), "blocked"),
        (cancel_task(), "running"),
        (fail_task(), "running"),
    ];
    for (stop, status) in stops {
        let mut t = Fixture::manual("a b");
        let held = t.claim("b");
        let run = t.dispatch(POOL);
        let ant = worker("ant", POOL, Some(run));
        assert_eq!(asked(&t, &ant, &ready()), "a");
        t.ok(stop);
        let page = query(&t, &ant, &ready()).unwrap();
        assert_eq!((page.steps.len(), page.no_step_available), (0, Some(false)), "{status}");
        assert_eq!(page.task_status.unwrap().as_str(), status);
        assert!(t.run_of(run).is_unused());
        let own = QueryInput { claimed_by_agent_id: Some(agent_id(WORKER)), ..all() };
        assert_eq!(asked(&t, &held.caller(), &own), "b", "a holder sees its Step");
    }
    let mut t = Fixture::manual("a");
    let run = t.dispatch(POOL);
    t.ok(Command::PauseTask(Why::default()));
    t.ok(Command::ResumeTask(Why::default()));
    assert_eq!(asked(&t, &worker("ant", POOL, Some(run)), &ready()), "a");
    t.ok(cancel_task());
    let page = query(&t, &worker("ant", POOL, Some(run)), &ready()).unwrap();
    assert_eq!(
        (page.no_step_available, page.task_status),
        (Some(false), Some(TaskStatus::Cancelled))
    );
}

/// VIEW-16, CLAIM-01, CLAIM-03: under a Run that may not claim any more a worker finds nothing to claim.
#[test]
fn a_run_that_is_used_up_shows_nothing_to_claim() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    let (ended, expired) = (t.dispatch(POOL), t.dispatch(POOL));
    let ant = t.member("ant", ended);
    t.ok_as(&ant, end_run(ended, RunOutcome::Finished));
    let known = Known::new(t.run_of(expired).expires_at.unwrap(), &alive);
    let limits = Limits::default();
    for run in [held.run_id, ended, expired] {
        let caller = worker("ant", POOL, Some(run));
        let page = query_steps(&t.task.durable(), &caller, &ready(), &known, &limits).unwrap();
        assert_eq!((page.steps.len(), page.no_step_available), (0, Some(true)), "{run}");
    }
}

/// TASK-18, TASK-19: a query of the whole Task says whether it is stalled or completeable.
#[test]
fn diagnostics_come_with_a_query() {
    let mut t = Fixture::manual("a b?<-a");
    let now = |t: &Fixture| query(t, &orchestrator(), &all()).unwrap().diagnostics.unwrap();
    assert!(!now(&t).stalled && !now(&t).completeable);
    t.bring("a", StepStatus::Failed);
    assert!(now(&t).stalled && !now(&t).completeable);
    t.write("a", StepStatus::Pending);
    t.do_step("a");
    assert!(!now(&t).stalled && now(&t).completeable);
    let run = t.dispatch("main");
    assert_eq!(query(&t, &worker("ant", "main", Some(run)), &all()).unwrap().diagnostics, None);
}

/// WAL-11: a query writes nothing and names no field that its input does not have.
#[test]
fn the_input_is_closed() {
    let input: QueryInput = serde_json::from_value(json!({
        "statuses": ["ready"], "worker_pool_id": "main", "limit": 3, "offset": 1,
        "claimed_by_agent_id": "ant", "include_terminal_steps": true,
    }))
    .unwrap();
    assert_eq!((input.limit, input.offset), (Some(3), 1));
    assert!(serde_json::from_value::<QueryInput>(json!({"order": "priority"})).is_err());
}
