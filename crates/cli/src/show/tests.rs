//! What displays say of a Step that was given back.

use serde_json::json;
use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{Close, Grant};
use tenure_core::event::LeaseEnd;
use tenure_core::id::{AttemptId, CommandId, CommitId, Digest, RunId};
use tenure_core::status::{Policy, Role};
use tenure_core::{Caller, Command, Commit, Cx, Limits, Stamp, Task};
use uuid::Uuid;

use super::news::news;
use super::report::RunReport;
use super::seen::SeenCommit;
use super::table;
use crate::answer::{Paint, Stream};

/// A Task of one Step, which a worker takes and gives back.
struct OneStep {
    task: Task,
    commands: u128,
}

fn system() -> Caller {
    Caller::system("s".parse().unwrap())
}

fn orchestrator() -> Caller {
    Caller { agent: "boss".parse().unwrap(), role: Role::Orchestrator, ..system() }
}

fn cx<'a>(caller: &'a Caller, limits: &'a Limits, id: u128) -> Cx<'a> {
    let id = Uuid::from_u128(id);
    Cx {
        caller,
        stamp: Stamp {
            now: 1_000,
            steady: 1_000,
            commit_id: CommitId(id),
            run_id: RunId(id),
            attempt_id: AttemptId(id),
            random: 0,
        },
        command_id: None,
        digest: None,
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits,
    }
}

impl OneStep {
    fn new() -> Self {
        let given = json!({"task_id": "t", "steps": [{"step_id": "a", "title": ""}]});
        let given: CreateTask = serde_json::from_value(given).unwrap();
        let defaults = Defaults { policy: Policy::Auto, worker_pool_id: "main".parse().unwrap() };
        let (caller, limits) = (orchestrator(), Limits::default());
        let command_id: CommandId = "create".parse().unwrap();
        let digest = Some(Digest::first([7; 32]));
        let cx = Cx { command_id: Some(&command_id), digest, ..cx(&caller, &limits, 1) };
        let (mut task, _) = Task::create(&cx, &given, &defaults, None).unwrap();
        task.settle();
        Self { task, commands: 1 }
    }

    /// Carries a command out. Returns its commit.
    fn run(&mut self, caller: &Caller, command: &Command) -> Commit {
        self.commands += 1;
        let limits = Limits::default();
        let outcome = self.task.decide(&cx(caller, &limits, self.commands), command).unwrap();
        self.task.settle();
        outcome.commit.unwrap()
    }

    fn claim(&mut self) {
        let grant = Grant {
            worker_id: "ant".parse().unwrap(),
            worker_pool_id: "main".parse().unwrap(),
            origin: None,
            handlers: None,
            may_be_suspect: true,
        };
        self.run(&system(), &Command::GrantStep(grant));
    }

    fn give_back(&mut self) -> Commit {
        let attempt_ids = self.task.durable().open_attempts().map(|it| it.attempt_id).collect();
        let reason = LeaseEnd::Released;
        self.run(&system(), &Command::ExpireLeases { attempt_ids, reason })
    }
}

/// LEASE-18: a Step that was given back is told as released, and not as a failure.
#[test]
fn what_was_given_back_is_told_as_released() {
    let mut t = OneStep::new();
    t.claim();
    let commit = t.give_back();
    let seen = SeenCommit { commit: &commit, stages: &[], view: t.task.durable() };
    let told: Vec<_> = news(&seen).collect();
    let [one] = told.as_slice() else { panic!("one thing happened: {told:?}") };
    assert!(!one.is_bad(), "{one:?}");
    let line = one.line(Paint::of(Stream::Stderr));
    assert!(line.contains("released") && line.contains("it was given back"), "{line}");
}

/// LEASE-18: to be given back is no try, and a Step that was never tried never ran.
#[test]
fn what_was_given_back_is_no_try() {
    let mut t = OneStep::new();
    let report = |t: &OneStep| serde_json::to_value(RunReport::of(&t.task.durable(), 0)).unwrap();
    t.claim();
    t.give_back();
    t.claim();
    assert_eq!(report(&t)["steps"][0]["attempts"], 1);
    t.give_back();
    t.run(&orchestrator(), &Command::TaskCancel(Close::default()));
    let shown = report(&t);
    let step = &shown["steps"][0];
    assert_eq!((&step["attempts"], &step["started_at"]), (&json!(0), &json!(null)));
    assert_eq!(shown["outcomes"]["not_run"], 1);
    let text = table::end(&t.task.durable(), 0, Paint::of(Stream::Stdout));
    assert!(text.contains("not run because the task was ended"), "{text}");
}
