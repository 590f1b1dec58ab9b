//! Random patches against a model that copies everything and judges everything anew: what is legal,
//! what it leads to, and that nothing is ever half done. The fixture adds replay equality, the
//! invariants and the undo of every commit.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::common;
use std::collections::{BTreeMap, BTreeSet};

use common::*;
use proptest::prelude::*;
use serde_json::Value as Json;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::{Code, Command};

/// Ids a patch may name: those of the Task at first, those it may add, and one that never is.
const IDS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "never"];
const FIRST: usize = 6;

type StepNo = usize;

#[derive(Debug, Clone)]
enum Op {
    Add(StepNo, Vec<StepNo>),
    Title(StepNo),
    Field(StepNo, &'static str),
    Dependencies(StepNo, Vec<StepNo>),
    Depend(StepNo, StepNo),
    Undepend(StepNo, StepNo),
    Delete(StepNo),
    Cancel(StepNo),
    Reopen(StepNo),
    Task,
    Policy(bool),
    Block,
    Unblock,
}

/// What happens to Steps between patches.
#[derive(Debug, Clone)]
enum Life {
    Write(StepNo, StepStatus),
    Claim(StepNo),
    Report(usize, StepStatus),
}

fn step_no() -> impl Strategy<Value = StepNo> {
    prop_oneof![9 => 0..IDS.len() - 1, 1 => Just(IDS.len() - 1)]
}

fn some_steps() -> impl Strategy<Value = Vec<StepNo>> {
    prop::collection::vec(0..IDS.len() - 1, 0..3)
}

fn op() -> impl Strategy<Value = Op> {
    let fields = prop::sample::select(vec!["required", "worker_pool_id", "handler", "assignee"]);
    prop_oneof![
        6 => (FIRST..IDS.len() - 1, some_steps()).prop_map(|(s, on)| Op::Add(s, on)),
        2 => step_no().prop_map(Op::Title),
        3 => (step_no(), fields).prop_map(|(s, f)| Op::Field(s, f)),
        3 => (step_no(), some_steps()).prop_map(|(s, on)| Op::Dependencies(s, on)),
        5 => (step_no(), step_no()).prop_map(|(s, on)| Op::Depend(s, on)),
        4 => (step_no(), step_no()).prop_map(|(s, on)| Op::Undepend(s, on)),
        4 => step_no().prop_map(Op::Delete),
        4 => step_no().prop_map(Op::Cancel),
        4 => step_no().prop_map(Op::Reopen),
        1 => Just(Op::Task),
        1 => any::<bool>().prop_map(Op::Policy),
        1 => Just(Op::Block),
        1 => Just(Op::Unblock),
    ]
}

fn life() -> impl Strategy<Value = Life> {
    let status = prop::sample::select(StepStatus::ALL.to_vec());
    prop_oneof![
        (0..IDS.len() - 1, status.clone()).prop_map(|(s, to)| Life::Write(s, to)),
        (0..IDS.len() - 1).prop_map(Life::Claim),
        (0..8_usize, status).prop_map(|(h, to)| Life::Report(h, to)),
    ]
}

/// A first DAG whose edges lead to earlier Steps.
fn first_dag() -> impl Strategy<Value = String> {
    let edges = prop::collection::vec(any::<u16>(), FIRST);
    edges.prop_map(|bits| {
        let one = |(at, bits): (usize, &u16)| {
            let on: Vec<_> =
                (0..at).filter(|dep| bits >> (dep * 2) & 3 == 3).map(|d| IDS[d]).collect();
            let optional = if bits >> 14 == 3 { "?" } else { "" };
            format!("{}{optional}<-{}", IDS[at], on.join(","))
        };
        bits.iter().enumerate().map(one).collect::<Vec<_>>().join(" ")
    })
}

fn as_json(op: &Op) -> Json {
    let ids = |steps: &[StepNo]| steps.iter().map(|&s| IDS[s]).collect::<Vec<_>>();
    let edge = |op: &str, s: StepNo, on: StepNo| json!({"op": op, "step_id": IDS[s], "depends_on_step_id": IDS[on]});
    let update =
        |s: StepNo, fields: Json| json!({"op": "update_step", "step_id": IDS[s], "fields": fields});
    match op {
        Op::Add(s, on) => json!({"op": "add_step", "step": {
            "step_id": IDS[*s], "title": "t", "summary": "s", "depends_on_step_ids": ids(on),
        }}),
        Op::Title(s) => update(*s, json!({"title": "new"})),
        Op::Field(s, "required") => update(*s, json!({"required": false})),
        Op::Field(s, name) => update(*s, json!({*name: "new"})),
        Op::Dependencies(s, on) => update(*s, json!({"depends_on_step_ids": ids(on)})),
        Op::Depend(s, on) => edge("add_dependency", *s, *on),
        Op::Undepend(s, on) => edge("remove_dependency", *s, *on),
        Op::Delete(s) => json!({"op": "delete_step", "step_id": IDS[*s]}),
        Op::Cancel(s) => json!({"op": "cancel_step", "step_id": IDS[*s]}),
        Op::Reopen(s) => json!({"op": "reopen_step", "step_id": IDS[*s]}),
        Op::Task => json!({"op": "update_task", "title": "new", "metadata": null}),
        // One attempt: a backoff would keep Steps pending that the model makes ready.
        Op::Policy(true) => {
            let policy = json!({"schedule_to_start_ms": 9, "max_attempts": 1});
            json!({"op": "update_task", "retry_policy": policy})
        }
        Op::Policy(false) => json!({"op": "update_task", "retry_policy": null}),
        Op::Block => json!({"op": "block_task"}),
        Op::Unblock => json!({"op": "reopen_task"}),
    }
}

fn as_patch(ops: &[Op]) -> Command {
    patch(Json::Array(ops.iter().map(as_json).collect()))
}

// --- The model -----------------------------------------------------------------------------------

#[derive(Debug, Clone)]
struct Model {
    task: TaskStatus,
    /// By id; none: deleted.
    steps: BTreeMap<StepNo, Option<(StepStatus, Vec<StepNo>)>>,
}

type Refusal = (Code, Option<usize>);

impl Model {
    fn of(t: &Fixture, deleted: &BTreeSet<StepNo>) -> Self {
        let number = |id: &str| IDS.iter().position(|i| *i == id).unwrap();
        let mut steps: BTreeMap<_, _> = deleted.iter().map(|&s| (s, None)).collect();
        for (no, id) in IDS.iter().enumerate().filter(|(_, i)| t.task.step(&id(i)).is_some()) {
            let step = t.step(id);
            let on = step.spec.depends_on_step_ids.iter().map(|d| number(d.as_str())).collect();
            steps.insert(no, Some((step.state.status, on)));
        }
        Self { task: t.task_status(), steps }
    }

