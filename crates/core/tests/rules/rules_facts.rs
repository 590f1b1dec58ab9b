//! What has to be settled before Steps and Tasks complete, and how it is settled: facts of peers and
//! artifacts (TERM-10, STEP-33, STEP-34, REPORT-19, ART-08).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use crate::common::ops::reopen;
use crate::views;
use common::*;
use serde_json::Value as Json;
use tenure_core::command::{AppendProgress, Complete, StepReport};
use tenure_core::event::{Body, LeaseEnd};
use tenure_core::record::{ArtifactInput, RemoteRef};
use tenure_core::status::{Policy, StepStatus, TaskStatus, WaitKind};
use tenure_core::view::{TaskSummary, TaskView};
use tenure_core::{Code, Command, Limits, Rules};
use views::*;

use StepStatus::{Blocked, Cancelled, Completed, Failed};

pub(crate) const BOTH: [Rules; 2] = [Rules::First, Rules::Second];

pub(crate) fn of(rules: Rules, notation: &str, policy: Policy) -> Fixture {
    let limits = Limits { rules, ..Limits::default() };
    Fixture::try_create(create_input(notation), policy, limits).unwrap()
}

pub(crate) fn peer(reconciled: bool) -> RemoteRef {
    RemoteRef { remote_task_id: "r".into(), reconciled, ..RemoteRef::default() }
}

pub(crate) fn artifact(id: &str, state: &str) -> ArtifactInput {
    let given = json!({"artifact_id": id, "name": id, "kind": "file", "state": state});
    serde_json::from_value(given).unwrap()
}

pub(crate) fn on_step(step: &str) -> StepReport {
    StepReport::on(id(step))
}

pub(crate) fn say(t: &mut Fixture, held: &Held, report: StepReport) {
    t.ok_as(&held.caller(), Command::TaskUpdateStep(report));
}

/// The holder delegates, or announces an artifact `x`.
pub(crate) fn delegate(t: &mut Fixture, held: &Held) {
    say(t, held, StepReport { remote: Some(peer(false)), ..held.says() });
}

pub(crate) fn announce(t: &mut Fixture, held: &Held, id: &str) {
    say(t, held, StepReport { artifacts: vec![artifact(id, "pending")], ..held.says() });
}

fn step_shown(t: &Fixture, step: &str) -> Json {
    let shown = as_json(&TaskView::of(&t.task.durable(), &known()));
    let steps = shown["steps"].as_array().unwrap().clone();
    steps.into_iter().find(|shown| shown["step_id"] == step).unwrap()
}

fn artifact_shown(t: &Fixture, id: &str) -> String {
    let shown = as_json(&TaskView::of(&t.task.durable(), &known()).artifacts);
    let found = shown.as_array().unwrap().iter().find(|a| a["artifact_id"] == id);
    found.unwrap()["state"].as_str().unwrap().to_owned()
}

/// Ends an Attempt in some way.
type WayToEnd = fn(&mut Fixture, &Held);

