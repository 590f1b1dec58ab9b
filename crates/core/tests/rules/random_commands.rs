//! Random commands by random callers on random Tasks, decided in groups that settle or are taken
//! back. After every command: the invariants hold, a refusal changed nothing, and a replay of the
//! log is the live state; over a whole history: claims only of Steps whose dependencies were
//! completed, Attempts numbered without gaps, rising tokens, nothing after the end.
//!
//! An operation is a few bytes that are read against the state they meet, so that any sequence
//! means something and a failing one shrinks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

use crate::common;
use crate::rules_edition::assert_first_edition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::*;
use proptest::prelude::*;
use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{
    AppendProgress, Close, Complete, Dispatch, EndRun, Grant, KeepFact, Link, OnBehalf, RetrySteps,
    RunAndWhy, RunOutcome, RunTtl, StepReport, Unlink, Why,
};
use tenure_core::event::{Body, LeaseEnd, StepTakenOver};
use tenure_core::id::{AttemptId, CommandId, CommitId, Digest, Ref, RunId, StepId};
use tenure_core::patch::StepInput;
use tenure_core::record::{RetryPolicy, Value};
use tenure_core::retry_policy::{BackoffFields, Limit};
use tenure_core::status::{
    self, DeliveryState, EdgeKind, FactKind, Policy, Role, RunState, StepStatus, TaskStatus,
    WaitKind,
};
use tenure_core::task::{Attempt, TaskSnapshot};
use tenure_core::{
    Caller, Command, Commit, Counts, Cx, Limits, Outcome, Rejection, Rules, Stamp, Task,
};
use uuid::Uuid;

const AGENTS: [&str; 3] = ["ant", "bee", "cat"];
const POOLS: [&str; 2] = [POOL, "gpu"];
const HANDLERS: [&str; 3] = ["default", "sew", "noop"];

/// A Step: which earlier Steps it waits for, and bits of the rest.
type StepSeed = (u8, u8);
/// A Task: its Steps and bits of the rest.
type TaskSeed = (Vec<StepSeed>, u16);
/// An operation: what to do, with what, and how.
type Op = (u8, u8, u8, u8);

fn task_seed() -> impl Strategy<Value = TaskSeed> {
    (prop::collection::vec(any::<StepSeed>(), 1..8), any::<u16>())
}

fn step_name(at: usize) -> String {
    format!("s{at}")
}

/// Bits of a number as choices.
#[derive(Clone, Copy)]
struct Bits(u64);