    fn patched(&self, ops: &[Op]) -> Result<Self, Refusal> {
        let mut model = self.clone();
        let mut taken = false;
        for (at, op) in ops.iter().enumerate() {
            model.operate(op, &mut taken).map_err(|code| (code, Some(at)))?;
        }
        if taken {
            return Err((Code::ValidationError, None));
        }
        model.check_topology(self).map_err(|code| (code, None))?;
        model.settle();
        Ok(model)
    }

    /// The operations that are legal at their turn, if the others were not there.
    fn legal(&self, ops: &[Op]) -> Vec<Op> {
        let (mut model, mut legal) = (self.clone(), Vec::new());
        for op in ops {
            let (mut next, mut taken) = (model.clone(), false);
            let known = !matches!(op, Op::Depend(_, on) if !next.steps.contains_key(on));
            if known && next.operate(op, &mut taken).is_ok() && !taken {
                legal.push(op.clone());
                model = next;
            }
        }
        legal
    }

    fn step(&mut self, no: StepNo) -> Result<&mut (StepStatus, Vec<StepNo>), Code> {
        self.steps.get_mut(&no).and_then(Option::as_mut).ok_or(Code::StepNotFound)
    }

    fn operate(&mut self, op: &Op, taken: &mut bool) -> Result<(), Code> {
        use StepStatus::{Blocked, Cancelled, Claimed, Completed, Failed, Pending, Ready, Running};
        let topology = |status: StepStatus| match status {
            Completed => Err(Code::StepHistoryImmutable),
            Cancelled => Err(Code::InvalidTransition),
            _ => Ok(()),
        };
        match op {
            Op::Add(s, _) if self.steps.contains_key(s) => *taken = true,
            Op::Add(s, on) => drop(self.steps.insert(*s, Some((Pending, once(on))))),
            Op::Title(s) => drop(self.step(*s)?),
            Op::Field(s, name) => match self.step(*s)?.0 {
                Claimed | Running if *name == "handler" => return Err(Code::StepInProgress),
                Cancelled if *name == "required" => {} // STEP-35: to false
                status => topology(status)?,
            },
            Op::Dependencies(s, on) => {
                let step = self.step(*s)?;
                topology(step.0)?;
                step.1 = once(on);
            }
            Op::Depend(s, on) => {
                let step = self.step(*s)?;
                topology(step.0)?;
                if !step.1.contains(on) {
                    step.1.push(*on);
                }
            }
            Op::Undepend(s, on) => {
                let step = self.step(*s)?;
                topology(step.0)?;
                let at = step.1.iter().position(|d| d == on).ok_or(Code::ValidationError)?;
                step.1.remove(at);
            }
            Op::Delete(s) => match self.step(*s)?.0 {
                Pending | Ready | Cancelled => drop(self.steps.insert(*s, None)),
                Claimed | Running => return Err(Code::StepInProgress),
                Completed => return Err(Code::StepHistoryImmutable),
                Blocked | Failed => return Err(Code::InvalidTransition),
            },
            Op::Cancel(s) => match &mut self.step(*s)?.0 {
                status @ (Pending | Ready) => *status = Cancelled,
                Claimed | Running => return Err(Code::StepInProgress),
                Completed => return Err(Code::StepHistoryImmutable),
                _ => return Err(Code::InvalidTransition),
            },
            Op::Reopen(s) => match &mut self.step(*s)?.0 {
                status @ (Blocked | Failed) => *status = Pending,
                _ => return Err(Code::InvalidTransition),
            },
            Op::Task | Op::Policy(_) => {}
            Op::Block if self.task.is_dispatchable() => self.task = TaskStatus::Blocked,
            Op::Unblock if self.task == TaskStatus::Blocked => self.task = TaskStatus::Pending,
            Op::Block | Op::Unblock => return Err(Code::InvalidTransition),
        }
        Ok(())
    }