/// Every way in which an Attempt ends without completing its Step, and the Step goes on.
fn ways_to_end() -> [(&'static str, WayToEnd); 6] {
    [
        ("lost", Fixture::lose),
        ("host_restarted", |t, held| {
            t.ok_as(&system(), expire(&[held], LeaseEnd::HostRestarted));
        }),
        ("released", |t, held| drop(t.ok_as(&held.caller(), held.releases()))),
        ("failed", |t, held| {
            t.fail(held, "broken");
            t.ok(patch(json!([reopen(&held.step_id)])));
        }),
        ("blocked", |t, held| {
            t.report(held, Blocked);
            t.ok(patch(json!([reopen(&held.step_id)])));
        }),
        ("failed by its orchestrator", |t, held| {
            t.write(&held.step_id, Failed);
            t.ok(patch(json!([reopen(&held.step_id)])));
        }),
    ]
}

/// TERM-10: a peer of a try that ended in any way does not hinder once another try has completed the Step,
/// nor does what that try announced; the Task completes by command, and by itself.
#[test]
fn what_an_attempt_left_behind_hinders_nobody() {
    for rules in BOTH {
        for (way, end) in ways_to_end() {
            let mut t = of(rules, "a", Policy::Manual);
            let first = t.claim("a");
            delegate(&mut t, &first);
            announce(&mut t, &first, "x");
            end(&mut t, &first);
            t.do_step("a");
            assert_eq!(t.attempt_of(&first).remote.as_deref(), Some(&peer(false)), "{way}");
            t.ok(complete_task());
        }
        let mut t = of(rules, "a", Policy::Auto);
        let first = t.grant("ant", POOL).unwrap();
        delegate(&mut t, &first);
        announce(&mut t, &first, "x");
        t.lose(&first);
        let second = t.grant("bee", POOL).unwrap();
        t.complete(&second);
        assert_eq!(t.task_status(), TaskStatus::Completed);
    }
}

/// TERM-10: nor does what an optional Step left behind that did not complete.
#[test]
fn what_a_step_left_behind_that_is_not_completed_hinders_nobody() {
    for to in [Blocked, Failed, Cancelled] {
        let mut t = Fixture::manual("a b?");
        let held = t.claim("b");
        delegate(&mut t, &held);
        announce(&mut t, &held, "x");
        t.report(&held, to);
        t.do_step("a");
        t.ok(complete_task());
    }
}

/// TERM-10: what the completing Attempt, a report of the orchestrator or the Task named last has to be
/// delivered, by its id alone too; whoever announced it first.
#[test]
fn what_counts_is_who_named_an_artifact_last() {
    let by_attempt = |names: fn(&Held) -> StepReport| {
        let mut t = Fixture::manual("a b");
        let first = t.claim("a");
        announce(&mut t, &first, "x");
        t.lose(&first);
        let second = t.claim("a");
        say(&mut t, &second, names(&second));
        t.complete(&second);
        t.do_step("b");
        let pending = t.task.tally().artifacts_pending;
        assert_eq!(artifact_shown(&t, "x"), if pending == 0 { "missing" } else { "pending" });
        (t, pending)
    };
    let (t, pending) =
        by_attempt(|held| StepReport { artifacts: vec![artifact("x", "pending")], ..held.says() });
    assert_eq!(pending, 1);
    let no = t.clone().refuse(complete_task(), Code::FactsUnreconciled);
    assert_eq!(
        (&no.details["artifacts_pending"], &no.details["artifact_ids"]),
        (&json!(1), &json!(["x"]))
    );
    let (_, pending) =
        by_attempt(|held| StepReport { artifact_ids: vec!["x".parse().unwrap()], ..held.says() });
    assert_eq!(pending, 1);
    let (_, pending) = by_attempt(Held::says);
    assert_eq!(pending, 0);

    // Another Step's worker refers to it, and is lost.
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    announce(&mut t, &held, "x");
    t.complete(&held);
    let other = t.claim("b");
    say(&mut t, &other, StepReport { artifact_ids: vec!["x".parse().unwrap()], ..other.says() });
    t.lose(&other);
    t.do_step("b");
    t.refuse(complete_task(), Code::FactsUnreconciled);

    // The orchestrator or the Task takes on what a lost Attempt announced.
    let given = || vec![artifact("x", "pending")];
    let takes_on = [
        Command::TaskUpdateStep(StepReport { artifacts: given(), ..on_step("a") }),
        Command::AppendTaskProgress(AppendProgress { artifacts: given(), ..Default::default() }),
    ];
    for command in takes_on {
        let mut t = Fixture::manual("a");
        let first = t.claim("a");
        announce(&mut t, &first, "x");
        t.lose(&first);
        t.ok(command);
        assert_eq!(artifact_shown(&t, "x"), "pending");
        t.do_step("a");
        t.refuse(complete_task(), Code::FactsUnreconciled);
        let given = vec![artifact("x", "missing")];
        t.ok(Command::TaskComplete(Complete { artifacts: given, ..Complete::default() }));
    }
}

/// TERM-10: an index answers this: readers see the state of the log while an append is in flight.
#[test]
fn readers_see_what_hinders_by_the_log() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    announce(&mut t, &held, "x");
    t.write("b", Completed);
    t.ahead(&held.caller(), &held.reports(Completed));
    assert_eq!(t.task.tally().artifacts_pending, 1);
    let seen = t.task.durable();
    assert_eq!((seen.tally().artifacts_pending, seen.undelivered().count()), (0, 0));
    t.task.settle();
    assert_eq!(t.task.durable().undelivered().count(), 1);
    let given = vec![artifact("x", "available")];
    let delivers =
        Command::AppendTaskProgress(AppendProgress { artifacts: given, ..Default::default() });
    t.ahead(&orchestrator(), &delivers);
    assert_eq!(t.task.tally().artifacts_pending, 0);
    assert_eq!(t.task.durable().undelivered().count(), 1);
}

