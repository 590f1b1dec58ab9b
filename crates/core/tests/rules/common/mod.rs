//! The fixture of the rule tests: one Task, a clock that only rises, and the log of its commits.
//!
//! ```ignore
//! let mut t = Fixture::manual("a b? c@gpu<-a,b"); // `?`: not required; `@`: pool
//! let held = t.claim("a");                        // dispatches a Run and claims under it
//! t.start(&held);
//! t.complete(&held);
//! assert_eq!(t.events(), ["task_step_completed a", "task_step_ready c"]);
//! let no = t.refuse(t.patch(json!([{"op": "delete_step", "step_id": "a"}])), Code::StepHistoryImmutable);
//! ```
//!
//! Every command that passes through it is a test of its own:
//!
//! - it is decided on a copy first and taken back: `abort` must restore the copy exactly;
//! - decided and settled, the invariants must hold, a replay of the whole log must equal the live
//!   state, indexes included, and the stored form of each event must read back as the same event;
//! - refused (or a no-op), log, version and state must be as before.

//!
//! `input` holds what a test says (the notation, ids, callers, commands), `moves` what it does
//! often, `ends` how Runs, leases and Tasks end, `look` how it reads the outcome; `dice` are random
//! choices for tests that shrink nothing.

#![allow(dead_code, unreachable_pub, unused_imports, clippy::unwrap_used, clippy::expect_used)]

mod dice;
mod ends;
mod input;
mod look;
mod moves;
pub mod ops;

pub use dice::*;
pub use ends::*;
pub use input::*;
pub use look::names;
pub use serde_json::json;

use tenure_core::command::create::{CreateTask, Defaults, Parent};
use tenure_core::event::Body;
use tenure_core::id::{AttemptId, CommandId, CommitId, Digest, Millis, RunId};
use tenure_core::status::Policy;
use tenure_core::{
    Caller, Code, Command, Commit, Cx, Limits, Outcome, Rejection, Rules, Stamp, Task,
};
use uuid::Uuid;

/// The pool of Steps that name none.
pub const POOL: &str = "main";
/// The orchestrator of every fixture.
pub const ORCHESTRATOR: &str = "boss";
/// The worker that claims unless a test names another.
pub const WORKER: &str = "ant";
/// Time of the first command.
pub const START: Millis = 1_000_000;

/// One Task under test; see the module's text.
#[derive(Debug, Clone)]
pub struct Fixture {
    /// The live Task.
    pub task: Task,
    /// Every commit, oldest first.
    pub log: Vec<Commit>,
    /// Numbers in force.
    pub limits: Limits,
    /// Time of the last command; each command makes it rise by 1 ms.
    pub now: Millis,
    /// How far the Task's steady line is ahead of the clock.
    pub ahead: Millis,
    /// The clock was set: a replay counts waits otherwise than memory does, as it knows stamps alone.
    pub was_set: bool,
    /// The random number of the next stamps.
    pub random: u64,
    ids: u128,
}

/// An Attempt a test works with.
#[derive(Debug, Clone)]
pub struct Held {
    pub step_id: String,
    pub run_id: RunId,
    pub attempt_id: AttemptId,
    pub token: u64,
    pub worker: String,
    pub pool: String,
}

/// What comes with a command beside its content.
#[derive(Debug, Clone, Default)]
pub struct Envelope {
    pub command_id: Option<String>,
    pub digest: Option<[u8; 32]>,
    pub expected_version: Option<u64>,
    pub expected_spec_version: Option<u64>,
}

impl Fixture {
    /// A Task that does nothing by itself: dispatch and completion manual.
    pub fn manual(notation: &str) -> Self {
        Self::create(create_input(notation), Policy::Manual)
    }

    /// A Task that runs and ends by itself: dispatch and completion auto.
    pub fn auto(notation: &str) -> Self {
        Self::create(create_input(notation), Policy::Auto)
    }

