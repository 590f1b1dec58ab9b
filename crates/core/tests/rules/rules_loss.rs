//! What becomes of what was lost: late results, outages, hosts that die (REPORT-14, LEASE-14, RETRY-13), and
//! what the first edition knows of it (EVOLVE-01).

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::views::known;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::{Dispatch, GiveBack, Grant, RunOutcome, StepReport};
use tenure_core::event::{Body, LeaseEnd, ReleaseReason};
use tenure_core::record::{Value, WorkerOrigin};
use tenure_core::status::{EndReason, Outcome, Policy, StepStatus, TaskStatus};
use tenure_core::view::AttemptView;
use tenure_core::{Caller, Code, Command, Limits, Rules};

use StepStatus::{Completed, Failed, Pending, Ready};

/// A Task of the first edition.
fn of_first_edition(notation: &str, policy: Policy) -> Fixture {
    let limits = Limits { rules: Rules::First, ..Limits::default() };
    Fixture::try_create(create_input(notation), policy, limits).unwrap()
}

/// A Task with a retry policy whose late results are accepted.
fn accepting(notation: &str) -> Fixture {
    with_policy(notation, json!({"accept_late": true}), Policy::Manual)
}

/// A result with all that a report may say of it.
fn result(held: &Held, output: &str) -> StepReport {
    StepReport {
        status: Some(Completed),
        output: Some(Value::json(output.as_bytes().to_vec())),
        result_summary: Some("it is done".into()),
        output_refs: vec!["mem:o".parse().unwrap()],
        artifact_ids: vec!["art".parse().unwrap()],
        ..held.says()
    }
}

fn says(held: &Held, output: &str) -> Command {
    Command::TaskUpdateStep(result(held, output))
}

/// REPORT-14: nobody has had the Step since, so the late result counts. The Attempt stays lost, the Step is
/// completed, and what depends on it goes on in the same commit.
#[test]
fn a_late_result_of_a_free_step_is_adopted() {
    let mut t = accepting("a b<-a");
    let held = t.claim("a");
    t.start(&held);
    t.lose(&held);
    assert_eq!(t.status("a"), Ready);
    t.ok_as(&held.caller(), says(&held, "1"));
    assert_eq!(t.events(), ["task_step_completed a", "task_step_ready b"]);
    assert_eq!(t.actors(), ["ant", "system"]);
    let payload = t.payload("task_step_completed");
    assert_eq!(payload["attempt_id"], held.attempt_id.to_string());
    assert_eq!((&payload["adopted"], payload.get("outcome")), (&json!(true), None));
    let facts = t.step("a").state.facts();
    assert_eq!(facts.output.as_ref().unwrap().data(), Some(b"1".as_slice()));
    assert_eq!(facts.artifact_ids.len(), 1);
    let attempt = t.attempt_of(&held);
    assert_eq!(attempt.outcome, Some(Outcome::Lost));
    assert_eq!(attempt.error.as_ref().unwrap().code, "lease_expired");
    assert_eq!(attempt.completion_summary.as_deref(), Some("it is done"));
    assert_eq!(attempt.output_refs.len(), 1);
    assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Lost));
    let shown = AttemptView::of(&t.task.durable(), attempt, &known());
    assert_eq!((shown.adopted_at, shown.outcome), (Some(t.now), Some(Outcome::Lost)));
    assert!(shown.ended_at < shown.adopted_at);
}

/// REPORT-14: with completion=auto late results are accepted unless the policy says otherwise, and an adopted
/// one completes the Task; with completion=manual they are not, unless it says so. The Attempt's policy counts.
#[test]
fn the_policy_of_the_attempt_says_whether_late_results_count() {
    let mut t = Fixture::auto("a");
    let held = t.grant("ant", POOL).unwrap();
    t.lose(&held);
    t.complete(&held);
    assert_eq!(t.events(), ["task_step_completed a", "task_completed"]);
    let no = json!({"accept_late": false});
    let refusing = with_policy("a", no.clone(), Policy::Auto);
    for mut t in [Fixture::manual("a"), with_policy("a", json!({}), Policy::Manual), refusing] {
        let held = match t.task.head().spec.dispatch {
            Policy::Auto => t.grant("ant", POOL).unwrap(),
            Policy::Manual => t.claim("a"),
        };
        t.lose(&held);
        t.refuse_as(&held.caller(), held.reports(Completed), Code::StaleAttempt);
    }
    for (then, counts) in [(no, true), (json!({"accept_late": true}), false)] {
        let mut t = with_policy("a", json!({"accept_late": counts}), Policy::Manual);
        let held = t.claim("a");
        t.ok(patch(json!([{"op": "update_task", "retry_policy": then}])));
        t.lose(&held);
        assert_eq!(t.run(&held.caller(), &held.reports(Completed)).is_ok(), counts);
    }
}

