//! A random Task with random Runs: whoever acts in it writes words of the Step concerned, and no others.

use serde_json::{Value as Json, json};
use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{
    AppendProgress, Close, Complete, Dispatch, GiveBack, RunAndWhy, RunOutcome, StepReport, Why,
};
use tenure_core::event::LeaseEnd;
use tenure_core::id::{AttemptId, CommitId, RunId, StepId};
use tenure_core::patch::{Operation, ReasonInput};
use tenure_core::status::{Policy, StepStatus, TaskStatus};
use tenure_core::task::{Attempt, Made};
use tenure_core::view::{Known, write_summary};
use tenure_core::{Caller, Command, Commit, Cx, Limits, Outcome, Rejection, Stamp, Task};
use uuid::Uuid;

use super::words::{Kind, May, OF_THE_TASK, holder_of, step_id, steps_of, word};
use crate::common::*;

const POOLS: [&str; 2] = [POOL, "gpu"];
const AGENTS: [&str; 2] = ["ant", "bee"];
/// Steps ever made in one Task.
const STEPS_MAX: usize = 14;

pub struct World {
    pub task: Task,
    pub limits: Limits,
    pub dice: Dice,
    /// Steps ever made.
    pub steps: usize,
    pub runs: Vec<RunId>,
    /// Commands of workers that were carried out.
    pub accepted: usize,
    now: i64,
    ids: u128,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let steps = 3 + dice.below(5);
        let made = (0..steps).map(|n| serde_json::from_value(a_step(&mut dice, n, n)).unwrap());
        let given = CreateTask {
            steps: made.collect(),
            objective: Some(OF_THE_TASK.into()),
            metadata: Some(serde_json::from_value(json!({"why": OF_THE_TASK})).unwrap()),
            dispatch: Some(Policy::Manual),
            completion: Some(if dice.one_in(8) { Policy::Auto } else { Policy::Manual }),
            ..create_input("")
        };
        let defaults = Defaults { policy: Policy::Manual, worker_pool_id: pool_id(POOL) };
        let (limits, mut ids) = (Limits::default(), 0);
        let boss = orchestrator();
        let cx = cx(&boss, stamp(START, &mut ids), &limits);
        let (mut task, _) = Task::create(&cx, &given, &defaults, None).expect("it is in order");
        task.settle();
        let (runs, accepted, now) = (Vec::new(), 0, START);
        Self { task, limits, dice, steps, runs, accepted, now, ids }
    }

    pub fn now(&self) -> i64 {
        self.now
    }

    /// Decides; a refusal changes nothing.
    pub fn ask(&mut self, caller: &Caller, command: &Command) -> Result<Outcome, Rejection> {
        let before = self.task.clone();
        let limits = self.limits.clone();
        let stamp = stamp(self.now, &mut self.ids);
        let outcome = self.task.decide(&cx(caller, stamp, &limits), command);
        self.task.settle();
        if outcome.as_ref().ok().is_none_or(|done| done.commit.is_none()) {
            assert_eq!(self.task, before, "nothing written, nothing changed: {command:?}");
        }
        if outcome.is_err() {
            assert!(self.task.is_untouched_since(&before), "it was refused: {command:?}");
        }
        outcome
    }

    /// Somebody does something, in order or not.
    pub fn act(&mut self) {
        self.now += 1;
        let rests = matches!(self.task.head().status, TaskStatus::Blocked | TaskStatus::Paused);
        match self.dice.below(24) {
            0..=6 if rests => self.steer(),
            0..=3 => self.dispatch(),
            4..=6 => self.patch(),
            7..=8 => self.write(),
            9 => self.steer(),
            10 => self.loses_or_falls_due(),
            11..=16 => self.claim(),
            _ => self.word_of_a_holder(),
        }
    }

    fn dispatch(&mut self) {
        let view = self.task.durable();
        let all: Vec<StepId> = view.steps().map(|s| s.id().clone()).collect();
        let ready = view.steps().filter(|s| s.status() == StepStatus::Ready);
        let ready: Vec<_> =
            ready.map(|s| (s.id().clone(), s.spec.worker_pool_id.clone())).collect();
        let mut some = self.dice.some(&all);
        let mut pool = pool_id(self.dice.of(&POOLS));
        if let Some((step, its_pool)) = self.dice.any(&ready).filter(|_| !self.dice.one_in(3)) {
            some.push(step);
            pool = its_pool;
        }
        let scoped = !some.is_empty() && !self.dice.one_in(4);
        let dispatch = Dispatch {
            allowed_step_ids: scoped.then_some(some),
            bindings: None,
            instructions: Some("with care".into()),
            on_behalf: None,
            ttl_ms: None,
            wait: None,
            worker_pool_id: pool,
        };
        let outcome = self.ask(&orchestrator(), &Command::DispatchWorker(dispatch));
        if let Ok(Made::Run(run)) = outcome.map(|done| done.reply.made) {
            self.runs.push(self.task.run_at(run).run_id);
            let agent = agent_id(self.dice.of(&AGENTS));
            let pool = self.task.run_at(run).worker_pool_id.clone();
            if self.dice.one_in(2) {
                self.task.take_run(*self.runs.last().unwrap(), (&agent, &pool), self.now + 50);
            }
        }
    }

    fn patch(&mut self) {
        let count = 1 + self.dice.below(3);
        let operations: Vec<Json> = (0..count).map(|_| self.operation()).collect();
        let operations: Vec<Operation> = serde_json::from_value(json!(operations)).unwrap();
        let _ = self.ask(&orchestrator(), &Command::TaskUpdate { operations });
    }

    fn operation(&mut self) -> Json {
        let (n, other) = (self.dice.below(self.steps), self.dice.below(self.steps));
        let (step, on) = (step_id(n), step_id(other));
        let text = word(Kind::Text, n);
        match self.dice.below(9) {
            0 | 1 if self.steps < STEPS_MAX => {
                self.steps += 1;
                let n = self.steps - 1;
                json!({"op": "add_step", "step": a_step(&mut self.dice, n, n)})
            }
            2 => json!({"op": "update_step", "step_id": step,
                        "fields": {"title": format!("other {text}")}}),
            3 => json!({"op": "update_step", "step_id": step,
                        "fields": {"worker_pool_id": self.dice.of(&POOLS)}}),
            4 => json!({"op": "update_step", "step_id": step,
                        "fields": {"input": {"data": format!("\"{text}\"")}}}),
            5 => json!({"op": "add_dependency", "step_id": step, "depends_on_step_id": on}),
            6 => {
                json!({"op": "update_step", "step_id": step, "fields": {"depends_on_step_ids": []}})
            }
            7 => json!({"op": "cancel_step", "step_id": step, "reason": kept(n)}),
            8 => json!({"op": "delete_step", "step_id": step}),
            _ => json!({"op": "reopen_step", "step_id": step, "reason": kept(n),
                        "input_refs": [format!("mem:{}", word(Kind::Kept, n))]}),
        }
    }

    /// The orchestrator writes a status of a Step.
    fn write(&mut self) {
        let n = self.dice.below(self.steps);
        let good = [StepStatus::Completed, StepStatus::Completed, StepStatus::Blocked];
        let other = [StepStatus::Failed, StepStatus::Pending, StepStatus::Cancelled];
        let status = self.dice.of(&[good, other].concat());
        let report = self.report(n, Some(status), StepReport::on(step_id(n)));
        let _ = self.ask(&orchestrator(), &Command::TaskUpdateStep(report));
    }

    /// The Task itself is moved, seldom ended.
    fn steer(&mut self) {
        let reason = || Some(reason("why", OF_THE_TASK));
        let why = || Why { reason: reason() };
        let close = Close { grace_ms: None, reason: reason(), wait: Some(false) };
        let command = match (self.task.head().status, self.dice.below(20)) {
            (TaskStatus::Blocked, _) => Command::ReopenTask(why()),
            (TaskStatus::Paused, _) => Command::ResumeTask(why()),
            (_, 0..=2) => Command::BlockTask(why()),
            (_, 3..=5) => Command::PauseTask(why()),
            (_, 6) => Command::TaskFail(close),
            (_, 7) => Command::TaskCancel(close),
            (_, 8) => Command::TaskComplete(Complete {
                result_summary: Some(OF_THE_TASK.into()),
                ..Complete::default()
            }),
            _ => {
                let artifact = an_artifact(OF_THE_TASK, OF_THE_TASK);
                Command::AppendTaskProgress(AppendProgress {
                    artifacts: vec![serde_json::from_value(artifact).unwrap()],
                    ..AppendProgress::default()
                })
            }
        };
        let _ = self.ask(&orchestrator(), &command);
    }

    fn loses_or_falls_due(&mut self) {
        let open: Vec<AttemptId> = self.task.open_attempts().map(|a| a.attempt_id).collect();
        let command = match self.dice.any(&open) {
            Some(lost) => {
                let (attempt_ids, reason) = (vec![lost], LeaseEnd::LeaseExpired);
                Command::ExpireLeases { attempt_ids, reason }
            }
            None => {
                self.now += 10;
                Command::Due
            }
        };
        let _ = self.ask(&system(), &command);
    }

    /// A worker claims what it may, or tries what it may not.
    fn claim(&mut self) {
        let is_unused = |run: &RunId| self.task.run(*run).unwrap().attempt.is_none();
        let unused: Vec<RunId> = self.runs.iter().copied().filter(is_unused).collect();
        let view = self.task.durable();
        let ready = view.steps().filter(|s| s.status() == StepStatus::Ready);
        let ready: Vec<StepId> = ready.map(|s| s.id().clone()).collect();
        let fits = |run: &RunId| {
            let may = May::of(&self.task, self.task.run(*run).unwrap());
            ready.iter().filter(|step| may.see.contains(*step)).cloned().collect::<Vec<_>>()
        };
        let (useful, idle): (Vec<_>, Vec<_>) =
            unused.into_iter().map(|run| (run, fits(&run))).partition(|(_, fit)| !fit.is_empty());
        let try_what_fits = !useful.is_empty() && !self.dice.one_in(4);
        let Some((run, fit)) = self.dice.any(if try_what_fits { &useful } else { &idle }) else {
            return;
        };
        let Some(step) = self.dice.any(if try_what_fits { &fit } else { &ready }) else { return };
        let caller = holder_of(&self.task, run, self.dice.of(&AGENTS));
        let may = May::of(&self.task, self.task.run(run).unwrap());
        let claim = Command::TaskClaimStep { run_id: run, step_id: step.clone() };
        let asked = self.as_worker(&caller, &claim, &step);
        assert!(asked.is_err() || may.see.contains(&step), "{step} is out of the scope: {may:?}");
    }

    /// A holder says something of its Step.
    fn word_of_a_holder(&mut self) {
        let open: Vec<Attempt> = self.task.open_attempts().cloned().collect();
        let Some(attempt) = self.dice.any(&open) else { return };
        let caller = holder_of(&self.task, attempt.run_id, "nobody");
        let n = (0..self.steps).find(|&n| step_id(n) == attempt.step_id).unwrap();
        let says = StepReport {
            attempt_id: Some(attempt.attempt_id),
            fencing_token: Some(attempt.fencing_token),
            ..StepReport::on(attempt.step_id.clone())
        };
        let command = match self.dice.below(10) {
            0 => end_run(attempt.run_id, self.dice.of(RunOutcome::ALL)),
            1 => GiveBack::default().of(attempt.attempt_id, attempt.fencing_token),
            2 => {
                let (reason, run_id) = (None, attempt.run_id);
                let _ =
                    self.ask(&orchestrator(), &Command::CancelRun(RunAndWhy { reason, run_id }));
                return;
            }
            3 => Command::TaskUpdateStep(self.report(n, None, says)),
            4..=5 => Command::TaskUpdateStep(self.report(n, Some(StepStatus::Running), says)),
            6 => Command::TaskUpdateStep(self.report(n, Some(StepStatus::Blocked), says)),
            7 => Command::TaskUpdateStep(self.report(n, Some(StepStatus::Failed), says)),
            _ => Command::TaskUpdateStep(self.report(n, Some(StepStatus::Completed), says)),
        };
        let _ = self.as_worker(&caller, &command, &attempt.step_id);
    }

    /// A worker's command on a Step: the answer has no word of others, and the commit is about that Step.
    pub fn as_worker(
        &mut self,
        caller: &Caller,
        command: &Command,
        step: &StepId,
    ) -> Result<(), Rejection> {
        let (task, now) = (self.task.clone(), self.now);
        let run = caller.run_id.unwrap();
        let asked = self.ask(caller, command);
        let may = May::of(&self.task, self.task.run(run).unwrap()).naming(step);
        match &asked {
            Err(refused) => drop(may.check_refusal(refused)),
            Ok(done) => {
                self.accepted += 1;
                let known = Known::new(now, &|_| None);
                let mut summary = write_summary(&self.task.durable(), caller, &done.reply, &known);
                may.check(&summary);
                while summary.shorten() {
                    may.check(&summary);
                }
                if let Some(commit) = &done.commit {
                    self.is_about(&task, caller, commit, step);
                }
            }
        }
        asked.map(drop)
    }

    /// PERM-13: of other Steps nothing is written but what follows, by the scheduler itself.
    fn is_about(&self, before: &Task, caller: &Caller, commit: &Commit, step: &StepId) {
        for event in &commit.events {
            let own = event.step_id.as_ref().is_none_or(|of| of == step);
            assert!(own || event.actor != caller.agent, "{caller:?} wrote {event:?}");
        }
        let after = steps_of(&self.task);
        for (id, old) in steps_of(before).into_iter().filter(|(id, _)| id != step) {
            let new = after.get(&id).expect("a worker deletes nothing");
            let facts =
                (new.spec == old.spec, new.state.facts().output == old.state.facts().output);
            assert_eq!(facts, (true, true), "{id} was changed by a worker of {step}");
            let follows = (old.state.status, new.state.status);
            let follows = follows.0 == follows.1
                || follows == (StepStatus::Pending, StepStatus::Ready)
                || self.task.is_terminal();
            assert!(follows, "{id}: {} became {}", old.state.status, new.state.status);
        }
    }

    /// A report with the words of its Step.
    fn report(&mut self, n: usize, status: Option<StepStatus>, base: StepReport) -> StepReport {
        let (made, kept_word) = (word(Kind::Made, n), word(Kind::Kept, n));
        let mut report = StepReport { status, ..base };
        let artifact = format!("{made}-{}", self.dice.below(100));
        if self.dice.one_in(2) {
            report.artifacts = vec![serde_json::from_value(an_artifact(&artifact, &made)).unwrap()];
        }
        report.progress = self.dice.one_in(2).then(|| {
            serde_json::from_value(json!({"summary": kept_word, "phase": kept_word})).unwrap()
        });
        let is_workers = report.attempt_id.is_some();
        if is_workers && self.dice.one_in(2) {
            report.checkpoint_refs = vec![format!("mem:{kept_word}").parse().unwrap()];
        }
        match status {
            Some(StepStatus::Completed) => {
                report.output =
                    Some(serde_json::from_value(json!({"data": format!("\"{made}\"")})).unwrap());
                report.result_summary = Some(format!("made {made}"));
            }
            Some(StepStatus::Failed | StepStatus::Blocked) => report.reason = Some(kept_reason(n)),
            _ => {}
        }
        report
    }
}

