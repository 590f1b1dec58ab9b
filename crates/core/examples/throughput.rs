//! How many Step lifecycles (grant, complete) a second the core decides, applies and settles, on
//! Tasks of several shapes and sizes, and what a Task of 100,000 Steps takes in time and memory.
//!
//! ```text
//! cargo run --release -p tenure-core --example throughput [shape] [steps]
//! ```
//!
//! The figures are of one thread and its CPU time. What must hold: 300,000 lifecycles a second, a cost per Step at
//! 100,000 Steps of at most 1.3 times that at 1,000, a create of 100,000 Steps and 200,000 edges
//! well under a second, and less than 1 KB of memory per Step.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, unsafe_code)]
#![allow(clippy::disallowed_types, clippy::cast_precision_loss, clippy::cast_possible_truncation)]

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mimalloc::MiMalloc;
use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{Grant, StepReport};
use tenure_core::id::{AgentId, CommandId, CommitId, Digest, PoolId, RunId, SessionId, StepId};
use tenure_core::patch::StepInput;
use tenure_core::status::{Policy, Role, StepStatus, TaskStatus};
use tenure_core::task::Made;
use tenure_core::{Caller, Command, Cx, Limits, Stamp, Task};
use uuid::Uuid;

/// Counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static CALLS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands every call on to mimalloc unchanged, and counts beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { MiMalloc.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { MiMalloc.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        IN_USE.fetch_add(new_size, Ordering::Relaxed);
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { MiMalloc.realloc(at, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

/// Time this thread was on a CPU, where the system tells; else the time of day: figures shall not
/// depend on what else the machine does.
fn busy() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ns = told.as_ref().and_then(|t| t.split_whitespace().next()?.parse().ok());
    let wall = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    ns.map_or_else(wall, Duration::from_nanos)
}

/// A DAG by its size and the dependencies of each Step.
type Shape = (&'static str, fn(usize, usize) -> Vec<usize>);

const SHAPES: [Shape; 4] = [
    ("independent", |_, _| Vec::new()),
    ("chain", |at, _| at.checked_sub(1).into_iter().collect()),
    ("fan-out, fan-in", |at, steps| match at {
        0 => Vec::new(),
        _ if at + 1 == steps => (1..at).collect(),
        _ => vec![0],
    }),
    ("layers of 100", |at, _| match at / 100 {
        0 => Vec::new(),
        layer => vec![(layer - 1) * 100 + at % 100, (layer - 1) * 100 + (at + 7) % 100],
    }),
];

fn name(at: usize) -> StepId {
    StepId::new(format!("step-{at:06}")).unwrap()
}

fn create_input(steps: usize, depends_on: fn(usize, usize) -> Vec<usize>) -> CreateTask {
    let step = |at: usize| StepInput {
        assignee: None,
        claim_only_by: None,
        ext: None,
        depends_on_step_ids: depends_on(at, steps).into_iter().map(name).collect(),
        handler: None,
        input: None,
        inputs_from: None,
        required: None,
        retry_policy: None,
        step_id: name(at),
        summary: "what this step is to do".into(),
        title: format!("step {at}").into(),
        worker_pool_id: None,
    };
    CreateTask {
        steps: (0..steps).map(step).collect(),
        task_id: Some("throughput".parse().unwrap()),
        title: "title".into(),
        summary: "summary".into(),
        ..CreateTask::default()
    }
}

/// Everything a command comes with; ids are as long as real ones.
struct Host {
    session: SessionId,
    pool: PoolId,
    workers: Vec<AgentId>,
    limits: Limits,
    ids: u128,
}

impl Host {
    fn new() -> Self {
        let worker = |n| AgentId::new(format!("worker-{n:02}.eu-west-1.example")).unwrap();
        Self {
            session: SessionId::new("session").unwrap(),
            pool: PoolId::new("main").unwrap(),
            workers: (0..32).map(worker).collect(),
            limits: Limits::default(),
            ids: 1 << 100,
        }
    }

    fn id(&mut self) -> Uuid {
        self.ids += 0x0001_0000_0000_0001;
        Uuid::from_u128(self.ids)
    }

    fn stamp(&mut self) -> Stamp {
        Stamp {
            now: 1_000_000,
            steady: 1_000_000,
            commit_id: CommitId(self.id()),
            run_id: RunId(self.id()),
            attempt_id: tenure_core::id::AttemptId(self.id()),
            random: self.ids as u64,
        }
    }

    fn create(&mut self, given: &CreateTask) -> Task {
        let caller = Caller {
            agent: AgentId::new("publisher").unwrap(),
            role: Role::Orchestrator,
            session_id: self.session.clone(),
            run_id: None,
            worker_pool_id: None,
            origin: None,
        };
        let command_id = CommandId::new(self.id().to_string()).unwrap();
        let stamp = self.stamp();
        let cx = self.cx(&caller, stamp, Some(&command_id));
        let defaults = Defaults { policy: Policy::Auto, worker_pool_id: self.pool.clone() };
        Task::create(&cx, given, &defaults, None).unwrap().0
    }

    fn cx<'a>(&'a self, caller: &'a Caller, stamp: Stamp, id: Option<&'a CommandId>) -> Cx<'a> {
        Cx {
            caller,
            stamp,
            command_id: id,
            digest: id.map(|_| Digest::first([7; 32])),
            expected_version: None,
            expected_spec_version: None,
            trace: None,
            epoch: 1,
            limits: &self.limits,
        }
    }

    /// One Step from ready to completed. `false`: nothing is ready.
    fn lifecycle(&mut self, task: &mut Task, system: &Caller, n: usize) -> bool {
        let worker_id = self.workers[n % self.workers.len()].clone();
        let grant = Grant {
            worker_id,
            worker_pool_id: self.pool.clone(),
            origin: None,
            handlers: None,
            may_be_suspect: true,
        };
        let stamp = self.stamp();
        let granted =
            task.decide(&self.cx(system, stamp, None), &Command::GrantStep(grant)).unwrap();
        task.settle();
        let Made::Attempt(at) = granted.reply.made else { return false };
        let attempt = task.attempt_at(at);
        let caller = Caller {
            agent: attempt.worker_id.clone(),
            role: Role::Worker,
            session_id: self.session.clone(),
            run_id: Some(attempt.run_id),
            worker_pool_id: Some(self.pool.clone()),
            origin: None,
        };
        let report = StepReport {
            attempt_id: Some(attempt.attempt_id),
            fencing_token: Some(attempt.fencing_token),
            status: Some(StepStatus::Completed),
            ..StepReport::on(attempt.step_id.clone())
        };
        let command_id = CommandId::new(self.id().to_string()).unwrap();
        let stamp = self.stamp();
        let cx = self.cx(&caller, stamp, Some(&command_id));
        task.decide(&cx, &Command::TaskUpdateStep(report)).unwrap();
        task.settle();
        true
    }

    /// Runs a Task to its end.
    fn run(&mut self, task: &mut Task) -> (usize, Duration) {
        let system = Caller::system(self.session.clone());
        let started = busy();
        let mut n = 0;
        while task.head().status != TaskStatus::Completed && self.lifecycle(task, &system, n) {
            n += 1;
        }
        (n, busy() - started)
    }
}

