//! What leads on where no Step moves by itself: Steps that become optional or are marked (STEP-35,
//! STEP-36), and the commands that summary, `explain` and refusals name (VIEW-15, TERM-26).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::common::ops::{cancel, depend, no, reopen, undepend, update, yes};
use crate::rules_facts::{
    BOTH, announce, artifact, completed_with_an_open_peer, delegate, marked_with_an_open_peer, of,
    on_step, peer, summary_code,
};
use crate::rules_snapshot::snapshot_of;
use crate::views;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{AppendProgress, Complete, StepReport};
use tenure_core::completion::HindranceCode;
use tenure_core::record::{Acceptance, RemoteRef};
use tenure_core::status::{AcceptanceState, Policy, StepStatus, TaskStatus};
use tenure_core::view::explain::{ForWhom, Remedy};
use tenure_core::view::{TaskExplanation, TaskSummary, ViewName, explain_task};
use tenure_core::{Code, Command, Limits, Rules};
use views::*;

use StepStatus::{Blocked, Cancelled, Completed, Failed};

/// A cancelled required Step on which a completed one depends: it cannot be deleted.
fn pinned(rules: Rules) -> Fixture {
    let mut t = of(rules, "a b", Policy::Manual);
    yes(&mut t, json!([cancel("a")]));
    let held = t.claim("b");
    yes(&mut t, json!([depend("b", "a")]));
    t.complete(&held);
    t.refuse(patch(json!([ops::delete("a")])), Code::StepHasDependents);
    no(&mut t, json!([undepend("b", "a")]), Code::StepHistoryImmutable, 0);
    t.refuse(complete_task(), Code::RequiredStepsIncomplete);
    t
}

/// STEP-35, STEP-16, PATCH-22: a cancelled required Step becomes optional, with its texts and with nothing
/// else; not in the first edition.
#[test]
fn a_cancelled_step_becomes_optional() {
    let mut t = pinned(Rules::Second);
    for fields in [
        json!({"required": true}),
        json!({"required": false, "handler": "h"}),
        json!({"required": false, "depends_on_step_ids": []}),
        json!({"assignee": "bee"}),
    ] {
        no(&mut t, json!([update("a", fields)]), Code::InvalidTransition, 0);
    }
    yes(&mut t, json!([update("a", json!({"required": false, "title": "not needed"}))]));
    assert_eq!(t.status("a"), Cancelled);
    no(&mut t, json!([update("a", json!({"required": true}))]), Code::InvalidTransition, 0);
    t.ok(complete_task());

    let mut t = pinned(Rules::First);
    no(&mut t, json!([update("a", json!({"required": false}))]), Code::InvalidTransition, 0);
    t.ok(fail_task());
}

/// STEP-36, S29: the orchestrator marks a blocked or failed Step as completed: one commit, without an
/// Attempt, with its output and its follow-ups, and nobody is offered the Step in between. The counters
/// start anew.
#[test]
fn a_blocked_or_failed_step_is_marked() {
    for from in [Blocked, Failed] {
        let mut t = with_policy("a z<-a", json!({"max_attempts": 1}), Policy::Manual);
        let held = t.claim("a");
        delegate(&mut t, &held);
        t.report(&held, from);
        let report = StepReport {
            status: Some(Completed),
            result_summary: Some("by hand".into()),
            output: Some(serde_json::from_value(json!({"data": "1"})).unwrap()),
            reason: Some(reason("seen", "it is done")),
            ..on_step("a")
        };
        t.ok(Command::TaskUpdateStep(report));
        assert_eq!(
            t.events(),
            ["task_step_reopened a", "task_step_completed a", "task_step_ready z"]
        );
        let reopened = t.payload("task_step_reopened");
        assert_eq!(
            (&reopened["reason"]["code"], &reopened["counters_reset"]),
            (&json!("marked"), &json!(true))
        );
        let completed = t.payload("task_step_completed");
        assert_eq!((&completed["attempt_id"], &completed["outcome"]), (&Json::Null, &Json::Null));
        let state = &t.step("a").state;
        assert_eq!((state.attempt_count, state.lost_count), (0, 0));
        assert_eq!(state.facts().result_summary.as_deref(), Some("by hand"));
        assert!(state.facts().output.is_some() && state.wait_kind.is_none());
        assert_eq!(t.attempt_of(&held).remote.as_deref(), Some(&peer(false)));
        t.refuse_as(&held.caller(), held.reports(StepStatus::Running), Code::StaleAttempt);
        t.do_step("z");
        t.ok(complete_task());
    }
}