    /// As [`manual`](Self::manual), of the first edition of the contract.
    pub fn first(notation: &str) -> Self {
        let limits = Limits { rules: Rules::First, ..Limits::default() };
        let created = Self::try_create(create_input(notation), Policy::Manual, limits);
        created.expect("the create is in order")
    }

    /// A manual Task in draft.
    pub fn draft(notation: &str) -> Self {
        let given = CreateTask { draft: Some(true), ..create_input(notation) };
        Self::create(given, Policy::Manual)
    }

    /// Any Task.
    pub fn create(given: CreateTask, policy: Policy) -> Self {
        Self::try_create(given, policy, Limits::default()).expect("the create is in order")
    }

    /// A Task that lives by the first edition of the rules.
    pub fn by_first_rules(given: CreateTask, policy: Policy) -> Self {
        let limits = Limits { rules: Rules::First, ..Limits::default() };
        Self::try_create(given, policy, limits).expect("the create is in order")
    }

    /// A create that may be refused.
    pub fn try_create(
        given: CreateTask,
        policy: Policy,
        limits: Limits,
    ) -> Result<Self, Rejection> {
        Self::try_create_under(given, policy, limits, None)
    }

    /// A create of a child that may be refused.
    pub fn try_create_under(
        given: CreateTask,
        policy: Policy,
        limits: Limits,
        parent: Option<&Parent>,
    ) -> Result<Self, Rejection> {
        let caller = orchestrator();
        let command_id: CommandId = "create".parse().unwrap();
        let defaults = Defaults { policy, worker_pool_id: pool_id(POOL) };
        let mut ids = 0;
        let cx = Cx {
            caller: &caller,
            stamp: stamp(START, &mut ids, 0),
            command_id: Some(&command_id),
            digest: Some(Digest::first([7; 32])),
            expected_version: None,
            expected_spec_version: None,
            trace: None,
            epoch: 0,
            limits: &limits,
        };
        let (task, outcome) = Task::create(&cx, &given, &defaults, parent)?;
        let log = vec![outcome.commit.expect("a create writes")];
        let fixture =
            Self { task, log, limits, now: START, ahead: 0, was_set: false, random: 0, ids };
        fixture.check();
        Ok(fixture)
    }
}

impl Fixture {
    /// Runs a command as its caller; checks everything the module's text names.
    pub fn run(&mut self, caller: &Caller, command: &Command) -> Result<Outcome, Rejection> {
        self.run_with(caller, command, &Envelope::default())
    }

    /// Runs a command with a `command_id` or an expected version.
    pub fn run_with(
        &mut self,
        caller: &Caller,
        command: &Command,
        envelope: &Envelope,
    ) -> Result<Outcome, Rejection> {
        self.now += 1;
        let before = self.task.clone();
        let limits = self.limits.clone();
        let command_id = envelope.command_id.as_ref().map(|c| c.parse::<CommandId>().unwrap());
        let cx = Cx {
            caller,
            stamp: self.stamp(),
            command_id: command_id.as_ref(),
            digest: envelope.digest.map(Digest::first),
            expected_version: envelope.expected_version,
            expected_spec_version: envelope.expected_spec_version,
            trace: None,
            epoch: 0,
            limits: &limits,
        };
        self.try_and_abort(&cx, command);
        let result = self.task.decide(&cx, command);
        self.task.settle();
        match result.as_ref().ok().and_then(|outcome| outcome.commit.clone()) {
            Some(commit) => self.take_in(&before, commit, command),
            None => assert_eq!(self.task, before, "nothing was written, so nothing changed"),
        }
        if result.is_err() {
            assert!(self.task.is_untouched_since(&before), "it was refused: {command:?}");
        }
        result
    }

    /// Hands a create in for the Task that is there; checks what a command is checked for.
    pub fn recreate(
        &mut self,
        given: &CreateTask,
        policy: Policy,
        envelope: &Envelope,
    ) -> Result<Outcome, Rejection> {
        let before = self.task.clone();
        let result = self.recreate_ahead(given, policy, envelope);
        self.task.settle();
        match result.as_ref().ok().and_then(|outcome| outcome.commit.clone()) {
            Some(commit) => self.take_in(&before, commit, given),
            None => assert!(self.task.is_untouched_since(&before), "nothing was written"),
        }
        result
    }