impl Bits {
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn below(&mut self, n: u64) -> u64 {
        let taken = self.0 % n;
        self.0 /= n;
        taken
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn policy(bits: &mut Bits, timers: bool) -> RetryPolicy {
    use Limit::{Of, Unlimited};
    let initial_ms = Some(bits.of(&[0, 5, 40]));
    let mut policy = RetryPolicy {
        max_attempts: bits.of(&[None, Some(Unlimited), Some(Of(1)), Some(Of(2)), Some(Of(3))]),
        max_lost: bits.of(&[None, Some(Unlimited), Some(Of(1)), Some(Of(2))]),
        accept_late: bits.of(&[None, Some(true), Some(false)]),
        backoff: Some(BackoffFields { initial_ms, ..BackoffFields::default() }),
        ..RetryPolicy::default()
    };
    if timers {
        policy.schedule_to_start_ms = bits.of(&[None, Some(Of(30))]);
        policy.start_to_close_ms = bits.of(&[None, Some(Of(25))]);
        policy.schedule_to_close_ms = bits.of(&[None, None, Some(Of(60))]);
        policy.blocked_ms = bits.of(&[None, Some(Of(40))]);
        policy.cancel_grace_ms = bits.of(&[None, Some(35)]);
    }
    policy
}

fn create_of(seed: &TaskSeed, timers: bool) -> CreateTask {
    let mut steps = Vec::new();
    for (at, &(deps, bits)) in seed.0.iter().enumerate() {
        let mut bits = Bits(u64::from(bits));
        let earlier = (0..at).filter(|on| deps >> (on % 8) & 1 == 1).map(step_name);
        let deps: Vec<String> = earlier.collect();
        let optional = if bits.one_in(4) { "?" } else { "" };
        let pool = bits.of(&POOLS);
        let mut step = step_input(&format!("s{at}{optional}@{pool}<-{}", deps.join(",")));
        step.handler = Some(bits.of(&HANDLERS).parse().unwrap());
        step.retry_policy = bits.one_in(4).then(|| policy(&mut bits, timers).into());
        step.claim_only_by = (timers && bits.one_in(8)).then(|| agent_id(AGENTS[0]));
        let near = step.depends_on_step_ids.first().cloned();
        let far = near.as_ref().and_then(|near| {
            let near: &StepInput = steps.iter().find(|s: &&StepInput| s.step_id == *near)?;
            near.depends_on_step_ids.first().cloned()
        });
        step.inputs_from = (deps.len() % 2 == 1).then(|| near.into_iter().chain(far).collect());
        steps.push(step);
    }
    let mut bits = Bits(u64::from(seed.1));
    let draft = timers && bits.one_in(4);
    let deadline = (timers && bits.one_in(4)).then(|| json!({"deadline_at": START + 60}));
    CreateTask {
        taken_over: if timers && !draft && bits.one_in(4) {
            taken_over(&steps)
        } else {
            Vec::new()
        },
        draft: Some(draft),
        retry_policy: bits.one_in(2).then(|| policy(&mut bits, timers).into()),
        constraints: deadline.map(|d| serde_json::from_value(d).unwrap()),
        steps,
        ..create_input("a")
    }
}

/// The same without what only the second edition has.
fn of_first_edition(mut given: CreateTask) -> CreateTask {
    let first = |policy: &mut Arc<RetryPolicy>| {
        let policy = Arc::make_mut(policy);
        (policy.accept_late, policy.schedule_to_close_ms) = Default::default();
        (policy.blocked_ms, policy.cancel_grace_ms) = Default::default();
        policy.max_attempts = policy.max_attempts.filter(|max| *max != Limit::Unlimited);
        policy.max_lost = policy.max_lost.filter(|max| *max != Limit::Unlimited);
    };
    given.taken_over = Vec::new();
    given.retry_policy.iter_mut().for_each(first);
    for step in &mut given.steps {
        (step.claim_only_by, step.inputs_from) = (None, None);
        step.retry_policy.iter_mut().for_each(first);
    }
    given
}

/// The first Steps, taken over from another Task.
fn taken_over(steps: &[StepInput]) -> Vec<(StepId, StepTakenOver)> {
    let first = &steps[..steps.len() / 2];
    let taken = || StepTakenOver {
        from_task_id: "before".parse().unwrap(),
        from_attempt_id: None,
        output: Some(Value::json(*b"1")),
        result_summary: None,
        artifacts: Vec::new(),
    };
    first.iter().map(|step| (step.step_id.clone(), taken())).collect()
}

/// STEP-37: every Step that may be claimed again names only Steps for which it waits.
fn check_inputs(task: &Task) {
    let view = task.durable();
    for step in view.steps().filter(|s| {
        s.spec.inputs_from.is_some()
            && !matches!(s.status(), StepStatus::Completed | StepStatus::Cancelled)
    }) {
        let (mut above, mut next) = (BTreeSet::new(), vec![step]);
        while let Some(step) = next.pop() {
            for on in &step.spec.depends_on_step_ids {
                let on = view.step(on).unwrap();
                if above.insert(on.id()) {
                    next.push(on);
                }
            }
        }
        for named in step.spec.inputs() {
            assert!(above.contains(named), "{} names {named}", step.id());
        }
    }
}

/// A Task with the log that is durable, and the commits that are not yet.
struct World {
    task: Task,
    log: Vec<Commit>,
    /// The Task as the log makes it.
    durable: Task,
    /// The Task as log and commits in flight make it.
    ahead: Task,
    in_flight: Vec<Commit>,
    now: i64,
    ids: u128,
    limits: Limits,
    asked: usize,
    accepted: usize,
}

impl World {
    fn new(given: &CreateTask, dispatch: Policy, completion: Policy) -> Self {
        let mut given =
            CreateTask { dispatch: Some(dispatch), completion: Some(completion), ..given.clone() };
        let defaults = Defaults { policy: Policy::Auto, worker_pool_id: pool_id(POOL) };
        let (caller, limits, mut ids) = (orchestrator(), Limits::default(), 0);
        let rules = if given.steps.len().is_multiple_of(3) { Rules::First } else { Rules::Second };
        if rules == Rules::First {
            given.steps.iter_mut().for_each(|step| step.inputs_from = None);
        }
        let limits = Limits { cancel_wait_ms: 20, run_ttl_ms: 50, rules, ..limits };
        // Every other Task of rules 1 is in a log that may hold nothing newer (EVOLVE-02).
        let limits = match given.steps.len().is_multiple_of(6) {
            true => limits.of_first_edition(),
            false => limits,
        };
        if limits.edition == Rules::First {
            given = of_first_edition(given);
        }
        let command_id: CommandId = "create".parse().unwrap();
        let cx = Cx {
            caller: &caller,
            stamp: stamp(START, &mut ids),
            command_id: Some(&command_id),
            digest: Some(Digest::first([9; 32])),
            expected_version: None,
            expected_spec_version: None,
            trace: None,
            epoch: 0,
            limits: &limits,
        };
        let (task, outcome) = Task::create(&cx, &given, &defaults, None).expect("it is in order");
        let log = vec![outcome.commit.unwrap()];
        let durable = Task::restore(&log[0]).unwrap();
        assert_eq!(durable, task);
        let (ahead, in_flight) = (durable.clone(), Vec::new());
        let now = START;
        Self { task, log, durable, ahead, in_flight, now, ids, limits, asked: 0, accepted: 0 }
    }

    /// Decides one command, settles nothing, and checks what must hold at once.
    fn decide(
        &mut self,
        caller: &Caller,
        command: &Command,
        id: Option<u8>,
        expected_version: Option<u64>,
    ) -> Result<Outcome, Rejection> {
        let before = self.task.clone();
        let command_id = id.map(|id| CommandId::new(format!("c{id}")).unwrap());
        let limits = self.limits.clone();
        let cx = Cx {
            caller,
            stamp: stamp(self.now, &mut self.ids),
            command_id: command_id.as_ref(),
            digest: id.map(|_| digest(caller, command)),
            expected_version,
            expected_spec_version: None,
            trace: None,
            epoch: 0,
            limits: &limits,
        };
        let result = self.task.decide(&cx, command);
        match result.as_ref().ok().and_then(|o| o.commit.as_ref()) {
            Some(commit) => self.follow(&before, commit),
            None => assert_eq!(self.task, before, "nothing written, nothing changed: {command:?}"),
        }
        if result.is_err() {
            assert!(self.task.is_untouched_since(&before), "it was refused: {command:?}");
        }
        if let Ok(outcome) = &result {
            assert!(outcome.reply.version <= self.task.version());
            assert!(outcome.reply.waits.is_none() || command.may_wait(), "{command:?}");
            self.accepted += usize::from(outcome.commit.is_some());
        }
        self.task.check_invariants().unwrap_or_else(|wrong| panic!("{wrong} after {command:?}"));
        check_inputs(&self.task);
        result
    }

    /// What a commit must be, seen from the state before it and from a replay.
    fn follow(&mut self, before: &Task, commit: &Commit) {
        assert_eq!(commit.first_seq, before.version() + 1);
        assert!(commit.created_at >= before.updated_at());
        assert!(!commit.events.is_empty());
        if self.limits.edition == Rules::First {
            assert_first_edition(commit);
        }
        for event in &commit.events {
            let after_the_end = match &event.body {
                Body::TaskFact(fact) => fact.kind == FactKind::A2aPushConfig,
                body => matches!(body, Body::TaskArchived(_) | Body::TaskDeliveryUpdated(_)),
            };
            assert!(!before.is_terminal() || after_the_end, "{event:?} after the end");
            if let Body::StepClaimed(_) = event.body {
                let step = before.step(event.step_id.as_ref().unwrap()).unwrap();
                for dep in &step.spec.depends_on_step_ids {
                    let status = before.step(dep).unwrap().state.status;
                    assert_eq!(status, StepStatus::Completed, "claimed behind {dep}");
                }
                assert!(before.head().status.is_dispatchable() && !before.is_closing());
            }
        }
        self.ahead.replay(commit).expect("every event passes the tables");
        assert_eq!(self.ahead, self.task, "replay equals live");
        self.in_flight.push(commit.clone());
    }

    fn settle(&mut self) {
        self.task.settle();
        self.log.append(&mut self.in_flight);
        self.durable = self.ahead.clone();
        assert_eq!(self.task, self.durable);
    }

    fn abort(&mut self) {
        self.task.abort();
        self.in_flight.clear();
        self.ahead = self.durable.clone();
        assert_eq!(self.task, self.durable, "abort restores the state");
        assert!(!self.task.is_ahead());
        self.task.check_invariants().expect("the invariants hold after an abort");
    }

    /// Every commit with its events, for messages.
    fn history(&self) -> String {
        let lines = self.log.iter().chain(&self.in_flight).map(|c| names(c).join(", "));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// What must hold over a whole history.
    fn check_history(&self) {
        let mut task = Task::restore(&self.log[0]).unwrap();
        self.log[1..].iter().for_each(|c| task.replay(c).unwrap());
        assert_eq!(task, self.task, "a full replay equals live");
        let mut last: BTreeMap<_, (u32, u64)> = BTreeMap::new();
        for attempt in self.attempts() {
            let (ordinal, token) = last.entry(attempt.step_id.clone()).or_default();
            assert_eq!(attempt.ordinal, *ordinal + 1, "ordinals have no gap");
            assert!(attempt.fencing_token > *token, "tokens rise");
            (*ordinal, *token) = (attempt.ordinal, attempt.fencing_token);
        }
        let mut counts = Counts::default();
        self.log.iter().chain(&self.in_flight).for_each(|commit| counts.note(commit));
        let ended = |outcome| self.attempts().filter(|a| a.outcome == Some(outcome)).count() as u64;
        assert_eq!(counts.claims, self.attempts().count() as u64);
        let adopted = self.attempts().filter(|a| a.adopted.is_some()).count() as u64;
        assert_eq!(counts.completed, ended(status::Outcome::Completed) + adopted);
        assert_eq!(counts.lost, ended(status::Outcome::Lost));
        assert!(counts.failed >= ended(status::Outcome::Failed) + ended(status::Outcome::TimedOut));
    }

    fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        let claims = self.log.iter().chain(&self.in_flight).flat_map(|c| &c.events);
        let ids = claims.filter_map(|e| match &e.body {
            Body::StepClaimed(claim) => Some(claim.attempt_id),
            _ => None,
        });
        ids.map(|id| self.task.attempt(id).expect("attempts are kept"))
    }

    fn runs(&self) -> Vec<RunId> {
        let events = self.log.iter().chain(&self.in_flight).flat_map(|c| &c.events);
        events
            .filter_map(|e| match &e.body {
                Body::RunDispatched(run) => Some(run.run_id),
                Body::StepClaimed(claim) => Some(claim.run_id),
                _ => None,
            })
            .collect()
    }
}

fn stamp(now: i64, ids: &mut u128) -> Stamp {
    let mut next = || {
        *ids += 1;
        Uuid::from_u128(*ids)
    };
    let (commit_id, run_id, attempt_id) = (CommitId(next()), RunId(next()), AttemptId(next()));
    Stamp { now, steady: now, commit_id, run_id, attempt_id, random: *ids as u64 }
}

/// A stand-in for the digest that the edge makes: equal exactly for equal commands of one actor.
fn digest(caller: &Caller, command: &Command) -> Digest {
    let text = format!("{} {command:?}", caller.agent);
    let mut out = [0; 32];
    for (at, byte) in text.bytes().enumerate() {
        let slot: &mut u8 = &mut out[at % 32];
        *slot = slot.wrapping_mul(31).wrapping_add(byte);
    }
    Digest::first(out)
}

/// Reads an operation against the state it meets: who does what.
struct Reader<'w> {
    world: &'w World,
    a: u8,
    b: u8,
    c: u8,
}

impl Reader<'_> {
    /// A Step that exists, seldom one that does not.
    fn step(&self, n: u8) -> String {
        let known: Vec<String> =
            (0..9).map(step_name).filter(|s| self.world.task.step(&id(s)).is_some()).collect();
        match known.len() {
            count if count > 0 && n < 240 => known[usize::from(n) % count].clone(),
            _ => step_name(usize::from(n) % 9),
        }
    }

