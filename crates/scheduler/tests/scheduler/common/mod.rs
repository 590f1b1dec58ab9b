//! A node on a journal in memory that fails when told to, and the things tests do with it.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, unreachable_pub, missing_docs)]

mod hand;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::panic;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use tenure_core::command::create::CreateTask;
use tenure_core::command::{Close, RunOutcome, StepReport};
use tenure_core::id::{
    AgentId, AttemptId, CommandId, HandlerName, Millis, PoolId, SessionId, StepId, TaskId,
};
use tenure_core::patch::StepInput;
use tenure_core::record::RetryPolicy;
use tenure_core::status::{Policy, Role, StepStatus, TaskStatus};
use tenure_core::view::ClaimResult;
pub use tenure_core::view::View;
use tenure_core::{Caller, Command, Rejection, Task};
use tenure_local::MemoryLeases;
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::{Lease, LeaseError, Scan};
use tenure_ports::observer::LeaseCall;
use tenure_ports::{Journal, Leases};
use tenure_scheduler::{Config, Envelope, Machine, Scheduler, WorkerLink, WriteAnswer};
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tenure_testkit::{Faulty, MemoryJournal, wired};
use tokio::time::Instant;

pub use self::hand::Hand;

pub type Node = Scheduler<Faulty<MemoryJournal>, MemoryLeases>;
pub type Pool = WorkerPool<wired::Worker<WorkerLink<Faulty<MemoryJournal>, MemoryLeases>>>;

pub const POOL: &str = "default";

pub async fn node() -> Node {
    node_on(Arc::new(Faulty::new(MemoryJournal::default()))).await
}

/// A machine whose time is the runtime's, but for what is done to it by hand.
#[derive(Debug)]
pub struct Hands {
    started: Instant,
    /// By how much the system's clock was set, in milliseconds.
    set: AtomicI64,
    /// For how long the machine was suspended, in milliseconds.
    slept: AtomicI64,
}

impl Hands {
    /// What its clock says at first, in Unix milliseconds.
    pub const FIRST: Millis = 1_700_000_000_000;

    pub fn new() -> Arc<Self> {
        let (set, slept) = (AtomicI64::new(0), AtomicI64::new(0));
        Arc::new(Self { started: Instant::now(), set, slept })
    }

    pub fn set_clock(&self, by_ms: Millis) {
        self.set.fetch_add(by_ms, Ordering::SeqCst);
    }

    pub fn suspend(&self, ms: Millis) {
        self.slept.fetch_add(ms, Ordering::SeqCst);
    }

    /// What a clock says that nobody sets.
    pub fn right(&self) -> Millis {
        Self::FIRST + Millis::try_from(self.passed().as_millis()).unwrap()
    }
}

impl Machine for Hands {
    fn wall(&self) -> Millis {
        self.right() + self.set.load(Ordering::SeqCst)
    }

    fn passed(&self) -> Duration {
        self.started.elapsed() + self.suspended()
    }

    fn suspended(&self) -> Duration {
        Duration::from_millis(self.slept.load(Ordering::SeqCst).unsigned_abs())
    }
}

/// A node on a machine, embedded or as one of a cluster.
pub async fn node_by(
    machine: &Arc<Hands>,
    journal: &Arc<Faulty<MemoryJournal>>,
    embedded: bool,
) -> Node {
    let machine: Arc<dyn Machine> = Arc::clone(machine) as _;
    let config = Config { embedded, machine, ..Config::embedded(PoolId::new(POOL).unwrap()) };
    let leases = Arc::new(MemoryLeases::default());
    Scheduler::start(Arc::clone(journal), leases, config).await.unwrap()
}

pub async fn node_on(journal: Arc<Faulty<MemoryJournal>>) -> Node {
    let config = Config::embedded(PoolId::new(POOL).unwrap());
    Scheduler::start(journal, Arc::new(MemoryLeases::default()), config).await.unwrap()
}