/// ART-08: a pending artifact shows as missing once nobody delivers it any more, and nothing is written for
/// it.
#[test]
fn what_nobody_delivers_any_more_shows_as_missing() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    announce(&mut t, &held, "x");
    assert_eq!(artifact_shown(&t, "x"), "pending");
    for (to, shown) in
        [(Completed, "pending"), (Blocked, "pending"), (Failed, "missing"), (Cancelled, "missing")]
    {
        let mut t = t.clone();
        t.report(&held, to);
        assert_eq!(artifact_shown(&t, "x"), shown, "{to}");
    }
    t.lose(&held);
    assert_eq!(t.events(), ["task_step_lease_expired a", "task_step_ready a"]);
    assert_eq!(artifact_shown(&t, "x"), "missing");
    let again = t.claim("a");
    announce(&mut t, &again, "x");
    assert_eq!(artifact_shown(&t, "x"), "pending");
}

/// REPORT-19: grant, `remote` not reconciled, `completed`: refused, and the Attempt goes on; it completes
/// when it has stored the facts, or ends as blocked. The orchestrator does not complete it either.
#[test]
fn no_attempt_completes_before_the_facts_of_its_peer_are_here() {
    for rules in BOTH {
        let mut t = of(rules, "a", Policy::Auto);
        let held = t.grant("ant", POOL).unwrap();
        delegate(&mut t, &held);
        let refused = t.refuse_as(&held.caller(), held.reports(Completed), Code::FactsUnreconciled);
        assert_eq!(refused.details["remote_task_id"], "r");
        assert_eq!(t.attempt_of(&held).outcome, None);
        t.refuse(write_command("a", Completed), Code::FactsUnreconciled);
        t.start(&held);

        let mut blocked = t.clone();
        let waits = Some(WaitKind::Dependency);
        say(
            &mut blocked,
            &held,
            StepReport { status: Some(Blocked), wait_kind: waits, ..held.says() },
        );
        assert_eq!(blocked.status("a"), Blocked);

        let done = StepReport { status: Some(Completed), remote: Some(peer(true)), ..held.says() };
        say(&mut t, &held, done);
        assert_eq!(t.task_status(), TaskStatus::Completed);
    }
    // One report says both.
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    let both = StepReport { status: Some(Completed), remote: Some(peer(false)), ..held.says() };
    t.refuse_as(&held.caller(), Command::TaskUpdateStep(both), Code::FactsUnreconciled);
    // The peer of an earlier try is none of its business, nor one that the orchestrator has settled.
    delegate(&mut t, &held);
    t.lose(&held);
    let held = t.claim("a");
    t.clone().complete(&held);
    delegate(&mut t, &held);
    t.ok(Command::TaskUpdateStep(StepReport { remote: Some(peer(true)), ..on_step("a") }));
    t.complete(&held);
    t.ok(complete_task());
}

/// REPORT-14, REPORT-19, TERM-10: nor does a result that comes after the loss; once accepted, what its Attempt
/// announced has to be delivered.
#[test]
fn a_late_result_waits_for_its_peer_too() {
    let mut t = Fixture::auto("a");
    let held = t.grant("ant", POOL).unwrap();
    delegate(&mut t, &held);
    announce(&mut t, &held, "x");
    t.lose(&held);
    assert_eq!(artifact_shown(&t, "x"), "missing");
    t.refuse_as(&held.caller(), held.reports(Completed), Code::FactsUnreconciled);
    say(
        &mut t,
        &held,
        StepReport { status: Some(Completed), remote: Some(peer(true)), ..held.says() },
    );
    assert_eq!(t.events(), ["task_step_completed a"]);
    assert_eq!(step_shown(&t, "a")["remote"]["reconciled"], true);
    assert_eq!(artifact_shown(&t, "x"), "pending");
    t.refuse(complete_task(), Code::FactsUnreconciled);
    t.ok(Command::TaskUpdateStep(StepReport {
        artifacts: vec![artifact("x", "available")],
        ..on_step("a")
    }));
    assert_eq!(t.task_status(), TaskStatus::Completed);
}

