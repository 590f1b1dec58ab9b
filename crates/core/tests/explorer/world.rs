//! A Task, the clock beside it, and what one input does to them.

use std::fmt;
use std::mem::{self, Discriminant};

use tenure_core::command::create::Defaults;
use tenure_core::event::LeaseEnd;
use tenure_core::id::{AttemptId, CommandId, CommitId, Digest, Millis, RunId};
use tenure_core::status::{Policy, Role, StepStatus};
use tenure_core::{Caller, Command, Commit, Cx, Limits, Rejection, Stamp, Task};
use uuid::Uuid;

use crate::shapes::{POOL, Shape};

/// When every Task is created.
const START: Millis = 1_000_000;

/// Who asks, for what, and when.
#[derive(Clone)]
pub(crate) struct Input {
    pub(crate) caller: Caller,
    pub(crate) command: Command,
    /// The time that it waits for first.
    pub(crate) at: Option<Millis>,
}

impl Input {
    /// What inputs that do the same to different things have in common.
    pub(crate) fn kind(&self) -> (Discriminant<Command>, Option<StepStatus>, Option<LeaseEnd>) {
        let (status, reason) = match &self.command {
            Command::TaskUpdateStep(report) => (report.status, None),
            Command::ExpireLeases { reason, .. } => (None, Some(*reason)),
            _ => (None, None),
        };
        (mem::discriminant(&self.command), status, reason)
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = serde_json::to_string(&self.command);
        let what = what.unwrap_or_else(|_| format!("{:?}", self.command));
        let run = self.caller.run_id.map(|run| format!(" under {run}")).unwrap_or_default();
        write!(f, "{}{run}: {what}", self.caller.agent)
    }
}

/// A Task at its last durable state, and the time.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) task: Task,
    pub(crate) now: Millis,
    ids: u128,
}

/// The limits under which all is decided: short waits, so that none reaches beyond another.
pub(crate) fn limits() -> Limits {
    Limits { cancel_wait_ms: 20, run_ttl_ms: 1_000, lease_ms: 500, ..Limits::default() }
}

/// Somebody with a role, in the session of all Tasks.
pub(crate) fn caller(agent: &str, role: Role) -> Caller {
    let pool = (role == Role::Worker).then(|| POOL.parse().unwrap());
    Caller {
        agent: agent.parse().unwrap(),
        role,
        session_id: "s".parse().unwrap(),
        run_id: None,
        worker_pool_id: pool,
        origin: None,
    }
}

/// A worker that acts under a Run.
pub(crate) fn worker(agent: &str, run: RunId) -> Caller {
    Caller { run_id: Some(run), ..caller(agent, Role::Worker) }
}

/// Whoever rewires Tasks.
pub(crate) fn orchestrator() -> Caller {
    caller("boss", Role::Orchestrator)
}

/// The scheduler.
pub(crate) fn system() -> Caller {
    Caller::system("s".parse().unwrap())
}

impl World {
    /// A Task of this shape, just created.
    pub(crate) fn new(shape: &Shape) -> Self {
        let (caller, limits, mut ids) = (orchestrator(), limits(), 0);
        let stamp = stamp(START, &mut ids);
        let command_id: CommandId = "create".parse().unwrap();
        let digest = Some(Digest::second([9; 32]));
        let cx = cx(&caller, stamp, &limits);
        let cx = Cx { command_id: Some(&command_id), digest, ..cx };
        let defaults = Defaults { policy: Policy::Auto, worker_pool_id: POOL.parse().unwrap() };
        let (mut task, _) = Task::create(&cx, &shape.create, &defaults, None).unwrap();
        task.settle();
        Self { task, now: START, ids }
    }

    /// What an input makes of this state, and the commit, if there is one.
    pub(crate) fn after(&self, input: &Input) -> Result<(Self, Option<Commit>), Rejection> {
        let mut next = self.clone();
        let commit = next.decide(input)?;
        next.task.settle();
        Ok((next, commit))
    }

    /// The same, with what holds for each single input.
    ///
    /// # Panics
    /// A refusal changed something, records and indexes differ, a failed append is not taken back, or the replay is
    /// another state.
    pub(crate) fn after_checked(&self, input: &Input) -> Result<(Self, Option<Commit>), Rejection> {
        let mut next = self.clone();
        let commit = next.decide(input).inspect_err(|refusal| {
            assert!(
                next.task.is_untouched_since(&self.task),
                "a refusal changed the task: {refusal}"
            );
        })?;
        next.task.check_invariants().unwrap_or_else(|wrong| panic!("records differ: {wrong}"));
        let mut undone = next.task.clone();
        undone.abort();
        assert!(undone.is_untouched_since(&self.task), "a failed append was not taken back");
        if let Some(commit) = &commit {
            let mut replayed = self.task.clone();
            replayed.replay(commit).unwrap_or_else(|why| panic!("it does not replay: {why}"));
            assert!(replayed == next.task, "the replay is another state");
        }
        next.task.settle();
        Ok((next, commit))
    }

    fn decide(&mut self, input: &Input) -> Result<Option<Commit>, Rejection> {
        self.now = self.now.max(input.at.unwrap_or(0));
        let (limits, stamp) = (limits(), stamp(self.now, &mut self.ids));
        let cx = cx(&input.caller, stamp, &limits);
        self.task.decide(&cx, &input.command).map(|outcome| outcome.commit)
    }
}

fn cx<'a>(caller: &'a Caller, stamp: Stamp, limits: &'a Limits) -> Cx<'a> {
    Cx {
        caller,
        stamp,
        command_id: None,
        digest: None,
        expected_version: None,
        expected_spec_version: None,
        trace: None,
        epoch: 0,
        limits,
    }
}

fn stamp(now: Millis, ids: &mut u128) -> Stamp {
    let mut next = || {
        *ids += 1;
        Uuid::from_u128(*ids)
    };
    let (commit_id, run_id, attempt_id) = (CommitId(next()), RunId(next()), AttemptId(next()));
    Stamp { now, steady: now, commit_id, run_id, attempt_id, random: 7 }
}