    /// Takes a commit into the log, behind what was there before.
    fn take_in(&mut self, before: &Task, commit: Commit, what: &impl std::fmt::Debug) {
        assert_eq!(commit.first_seq, before.version() + 1, "the commit follows: {what:?}");
        assert_eq!(commit.last_seq(), self.task.version(), "{what:?}");
        check_stored_form(&commit);
        self.log.push(commit);
        self.check();
    }

    /// The same, and leaves the state ahead of the log.
    pub fn recreate_ahead(
        &mut self,
        given: &CreateTask,
        policy: Policy,
        envelope: &Envelope,
    ) -> Result<Outcome, Rejection> {
        self.now += 1;
        let (mut before, caller, limits) = (self.task.clone(), orchestrator(), self.limits.clone());
        before.abort();
        let command_id = envelope.command_id.as_ref().map(|c| c.parse::<CommandId>().unwrap());
        let defaults = Defaults { policy, worker_pool_id: pool_id(POOL) };
        let cx = Cx {
            caller: &caller,
            stamp: self.stamp(),
            command_id: command_id.as_ref(),
            digest: envelope.digest.map(Digest::first),
            expected_version: envelope.expected_version,
            expected_spec_version: envelope.expected_spec_version,
            trace: None,
            epoch: 0,
            limits: &limits,
        };
        let result = self.task.recreated(&cx, given, &defaults, None);
        let seen = self.task.durable();
        assert_eq!(seen.version(), before.version(), "readers see what is durable");
        assert!(seen.steps().eq(before.durable().steps()), "and its Steps");
        assert!(seen.edges().eq(before.durable().edges()), "and its edges");
        assert_eq!(seen.to_task(), before, "and whoever keeps the Task keeps that");
        let mut trial = self.task.clone();
        trial.abort();
        assert!(trial.is_untouched_since(&before), "abort restores the state: {result:?}");
        trial.check_invariants().expect("the invariants hold after an abort");
        result
    }

    /// Fresh ids at the time of now.
    pub fn stamp(&mut self) -> Stamp {
        let stamp = stamp(self.now, &mut self.ids, self.random);
        Stamp { steady: self.now + self.ahead, ..stamp }
    }

    /// What is decided and then taken back leaves no trace.
    fn try_and_abort(&self, cx: &Cx<'_>, command: &Command) {
        let mut trial = self.task.clone();
        let result = trial.decide(cx, command);
        trial.abort();
        assert_eq!(trial, self.task, "abort restores the state: {command:?} gave {result:?}");
        let is_noop = result.as_ref().is_ok_and(|outcome| outcome.commit.is_none());
        assert!(is_noop || trial.is_untouched_since(&self.task), "and memory: {command:?}");
        trial.check_invariants().expect("the invariants hold after an abort");
    }

    /// Commands decided one behind the other while the first append is in flight, then given up:
    /// the state is exactly what it was. Refused ones among them change nothing on the way.
    pub fn try_ahead(&self, caller: &Caller, commands: &[Command]) {
        let (mut trial, mut ids) = (self.task.clone(), self.ids);
        for command in commands {
            let before = trial.clone();
            let cx = Cx {
                caller,
                stamp: Stamp {
                    steady: self.now + 1 + self.ahead,
                    ..stamp(self.now + 1, &mut ids, self.random)
                },
                command_id: None,
                digest: None,
                expected_version: None,
                expected_spec_version: None,
                trace: None,
                epoch: 0,
                limits: &self.limits,
            };
            let result = trial.decide(&cx, command);
            trial.check_invariants().expect("the invariants hold while the state is ahead");
            let written = result.as_ref().is_ok_and(|outcome| outcome.commit.is_some());
            let is_noop = result.is_ok() && trial == before;
            let is_as_before = is_noop || trial.is_untouched_since(&before);
            assert!(written || is_as_before, "{command:?} changed nothing: {result:?}");
        }
        trial.abort();
        assert!(!trial.is_ahead());
        assert_eq!(trial, self.task, "abort restores the state after {commands:?}");
    }

