//! How Runs, leases and Tasks end in tests, and Tasks with a retry policy.

use std::sync::Arc;

use serde_json::Value as Json;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{
    Close, Complete, EndRun, GiveBack, RunAndWhy, RunOutcome, StepReport, Why,
};
use tenure_core::event::LeaseEnd;
use tenure_core::id::{Millis, RunId};
use tenure_core::status::{Policy, StepStatus};
use tenure_core::table::Pos;
use tenure_core::{Caller, Command, Cx, Limits, Outcome, Rejection, Stamp};

use super::input::{create_input, reason, system, worker};
use super::{Fixture, Held};

impl Held {
    /// A failure with a code of the worker.
    pub fn fails(&self, code: &str) -> Command {
        let (status, why) = (Some(StepStatus::Failed), Some(reason(code, "it broke")));
        Command::TaskUpdateStep(StepReport { status, reason: why, ..self.says() })
    }

    /// The end of its Run.
    pub fn ends(&self, outcome: RunOutcome) -> Command {
        end_run(self.run_id, outcome)
    }

    /// The Step given back.
    pub fn releases(&self) -> Command {
        self.gives_back(GiveBack::default())
    }

    /// The Step given back for a reason.
    pub fn gives_back(&self, how: GiveBack) -> Command {
        how.of(self.attempt_id, self.token)
    }
}

/// The end of a Run.
pub fn end_run(run_id: RunId, outcome: RunOutcome) -> Command {
    Command::EndRun(EndRun { outcome, result: None, run_id })
}

/// A Run that its worker does not want.
pub fn decline_run(run_id: RunId) -> Command {
    Command::DeclineRun(RunAndWhy { reason: Some(reason("busy", "no time")), run_id })
}

/// A Run that is to stop.
pub fn cancel_run(run_id: RunId) -> Command {
    Command::CancelRun(RunAndWhy { reason: None, run_id })
}

/// Leases that ended without a word.
pub fn expire(held: &[&Held], why: LeaseEnd) -> Command {
    let attempt_ids = held.iter().map(|h| h.attempt_id).collect();
    Command::ExpireLeases { attempt_ids, reason: why }
}

/// The Task is to fail.
pub fn fail_task() -> Command {
    Command::TaskFail(Close::default())
}

/// The Task is to be cancelled.
pub fn cancel_task() -> Command {
    Command::TaskCancel(Close::default())
}

/// The Task is done.
pub fn complete_task() -> Command {
    Command::TaskComplete(Complete::default())
}

/// The Task is blocked.
pub fn block_task() -> Command {
    Command::BlockTask(Why::default())
}

/// A Task with a retry policy for all its Steps, from its JSON form.
pub fn with_policy(notation: &str, policy: Json, kind: Policy) -> Fixture {
    let retry_policy = Some(Arc::new(serde_json::from_value(policy).expect("a policy")));
    Fixture::create(CreateTask { retry_policy, ..create_input(notation) }, kind)
}

impl Fixture {
    /// The holder reports `failed` with a code.
    pub fn fail(&mut self, held: &Held, code: &str) {
        self.ok_as(&held.caller(), held.fails(code));
    }

    /// The Run of a holder ends.
    pub fn end(&mut self, held: &Held, outcome: RunOutcome) -> Outcome {
        self.ok_as(&held.caller(), held.ends(outcome))
    }

    /// The Run of a holder is cancelled, and ends so.
    pub fn stop(&mut self, held: &Held) -> Outcome {
        self.ok(cancel_run(held.run_id));
        self.end(held, RunOutcome::Cancelled)
    }

    /// Whether the holder of an Attempt is asked to stop.
    pub fn asks_to_stop(&self, attempt: Pos) -> bool {
        self.task.durable().is_asked_to_stop(self.task.attempt_at(attempt))
    }

    /// The lease of a holder runs out.
    pub fn lose(&mut self, held: &Held) {
        self.ok_as(&system(), expire(&[held], LeaseEnd::LeaseExpired));
    }

    /// A member of the Run's pool, acting under it.
    pub fn member(&self, agent: &str, run_id: RunId) -> Caller {
        worker(agent, self.run_of(run_id).worker_pool_id.as_str(), Some(run_id))
    }

    /// Judges once what is due, at a moment.
    pub fn due_at(&mut self, at: Millis) -> Outcome {
        self.now = at - 1;
        self.ok_as(&system(), Command::Due)
    }

    /// Decides commands one after another for one append that is not back yet: nothing is
    /// settled, nothing checked.
    pub fn in_one_append(
        &mut self,
        commands: &[(Caller, Command)],
    ) -> Vec<Result<Outcome, Rejection>> {
        let limits = self.limits.clone();
        let mut decide = |(caller, command): &(Caller, Command)| {
            self.now += 1;
            let stamp = self.stamp();
            self.task.decide(&bare(caller, stamp, &limits), command)
        };
        commands.iter().map(&mut decide).collect()
    }

    /// Reason code of a Step.
    pub fn code_of(&self, step: &str) -> &str {
        let reason = self.step(step).state.facts().status_reason.as_ref();
        reason.map_or("", |r| r.code.as_str())
    }

    /// Reason code of the Task.
    pub fn task_code(&self) -> &str {
        self.task.head().status_reason.as_ref().map_or("", |r| r.code.as_str())
    }

    /// Actors of the events of the last commit.
    pub fn actors(&self) -> Vec<&str> {
        self.last().events.iter().map(|e| e.actor.as_str()).collect()
    }
}

/// A command without id, version and trace.
fn bare<'a>(caller: &'a Caller, stamp: Stamp, limits: &'a Limits) -> Cx<'a> {
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