/// STEP-36, P05: not before its dependencies are completed.
#[test]
fn a_step_is_not_marked_before_its_dependencies() {
    for from in [Blocked, Failed] {
        let mut t = Fixture::manual("a b c<-a,b");
        t.do_step("a");
        t.write("c", from);
        let no = t.refuse(write_command("c", Completed), Code::StepNotReady);
        assert_eq!(no.details["depends_on_step_ids"], json!(["b"]));
        t.do_step("b");
        t.write("c", Completed);
        assert_eq!(t.events(), ["task_step_reopened c", "task_step_completed c"]);
    }
}

/// STEP-36, POL-04: an automatic Task completes with the Step that is marked.
#[test]
fn an_automatic_task_completes_with_a_marked_step() {
    let mut t = Fixture::auto("a");
    let held = t.grant("ant", POOL).unwrap();
    t.report(&held, Blocked);
    t.write("a", Completed);
    assert_eq!(t.events(), ["task_step_reopened a", "task_step_completed a", "task_completed"]);
}

fn summary_remedies(t: &Fixture) -> Vec<Remedy> {
    let summary = TaskSummary::of(&t.task.durable(), &known());
    let details = summary.status_reason.and_then(|reason| reason.details).unwrap_or_default();
    match details.get("remedies") {
        Some(remedies) => serde_json::from_value(remedies.clone()).unwrap(),
        None => vec![serde_json::from_value(json!({"operation": details["action"]})).unwrap()],
    }
}

fn explained(t: &Fixture) -> TaskExplanation {
    explain_task(&t.task.durable(), ForWhom::default(), &known()).unwrap()
}

/// Carries out what a remedy names, as an orchestrator would; it must be accepted.
fn carry_out(t: &mut Fixture, remedy: &Remedy) {
    let step = remedy.step_id.as_ref().map(|id| id.as_str()).unwrap_or_default();
    let artifacts = remedy.artifact_id.iter().map(|id| artifact(id.as_str(), "missing")).collect();
    let command = match remedy.operation.as_str() {
        "append_task_progress" => {
            Command::AppendTaskProgress(AppendProgress { artifacts, ..Default::default() })
        }
        "agent.task_update_step" if t.status(step) == Completed => {
            let remote = Some(RemoteRef { reconciled: true, ..RemoteRef::default() });
            Command::TaskUpdateStep(StepReport { remote, ..on_step(step) })
        }
        "agent.task_update_step" => write_command(step, Completed),
        "update_step" => patch(json!([update(step, json!({"required": false}))])),
        "remove_dependency" => {
            let on = remedy.depends_on_step_id.as_ref().unwrap();
            patch(json!([undepend(step, on.as_str())]))
        }
        "update_task" => patch(json!([{"op": "update_task", "acceptance": met()}])),
        "reopen_step" => patch(json!([reopen(step)])),
        "delete_step" => patch(json!([ops::delete(step)])),
        "agent.task_complete" => {
            let acceptance = Some(serde_json::from_value(met()).unwrap());
            Command::TaskComplete(Complete { acceptance, ..Complete::default() })
        }
        "agent.task_fail" => fail_task(),
        other => panic!("{other} is not known here"),
    };
    t.ok(command);
}

