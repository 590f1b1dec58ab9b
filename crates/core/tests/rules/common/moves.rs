//! What tests do often: dispatch, claim, report, write.

use serde_json::Value as Json;
use tenure_core::command::{Close, Complete, Dispatch, Grant, Why};
use tenure_core::id::RunId;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::task::Made;
use tenure_core::{Command, Outcome, Rules};

use super::input::{agent_id, claim_command, id, patch, pool_id, system, worker, write_command};
use super::{Fixture, Held, WORKER};

/// Tasks with something in a given status.
impl Fixture {
    /// A manual Task whose Step `x` is in this status, beside `other`, which is ready.
    pub fn with_step(status: StepStatus) -> Self {
        Self::with_step_of(Rules::Second, status)
    }

    /// As [`with_step`](Self::with_step), of this edition of the contract.
    pub fn with_step_of(rules: Rules, status: StepStatus) -> Self {
        let waits = status == StepStatus::Pending;
        let notation = if waits { "other x<-other" } else { "other x" };
        let mut t = match rules {
            Rules::First => Self::first(notation),
            Rules::Second => Self::manual(notation),
        };
        t.bring("x", status);
        t
    }

    /// A manual Task in this status, with a Step `x` that is ready if the status allows it.
    pub fn with_task(status: TaskStatus) -> Self {
        let mut t = match status {
            TaskStatus::Draft => Self::draft("x"),
            TaskStatus::Pending => {
                let mut t = Self::manual("x");
                t.ok(Command::BlockTask(Why::default()));
                t.write("x", StepStatus::Blocked);
                t.ok(Command::ReopenTask(Why::default()));
                t
            }
            _ => Self::manual("x"),
        };
        match status {
            TaskStatus::Draft | TaskStatus::Pending | TaskStatus::Running => {}
            TaskStatus::Blocked => drop(t.ok(Command::BlockTask(Why::default()))),
            TaskStatus::Paused => drop(t.ok(Command::PauseTask(Why::default()))),
            TaskStatus::Completed => {
                t.write("x", StepStatus::Completed);
                t.ok(Command::TaskComplete(Complete::default()));
            }
            TaskStatus::Failed => drop(t.ok(Command::TaskFail(Close::default()))),
            TaskStatus::Cancelled => drop(t.ok(Command::TaskCancel(Close::default()))),
        }
        assert_eq!(t.task_status(), status);
        t
    }
}

impl Fixture {
    /// A patch from its JSON form.
    pub fn patch(&self, operations: Json) -> Command {
        patch(operations)
    }

    /// Dispatches a Run for a pool, for any Step of it.
    pub fn dispatch(&mut self, pool: &str) -> RunId {
        self.dispatch_for(pool, None)
    }

    /// Dispatches a Run for a pool and these Steps.
    pub fn dispatch_for(&mut self, pool: &str, steps: Option<&[&str]>) -> RunId {
        let outcome = self.ok(Command::DispatchWorker(Dispatch {
            allowed_step_ids: steps.map(|ids| ids.iter().map(|i| id(i)).collect()),
            bindings: None,
            instructions: None,
            on_behalf: None,
            ttl_ms: None,
            wait: None,
            worker_pool_id: pool_id(pool),
        }));
        let Made::Run(run) = outcome.reply.made else { panic!("a dispatch makes a run") };
        self.task.run_at(run).run_id
    }

    /// Dispatches a Run for the Step's pool and claims the Step under it.
    pub fn claim(&mut self, step: &str) -> Held {
        self.claim_by(WORKER, step)
    }

    /// As [`claim`](Self::claim), by a named worker.
    pub fn claim_by(&mut self, agent: &str, step: &str) -> Held {
        let pool = self.step(step).spec.worker_pool_id.clone();
        let run_id = self.dispatch(pool.as_str());
        self.claim_under(agent, run_id, step)
    }

    /// Claims a Step under a Run that was dispatched.
    pub fn claim_under(&mut self, agent: &str, run_id: RunId, step: &str) -> Held {
        let pool = self.run_of(run_id).worker_pool_id.to_string();
        let caller = worker(agent, &pool, Some(run_id));
        let outcome = self.ok_as(&caller, claim_command(run_id, step));
        self.held_of(&outcome)
    }

    /// Has a worker take a Run, for a while.
    pub fn takes(&mut self, run: RunId, agent: &str) -> bool {
        let until = self.now + 30_000;
        self.task.take_run(run, (&agent_id(agent), &pool_id(super::POOL)), until)
    }

    /// Gives the oldest ready Step of a pool of an automatic Task to a worker.
    pub fn grant(&mut self, agent: &str, pool: &str) -> Option<Held> {
        let (worker_id, worker_pool_id) = (agent_id(agent), pool_id(pool));
        let grant = Command::GrantStep(Grant {
            worker_id,
            worker_pool_id,
            origin: None,
            handlers: None,
            may_be_suspect: true,
        });
        let outcome = self.ok_as(&system(), grant);
        outcome.commit.is_some().then(|| self.held_of(&outcome))
    }

    /// The Attempt that a claim made.
    pub fn held_of(&self, outcome: &Outcome) -> Held {
        let at = match outcome.reply.made {
            Made::Attempt(at) => Some(at),
            Made::Run(at) => self.task.run_at(at).attempt, // CLAIM-16
            _ => None,
        };
        let at = at.expect("a claim makes an attempt");
        let attempt = self.task.attempt_at(at);
        Held {
            step_id: attempt.step_id.to_string(),
            run_id: attempt.run_id,
            attempt_id: attempt.attempt_id,
            token: attempt.fencing_token,
            worker: attempt.worker_id.to_string(),
            pool: self.run_of(attempt.run_id).worker_pool_id.to_string(),
        }
    }

    /// The holder reports a status.
    pub fn report(&mut self, held: &Held, status: StepStatus) -> Outcome {
        self.ok_as(&held.caller(), held.reports(status))
    }

    /// The holder reports `running`.
    pub fn start(&mut self, held: &Held) {
        self.report(held, StepStatus::Running);
    }

    /// The holder reports `completed`.
    pub fn complete(&mut self, held: &Held) {
        self.report(held, StepStatus::Completed);
    }

    /// Claims a Step and completes it.
    pub fn do_step(&mut self, step: &str) {
        let held = self.claim(step);
        self.complete(&held);
    }

    /// The orchestrator writes a status.
    pub fn write(&mut self, step: &str, status: StepStatus) {
        self.ok(write_command(step, status));
    }

    /// Brings a pending or ready Step (dependencies completed, unless a status needs no more) to a
    /// status by legal moves.
    pub fn bring(&mut self, step: &str, status: StepStatus) {
        match status {
            StepStatus::Pending | StepStatus::Ready => {}
            StepStatus::Claimed => drop(self.claim(step)),
            StepStatus::Running => {
                let held = self.claim(step);
                self.start(&held);
            }
            _ => self.write(step, status),
        }
        assert_eq!(self.status(step), status, "{step} was brought to {status}");
    }
}