/// A store of leases that answers, fails or hangs, as it is told.
#[derive(Default)]
pub struct Moody {
    pub inner: MemoryLeases,
    mood: Mutex<Mood>,
    /// What fails whatever the mood.
    failing: Mutex<Option<LeaseCall>>,
    kept: Mutex<BTreeSet<AttemptId>>,
}

#[derive(Clone, Copy, Default)]
pub enum Mood {
    #[default]
    Answers,
    Fails,
    Hangs,
}

impl Moody {
    pub fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub fn set_failing(&self, call: Option<LeaseCall>) {
        *self.failing.lock().unwrap() = call;
    }

    /// The Attempts whose leases are there, ended ones included.
    pub fn kept(&self) -> BTreeSet<AttemptId> {
        self.kept.lock().unwrap().clone()
    }

    /// Sets leases, if it answers.
    async fn put(
        &self,
        call: LeaseCall,
        leases: &[Lease],
        set: impl Future<Output = Result<(), LeaseError>>,
    ) -> Result<(), LeaseError> {
        self.answer(call, set).await?;
        self.kept.lock().unwrap().extend(leases.iter().map(|lease| lease.attempt_id));
        Ok(())
    }

    async fn answer<T>(
        &self,
        call: LeaseCall,
        answer: impl Future<Output = Result<T, LeaseError>>,
    ) -> Result<T, LeaseError> {
        let mood = *self.mood.lock().unwrap();
        if *self.failing.lock().unwrap() == Some(call) {
            return Err(LeaseError("it did not get this".into()));
        }
        match mood {
            Mood::Answers => answer.await,
            Mood::Fails => Err(LeaseError("it is away".into())),
            Mood::Hangs => std::future::pending().await,
        }
    }
}

impl Leases for Moody {
    async fn acquire(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.put(LeaseCall::Acquire, &leases.clone(), self.inner.acquire(leases)).await
    }

    async fn renew(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.put(LeaseCall::Renew, &leases.clone(), self.inner.renew(leases)).await
    }

    async fn raise(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.put(LeaseCall::Raise, &leases.clone(), self.inner.raise(leases)).await
    }

    async fn ensure(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.put(LeaseCall::Ensure, &leases.clone(), self.inner.ensure(leases)).await
    }

    async fn release(&self, attempts: Vec<AttemptId>) -> Result<(), LeaseError> {
        self.answer(LeaseCall::Release, self.inner.release(attempts.clone())).await?;
        self.kept.lock().unwrap().retain(|kept| !attempts.contains(kept));
        Ok(())
    }

    async fn expired(&self) -> Result<Scan, LeaseError> {
        self.answer(LeaseCall::Scan, self.inner.expired()).await
    }

    fn left_ms(&self, attempt: AttemptId) -> Option<u64> {
        self.inner.left_ms(attempt)
    }
}

/// What the holder of a claim says when it is done.
pub fn completes(claim: &ClaimResult) -> StepReport {
    StepReport {
        attempt_id: Some(claim.attempt_id),
        fencing_token: Some(claim.fencing_token),
        status: Some(StepStatus::Completed),
        ..StepReport::on(claim.step.step_id.clone())
    }
}

pub fn orchestrator() -> Caller {
    Caller {
        agent: AgentId::new("o").unwrap(),
        role: Role::Orchestrator,
        session_id: session(),
        run_id: None,
        worker_pool_id: None,
        origin: None,
    }
}

pub fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

pub fn envelope() -> Envelope {
    let id = CommandId::new(uuid::Uuid::now_v7().to_string()).unwrap();
    Envelope::new(orchestrator(), Some(id))
}

pub fn key(task: &str) -> TaskKey {
    TaskKey { session_id: session(), task_id: TaskId::new(task).unwrap() }
}

pub fn step_id(id: &str) -> StepId {
    StepId::new(id).unwrap()
}

/// A defect of the core, as a Task whose records do not agree after a decision, ends the process: the actor
/// of the Task would be replaced by another that reads its log, and the test might go on.
fn no_defect_of_the_core_is_survived() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            told(panicked);
            if panicked.location().is_some_and(|at| at.file().contains("crates/core/src")) {
                std::process::abort();
            }
        }));
    });
}