fn met() -> Json {
    json!([{"id": "one", "state": "met"}])
}

/// A manual Task that waits for everything that completion may wait for.
fn hindered(rules: Rules) -> Fixture {
    let one =
        Acceptance { id: "one".into(), text: None, reference: None, state: AcceptanceState::Unmet };
    let given = CreateTask { acceptance: vec![one], ..create_input("a b") };
    let limits = Limits { rules, ..Limits::default() };
    let mut t = Fixture::try_create(given, Policy::Manual, limits).unwrap();
    let held = t.claim("a");
    announce(&mut t, &held, "x");
    t.complete(&held);
    let remote = (rules == Rules::Second).then(|| peer(false));
    t.ok(Command::TaskUpdateStep(StepReport { status: Some(Completed), remote, ..on_step("b") }));
    t
}

/// VIEW-15, TERM-10, TERM-11: what hinders completion is a reason of its own in the summary and in
/// `explain`, with commands that work: carried out, they complete the Task.
#[test]
fn what_hinders_completion_is_told_with_commands_that_work() {
    for rules in BOTH {
        let mut t = hindered(rules);
        assert!(explained(&t).groups.is_empty());
        let codes: Vec<_> = explained(&t).hindrances.iter().map(|h| h.code).collect();
        assert_eq!(codes, [HindranceCode::FactsUnreconciled, HindranceCode::AcceptanceUnmet]);
        assert_eq!(summary_code(&t), "facts_unreconciled");
        let no = t.refuse(complete_task(), Code::FactsUnreconciled);
        assert_eq!(no.details["remedies"], as_json(&summary_remedies(&t)));
        for hindrance in explained(&t).hindrances {
            hindrance.remedies.iter().for_each(|remedy| carry_out(&mut t, remedy));
        }
        assert!(explained(&t).hindrances.is_empty());
        assert_eq!(summary_code(&t), "awaiting_completion");
        assert_eq!(summary_remedies(&t)[0].operation, "agent.task_complete");
        t.ok(complete_task());
    }
}

/// VIEW-15: acceptance alone is settled by the completing command; what cannot be completed by a command
/// hinders in no such way.
#[test]
fn open_acceptance_is_told() {
    let one =
        Acceptance { id: "one".into(), text: None, reference: None, state: AcceptanceState::Unmet };
    for policy in [Policy::Manual, Policy::Auto] {
        let given = CreateTask { acceptance: vec![one.clone()], ..create_input("a") };
        let mut t = Fixture::create(given, policy);
        assert!(explained(&t).hindrances.is_empty());
        t.write("a", Completed);
        assert_eq!(summary_code(&t), "acceptance_unmet");
        let hindrance = explained(&t).hindrances.remove(0);
        assert_eq!(hindrance.acceptance_ids, ["one"]);
        let remedies = hindrance.remedies.clone();
        remedies.iter().for_each(|remedy| carry_out(&mut t, remedy));
        assert_eq!(t.task_status(), TaskStatus::Completed);
        assert!(explained(&t).hindrances.is_empty());
    }
}

