//! Mechanisms 17: waits are counted on the steady line, whatever is done to the clock; the deadline is a time
//! of the clock.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use common::*;
use tenure_core::Command;
use tenure_core::command::{StepReport, Why};
use tenure_core::id::Millis;
use tenure_core::status::{Policy, StepStatus, TaskStatus};

const HOUR: Millis = 3_600_000;

impl Fixture {
    /// The clock is set, while the steady line goes on.
    fn set_clock(&mut self, by: Millis) {
        self.now += by;
        self.ahead -= by;
        self.was_set = true;
    }

    /// Now, on the steady line.
    fn steady(&self) -> Millis {
        self.now + self.ahead
    }

    /// What is due next is due that long after this moment of the steady line, and not before.
    fn expect_due(&mut self, from: Millis, after: Millis, what: &str) {
        let ahead = self.ahead;
        self.task.note_steady_ahead(ahead);
        assert_eq!(self.task.next_due().map(|at| at - from), Some(after), "{what}");
        assert!(self.due_at(from + after - 1 - ahead).commit.is_none(), "{what}");
        assert!(self.due_at(from + after - ahead).commit.is_some(), "{what}");
    }
}

/// A wait that begins with a command, and takes so long.
type Wait = (&'static str, fn() -> Fixture, fn(&mut Fixture), Millis);

fn limited(policy: serde_json::Value) -> Fixture {
    with_policy("a", policy, Policy::Manual)
}

/// The holder of the one open Attempt says how it ended.
fn report(t: &mut Fixture, status: StepStatus) {
    let attempt = t.task.open_attempts().next().unwrap();
    let failed = status == StepStatus::Failed;
    let report = StepReport {
        attempt_id: Some(attempt.attempt_id),
        fencing_token: Some(attempt.fencing_token),
        status: Some(status),
        reason: failed.then(|| reason("broken", "it broke")),
        ..StepReport::on(attempt.step_id.clone())
    };
    let caller = t.member("ant", attempt.run_id);
    t.ok_as(&caller, Command::TaskUpdateStep(report));
}

/// Each kind of wait that has a length.
const WAITS: [Wait; 7] = [
    (
        "READY-05, a backoff",
        || {
            let backoff = json!({"initial_ms": 60_000, "jitter": 0.0, "max_ms": 60_000});
            let mut t = limited(json!({"max_attempts": 3, "backoff": backoff}));
            t.claim("a");
            t
        },
        |t| report(t, StepStatus::Failed),
        60_000,
    ),
    (
        "S14, a Step's own limit",
        || {
            let mut t = limited(json!({"start_to_close_ms": 5_000}));
            t.dispatch(POOL);
            t
        },
        |t| {
            let run = t.task.runs_to_take(&pool_id(POOL), t.steady()).next().unwrap().run_id;
            let caller = t.member("ant", run);
            t.ok_as(&caller, claim_command(run, "a"));
        },
        5_000,
    ),
    (
        "S15, the wait for a worker",
        || {
            let policy = json!({"schedule_to_start_ms": 5_000});
            let mut t = with_policy("a b<-a", policy, Policy::Manual);
            t.claim("a");
            t
        },
        |t| report(t, StepStatus::Completed),
        5_000,
    ),
    (
        "S15, the wait for a worker from a resume on",
        || {
            let mut t = limited(json!({"schedule_to_start_ms": 5_000}));
            t.ok(Command::PauseTask(Why::default()));
            t
        },
        |t| drop(t.ok(Command::ResumeTask(Why::default()))),
        5_000,
    ),
    (
        "R09, the life of an unused Run",
        || {
            let mut t = Fixture::manual("a");
            t.limits.run_ttl_ms = 5_000;
            t
        },
        |t| {
            t.dispatch(POOL);
        },
        5_000,
    ),
    (
        "TERM-12, closing",
        || {
            let mut t = Fixture::manual("a");
            t.claim("a");
            t
        },
        |t| drop(t.ok(cancel_task())),
        10_000,
    ),
    (
        "RUN-02, a Run that is to stop",
        || {
            let mut t = Fixture::manual("a");
            t.claim("a");
            t
        },
        |t| {
            let run = t.task.open_attempts().next().unwrap().run_id;
            t.ok(cancel_run(run));
        },
        10_000,
    ),
];

/// Mechanisms 17, P37: a wait takes as long as it was to take, though the clock is set while it lasts, or was
/// set back before, so that stamps stay at the last one.
#[test]
fn a_wait_takes_as_long_as_it_was_to_whatever_is_done_to_the_clock() {
    for (what, prepare, begin, long) in WAITS {
        for (before, meanwhile) in [(0, 0), (0, HOUR), (0, -HOUR), (-HOUR, 0), (HOUR, -HOUR)] {
            let mut t = prepare();
            t.set_clock(before);
            t.wait_ms(100);
            let last = t.log.last().unwrap().created_at;
            begin(&mut t);
            let from = t.steady();
            let stays = before >= 0 || t.log.last().unwrap().created_at == last;
            assert!(stays, "{what}: a stamp stays at the last one until the clock reaches it");
            t.set_clock(meanwhile);
            t.expect_due(from, long, what);
        }
    }
}

/// POL-08: a deadline is a time of the clock, and comes when the clock says so.
#[test]
fn a_deadline_comes_when_the_clock_says_so() {
    for by in [0, HOUR, -HOUR] {
        let constraints = json!({"deadline_at": START + 2 * HOUR});
        let constraints = Some(serde_json::from_value(constraints).unwrap());
        let given = tenure_core::command::create::CreateTask { constraints, ..create_input("a") };
        let mut t = Fixture::create(given, Policy::Auto);
        t.set_clock(by);
        let (from, left) = (t.steady(), START + 2 * HOUR - t.now);
        t.expect_due(from, left, "the deadline");
        assert_eq!((t.task_status(), t.task_code()), (TaskStatus::Failed, "timed_out"));
    }
}

/// POL-08, P37: nor is it judged by stamps that a clock has left which was ahead for a while.
#[test]
fn a_deadline_is_not_judged_by_stamps_that_are_ahead() {
    let constraints = Some(serde_json::from_value(json!({"deadline_at": START + HOUR})).unwrap());
    let given = tenure_core::command::create::CreateTask { constraints, ..create_input("a") };
    let mut t = Fixture::create(given, Policy::Auto);
    t.set_clock(2 * HOUR);
    t.claim("a");
    assert!(t.log.last().unwrap().created_at > START + HOUR);
    t.set_clock(-2 * HOUR);
    let now = t.now;
    assert!(t.due_at(now + 1).commit.is_none());
    assert_eq!(t.task_status(), TaskStatus::Running);
}

/// RUN-02, R09: whether a Run may still be used is judged on the steady line too.
#[test]
fn a_run_lives_as_long_as_it_was_to_whatever_is_done_to_the_clock() {
    let mut t = Fixture::manual("a");
    t.limits.run_ttl_ms = 5_000;
    let run = t.dispatch(POOL);
    t.set_clock(HOUR);
    assert_eq!(t.task.runs_to_take(&pool_id(POOL), t.steady()).count(), 1);
    let caller = t.member("ant", run);
    t.ok_as(&caller, claim_command(run, "a"));
}