    fn live(&self) -> impl Iterator<Item = (StepNo, StepStatus, &[StepNo])> {
        let live = self.steps.iter();
        live.filter_map(|(&no, s)| s.as_ref().map(|(status, on)| (no, *status, on.as_slice())))
    }

    fn check_topology(&self, before: &Self) -> Result<(), Code> {
        let there = |no: &StepNo| self.steps.get(no).is_some_and(Option::is_some);
        let had = |no: StepNo, dep: &StepNo| {
            before.steps.get(&no).and_then(Option::as_ref).is_some_and(|(_, on)| on.contains(dep))
        };
        let missing = |no: StepNo, on: &[StepNo]| on.iter().any(|d| !there(d) && !had(no, d));
        if self.live().any(|(no, _, on)| missing(no, on)) {
            return Err(Code::ValidationError);
        }
        if self.has_cycle() {
            return Err(Code::DependencyCycle);
        }
        if self.live().any(|(_, _, on)| on.iter().any(|d| !there(d))) {
            return Err(Code::StepHasDependents);
        }
        if self.live().next().is_none() && self.task != TaskStatus::Draft {
            return Err(Code::ValidationError);
        }
        Ok(())
    }

    /// Steps without dependencies are taken away until none is left, or the rest is a cycle.
    fn has_cycle(&self) -> bool {
        let mut left: BTreeMap<StepNo, BTreeSet<StepNo>> = self
            .live()
            .map(|(no, _, on)| {
                (no, on.iter().copied().filter(|d| self.steps[d].is_some()).collect())
            })
            .collect();
        loop {
            let free: Vec<StepNo> =
                left.iter().filter(|(_, on)| on.is_empty()).map(|(&no, _)| no).collect();
            if free.is_empty() {
                return !left.is_empty();
            }
            free.iter().for_each(|no| drop(left.remove(no)));
            left.values_mut().for_each(|on| on.retain(|d| !free.contains(d)));
        }
    }