/// `"a b c<-a,b"`: three Steps, the last after the others; all of handler `h`.
pub fn dag(task: &str, text: &str) -> CreateTask {
    no_defect_of_the_core_is_survived();
    let steps = text.split_whitespace().map(|word| {
        let (id, on) = word.split_once("<-").unwrap_or((word, ""));
        StepInput {
            assignee: None,
            claim_only_by: None,
            ext: None,
            depends_on_step_ids: on.split(',').filter(|s| !s.is_empty()).map(step_id).collect(),
            handler: Some(HandlerName::new("h").unwrap()),
            input: None,
            inputs_from: None,
            required: None,
            retry_policy: None,
            step_id: step_id(id),
            summary: id.into(),
            title: id.into(),
            worker_pool_id: None,
        }
    });
    CreateTask {
        steps: steps.collect(),
        summary: task.into(),
        task_id: Some(TaskId::new(task).unwrap()),
        title: task.into(),
        ..CreateTask::default()
    }
}

pub fn with_policy(mut task: CreateTask, policy: RetryPolicy) -> CreateTask {
    task.retry_policy = Some(Arc::new(policy));
    task
}

pub async fn create(node: &Node, input: CreateTask) -> Result<TaskKey, Rejection> {
    let key = key(input.task_id.as_ref().unwrap().as_str());
    node.create(envelope(), input, Policy::Auto).await?;
    Ok(key)
}

pub async fn cancel(node: &Node, key: &TaskKey) -> Result<WriteAnswer, Rejection> {
    node.command(key, envelope(), Command::TaskCancel(Close::default())).await
}

/// Workers whose only handler is `h`. What they say and are sent is bytes on its way (mechanisms 18).
pub fn workers<F, Fut>(node: &Node, n: usize, h: F) -> Pool
where
    F: Fn(tenure_sdk::worker::StepContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), tenure_sdk::worker::HandlerError>> + Send + 'static,
{
    let id = AgentId::new(format!("w-{}", uuid::Uuid::now_v7())).unwrap();
    let (link, inbox) = node.join(id, PoolId::new(POOL).unwrap(), None).unwrap();
    let (link, inbox) = wired::Worker::new(link, inbox);
    let mut options = Options::new(NonZeroUsize::new(n).unwrap());
    options.grace = Duration::from_secs(2);
    WorkerPool::start(link, inbox, Handlers::new().on("h", h).unwrap(), options)
}

/// Workers that complete every Step.
pub fn completing(node: &Node, n: usize) -> Pool {
    workers(node, n, |ctx| async move { Ok(ctx.complete(None)?) })
}

pub async fn status(node: &Node, key: &TaskKey) -> TaskStatus {
    node.read(key, |task| task.head().status).await.unwrap()
}

pub async fn step_status<J: Journal, L: Leases>(
    node: &Scheduler<J, L>,
    key: &TaskKey,
    id: &str,
) -> StepStatus {
    let id = step_id(id);
    node.read(key, move |task| task.step(&id).unwrap().state.status).await.unwrap()
}

/// Waits for a condition on the Task, never for a time alone.
pub async fn until(node: &Node, key: &TaskKey, what: fn(&View<'_>) -> bool) {
    let found = async {
        while !node.read(key, what).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), found).await.expect("the condition comes true");
}

/// Event types of the Task's log, in order.
pub async fn events(node: &Node, key: &TaskKey) -> Vec<&'static str> {
    let commits = node.commits(key).await.unwrap();
    commits.iter().flat_map(|c| c.events.iter().map(|e| e.body.event_type())).collect()
}

pub async fn replayed(node: &Node, key: &TaskKey) -> Task {
    tenure_scheduler::load(&**node.journal(), key).await.unwrap()
}

pub const FINISHED: RunOutcome = RunOutcome::Finished;