    /// A Step in this status if there is one.
    fn step_in(&self, status: StepStatus, n: u8) -> String {
        let all = (0..9).map(step_name);
        let found: Vec<String> = all
            .filter(|s| self.world.task.step(&id(s)).is_some_and(|s| s.state.status == status))
            .collect();
        match found.len() {
            0 => self.step(n),
            count => found[usize::from(n) % count].clone(),
        }
    }

    /// A Run that nobody used yet, seldom another.
    fn run(&self) -> RunId {
        let mut runs = self.world.runs();
        if self.a < 200 && runs.iter().any(|&run| self.is_unused(run)) {
            runs.retain(|&run| self.is_unused(run));
        }
        match runs.len() {
            0 => RunId(Uuid::from_u128(1 << 90)),
            n => runs[n - 1 - usize::from(self.a) % n],
        }
    }

    fn is_unused(&self, run: RunId) -> bool {
        self.world.task.run(run).is_some_and(|r| r.state == RunState::Dispatched)
    }

    /// What gets a ready Step to a worker: a grant, or a dispatch, or a claim.
    fn start_work(&self, agent: &str) -> Option<(Caller, Command)> {
        let task = &self.world.task;
        let ready = id(&self.step_in(StepStatus::Ready, self.a));
        let pool = task.step(&ready).map_or(pool_id(POOL), |s| s.spec.worker_pool_id.clone());
        if task.head().spec.dispatch == Policy::Auto && !self.a.is_multiple_of(8) {
            let handler = HANDLERS[usize::from(self.a) % HANDLERS.len()].parse().unwrap();
            let handlers = (self.c.is_multiple_of(8)).then(|| vec![handler]);
            let (worker_id, worker_pool_id) = (agent_id(agent), pool);
            return Some((
                system(),
                Command::GrantStep(Grant {
                    worker_id,
                    worker_pool_id,
                    origin: None,
                    handlers,
                    may_be_suspect: true,
                }),
            ));
        }
        let unused = task.runs_to_take(&pool, self.world.now).next().map(|r| r.run_id);
        let Some(run) = unused else {
            let dispatch = Dispatch::to(pool);
            return Some((orchestrator(), Command::DispatchWorker(dispatch)));
        };
        let asker = worker(agent, pool.as_str(), Some(run));
        Some((asker, Command::TaskClaimStep { run_id: run, step_id: ready }))
    }