    /// S02, S03, T04.
    fn settle(&mut self) {
        let met = |on: &[StepNo]| {
            on.iter().all(|d| self.steps[d].as_ref().is_some_and(|s| s.0 == StepStatus::Completed))
        };
        let met: BTreeSet<StepNo> =
            self.live().filter(|(_, _, on)| met(on)).map(|(no, _, _)| no).collect();
        for (no, step) in self.steps.iter_mut().filter_map(|(no, s)| s.as_mut().map(|s| (no, s))) {
            if matches!(step.0, StepStatus::Pending | StepStatus::Ready) {
                step.0 = if met.contains(no) { StepStatus::Ready } else { StepStatus::Pending };
            }
        }
        let works = |s: StepStatus| s == StepStatus::Ready || s.is_held();
        if self.task == TaskStatus::Pending && self.live().any(|(_, s, _)| works(s)) {
            self.task = TaskStatus::Running;
        }
    }
}

fn once(on: &[StepNo]) -> Vec<StepNo> {
    let mut seen = BTreeSet::new();
    on.iter().copied().filter(|d| seen.insert(*d)).collect()
}

// --- The story -----------------------------------------------------------------------------------

#[derive(Debug)]
struct Story {
    t: Fixture,
    held: Vec<Held>,
    deleted: BTreeSet<StepNo>,
}

impl Story {
    fn of(t: Fixture) -> Self {
        Self { t, held: Vec::new(), deleted: BTreeSet::new() }
    }

    fn live(&mut self, life: &Life) {
        match life {
            Life::Write(s, to) => {
                let _ = self.t.run(&orchestrator(), &write_command(IDS[*s], *to));
            }
            Life::Claim(s) => {
                let task = &self.t.task;
                let ready = task.step(&id(IDS[*s])).map(|step| step.state.status);
                if ready == Some(StepStatus::Ready)
                    && self.t.task_status().is_dispatchable()
                    && !task.is_closing()
                    && !task.head().is_draining(task.tally())
                {
                    self.held.push(self.t.claim_by("new", IDS[*s])); // As `Op::Field` assigns it.
                }
            }
            Life::Report(h, to) => {
                if let Some(held) = self.held.get(*h).cloned() {
                    let _ = self.t.run(&held.caller(), &held.reports(*to));
                }
            }
        }
    }

    /// The patch, judged by the model and by the Task.
    fn patch(&mut self, ops: &[Op]) -> Result<(), TestCaseError> {
        let expected = Model::of(&self.t, &self.deleted).patched(ops);
        let result = self.t.run(&orchestrator(), &as_patch(ops));
        match (expected, result) {
            (Ok(model), Ok(_)) => self.compare(&model),
            (Err((code, at)), Err(rejection)) => {
                prop_assert_eq!(rejection.code, code, "{} {:?}", rejection, rejection.details);
                let named = rejection.details["op_index"].as_u64();
                prop_assert!(named.is_some_and(|n| n < ops.len() as u64), "{rejection}");
                prop_assert!(
                    at.is_none_or(|at| named == Some(at as u64)),
                    "{rejection} not {at:?}"
                );
                Ok(())
            }
            (expected, result) => {
                prop_assert!(false, "expected {expected:?}, got {result:?}\n{}", self.t.history());
                Ok(())
            }
        }
    }