    /// Decides a command that is in order, and leaves the state ahead of the log.
    pub fn ahead(&mut self, caller: &Caller, command: &Command) -> Outcome {
        self.now += 1;
        let limits = self.limits.clone();
        let cx = Cx {
            caller,
            stamp: stamp(self.now, &mut self.ids, self.random),
            command_id: None,
            digest: None,
            expected_version: None,
            expected_spec_version: None,
            trace: None,
            epoch: 0,
            limits: &limits,
        };
        self.task.decide(&cx, command).expect("it is in order")
    }

    /// Runs an orchestrator's command that is in order.
    pub fn ok(&mut self, command: Command) -> Outcome {
        self.ok_as(&orchestrator(), command)
    }

    /// Runs a command that is in order.
    pub fn ok_as(&mut self, caller: &Caller, command: Command) -> Outcome {
        match self.run(caller, &command) {
            Ok(outcome) => outcome,
            Err(rejection) => {
                panic!("{command:?} was refused: {rejection} {:?}", rejection.details)
            }
        }
    }

    /// Runs an orchestrator's command that must be refused with `code`.
    pub fn refuse(&mut self, command: Command, code: Code) -> Rejection {
        self.refuse_as(&orchestrator(), command, code)
    }

    /// Runs a command that must be refused with `code`.
    pub fn refuse_as(&mut self, caller: &Caller, command: Command, code: Code) -> Rejection {
        match self.run(caller, &command) {
            Ok(outcome) => panic!("{command:?} was accepted: {outcome:?}"),
            Err(rejection) => {
                assert_eq!(
                    rejection.code, code,
                    "{command:?}: {rejection} {:?}",
                    rejection.details
                );
                rejection
            }
        }
    }

    /// The invariants hold, and a replay of the log is the live state.
    pub fn check(&self) {
        self.task.check_invariants().unwrap_or_else(|wrong| panic!("{wrong}\n{}", self.history()));
        let replayed = self.replayed();
        if self.was_set {
            return;
        }
        assert_eq!(replayed, self.task, "replay equals live\n{}", self.history());
        replayed.check_invariants().expect("the invariants hold after a replay");
    }

    /// The Task as its log alone makes it.
    pub fn replayed(&self) -> Task {
        let mut task = Task::restore(&self.log[0]).expect("the first commit is a creation");
        for commit in &self.log[1..] {
            task.replay(commit).unwrap_or_else(|illegal| panic!("{illegal}\n{}", self.history()));
        }
        task
    }

    /// Continues with the Task as its log alone makes it: what a new owner knows.
    pub fn restart(&mut self) {
        self.task = self.replayed();
    }

    /// Lets time pass; nothing happens by itself.
    pub fn wait_ms(&mut self, ms: i64) {
        self.now += ms;
    }

    /// Judges what is due until nothing is due any more.
    pub fn judge_due(&mut self) {
        while self.task.next_due().is_some_and(|due| due <= self.now + 1) {
            let before = self.log.len();
            self.ok_as(&system(), Command::Due);
            assert!(self.log.len() > before, "something was due, so something is written");
        }
    }
}

/// What is written reads back as the same event.
fn check_stored_form(commit: &Commit) {
    for event in &commit.events {
        let stored = serde_json::to_value(&event.body).expect("a payload is JSON");
        let back = Body::deserialize(event.body.event_type(), stored.clone());
        assert_eq!(back.expect("a payload reads back"), event.body, "{stored}");
    }
}

fn stamp(now: Millis, ids: &mut u128, random: u64) -> Stamp {
    let mut next = || {
        *ids += 1;
        Uuid::from_u128(*ids)
    };
    Stamp {
        now,
        steady: now,
        commit_id: CommitId(next()),
        run_id: RunId(next()),
        attempt_id: AttemptId(next()),
        random,
    }
}