    /// An open Attempt, seldom an ended one.
    fn held(&self) -> Option<Held> {
        let open: Vec<&Attempt> = self.world.task.open_attempts().collect();
        let all: Vec<&Attempt> = self.world.attempts().collect();
        let from = if self.a < 220 && !open.is_empty() { open } else { all };
        let attempt = from.get(usize::from(self.a) % from.len().max(1))?;
        Some(Held {
            step_id: attempt.step_id.to_string(),
            run_id: attempt.run_id,
            attempt_id: attempt.attempt_id,
            token: attempt.fencing_token + u64::from(self.c == 255),
            worker: attempt.worker_id.to_string(),
            pool: self.world.task.run(attempt.run_id)?.worker_pool_id.to_string(),
        })
    }

    fn status(&self) -> StepStatus {
        StepStatus::ALL[usize::from(self.b) % StepStatus::ALL.len()]
    }

    /// A report with as much in it as its status may carry.
    fn report(&self, base: StepReport, status: Option<StepStatus>) -> StepReport {
        let mut report = StepReport { status, ..base };
        let refs = |name: &str| vec![Ref::new(format!("mem:{name}")).unwrap()];
        match self.c % 8 {
            1 => report.result_summary = Some(format!("said {}", self.c)),
            2 => report.artifact_ids = vec!["art".parse().unwrap()],
            3 => report.checkpoint_refs = refs("half"),
            4 => report.reason = Some(reason("rejected", "no")),
            5 => report.output_refs = refs("out"),
            6 if status == Some(StepStatus::Completed) => {
                report.output = Some(Value::json(vec![self.c]));
            }
            6 if status == Some(StepStatus::Blocked) => report.wait_kind = Some(WaitKind::Input),
            7 => {
                let pending = self.c & 8 == 0;
                let state = if pending { "pending" } else { "available" };
                let artifact =
                    json!({"artifact_id": "x", "name": "x", "kind": "text", "state": state});
                report.artifacts = vec![serde_json::from_value(artifact).unwrap()];
            }
            _ => {}
        }
        report
    }