/// STEP-33: with a reopening, a retry or a loss the peer leaves the Step and stays on its Attempt; in the
/// first edition it stays on the Step.
#[test]
fn a_peer_leaves_the_step_with_its_try() {
    for rules in BOTH {
        for (way, end) in ways_to_end() {
            let mut t = of(rules, "a", Policy::Manual);
            let held = t.claim("a");
            delegate(&mut t, &held);
            assert_eq!(step_shown(&t, "a")["remote"]["remote_task_id"], "r");
            end(&mut t, &held);
            let stays = rules == Rules::First;
            assert_eq!(step_shown(&t, "a")["remote"].is_object(), stays, "{way}");
            assert!(t.attempt_of(&held).remote.is_some(), "{way}");
            let again = t.claim("a");
            delegate(&mut t, &again);
            assert_eq!(step_shown(&t, "a")["remote"]["remote_task_id"], "r");
        }
    }
    let mut t = with_policy("a", json!({"max_attempts": 2}), Policy::Manual);
    let held = t.claim("a");
    delegate(&mut t, &held);
    t.fail(&held, "broken");
    assert_eq!(t.events(), ["task_step_failed a", "task_step_reopened a"]);
    assert!(step_shown(&t, "a")["remote"].is_null());
}

/// A log of the first edition in which an Attempt completed its Step although its peer was not reconciled.
pub(crate) fn completed_with_an_open_peer() -> Fixture {
    let mut t = Fixture::first("a");
    let held = t.claim("a");
    say(&mut t, &held, StepReport { remote: Some(peer(true)), ..held.says() });
    t.complete(&held);
    for event in t.log.iter_mut().flat_map(|commit| commit.events.iter_mut()) {
        if let Body::StepUpdated(p) = &mut event.body {
            p.report.as_mut().unwrap().remote = Some(peer(false));
        }
    }
    t.restart();
    t
}

/// TERM-10, EVOLVE-01: what the first edition accepted still counts; such a Task can only fail or be
/// cancelled, and its refusal and its summary say so.
#[test]
fn an_open_peer_of_the_first_edition_still_hinders() {
    let mut t = completed_with_an_open_peer();
    let no = t.refuse(complete_task(), Code::FactsUnreconciled);
    assert_eq!(
        (&no.details["unreconciled_steps"], &no.details["step_ids"]),
        (&json!(1), &json!(["a"]))
    );
    let fails = json!([{"operation": "agent.task_fail", "ends_task": true}]);
    assert_eq!(no.details["remedies"], fails);
    assert_eq!(summary_code(&t), "facts_unreconciled");
    let settles = StepReport { remote: Some(peer(true)), ..on_step("a") };
    t.refuse(Command::TaskUpdateStep(settles), Code::StepHistoryImmutable);
    t.ok(fail_task());
}

/// A Step that the orchestrator completed with an open peer.
pub(crate) fn marked_with_an_open_peer(policy: Policy) -> Fixture {
    let mut t = of(Rules::Second, "a", policy);
    let report = StepReport { status: Some(Completed), remote: Some(peer(false)), ..on_step("a") };
    t.ok(Command::TaskUpdateStep(report));
    t
}

/// STEP-34: on a completed Step the orchestrator records that the peer is reconciled, in full or in short;
/// then the Task completes.
#[test]
fn the_peer_of_a_completed_step_is_reconciled_afterwards() {
    for remote in [peer(true), RemoteRef { reconciled: true, ..RemoteRef::default() }] {
        let mut t = marked_with_an_open_peer(Policy::Auto);
        assert_eq!(t.task_status(), TaskStatus::Running);
        t.ok(Command::TaskUpdateStep(StepReport { remote: Some(remote), ..on_step("a") }));
        assert_eq!(t.events(), ["task_step_updated a", "task_completed"]);
        assert_eq!(t.payload("task_step_updated")["attempt_id"], Json::Null);
        assert_eq!(t.step("a").state.facts().remote, Some(peer(true)));
    }
}