/// TERM-26: from a state in which nothing moves by itself, what the summary and `explain` name first is
/// accepted, and the Task gets to its end by it.
#[test]
fn a_command_leads_on_from_every_state() {
    type Stuck = fn(Rules) -> Fixture;
    let stuck: [(&str, Stuck); 7] = [
        ("a cancelled Step", |rules| {
            let mut t = of(rules, "a b", Policy::Manual);
            yes(&mut t, json!([cancel("a")]));
            t.do_step("b");
            t
        }),
        ("a completed Step behind a cancelled one", pinned),
        ("a failed Step", |rules| {
            let mut t = of(rules, "a b<-a", Policy::Manual);
            t.write("a", Failed);
            t
        }),
        ("a failed Step behind a cancelled one", |rules| {
            let mut t = of(rules, "a b<-a", Policy::Manual);
            t.write("b", Failed);
            yes(&mut t, json!([cancel("a")]));
            t
        }),
        ("a Step behind an optional one that is cancelled", |rules| {
            let mut t = of(rules, "a? b<-a", Policy::Manual);
            yes(&mut t, json!([cancel("a")]));
            t
        }),
        ("a pending artifact", |rules| {
            let mut t = of(rules, "a", Policy::Auto);
            let held = t.grant("ant", POOL).unwrap();
            announce(&mut t, &held, "x");
            t.complete(&held);
            t
        }),
        ("a peer", |rules| match rules {
            Rules::First => completed_with_an_open_peer(),
            Rules::Second => marked_with_an_open_peer(Policy::Manual),
        }),
    ];
    for rules in BOTH {
        for (what, make) in stuck {
            let mut t = make(rules);
            let mut turns = 0;
            while !t.task_status().is_terminal() {
                turns += 1;
                assert!(turns < 9, "{what} goes round in circles:\n{}", t.history());
                let tally = *t.task.tally();
                if tally.of(StepStatus::Ready) > 0 {
                    let ready = t.task.durable().steps().find(|s| s.status() == StepStatus::Ready);
                    let step = ready.unwrap().id().to_string();
                    t.write(&step, Completed);
                    continue;
                }
                let told = summary_remedies(&t);
                let explanation = explained(&t);
                let in_explain = explanation.hindrances.iter().flat_map(|h| &h.remedies);
                let of_groups =
                    explanation.groups.iter().flat_map(|g| &g.example.reasons[0].remedies);
                let in_explain: Vec<&Remedy> = in_explain.chain(of_groups).collect();
                let is_told =
                    told[0].operation == "agent.task_complete" || in_explain.contains(&&told[0]);
                assert!(is_told, "{what}: {:?} is not in {in_explain:?}", told[0]);
                carry_out(&mut t, &told[0]);
            }
            let fails =
                rules == Rules::First && (what.contains("a cancelled one") || what == "a peer");
            let end = if fails { TaskStatus::Failed } else { TaskStatus::Completed };
            assert_eq!(t.task_status(), end, "{what} by {rules:?}:\n{}", t.history());
        }
    }
}

/// VIEW-05, VIEW-15, TERM-26: the list of blocked Tasks names operations that are accepted.
#[test]
fn blocked_tasks_name_operations_that_work() {
    let listed = |t: &Fixture| {
        let blocked = snapshot_of([&t.task], &[ViewName::BlockedTasks])["blocked_tasks"][0].clone();
        (blocked["required_action_ids"].clone(), blocked["reason"]["code"].clone())
    };
    let settles = json!(["append_task_progress:x", "agent.task_update_step:b", "update_task"]);
    assert_eq!(listed(&hindered(Rules::Second)), (settles, json!("facts_unreconciled")));
    assert_eq!(listed(&pinned(Rules::Second)).0, json!(["update_step:a"]));
    assert_eq!(listed(&pinned(Rules::First)).0, json!(["agent.task_fail"]));
    let mut t = Fixture::manual("a");
    t.do_step("a");
    assert_eq!(listed(&t).0, json!(["agent.task_complete"]));
}

/// TERM-26: the refusal of the completing command names what leads on.
#[test]
fn refusals_of_completion_name_what_leads_on() {
    let mut t = pinned(Rules::Second);
    let no = t.refuse(complete_task(), Code::RequiredStepsIncomplete);
    let advice = no.details["advice"].as_str().unwrap();
    assert!(advice.contains("update_step") && advice.contains("agent.task_fail"), "{advice}");
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    announce(&mut t, &held, "x");
    t.complete(&held);
    let no = t.refuse(complete_task(), Code::FactsUnreconciled);
    let expected = json!([{"operation": "append_task_progress", "artifact_id": "x"}]);
    assert_eq!(no.details["remedies"], expected);
}