    fn command(&self, kind: u8) -> Option<(Caller, Command)> {
        let boss = orchestrator();
        let agent = AGENTS[usize::from(self.b) % AGENTS.len()];
        let pool = POOLS[usize::from(self.c) % POOLS.len()];
        let why = || Why::default();
        Some(match kind % 64 {
            0..=9 => return self.start_work(agent),
            10..=19 => {
                let held = self.held()?;
                let good = [StepStatus::Running, StepStatus::Completed, StepStatus::Failed];
                let status = match self.b % 4 {
                    0 => Some(self.status()),
                    1 => None,
                    _ => Some(good[usize::from(self.b / 4) % good.len()]),
                };
                let report = self.report(held.says(), status);
                (held.caller(), Command::TaskUpdateStep(report))
            }
            20..=22 => {
                let run = self.run();
                let pool = self.world.task.run(run).map_or(pool, |r| r.worker_pool_id.as_str());
                let asker = worker(agent, pool, Some(run));
                (asker, claim_command(run, &self.step_in(StepStatus::Ready, self.c)))
            }
            23..=25 => {
                let mut some = vec![id(&self.step(self.a)), id(&self.step(self.b))];
                if self.c.is_multiple_of(6) {
                    some = vec![id(&self.step_in(StepStatus::Ready, self.a))];
                }
                let declined = self.c.is_multiple_of(4).then(|| reason("busy", ""));
                let lease_ms = Some(1_000 + u64::from(self.b));
                let on_behalf = OnBehalf { declined, lease_ms, worker_id: agent_id(agent) };
                let dispatch = Dispatch {
                    allowed_step_ids: (self.c.is_multiple_of(3)).then_some(some),
                    bindings: None,
                    instructions: None,
                    on_behalf: self.c.is_multiple_of(6).then_some(on_behalf),
                    ttl_ms: [None, Some(RunTtl::Ms(1_000)), Some(RunTtl::UNLIMITED)]
                        [usize::from(self.c) % 3],
                    wait: None,
                    worker_pool_id: pool_id(pool),
                };
                (boss, Command::DispatchWorker(dispatch))
            }
            26..=27 => {
                let base = StepReport::on(id(&self.step(self.a)));
                let status = (!self.c.is_multiple_of(5)).then(|| self.status());
                (boss, Command::TaskUpdateStep(self.report(base, status)))
            }
            28..=29 => {
                let from = [StepStatus::Failed, StepStatus::Blocked][usize::from(self.c) % 2];
                let base = StepReport::on(id(&self.step_in(from, self.a)));
                (boss, Command::TaskUpdateStep(self.report(base, Some(StepStatus::Pending))))
            }
            30..=31 => {
                let all: Vec<_> = self.world.task.open_attempts().map(|a| a.attempt_id).collect();
                let held = self.held()?;
                let attempt_ids =
                    if self.b.is_multiple_of(4) { all } else { vec![held.attempt_id] };
                use LeaseEnd::{HostRestarted, LeaseExpired, Outage};
                let reasons = [LeaseExpired, LeaseExpired, HostRestarted, Outage];
                let reason = reasons[usize::from(self.c) % 4];
                (system(), Command::ExpireLeases { attempt_ids, reason })
            }
            32..=34 => (system(), Command::Due),
            35..=36 => return self.start_work(agent),
            37..=38 => {
                let run_id = self.run();
                let outcome = RunOutcome::ALL[usize::from(self.c) % RunOutcome::ALL.len()];
                let agent = self.owner(run_id, agent);
                let end = EndRun { outcome, result: None, run_id };
                (agent, Command::EndRun(end))
            }
            39 => {
                let run_id = self.run();
                let decline = RunAndWhy { reason: Some(reason("busy", "")), run_id };
                (self.owner(run_id, agent), Command::DeclineRun(decline))
            }
            40 => (boss, Command::CancelRun(RunAndWhy { reason: None, run_id: self.run() })),
            41..=42 => {
                let held = self.held()?;
                (held.caller(), held.releases())
            }
            43 => (boss, Command::TaskComplete(Complete::default())),
            44 if self.c.is_multiple_of(4) => (boss, Command::TaskFail(Close::default())),
            45 if self.c.is_multiple_of(4) => (boss, Command::TaskCancel(Close::default())),
            44..=45 => (boss, self.moves(kind)),
            46..=51 => (boss, self.moves(kind)),
            52 if self.c.is_multiple_of(2) => (boss, Command::TaskFact(self.fact())),
            52 => (boss, Command::AppendTaskProgress(self.progress())),
            53 if self.c.is_multiple_of(4) || self.world.task.is_terminal() => {
                (boss, Command::ArchiveTask(why()))
            }
            53 => (boss, Command::AppendTaskProgress(self.progress())),
            54 => {
                let step_ids = (self.c.is_multiple_of(3)).then(|| vec![id(&self.step(self.a))]);
                (boss, Command::RetryTask(RetrySteps { reason: reason("again", ""), step_ids }))
            }
            55 => (boss, self.relate()),
            56 => (caller(agent, Role::ALL[usize::from(self.c) % 4]), Command::BlockTask(why())),
            _ => (boss, patch(self.operations())),
        })
    }