    fn compare(&mut self, model: &Model) -> Result<(), TestCaseError> {
        for (no, step) in &model.steps {
            let live = self.t.task.step(&id(IDS[*no]));
            prop_assert_eq!(live.is_some(), step.is_some(), "{} is there", IDS[*no]);
            let (Some(live), Some((status, on))) = (live, step) else {
                self.deleted.insert(*no);
                continue;
            };
            prop_assert_eq!(live.state.status, *status, "{}\n{}", IDS[*no], self.t.history());
            let on: Vec<_> = on.iter().map(|&d| id(IDS[d])).collect();
            prop_assert_eq!(&live.spec.depends_on_step_ids, &on);
        }
        prop_assert_eq!(self.t.task_status(), model.task);
        Ok(())
    }
}

/// Some life, then a patch; three of four patches leave out what is illegal at its turn.
#[derive(Debug, Clone)]
struct Round {
    life: Vec<Life>,
    ops: Vec<Op>,
    legal: bool,
}

impl Round {
    fn ops(&self, story: &Story) -> Vec<Op> {
        let legal = Model::of(&story.t, &story.deleted).legal(&self.ops);
        if self.legal && !legal.is_empty() { legal } else { self.ops.clone() }
    }
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let life = prop::collection::vec(life(), 0..5);
    let ops = prop::collection::vec(op(), 1..8);
    let round = (life, ops, prop::bool::weighted(0.75));
    let round = round.prop_map(|(life, ops, legal)| Round { life, ops, legal });
    prop::collection::vec(round, 1..6)
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// PATCH-14 to PATCH-22, DAG-05 to DAG-07, STEP-29 to STEP-31: random patches are judged as
    /// the model judges them, and lead where it says.
    #[test]
    fn a_manual_task_follows_the_model(first in first_dag(), rounds in rounds()) {
        let mut story = Story::of(Fixture::manual(&first));
        for round in rounds {
            round.life.iter().for_each(|l| story.live(l));
            story.patch(&round.ops(&story))?;
        }
    }

    /// PATCH-16: every legal patch with one wrong operation anywhere in it is refused.
    #[test]
    fn a_wrong_operation_anywhere_changes_nothing(
        first in first_dag(),
        rounds in rounds(),
        at in any::<prop::sample::Index>(),
    ) {
        let mut story = Story::of(Fixture::manual(&first));
        for round in rounds {
            round.life.iter().for_each(|l| story.live(l));
            let mut ops = round.ops(&story);
            let legal = Model::of(&story.t, &story.deleted).patched(&ops).is_ok();
            let at = at.index(ops.len() + 1);
            ops.insert(at, Op::Cancel(IDS.len() - 1));
            if legal {
                story.t.refuse(as_patch(&ops), Code::StepNotFound);
            }
            ops.remove(at);
            story.patch(&ops)?;
        }
    }

    /// POL-04 to POL-06 on top: an automatic Task keeps replay equality and invariants, however it
    /// ends.
    #[test]
    fn an_automatic_task_survives_any_patches(first in first_dag(), rounds in rounds()) {
        let mut story = Story::of(Fixture::auto(&first));
        for round in rounds {
            round.life.iter().for_each(|l| story.live(l));
            let _ = story.t.run(&orchestrator(), &as_patch(&round.ops(&story)));
        }
    }

    /// WAL-07: patches decided behind each other and then given up leave no trace.
    #[test]
    fn patches_in_flight_are_taken_back_exactly(first in first_dag(), rounds in rounds()) {
        let mut story = Story::of(Fixture::manual(&first));
        rounds.iter().flat_map(|round| &round.life).for_each(|l| story.live(l));
        let patches: Vec<Command> = rounds.iter().map(|r| as_patch(&r.ops(&story))).collect();
        story.t.try_ahead(&orchestrator(), &patches);
    }
}
