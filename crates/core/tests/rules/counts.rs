//! What is counted of histories.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::Counts;
use tenure_core::command::RunOutcome;
use tenure_core::event::LeaseEnd;
use tenure_core::status::{Policy, StepStatus};

fn counts(t: &Fixture) -> Counts {
    let mut counts = Counts::default();
    t.log.iter().for_each(|commit| counts.note(commit));
    counts
}

#[test]
fn each_way_to_end_an_attempt_counts_as_one_thing_or_as_none() {
    type End = fn(&mut Fixture, &Held);
    let claimed = Counts { claims: 1, tasks_created: 1, ..Counts::default() };
    let (completed, failed) = (Counts { completed: 1, ..claimed }, Counts { failed: 1, ..claimed });
    let lost = Counts { lost: 1, ..claimed };
    let rows: [(&str, End, Counts); 8] = [
        ("completed", |t, h| t.complete(h), completed),
        ("failed", |t, h| t.fail(h, "broken"), failed),
        ("silent", |t, h| drop(t.end(h, RunOutcome::Finished)), failed),
        ("too long", |t, _| drop(t.due_at(t.now + 5_000)), failed),
        ("lost", |t, h| t.lose(h), lost),
        ("given back", |t, h| drop(t.ok_as(&h.caller(), h.releases())), claimed),
        ("host", |t, h| drop(t.ok_as(&system(), expire(&[h], LeaseEnd::HostRestarted))), claimed),
        ("blocked", |t, h| drop(t.report(h, StepStatus::Blocked)), claimed),
    ];
    for (what, end, expected) in rows {
        let policy = json!({"start_to_close_ms": 5_000, "max_attempts": 1});
        let mut t = with_policy("a", policy, Policy::Manual);
        let held = t.claim("a");
        end(&mut t, &held);
        assert_eq!(counts(&t), expected, "{what}:\n{}", t.history());
    }
}

#[test]
fn what_no_worker_did_is_no_attempt_and_tasks_end_once() {
    let mut t = Fixture::manual("a b");
    t.write("a", StepStatus::Completed);
    t.write("b", StepStatus::Failed);
    assert_eq!(counts(&t), Counts { tasks_created: 1, ..Counts::default() });
    t.ok(fail_task());
    assert_eq!(counts(&t), Counts { tasks_created: 1, tasks_ended: 1, ..Counts::default() });
}

#[test]
fn a_tally_is_told_from_an_earlier_one() {
    let one = Counts { claims: 3, lost: 1, ..Counts::default() };
    let more = one.plus(Counts { claims: 2, completed: 5, ..Counts::default() });
    assert_eq!(more.since(one), Counts { claims: 2, completed: 5, ..Counts::default() });
    assert_eq!(one.since(more).claims, 0, "another history");
}