    /// A move between live statuses, most often one that the Task can make.
    fn moves(&self, kind: u8) -> Command {
        let why = Why::default();
        match self.world.task.head().status {
            TaskStatus::Draft => Command::SubmitTask(why),
            TaskStatus::Blocked => Command::ReopenTask(why),
            TaskStatus::Paused => Command::ResumeTask(why),
            _ if self.b.is_multiple_of(4) => Command::BlockTask(why),
            _ if self.b % 4 == 1 => Command::PauseTask(why),
            _ if kind.is_multiple_of(8) => Command::SubmitTask(why),
            _ => Command::AppendTaskProgress(self.progress()),
        }
    }

    /// The worker of a Run, or anybody of its pool.
    fn owner(&self, run_id: RunId, agent: &str) -> Caller {
        let run = self.world.task.run(run_id);
        let agent = run.and_then(|r| r.worker_id.as_ref()).map_or(agent, |w| w.as_str());
        worker(agent, run.map_or(POOL, |r| r.worker_pool_id.as_str()), Some(run_id))
    }

    fn fact(&self) -> KeepFact {
        let kind = FactKind::ALL[usize::from(self.a) % FactKind::ALL.len()];
        let payload = Value::json(if self.b.is_multiple_of(4) { *b"null" } else { *b"true" });
        let key = ["a", "b"][usize::from(self.a / 2) % 2].into();
        let then = match self.b % 3 {
            0 => vec![Command::PauseTask(Why::default())],
            1 => vec![Command::ResumeTask(Why::default())],
            _ => Vec::new(),
        };
        KeepFact { then, ..KeepFact::alone(kind, key, payload) }
    }

    fn progress(&self) -> AppendProgress {
        let artifact =
            json!({"artifact_id": "x", "name": "x", "kind": "text", "state": "available"});
        let artifacts = vec![serde_json::from_value(artifact).unwrap()];
        let delivery_state = (self.b.is_multiple_of(2)).then_some(DeliveryState::Queued);
        match self.a % 3 {
            0 => AppendProgress { delivery_state, artifacts, ..AppendProgress::default() },
            1 => AppendProgress {
                input_refs: vec![Ref::new("mem:late").unwrap()],
                ..AppendProgress::default()
            },
            _ => AppendProgress { delivery_state, ..AppendProgress::default() },
        }
    }

    fn relate(&self) -> Command {
        let other = Ref::new(format!("other-{}", self.a % 3)).unwrap();
        if self.b.is_multiple_of(2) {
            let kind = EdgeKind::ALL[usize::from(self.c) % EdgeKind::ALL.len()];
            return Command::LinkTasks(Link { kind, reason: None, to: other });
        }
        let edge_id = format!("source_task:t:{other}").parse().unwrap();
        Command::UnlinkTasks(Unlink { edge_id, reason: None })
    }

    /// One to three operations of a patch.
    fn operations(&self) -> serde_json::Value {
        // Mixed, so that three bytes are enough for several operations.
        let bytes = u64::from(self.a) | u64::from(self.b) << 8 | u64::from(self.c) << 16;
        let mut bits = Bits(bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let count = 1 + bits.below(3);
        let one = |_| {
            let step = self.step(bits.below(250) as u8);
            let other = self.step(bits.below(250) as u8);
            match bits.below(11) {
                0 => {
                    json!({"op": "add_step", "step": {"step_id": step_name(bits.below(9) as usize), "title": "", "summary": "",
                    "depends_on_step_ids": [other]}})
                }
                1 => json!({"op": "update_step", "step_id": step, "fields": {"title": "new"}}),
                2 => json!({"op": "update_step", "step_id": step,
                    "fields": {"depends_on_step_ids": [other], "required": bits.one_in(2)}}),
                3 => json!({"op": "delete_step", "step_id": step}),
                4 => json!({"op": "add_dependency", "step_id": step, "depends_on_step_id": other}),
                5 => {
                    json!({"op": "remove_dependency", "step_id": step, "depends_on_step_id": other})
                }
                6 => json!({"op": "cancel_step", "step_id": step}),
                7 => json!({"op": "reopen_step", "step_id": step}),
                8 => {
                    let policy = bits.of(&["auto", "manual"]);
                    let retry = bits.of(&[Some(30_u64), None]);
                    let on_failure = bits.of(&[None, Some("stop"), Some("drain"), Some("finish")]);
                    json!({"op": "update_task", "completion": policy, "on_failure": on_failure,
                        "optional_wait_ms": bits.of(&[None, Some(40)]),
                        "retry_policy": retry.map(|ms| json!({"schedule_to_start_ms": ms}))})
                }
                9 => {
                    json!({"op": "update_step", "step_id": step, "fields": {"inputs_from": [other]}})
                }
                _ => json!({"op": "update_step", "step_id": step,
                    "fields": {"worker_pool_id": POOLS[0], "handler": HANDLERS[1]}}),
            }
        };
        (0..count).map(one).collect()
    }
}

/// The Task of another's records, as they are stored.
fn made_again(task: &Task) -> Task {
    let stored = rmp_serde::to_vec_named(&task.clone().into_snapshot()).unwrap();
    let records: TaskSnapshot = rmp_serde::from_slice(&stored).unwrap();
    assert_eq!(records.version(), task.version());
    let made = Task::of_snapshot(records);
    assert_eq!(&made, task);
    made.check_invariants().expect("the invariants hold for what was made again");
    made
}

fn policies(bits: u8) -> (Policy, Policy) {
    let of = |bit: u8| if bits >> bit & 1 == 0 { Policy::Auto } else { Policy::Manual };
    (of(0), of(1))
}

/// Carries one operation out; `c` also says when the group ends and how.
fn step_world(world: &mut World, (kind, a, b, c): Op) {
    world.now += i64::from(a % 8);
    if kind >= 250 {
        let due = world.task.next_due();
        world.now = world.now.max(due.unwrap_or(world.now));
    }
    let reader = Reader { world, a, b, c };
    let Some((asker, command)) = reader.command(kind) else { return };
    let id = (b.is_multiple_of(3)).then_some(c);
    world.asked += 1;
    let expected = (c % 32 == 7).then_some(world.task.version().saturating_sub(u64::from(a % 2)));
    let _ = world.decide(&asker, &command, id, expected);
    match b % 8 {
        0 | 1 => {}
        2 => world.abort(),
        _ => world.settle(),
    }
}

/// All operations, or up to a few after the end, where nearly everything is refused.
fn live_through(world: &mut World, ops: Vec<Op>) {
    let mut after_the_end = 0;
    for op in ops {
        after_the_end += usize::from(world.task.is_terminal());
        if after_the_end > 5 {
            return;
        }
        step_world(world, op);
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(4_000))]