/// STEP-34: it is recorded of the Attempt that completed the Step, too.
#[test]
fn an_attempt_is_reconciled_with_its_step() {
    let mut t = Fixture::manual("a");
    let held = t.claim("a");
    say(&mut t, &held, StepReport { remote: Some(peer(true)), ..held.says() });
    t.complete(&held);
    for event in t.log.iter_mut().flat_map(|commit| commit.events.iter_mut()) {
        if let Body::StepUpdated(p) = &mut event.body {
            p.report.as_mut().unwrap().remote = Some(peer(false));
        }
    }
    t.restart();
    t.refuse(complete_task(), Code::FactsUnreconciled);
    t.ok(Command::TaskUpdateStep(StepReport { remote: Some(peer(true)), ..on_step("a") }));
    assert_eq!(t.attempt_of(&held).remote.as_deref(), Some(&peer(true)));
    t.ok(complete_task());
}

/// STEP-34: an artifact that the completing Attempt announced becomes available or missing; the results stay.
#[test]
fn what_a_completed_step_announced_is_settled_afterwards() {
    for state in ["available", "missing"] {
        let mut t = of(Rules::Second, "a", Policy::Auto);
        let held = t.grant("ant", POOL).unwrap();
        announce(&mut t, &held, "x");
        say(
            &mut t,
            &held,
            StepReport {
                status: Some(Completed),
                result_summary: Some("done".into()),
                ..held.says()
            },
        );
        assert_eq!(t.task_status(), TaskStatus::Running);
        let artifacts = vec![artifact("x", state)];
        t.ok(Command::TaskUpdateStep(StepReport { artifacts, ..on_step("a") }));
        assert_eq!(t.events(), ["task_step_updated a", "task_completed"]);
        assert_eq!(artifact_shown(&t, "x"), state);
        let facts = t.step("a").state.facts();
        assert_eq!(facts.result_summary.as_deref(), Some("done"));
        assert_eq!(facts.artifact_ids.len(), 1);
    }
}

/// STEP-34, STEP-21, C42: nothing else can be said of a completed Step, nothing that is settled can be said
/// again, and no worker says it.
#[test]
fn nothing_else_is_said_of_a_completed_step() {
    let mut t = Fixture::manual("a b");
    let held = t.claim("a");
    announce(&mut t, &held, "x");
    say(&mut t, &held, StepReport { artifacts: vec![artifact("y", "available")], ..held.says() });
    t.complete(&held);
    let other = t.claim("b");
    announce(&mut t, &other, "z");
    let settles = || StepReport { artifacts: vec![artifact("x", "available")], ..on_step("a") };
    let wrong = [
        on_step("a"),
        StepReport { result_summary: Some("more".into()), ..settles() },
        StepReport { artifact_ids: vec!["y".parse().unwrap()], ..settles() },
        StepReport { progress: Some(Default::default()), ..settles() },
        StepReport { remote: Some(peer(true)), ..settles() },
        StepReport { artifacts: vec![artifact("x", "pending")], ..on_step("a") },
        StepReport { artifacts: vec![artifact("y", "missing")], ..on_step("a") },
        StepReport { artifacts: vec![artifact("z", "available")], ..on_step("a") },
        StepReport { artifacts: vec![artifact("new", "available")], ..on_step("a") },
        StepReport { status: Some(Completed), ..settles() },
    ];
    for report in wrong {
        t.refuse(Command::TaskUpdateStep(report), Code::StepHistoryImmutable);
    }
    let of_worker = StepReport { artifacts: vec![artifact("x", "available")], ..held.says() };
    t.refuse_as(&held.caller(), Command::TaskUpdateStep(of_worker), Code::StaleAttempt);
    t.ok(Command::TaskUpdateStep(settles()));
    t.refuse(Command::TaskUpdateStep(settles()), Code::StepHistoryImmutable);

    let mut t = marked_with_an_open_peer(Policy::Manual);
    let another = RemoteRef { remote_task_id: "other".into(), ..peer(true) };
    for remote in
        [another, peer(false), RemoteRef { remote_status: Some("s".into()), ..peer(true) }]
    {
        let report = StepReport { remote: Some(remote), ..on_step("a") };
        t.refuse(Command::TaskUpdateStep(report), Code::StepHistoryImmutable);
    }

    let mut t = Fixture::first("a");
    let held = t.claim("a");
    announce(&mut t, &held, "x");
    t.complete(&held);
    t.refuse(Command::TaskUpdateStep(settles()), Code::StepHistoryImmutable);
}

/// The code of the reason that the summary gives.
pub(crate) fn summary_code(t: &Fixture) -> String {
    let summary = TaskSummary::of(&t.task.durable(), &known());
    summary.status_reason.map(|reason| reason.code.to_string()).unwrap_or_default()
}