/// Runs Tasks of one shape and size, at least 200,000 Steps in all; answers ns per lifecycle.
fn measure(steps: usize, depends_on: fn(usize, usize) -> Vec<usize>) -> (f64, f64) {
    let mut host = Host::new();
    let given = create_input(steps, depends_on);
    let (mut done, mut took, mut calls) = (0, Duration::ZERO, 0);
    while done < 200_000 {
        let mut task = host.create(&given);
        let before = CALLS.load(Ordering::Relaxed);
        let (n, time) = host.run(&mut task);
        calls += CALLS.load(Ordering::Relaxed) - before;
        assert_eq!((n, task.head().status), (steps, TaskStatus::Completed));
        (done, took) = (done + n, took + time);
    }
    (took.as_nanos() as f64 / done as f64, calls as f64 / done as f64)
}

fn create_and_weigh(steps: usize) {
    let given = create_input(steps, |at, _| match at {
        0 => Vec::new(),
        1 => vec![0],
        _ => vec![at / 2, at - 1],
    });
    let mut host = Host::new();
    let started = busy();
    let task = host.create(&given);
    let took = busy() - started;
    drop(given);
    let with = in_use();
    drop(task);
    let fresh = (with - in_use()) / steps;
    let given = create_input(steps, |_, _| Vec::new());
    let mut task = host.create(&given);
    host.run(&mut task);
    drop(given);
    let with = in_use();
    drop(task);
    let ended = (with - in_use()) / steps;
    println!(
        "create of {steps} steps, 2 edges each: {took:?}; {fresh} bytes a step, {ended} once each \
         has run, its attempt, run and command included"
    );
}

fn main() {
    let mut args = std::env::args().skip(1);
    let only = args.next();
    let sizes: Vec<usize> =
        args.next().map_or(vec![1_000, 100_000], |n| vec![n.parse().expect("a number of steps")]);
    for (shape, depends_on) in SHAPES {
        if only.as_deref().is_some_and(|only| only != shape) {
            continue;
        }
        let costs: Vec<(f64, f64)> = sizes.iter().map(|&n| measure(n, depends_on)).collect();
        for (steps, (ns, calls)) in sizes.iter().zip(&costs) {
            println!(
                "{shape:>16} {steps:>7} steps: {:>9.0} lifecycles/s, {ns:>6.0} ns and {calls:.1} allocations each",
                1e9 / ns
            );
        }
        if let [(small, _), (large, _)] = costs[..] {
            println!("{:>16} cost at the larger size: {:.2} times", "", large / small);
        }
    }
    if only.is_none() {
        create_and_weigh(100_000);
    }
}