    /// RECOVER-01, WAL-08, WAL-11, WAL-13, READY-03, ATT-02, ATT-04, ATT-07, LEASE-13, OCC-01,
    /// TERM-19, TERM-21 and the tables of section 3, on any history.
    #[test]
    fn any_history_is_lawful(
        seed in task_seed(),
        kinds in any::<u8>(),
        ops in prop::collection::vec(any::<Op>(), 0..60),
    ) {
        let (dispatch, completion) = policies(kinds);
        let mut world = World::new(&create_of(&seed, true), dispatch, completion);
        live_through(&mut world, ops);
        world.settle();
        world.check_history();
        // LEASE-15, RECOVER-01: a new owner goes on from the log alone.
        world.task = world.durable.clone();
        world.now += 1_000;
        for _ in 0..200 {
            if world.task.next_due().is_none_or(|due| due > world.now) {
                break;
            }
            world.decide(&system(), &Command::Due, None, None).expect("what is due is decided");
            world.settle();
        }
        let due = world.task.next_due();
        prop_assert!(due.is_none_or(|due| due > world.now), "RECOVER-09: judged once, at {due:?}");
    }

    /// POL-04, DISP-14: an automatic Task whose workers complete what they get ends `completed`.
    #[test]
    fn an_automatic_task_completes(seed in task_seed(), picks in any::<[u8; 16]>()) {
        let mut world = World::new(&create_of(&seed, false), Policy::Auto, Policy::Auto);
        drive(&mut world, &picks, &|_| Some(StepStatus::Completed));
        prop_assert_eq!(world.task.head().status, TaskStatus::Completed);
        world.check_history();
    }

    /// POL-04 to POL-06, RETRY-04, RETRY-08: whatever its workers do short of asking for help, an
    /// automatic Task with bounded retries ends.
    #[test]
    fn an_automatic_task_ends(seed in task_seed(), picks in any::<[u8; 16]>()) {
        let mut steps = create_of(&seed, false).steps;
        steps.iter_mut().for_each(|s| s.retry_policy = None);
        // Without a required Step it may wait for ever, behind an optional one that failed (TASK-21).
        steps[0].required = None;
        let given = CreateTask { steps, ..create_input("a") };
        let mut world = World::new(&given, Policy::Auto, Policy::Auto);
        drive(&mut world, &picks, &|pick| match pick % 4 {
            0 => Some(StepStatus::Completed),
            1 => Some(StepStatus::Failed),
            2 => Some(StepStatus::Cancelled),
            _ => None,
        });
        prop_assert!(world.task.is_terminal(), "{}", world.history());
        world.check_history();
    }
}

proptest! {
    #![proptest_config(config(1_000))]

    /// RECOVER-01, mechanisms 5: a Task made of its stored records is what its log makes, wherever
    /// that is cut off, and goes on as that does.
    #[test]
    fn a_task_made_of_its_records_goes_on_as_it_would(
        seed in task_seed(),
        kinds in any::<u8>(),
        ops in prop::collection::vec(any::<Op>(), 0..60),
    ) {
        let (dispatch, completion) = policies(kinds);
        let given = create_of(&seed, true);
        let mut folded = World::new(&given, dispatch, completion);
        let mut made = World::new(&given, dispatch, completion);
        for op in ops {
            step_world(&mut folded, op);
            step_world(&mut made, op);
            prop_assert_eq!(&folded.in_flight, &made.in_flight);
            let durable = folded.durable.clone().into_snapshot();
            prop_assert_eq!(folded.task.clone().into_snapshot(), durable, "nothing that is not durable");
            if folded.in_flight.is_empty() {
                folded.task = folded.durable.clone(); // Both forget what only memory holds.
                made.task = made_again(&made.durable);
            }
        }
        folded.settle();
        made.settle();
        prop_assert_eq!(folded.log, made.log);
    }
}