/// REPORT-14: what makes a late result void.
type Voids = (&'static str, fn(&mut Fixture, &Held));

const VOIDS: &[Voids] = &[
    ("somebody has the step", |t, _| drop(t.claim_by("bee", "a"))),
    ("somebody had the step", |t, _| {
        let next = t.claim_by("bee", "a");
        t.lose(&next);
    }),
    ("somebody gave the step back", |t, _| {
        let next = t.claim_by("bee", "a");
        t.ok_as(&next.caller(), next.gives_back(GiveBack::because(ReleaseReason::Draining)));
    }),
    ("somebody completed the step", |t, _| {
        let next = t.claim_by("bee", "a");
        t.complete(&next);
    }),
    ("the orchestrator completed the step", |t, _| t.write("a", Completed)),
    ("the orchestrator failed the step", |t, _| t.write("a", Failed)),
    ("the step was reopened", |t, _| {
        t.write("a", StepStatus::Blocked);
        t.ok(write_command("a", Pending));
    }),
    ("another input", |t, _| {
        t.ok(patch(json!([ops::update("a", json!({"input": {"data": "2"}}))])));
    }),
    ("the same input again, but another meanwhile", |t, _| {
        t.ok(patch(json!([ops::update("a", json!({"input": {"data": "2"}}))])));
        t.ok(patch(json!([ops::update("a", json!({"input": null}))])));
    }),
    ("another handler", |t, _| {
        t.ok(patch(json!([ops::update("a", json!({"handler": "other"}))])));
    }),
    ("a dependency that is open", |t, _| {
        t.ok(patch(json!([ops::depend("a", "open")])));
    }),
    ("a dependency that is completed", |t, _| {
        t.ok(patch(json!([ops::depend("a", "done")])));
    }),
    ("a dependency less", |t, _| {
        t.ok(patch(json!([ops::undepend("a", "before")])));
    }),
    ("the step was deleted", |t, _| {
        t.ok(patch(json!([ops::delete("a")])));
    }),
    ("the task is closing", |t, _| {
        t.claim_by("bee", "open");
        t.ok(cancel_task());
        assert!(t.task.is_closing());
    }),
];

/// REPORT-14, REPORT-15: everything else that is late is stale, writes nothing and changes nothing.
#[test]
fn a_late_result_that_may_be_wrong_is_refused() {
    for (why, void) in VOIDS {
        let mut t = accepting("before open done a<-before");
        t.write("before", Completed);
        t.write("done", Completed);
        let held = t.claim("a");
        t.lose(&held);
        void(&mut t, &held);
        let refused = t.run(&held.caller(), &held.reports(Completed)).expect_err(why);
        assert_eq!(refused.code, Code::StaleAttempt, "{why}");
    }
}

/// REPORT-14: a change during the Attempt counts as one after it does.
#[test]
fn a_late_result_of_what_was_changed_meanwhile_is_refused() {
    let mut t = accepting("b a");
    t.write("b", Completed);
    let held = t.claim("a");
    t.ok(patch(json!([ops::depend("a", "b")])));
    t.lose(&held);
    t.refuse_as(&held.caller(), held.reports(Completed), Code::StaleAttempt);
}

/// REPORT-14: what a patch changes beside the work voids no result, nor do pauses and restarts of the owner.
#[test]
fn what_changes_nothing_of_the_work_voids_no_result() {
    let mut t = accepting("b a");
    let held = t.claim("a");
    t.ok(patch(json!([
        ops::update("a", json!({"title": "other", "required": false, "worker_pool_id": "gpu"})),
        ops::depend("a", "b"),
        ops::undepend("a", "b"),
    ])));
    t.lose(&held);
    t.restart();
    t.ok(Command::PauseTask(tenure_core::command::Why::default()));
    t.complete(&held);
    assert_eq!(t.status("a"), Completed);
}

/// REPORT-14: only `completed`, only by the worker with the Attempt's own id and token, and only of a loss.
#[test]
fn only_its_worker_completes_what_was_lost() {
    let mut t = accepting("a");
    let held = t.claim("a");
    t.lose(&held);
    for status in [StepStatus::Running, Failed, StepStatus::Blocked, StepStatus::Cancelled] {
        t.refuse_as(&held.caller(), held.reports(status), Code::StaleAttempt);
    }
    t.refuse_as(&held.caller(), Command::TaskUpdateStep(held.says()), Code::StaleAttempt);
    let wrong = StepReport { fencing_token: Some(held.token + 1), ..result(&held, "1") };
    t.refuse_as(&held.caller(), Command::TaskUpdateStep(wrong), Code::StaleAttempt);
    let bee = worker("bee", POOL, Some(held.run_id));
    t.refuse_as(&bee, held.reports(Completed), Code::PermissionDenied);
    t.complete(&held);
    for end in [LeaseEnd::Released, LeaseEnd::HostRestarted] {
        let mut t = accepting("a");
        let held = t.claim("a");
        t.ok_as(&system(), expire(&[&held], end));
        t.refuse_as(&held.caller(), held.reports(Completed), Code::StaleAttempt);
    }
}

/// REPORT-16: a repeated late result is answered from the commit that adopted it, also from the log and after
/// the end; a different one is stale.
#[test]
fn an_adopted_result_may_be_repeated() {
    let mut t = accepting("a b");
    let held = t.claim("a");
    t.lose(&held);
    let with = |code: Option<&str>| {
        let reason = code.map(|code| reason(code, "because"));
        Command::TaskUpdateStep(StepReport { reason, ..result(&held, "1") })
    };
    let first = t.ok_as(&held.caller(), with(Some("late")));
    for again in 0..3 {
        let same = t.ok_as(&held.caller(), with(Some("late")));
        assert!(same.commit.is_none());
        assert_eq!(same.reply.written, first.reply.written);
        let other = [says(&held, "2"), with(None), with(Some("other")), held.reports(Failed)];
        let code = if again == 2 { Code::TaskTerminal } else { Code::StaleAttempt };
        other.into_iter().for_each(|other| drop(t.refuse_as(&held.caller(), other, code)));
        match again {
            0 => t.restart(),
            1 => drop(t.ok(cancel_task())),
            _ => {}
        }
    }
}

/// RUN-11: the Run's own result is handed on with an adopted result.
#[test]
fn an_adopted_result_hands_on_that_of_its_run() {
    let mut t = accepting("a");
    let held = t.claim("a");
    t.lose(&held);
    let report = StepReport { run_result: Some("bye".into()), ..result(&held, "1") };
    let told = t.ok_as(&held.caller(), Command::TaskUpdateStep(report)).told;
    assert_eq!(told[0].result.as_deref(), Some("bye"));
}

/// Ends the Attempt as the owner does that saw a gap since its last renewal.
fn outage(t: &mut Fixture, held: &Held) {
    t.ok_as(&system(), expire(&[held], LeaseEnd::Outage));
}

/// LEASE-14: the Attempt is lost, but its Step is not blamed: it has all its losses left.
#[test]
fn a_loss_in_an_outage_does_not_count() {
    let mut t = with_policy("a", json!({"max_lost": 1}), Policy::Auto);
    let held = t.grant("ant", POOL).unwrap();
    outage(&mut t, &held);
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
    let payload = t.payload("task_step_lease_expired");
    assert_eq!((&payload["reason"], &payload["lost_count"]), (&json!("outage"), &json!(0)));
    let attempt = t.attempt_of(&held);
    assert_eq!(attempt.outcome, Some(Outcome::Lost));
    assert_eq!(attempt.error.as_ref().unwrap().code, "outage");
    assert_eq!(t.run_of(held.run_id).end_reason, Some(EndReason::Lost));
    assert!(!t.step("a").state.was_lost(), "it is not kept apart from others");
    t.complete(&held); // And its late result counts (REPORT-14).
    assert_eq!(t.task_status(), TaskStatus::Completed);
}

/// LEASE-14: at most `max_lost` times in a row; then losses count until an Attempt ends otherwise.
#[test]
fn too_many_outages_in_a_row_count_as_losses() {
    let mut t = with_policy("a", json!({"max_lost": 2}), Policy::Manual);
    let mut lost = Vec::new();
    for _ in 0..3 {
        let held = t.claim("a");
        outage(&mut t, &held);
        lost.push(t.step("a").state.lost_count);
        t.restart();
    }
    assert_eq!(t.payload("task_step_lease_expired")["reason"], "lease_expired");
    let held = t.claim("a");
    t.ok_as(&held.caller(), held.gives_back(GiveBack::because(ReleaseReason::Fenced)));
    for _ in 0..3 {
        let held = t.claim("a");
        outage(&mut t, &held);
        lost.push(t.step("a").state.lost_count);
    }
    assert_eq!(lost, [0, 0, 1, 1, 1, 2]);
    assert_eq!((t.status("a"), t.code_of("a")), (Failed, "lost"));
    t.ok(write_command("a", Pending));
    let held = t.claim("a");
    outage(&mut t, &held);
    assert_eq!(t.step("a").state.lost_count, 0, "an explicit reopen starts anew");
}

/// LEASE-14, LEASE-19: Steps lost in one outage do not name each other; those that count do.
#[test]
fn outages_and_losses_in_one_commit_are_told_apart() {
    let mut t = with_policy("a b c", json!({"max_lost": 9}), Policy::Manual);
    t.ok(patch(json!([ops::update("b", json!({"retry_policy": {"max_lost": 1}}))])));
    let first = t.claim("b");
    outage(&mut t, &first);
    let held = [t.claim("a"), t.claim("b"), t.claim("c")];
    t.ok_as(&system(), expire(&held.each_ref(), LeaseEnd::Outage));
    let ends =
        t.last().events.iter().filter(|event| matches!(event.body, Body::StepLeaseExpired(_)));
    let ends: Vec<Json> = ends.map(|event| serde_json::to_value(&event.body).unwrap()).collect();
    let reasons = ["outage", "lease_expired", "outage"];
    assert!(ends.iter().zip(reasons).all(|(end, reason)| end["reason"] == reason), "{ends:?}");
    assert!(ends.iter().all(|end| end.get("lost_with").is_none()), "{ends:?}");
}

/// What was seen: a Step that ends its host each time it runs was run 13 times, and counted nowhere.
///
/// RETRY-13: after `max_host_deaths` in a row it is lost, and its Task with it, also in the first edition.
#[test]
fn a_step_that_ends_its_host_is_lost_in_the_end() {
    for rules in [Rules::First, Rules::Second] {
        let limits = Limits { rules, ..Limits::default() };
        let mut t = Fixture::try_create(create_input("a"), Policy::Auto, limits).unwrap();
        for n in 1..=10 {
            let held = t.grant("ant", POOL).unwrap();
            t.start(&held);
            t.restart();
            t.ok_as(&system(), expire(&[&held], LeaseEnd::HostRestarted));
            assert_eq!(t.attempt_of(&held).outcome, Some(Outcome::Abandoned));
            let expected = if n < 10 { Ready } else { Failed };
            assert_eq!(t.status("a"), expected, "after {n}");
        }
        assert_eq!(t.step("a").state.lost_count, 0);
        assert_eq!((t.code_of("a"), t.task_code()), ("lost", "lost"));
        assert_eq!(t.task_status(), TaskStatus::Failed);
    }
}

/// RETRY-13: the number is a setting; only deaths after the start count, in a row; an explicit reopen starts
/// anew.
#[test]
fn only_deaths_in_a_row_of_what_had_started_count() {
    let limits = Limits { max_host_deaths: 2, ..Limits::default() };
    let mut t = Fixture::try_create(create_input("a"), Policy::Manual, limits).unwrap();
    let dies = |t: &mut Fixture, had_started: bool| {
        let held = t.claim("a");
        if had_started {
            t.start(&held);
        }
        t.ok_as(&system(), expire(&[&held], LeaseEnd::HostRestarted));
        t.status("a")
    };
    for _ in 0..5 {
        assert_eq!(dies(&mut t, false), Ready);
    }
    let others: [fn(&mut Fixture, &Held); 5] = [
        |t, held| t.lose(held),
        |t, held| drop(t.ok_as(&held.caller(), held.releases())),
        |t, held| {
            t.report(held, StepStatus::Blocked);
            t.ok(write_command("a", Pending));
        },
        |t, held| {
            t.end(held, RunOutcome::Error);
            t.ok(write_command("a", Pending));
        },
        |t, held| drop(t.ok_as(&system(), expire(&[held], LeaseEnd::HostRestarted))), // Not started.
    ];
    for other in others {
        assert_eq!(dies(&mut t, true), Ready);
        let held = t.claim("a");
        other(&mut t, &held);
        if let Some(at) = t.step("a").state.not_before {
            t.due_at(at);
        }
    }
    assert_eq!(dies(&mut t, true), Ready);
    assert_eq!(dies(&mut t, true), Failed);
    t.ok(write_command("a", Pending));
    assert_eq!(dies(&mut t, true), Ready);
}

/// RETRY-13: an append that fails counts nothing; the deaths are known from the log alone.
#[test]
fn deaths_are_counted_by_the_log() {
    let mut t = Fixture::manual("a");
    for n in 1..=3 {
        let held = t.claim("a");
        t.start(&held);
        t.ahead(&system(), &expire(&[&held], LeaseEnd::HostRestarted));
        t.task.abort();
        t.ok_as(&system(), expire(&[&held], LeaseEnd::HostRestarted));
        assert_eq!(t.step("a").state.host_deaths, n);
    }
}

/// EVOLVE-01: in the first edition a late result is refused, an outage counts as a loss, and a Step that is
/// given back waits for nothing and keeps no reason.
#[test]
fn the_first_edition_knows_none_of_this() {
    let mut t = of_first_edition("a b", Policy::Auto);
    let held = t.grant("ant", POOL).unwrap();
    t.lose(&held);
    t.refuse_as(&held.caller(), held.reports(Completed), Code::StaleAttempt);
    let next = t.grant("bee", POOL).unwrap();
    t.refuse_as(&held.caller(), held.reports(Completed), Code::StaleAttempt);
    outage(&mut t, &next);
    let payload = t.payload("task_step_lease_expired");
    assert_eq!((&payload["reason"], &payload["lost_count"]), (&json!("lease_expired"), &json!(2)));
    t.ok(patch(json!([ops::delete("a")])));
    t.refuse_as(&held.caller(), held.reports(Completed), Code::StaleAttempt);
    let fenced = GiveBack { reason: ReleaseReason::Fenced, retry_after_ms: None };
    let held = t.grant("ant", POOL).unwrap();
    t.ok_as(&held.caller(), held.gives_back(fenced));
    assert_eq!(t.payload("task_step_lease_expired").get("release_reason"), None);
    let least = GiveBack { reason: ReleaseReason::Unfit, retry_after_ms: Some(70) };
    let held = t.grant("ant", POOL).unwrap();
    t.ok_as(&held.caller(), held.gives_back(least));
    let payload = t.payload("task_step_lease_expired");
    assert_eq!(payload["release_reason"], json!("unfit"), "LEASE-18 is of the first edition, too");
    assert!(payload["not_before"].is_number());
}

/// ATT-12: an Attempt says on which machine its worker runs and which build it is, if the worker said so; so
/// for grants and for claims, but not in the first edition.
#[test]
fn an_attempt_names_machine_and_build_of_its_worker() {
    let long = "b".repeat(65);
    let origin = WorkerOrigin::of(Some("rack-7"), Some(&long)).map(Into::into);
    let grant = Command::GrantStep(Grant {
        worker_id: agent_id("ant"),
        worker_pool_id: pool_id(POOL),
        origin: origin.clone(),
        handlers: None,
        may_be_suspect: true,
    });
    for mut t in [Fixture::auto("a b"), of_first_edition("a b", Policy::Auto)] {
        let granted = t.ok_as(&system(), grant.clone());
        let run_id = t.dispatch_for(POOL, Some(&["b"]));
        let caller = Caller { origin: origin.clone(), ..worker("ant", POOL, Some(run_id)) };
        let claimed = t.ok_as(&caller, claim_command(run_id, "b"));
        let is_second = t.task.head().rules == Rules::Second;
        let said = is_second.then(|| ("rack-7".into(), "b".repeat(64).into()));
        for held in [t.held_of(&granted), t.held_of(&claimed)] {
            let shown = AttemptView::of(&t.task.durable(), t.attempt_of(&held), &known());
            assert_eq!(shown.worker_host.zip(shown.worker_build), said);
        }
        assert_eq!(t.payload("task_step_claimed").get("worker_host").is_some(), is_second);
    }
    assert_eq!(WorkerOrigin::of(Some(""), None), None);
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    assert_eq!(t.attempt_of(&held).origin, None);
}
