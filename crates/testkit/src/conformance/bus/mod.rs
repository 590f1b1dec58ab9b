//! The conformance suite of the bus between a scheduler and its workers and callers.
//!
//! What a message says is decided by the scheduler, whose own tests check it. This suite checks how
//! messages are carried: to whom, in which order, how often, and what a sender learns if nobody
//! listens.

mod blobs;
mod callers;
mod workers;

use std::future::Future;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use tenure_core::command::StepReport;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{CommandId, PoolId, StepId, TaskId};
use tenure_core::patch::StepInput;
use tenure_core::record::Value;
use tenure_core::status::{Policy, Role, StepStatus};
use tenure_core::view::{ClaimResult, GetInput, RunOffer, StepView, TaskView, WriteSummary};
use tenure_core::{Command, Context, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::bus::{Credit, Delivery, Holding, Pulse, Recorded, WorkerPort};
use tokio::time::timeout;

/// Whatever a check waits for comes sooner than this.
const SOON: Duration = Duration::from_secs(30);

/// How long a check listens where nothing may come.
const QUIET: Duration = Duration::from_millis(300);

/// A bus with a scheduler behind it, which stores blobs. Leases last at least a minute; what a Task does not set, the
/// scheduler decides.
///
/// Names that a check uses are its own: an adapter that is not fresh for each check makes other
/// names of them.
pub trait Bus {
    /// The worker port of this bus.
    type Worker: WorkerPort;
    /// The client port of this bus.
    type Client: ClientPort;

    /// The pool that workers join.
    fn pool(&self) -> PoolId;

    /// Has a boot of a worker join.
    fn worker(
        &self,
        principal: &str,
        boot: &str,
    ) -> impl Future<Output = (Self::Worker, UnboundedReceiver<Delivery>)>;

    /// Opens a caller's port to a session.
    fn client(&self, role: Role, session: &str) -> impl Future<Output = Self::Client>;

    /// Stops the scheduler; no other takes its place.
    fn stop(&self) -> impl Future<Output = ()>;
}

/// The contract of [`WorkerPort`] and [`ClientPort`]. `make` gives a bus and what must outlive it. Waits
/// on tokio's clock, so a bus in process may run the suite with the clock paused.
pub async fn bus_suite<B, G, F>(make: impl Fn() -> F)
where
    B: Bus,
    F: Future<Output = (B, G)>,
{
    macro_rules! run {
        ($($check:path),+ $(,)?) => {$({
            let (bus, _guard) = make().await;
            // Boxed, so that not every check needs the memory of the largest.
            Box::pin($check(&bus)).await;
        })+};
    }
    run!(
        workers::a_grant_is_for_one_boot_alone,
        workers::deliveries_come_in_their_order,
        workers::room_is_what_was_said_last,
        workers::a_report_is_answered_to_whoever_made_it,
        workers::a_heartbeat_is_answered_in_its_order,
        workers::whoever_is_to_stop_is_told,
        workers::late_input_comes_to_the_holder,
        workers::a_released_step_goes_to_another,
        workers::a_worker_that_has_left_gets_nothing,
        workers::a_run_is_offered_and_claimed_under_once,
        workers::a_value_up_to_the_limit_is_carried,
        blobs::a_large_value_goes_as_a_blob,
        callers::a_command_is_carried_out_once,
        callers::refusals_name_their_reason,
        callers::a_long_task_comes_whole,
        callers::public_events_are_of_one_task_and_in_order,
        callers::hints_stay_in_their_session,
    );
}

/// Checks what a bus answers when no scheduler listens any more.
pub async fn absence_suite<B, G, F>(make: impl Fn() -> F)
where
    B: Bus,
    F: Future<Output = (B, G)>,
{
    let (bus, _guard) = make().await;
    workers::whoever_speaks_to_nobody_is_told(&bus).await;
}

/// A worker that a check controls.
struct Hand<W> {
    port: W,
    deliveries: UnboundedReceiver<Delivery>,
    /// How many grants and offers came.
    seen: u64,
    /// How many statements of capacity were sent.
    said: u64,
}

impl<W: WorkerPort> Hand<W> {
    async fn join<B: Bus<Worker = W>>(bus: &B, principal: &str, boot: &str) -> Self {
        let (port, deliveries) = bus.worker(principal, boot).await;
        Self { port, deliveries, seen: 0, said: 0 }
    }

    /// States capacity for `free` more Steps.
    fn room(&mut self, free: u64) {
        self.said += 1;
        self.port.credit(Credit { free, seen: self.seen, lost: 0, number: self.said });
    }

    /// The next delivery. Skips notices that an Attempt is over, which may come after the worker's
    /// own final report.
    async fn next(&mut self) -> Delivery {
        loop {
            let next = timeout(SOON, self.deliveries.next()).await.expect("something comes");
            let next = next.expect("the worker is connected");
            self.seen += u64::from(matches!(next, Delivery::Grant(_) | Delivery::Run(_)));
            if !matches!(next, Delivery::Lost(_)) {
                return next;
            }
        }
    }

    async fn granted(&mut self) -> ClaimResult {
        match self.next().await {
            Delivery::Grant(claim) => *claim,
            other => panic!("no grant: {other:?}"),
        }
    }

    async fn offered(&mut self) -> RunOffer {
        match self.next().await {
            Delivery::Run(offer) => *offer,
            other => panic!("no run: {other:?}"),
        }
    }

    async fn stays_quiet(&mut self) -> bool {
        timeout(QUIET, self.deliveries.next()).await.is_err()
    }

    /// Reports on a claim; `say` fills in the report.
    async fn report(
        &self,
        claim: &ClaimResult,
        say: impl FnOnce(&mut StepReport),
    ) -> Result<Recorded, Rejection> {
        self.port.report(&Holding::of(claim), report_on(claim, say), None).await
    }

    /// Sends heartbeats until the last of these Attempts gets an answer: a bus need not wait for a
    /// slow one.
    async fn pulses(&self, holdings: &[Holding]) -> Vec<Pulse> {
        let answered = async {
            loop {
                let pulses = self.port.heartbeat(holdings).await;
                if !matches!(pulses.last(), Some(Pulse::Unknown)) {
                    return pulses;
                }
            }
        };
        timeout(SOON, answered).await.expect("heartbeats are answered")
    }

    async fn complete(&self, claim: &ClaimResult) -> Recorded {
        self.report(claim, |report| report.status = Some(StepStatus::Completed)).await.unwrap()
    }
}

fn report_on(claim: &ClaimResult, say: impl FnOnce(&mut StepReport)) -> StepReport {
    let mut report = StepReport {
        attempt_id: Some(claim.attempt_id),
        fencing_token: Some(claim.fencing_token),
        ..StepReport::on(claim.step.step_id.clone())
    };
    say(&mut report);
    report
}

/// A caller, and the pool for its Tasks.
struct Caller<C> {
    client: C,
    pool: PoolId,
}

impl<C: ClientPort> Caller<C> {
    async fn of<B: Bus<Client = C>>(bus: &B, session: &str) -> Self {
        Self { client: bus.client(Role::Orchestrator, session).await, pool: bus.pool() }
    }

    /// A Task of these Steps, without dependencies.
    fn task(&self, id: &TaskId, steps: &[&str]) -> CreateTask {
        CreateTask {
            default_worker_pool_id: Some(self.pool.clone()),
            steps: steps.iter().map(|id| step(id)).collect(),
            task_id: Some(id.clone()),
            title: id.as_str().into(),
            ..CreateTask::default()
        }
    }

    async fn create(&self, task: &str, steps: &[&str]) -> TaskId {
        let id = task_id(task);
        self.client.write(&id, context("create"), self.task(&id, steps)).await.unwrap();
        id
    }

    /// The same with manual dispatch and completion.
    async fn create_manual(&self, task: &str, steps: &[&str]) -> TaskId {
        let id = task_id(task);
        let manual = Some(Policy::Manual);
        let input = CreateTask { dispatch: manual, completion: manual, ..self.task(&id, steps) };
        self.client.write(&id, context("create"), input).await.unwrap();
        id
    }

    /// Carries out a command that must succeed.
    async fn say(&self, task: &TaskId, id: &str, command: Command) -> WriteSummary {
        self.client.write(task, context(id), command).await.unwrap()
    }

    async fn get(&self, task: &TaskId) -> TaskView {
        self.client.ask(task, GetInput {}).await.unwrap()
    }

    async fn step(&self, task: &TaskId, step: &str) -> StepView {
        let steps = self.get(task).await.steps;
        steps.into_iter().find(|it| it.spec.step_id.as_str() == step).unwrap()
    }
}

fn context(command_id: &str) -> Context {
    Context::new(CommandId::new(command_id).unwrap())
}

fn task_id(id: &str) -> TaskId {
    TaskId::new(id).unwrap()
}

fn step(id: &str) -> StepInput {
    StepInput {
        assignee: None,
        claim_only_by: None,
        ext: None,
        depends_on_step_ids: Vec::new(),
        handler: None,
        input: Some(input_of(id)),
        inputs_from: None,
        required: None,
        retry_policy: None,
        step_id: StepId::new(id).unwrap(),
        summary: "does something".into(),
        title: id.into(),
        worker_pool_id: None,
    }
}

/// The input of a Step: bytes that are no text.
fn input_of(id: &str) -> Value {
    Value::inline("application/octet-stream", [id.as_bytes(), &[0, 0xff]].concat())
}