/// Gives Steps to workers until nothing is ready and nothing waits for time. `says` is what a
/// worker reports; none: its lease runs out.
fn drive(world: &mut World, picks: &[u8], says: &dyn Fn(u8) -> Option<StepStatus>) {
    let mut picks = picks.iter().cycle().copied().zip(0_u32..2_000);
    let mut holding: Vec<(Caller, Held)> = Vec::new();
    while let Some((pick, round)) = picks.next().filter(|_| !world.task.is_terminal()) {
        // Shifted from time to time, or picks that repeat in step with the rounds never offer a pool.
        let turn = (round + round / 16) as usize;
        let pool = POOLS[(usize::from(pick) + turn) % POOLS.len()];
        let grant = Grant {
            worker_id: agent_id(AGENTS[round as usize % AGENTS.len()]),
            worker_pool_id: pool_id(pool),
            origin: None,
            handlers: None,
            may_be_suspect: true,
        };
        let before = world.attempts().count();
        if !world.task.is_closing() {
            world.decide(&system(), &Command::GrantStep(grant), None, None).expect("a grant");
        }
        let new = world.attempts().nth(before).cloned();
        if let Some(attempt) = new {
            let caller = worker(attempt.worker_id.as_str(), pool, Some(attempt.run_id));
            let held = Held {
                step_id: attempt.step_id.to_string(),
                run_id: attempt.run_id,
                attempt_id: attempt.attempt_id,
                token: attempt.fencing_token,
                worker: attempt.worker_id.to_string(),
                pool: pool.to_owned(),
            };
            holding.push((caller, held));
        }
        if (pick % 3 != 0 || round % 3 == 0) && !holding.is_empty() {
            let (caller, held) = holding.swap_remove(usize::from(pick) % holding.len());
            let (caller, command) = match says(pick / 3) {
                Some(status) => (caller, held.reports(status)),
                None => (system(), expire(&[&held], LeaseEnd::LeaseExpired)),
            };
            world.decide(&caller, &command, None, None).expect("its attempt is current");
        }
        if let Some(due) = world.task.next_due() {
            world.now = world.now.max(due);
            world.decide(&system(), &Command::Due, None, None).expect("what is due is decided");
        }
        world.settle();
    }
}

/// The generator reaches what it is there for: of its commands a good part is accepted, and
/// histories end in every way.
#[test]
fn the_random_histories_are_worth_something() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(config(1), rng);
    let strategy = (task_seed(), any::<u8>(), prop::collection::vec(any::<Op>(), 60..61));
    let (mut asked, mut accepted) = (0, 0);
    let (mut ended, mut types) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..600 {
        let (seed, kinds, ops) = strategy.new_tree(&mut runner).unwrap().current();
        let (dispatch, completion) = policies(kinds);
        let mut world = World::new(&create_of(&seed, true), dispatch, completion);
        live_through(&mut world, ops);
        world.settle();
        (asked, accepted) = (asked + world.asked, accepted + world.accepted);
        *ended.entry(world.task.head().status.as_str()).or_insert(0) += 1;
        for event in world.log.iter().flat_map(|c| &c.events) {
            *types.entry(event.body.event_type()).or_insert(0) += 1;
        }
    }
    assert!(accepted * 3 > asked, "{accepted} of {asked} commands were accepted");
    let missing: Vec<_> = Body::TYPES.iter().filter(|t| !types.contains_key(*t)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}; seen: {types:?}");
    for status in TaskStatus::ALL {
        assert!(ended.contains_key(status.as_str()), "{status} is never the end: {ended:?}");
    }
}

/// PATCH-17: a patch changes the edges of a Step and of one that it waits for, and what the one means for the other
/// falls before it has risen. Each signal counts once.
#[test]
fn a_patch_of_steps_that_wait_for_each_other_counts_each_signal_once() {
    let seed = (vec![(0, 0), (0, 32), (1, 0), (76, 0), (0, 8), (104, 0)], 50184);
    let ops: Vec<Op> = vec![
        (238, 0, 3, 0),
        (64, 33, 3, 1),
        (57, 110, 102, 10),
        (99, 17, 3, 9),
        (74, 73, 220, 0),
        (185, 74, 177, 231),
    ];
    let (dispatch, completion) = policies(0);
    let given = create_of(&seed, true);
    let mut folded = World::new(&given, dispatch, completion);
    let mut made = World::new(&given, dispatch, completion);
    for op in ops {
        step_world(&mut folded, op);
        step_world(&mut made, op);
        if folded.in_flight.is_empty() {
            folded.task = folded.durable.clone();
            made.task = made_again(&made.durable);
        }
    }
    folded.settle();
    made.settle();
    assert_eq!(folded.log, made.log);
}