fn kept(n: usize) -> Json {
    let kept = word(Kind::Kept, n);
    json!({"code": kept, "message": format!("because of {kept}")})
}

fn kept_reason(n: usize) -> ReasonInput {
    serde_json::from_value(kept(n)).unwrap()
}

fn an_artifact(id: &str, text: &str) -> Json {
    json!({"artifact_id": id, "name": text, "description": text, "kind": "text", "data": text,
           "state": "available"})
}

/// A Step behind some of those before it.
fn a_step(dice: &mut Dice, n: usize, before: usize) -> Json {
    let text = word(Kind::Text, n);
    let on: Vec<StepId> = (0..before).filter(|_| dice.one_in(3)).map(step_id).collect();
    let policy = dice.one_in(4).then(|| json!({"non_retryable": [text]}));
    json!({"step_id": step_id(n), "title": format!("title {text}"), "summary": text,
           "depends_on_step_ids": on, "handler": text, "input": {"data": format!("\"{text}\"")},
           "required": dice.one_in(2), "worker_pool_id": dice.of(&POOLS), "retry_policy": policy})
}

pub fn cx<'a>(caller: &'a Caller, stamp: Stamp, limits: &'a Limits) -> Cx<'a> {
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

pub fn stamp(now: i64, ids: &mut u128) -> Stamp {
    let mut next = || {
        *ids += 1;
        Uuid::from_u128(*ids)
    };
    let (commit_id, run_id, attempt_id) = (CommitId(next()), RunId(next()), AttemptId(next()));
    Stamp { now, steady: now, commit_id, run_id, attempt_id, random: 0 }
}
