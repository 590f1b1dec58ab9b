//! The handle on a node: cheap to clone, and the only way for a request to reach the actors. It admits requests by
//! permits and sends them to the actor of their Task. Step 4 of the walk in docs/architecture.md.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorRef, ActorStatus};
use tenure_core::command::create::{CreateTask, Defaults};
use tenure_core::command::{Operator, check_session, check_tool};
use tenure_core::id::{AgentId, AttemptId, Digest, DigestForm, Millis, RunId};
use tenure_core::status::Policy;
use tenure_core::view::{RuntimeEvent, View};
use tenure_core::{Code, Command, Rejection, RejectionKind};
use tenure_ports::bus::Holding;
use tenure_ports::journal::{ReadError, TaskKey};
use tenure_ports::{Journal, Leases};
use tokio::sync::{Semaphore, broadcast, oneshot, watch};

use crate::ask::{Envelope, TaskOrder, TaskRequest, WriteAnswer};
use crate::config::{COMMANDS_IN_FLIGHT, Config, REPORTS_IN_FLIGHT};
use crate::fair::{FairPermit, FairPermits};
use crate::node::{Appended, NodeShared, stopped};
use crate::partition::{NoMessage, NodeActor, PartitionActor};
use crate::pool::Worker;
use crate::reading::WaitingReader;
use crate::task::address::Address;
use crate::task::open::unreadable;
use crate::task::{ActorTask, Begin, Msg, ReadFn};

/// A running node.
pub struct Scheduler<J: Journal, L: Leases> {
    pub(crate) node: Arc<NodeShared<J, L>>,
    root: ActorRef<NoMessage>,
    pub(crate) commands: FairPermits,
    pub(crate) reports: FairPermits,
}

impl<J: Journal, L: Leases> Clone for Scheduler<J, L> {
    fn clone(&self) -> Self {
        Self {
            node: Arc::clone(&self.node),
            root: self.root.clone(),
            commands: self.commands.clone(),
            reports: self.reports.clone(),
        }
    }
}

impl<J: Journal, L: Leases> fmt::Debug for Scheduler<J, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").finish_non_exhaustive()
    }
}

/// Which permits a request takes. What ends work is served even when new work is refused, and
/// creates are refused first (mechanisms 16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Creates,
    Commands,
    Cancels,
    Reports,
}

impl Lane {
    fn of(command: &Command) -> Self {
        match command.operation() {
            Operator::TaskCancel | Operator::TaskFail | Operator::CancelRun => Self::Cancels,
            _ => Self::Commands,
        }
    }

    /// Whether the request ends work, and is served even where there is no capacity for more.
    pub(crate) fn is_urgent(self) -> bool {
        matches!(self, Self::Cancels | Self::Reports)
    }
}

/// Capacity for one request. A caller takes it before the scheduler looks anything up for the
/// request: a look-up may wait for another node, and the permits bound how many wait.
pub(crate) struct Permit {
    pub(crate) lane: Lane,
    pub(crate) permit: FairPermit,
}

/// How many Tasks are read at a time when a node takes over a partition, or starts.
const OPENED_AT_ONCE: usize = 512;

/// How many Tasks [`leave`](Scheduler::leave) leaves before it lets other work run.
const LEFT_AT_ONCE: usize = 256;

/// How often the handle sends a request again when it reached a Task's address just as that ended.
const RESENDS: usize = 8;

impl<J: Journal, L: Leases> Scheduler<J, L> {
    /// Starts a node on these ports.
    ///
    /// # Errors
    /// The actor runtime does not start.
    pub async fn start(journal: Arc<J>, leases: Arc<L>, config: Config) -> Result<Self, Rejection> {
        let failed = |error: ractor::SpawnErr| stopped(&error.to_string());
        let partitions = config.partitions.max(1);
        let node = Arc::new(NodeShared::new(journal, leases, config));
        let (root, _) = Actor::spawn(None, NodeActor, ()).await.map_err(failed)?;
        let mut cells = Vec::new();
        for _ in 0..partitions {
            let actor = PartitionActor(std::marker::PhantomData);
            let (cell, _) = Actor::spawn_linked(None, actor, Arc::clone(&node), root.get_cell())
                .await
                .map_err(failed)?;
            cells.push(cell.get_cell());
        }
        node.supervise(root.get_cell(), cells);
        // A node whose lease scan has died would still own its partitions, and never find a worker
        // lost.
        end_with("the lease scan", crate::scan::scan_leases(&node));
        end_with("the putting away of tasks", crate::task::stored::keep_within_memory(&node));
        if let Some(keeping) = crate::snapshots::store_snapshots(&node) {
            end_with("the storing of snapshots", keeping);
        }
        if let Some(sweeping) = crate::blobs::keep_sweeping(&node) {
            end_with("the sweeping of blobs", sweeping);
        }
        Ok(Self {
            node,
            root,
            commands: FairPermits::new(COMMANDS_IN_FLIGHT),
            reports: FairPermits::new(REPORTS_IN_FLIGHT),
        })
    }

    /// Makes a Task. `policy` gives dispatch and completion where the input does not say them
    /// (POL-01).
    ///
    /// # Errors
    /// The refusals of `agent.task_create`.
    pub async fn create(
        &self,
        envelope: Envelope,
        input: impl Into<Box<CreateTask>> + Send,
        policy: Policy,
    ) -> Result<WriteAnswer, Rejection> {
        check_tool(&envelope.caller, Operator::TaskCreate)?;
        let permit = self.permit(Lane::Creates, &envelope.caller)?;
        self.create_in(permit, envelope, input.into(), policy).await
    }

    pub(crate) async fn create_in(
        &self,
        permit: Permit,
        envelope: Envelope,
        input: Box<CreateTask>,
        policy: Policy,
    ) -> Result<WriteAnswer, Rejection> {
        let key = TaskKey {
            session_id: envelope.caller.session_id.clone(),
            task_id: input.task_id()?.clone(),
        };
        self.check_artifacts(&envelope.caller, input.foreign_artifacts(&key.task_id)).await?;
        let form = DigestForm::of(self.node.limits_of(&key).rules);
        let digest = crate::edge::create_digest(form, &envelope, &input)?;
        let entry = self.node.journal.entry(&key).await.map_err(|e| unreadable(&e))?;
        let exists = entry.is_some();
        if !exists {
            self.check_new_task(&key.session_id, &envelope.caller.agent)?;
        }
        // A create of a Task that has ended records nothing: it is a repetition, or a conflict.
        if entry.is_none_or(|entry| entry.ended.is_none()) {
            self.check_blobs(&key, input.blobs()).await?;
        } else {
            Box::pin(self.recall(&key, &envelope.caller)).await?;
        }
        let begin = if exists { Begin::Open } else { Begin::Create };
        let worker_pool_id = self.node.config.default_worker_pool_id.clone();
        let defaults = Defaults { policy, worker_pool_id };
        let asked = (&envelope, digest);
        let parent = self.parent_of(&key, asked, (&input, &defaults), !exists).await?;
        let what = TaskOrder::Create(Box::new((*input, defaults, parent)));
        let answer = self.enqueue(&key, begin, what, envelope, digest, permit)?;
        answer.await.map_err(|_| ambiguous())?
    }

    /// Carries out a command on a Task, and answers when it is durable.
    ///
    /// # Errors
    /// The refusals of the command; `unavailable` on overload or when the node stops meanwhile.
    pub async fn command(
        &self,
        key: &TaskKey,
        envelope: Envelope,
        command: impl Into<Box<Command>> + Send,
    ) -> Result<WriteAnswer, Rejection> {
        let command: Box<Command> = command.into();
        check_tool(&envelope.caller, command.operation())?;
        check_session(&envelope.caller, &key.session_id)?;
        let permit = self.permit(Lane::of(&command), &envelope.caller)?;
        Box::pin(self.recall(key, &envelope.caller)).await?;
        self.check_relations(key, &envelope.caller, &command).await?;
        let answer = self.send(permit, key, envelope, *command)?;
        answer.await.map_err(|_| ambiguous())?
    }

    /// Sends a command, in the order of the calls. The caller has checked what the command refers
    /// to.
    pub(crate) fn send(
        &self,
        permit: Permit,
        key: &TaskKey,
        envelope: Envelope,
        command: Command,
    ) -> Result<oneshot::Receiver<Result<WriteAnswer, Rejection>>, Rejection> {
        let digest = crate::edge::digest(DigestForm::NEWEST, &envelope, &command)?;
        self.enqueue(key, Begin::Open, TaskOrder::Command(command), envelope, digest, permit)
    }

    fn enqueue(
        &self,
        key: &TaskKey,
        begin: Begin,
        what: TaskOrder,
        envelope: Envelope,
        digest: Option<Digest>,
        Permit { lane, permit }: Permit,
    ) -> Result<oneshot::Receiver<Result<WriteAnswer, Rejection>>, Rejection> {
        let (reply_to, answer) = oneshot::channel();
        let ask = TaskRequest { what, envelope, digest, reply_to, lane, permit: Some(permit) };
        self.cast(key, begin, Msg::Ask(Box::new(ask)))?;
        Ok(answer)
    }

    /// Sends a message to the Task. If the Task's address has just ended, the Task is read again.
    fn cast(&self, key: &TaskKey, begin: Begin, msg: Msg) -> Result<(), Rejection> {
        let mut actor = self.node.task(key, begin)?;
        let mut msg = msg;
        for _ in 0..RESENDS {
            match actor.cast(msg) {
                Ok(()) => return Ok(()),
                Err(back) => msg = back,
            }
            self.node.directory.remove(key, &actor);
            let begin = if let Begin::Look = begin { Begin::Look } else { Begin::Open };
            actor = self.node.task(key, begin)?;
        }
        Err(stopped("the task"))
    }

    /// Reads the Task: `look` is applied to its last durable state, on the thread of the caller. Never
    /// waits for an append.
    ///
    /// # Errors
    /// `task_not_found`, `storage_error` for a damaged log, `unavailable` when the node stops.
    pub async fn read<T: Send + 'static>(
        &self,
        key: &TaskKey,
        look: impl FnOnce(&View<'_>) -> T + Send + 'static,
    ) -> Result<T, Rejection> {
        let mut look = Some(look);
        for _ in 0..RESENDS {
            let (reader, lent) = WaitingReader::new();
            self.cast(key, Begin::Look, Msg::Lend(reader))?;
            let lent = lent.await.map_err(|_| stopped("the task"))??;
            if let Some(seen) = lent.look(&mut look).await {
                return Ok(seen);
            }
            // The Task has ended just now, and its address with it.
        }
        Err(stopped("the task"))
    }

    /// Notes that a worker asks under a Run. The worker keeps the Run, or takes it if nobody has it
    /// (5.4 `take_run`).
    pub(crate) fn note_asked(
        &self,
        key: &TaskKey,
        run: RunId,
        worker: Arc<Worker>,
    ) -> Result<(), Rejection> {
        self.cast(key, Begin::Open, Msg::Asked(run, worker))
    }

    /// Notes how far the holders of Attempts have seen the Task's `input_refs`, as a heartbeat says it.
    pub(crate) fn note_seen(&self, key: &TaskKey, who: AgentId, held: Vec<Holding>) {
        let _ = self.cast(key, Begin::Open, Msg::Seen(who, held)); // The next heartbeat says it again.
    }

    pub(crate) fn release_undelivered(&self, key: &TaskKey, attempt: AttemptId) {
        if let Some(actor) = self.node.directory.get(key) {
            // An actor that has ended need not know: whoever reads the Task next sends the grant
            // again.
            let _ = actor.cast(Msg::Unacknowledged(attempt));
        }
    }

    /// Waits until a Task has ended.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn wait_for_end(&self, key: &TaskKey) -> Result<(), Rejection> {
        loop {
            if self.read(key, |task| task.status().is_terminal()).await? {
                return Ok(());
            }
            let (watcher, ended) = oneshot::channel();
            self.cast(key, Begin::Open, Msg::WaitForEnd(watcher))?;
            if ended.await.is_ok() {
                return Ok(());
            }
        }
    }

    /// Brings every live Task back with its timers, ready Steps and closing (RECOVER-01,
    /// RECOVER-10). Answers how many there are.
    ///
    /// # Errors
    /// The index cannot be read.
    pub async fn resume_all(&self) -> Result<usize, Rejection> {
        let live = self.node.journal.live().await.map_err(|e| unreadable(&e))?;
        Ok(self.open_each(live))
    }

    /// Has Tasks read, some at a time: each is in memory while it is. Answers how many there are.
    fn open_each(&self, keys: Vec<TaskKey>) -> usize {
        let (count, node) = (keys.len(), Arc::downgrade(&self.node));
        let turns = Arc::new(Semaphore::new(OPENED_AT_ONCE));
        tokio::spawn(async move {
            for key in keys {
                let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
                let Some(node) = node.upgrade() else { return };
                // Another node may own it by now.
                let Ok(address) = node.task(&key, Begin::Open) else { continue };
                let opened: ReadFn = Box::new(move |_| drop(turn));
                let _ = address.cast(Msg::Read(opened)); // If the Task has left, it is nobody's turn.
            }
        });
        count
    }

    /// This node took a partition: its live Tasks are read and go on, each by itself (OWN-06).
    /// Answers how many there are.
    ///
    /// # Errors
    /// The index cannot be read.
    pub async fn resume(&self, partition: u32) -> Result<usize, Rejection> {
        let live = self.node.journal.live().await.map_err(|e| unreadable(&e))?;
        let of = |key: &TaskKey| key.partition(self.node.config.partitions) == partition;
        self.node.forget_log_trouble(partition);
        Ok(self.open_each(live.into_iter().filter(of).collect()))
    }

    /// Leaves the Tasks of a partition that another node owns now, or that this node took anew, once
    /// their appends have returned. `of` is the epoch that is over; with none, the Tasks of any epoch
    /// are left.
    pub async fn leave(&self, partition: u32, of: Option<u64>) {
        let is_of_it =
            |task: &Address| task.key().partition(self.node.config.partitions) == partition;
        let tasks = self.node.directory.all().into_iter().filter(is_of_it);
        for (count, task) in tasks.enumerate() {
            if count % LEFT_AT_ONCE == LEFT_AT_ONCE - 1 {
                tokio::task::yield_now().await; // So that other partitions go on.
            }
            let leave = |state: &mut ActorTask<J, L>| {
                state.leave_epoch(&task, of);
                !state.is_left()
            };
            if !task.at_rest(leave) {
                let _ = task.cast(Msg::Leave(of)); // The Task may have ended.
            }
        }
    }

    /// Commits as they become durable. A watcher that lags too far behind gets an error that says
    /// so, and reads the log.
    pub fn subscribe(&self) -> broadcast::Receiver<Appended> {
        self.node.subscribe()
    }

    /// Waits until every subscriber was sent all commits that the log has acknowledged so far. Only
    /// one caller may wait at a time.
    pub async fn settled(&self) {
        self.node.rounds.end().await;
    }

    /// What happens around Runs and changes no Task, from now on. A listener that lags too far behind
    /// misses some.
    pub fn runtime_events(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.node.runtime_events()
    }

    /// Why the log cannot be written: set by an append that failed, cleared by one that did not.
    pub fn trouble(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.node.trouble()
    }

    /// The log this node writes.
    pub fn journal(&self) -> &Arc<J> {
        &self.node.journal
    }

    /// How many workers a pool has and how many are free, whatever handlers they have.
    pub fn pool_facts(
        &self,
        pool: &tenure_core::id::PoolId,
    ) -> tenure_core::eligibility::WorkerCounts {
        let facts = self.node.pool_if_open(pool).map(|pool| pool.workers_and_free());
        let (workers, free) = facts.unwrap_or_default();
        let [workers, free] = [workers, free].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        tenure_core::eligibility::WorkerCounts { workers, serving: workers, able: workers, free }
    }

    /// The store of leases.
    pub fn leases(&self) -> &Arc<L> {
        &self.node.leases
    }

    /// The node cannot receive from workers just now. Once it can, no lease is judged before
    /// workers had the time to renew theirs (LEASE-14).
    pub fn note_unacknowledged(&self) {
        self.node.note_leases_lost();
    }

    /// Pools in which Steps or Runs wait and no worker has capacity, with how many wait.
    pub fn hungry_pools(&self) -> Vec<(tenure_core::id::PoolId, u64)> {
        self.node.hungry_pools()
    }

    /// Milliseconds until an Attempt's lease ends; none if this node does not know.
    pub fn lease_left_ms(&self, attempt: AttemptId) -> Option<u64> {
        self.node.leases.left_ms(attempt)
    }

    /// Takes in what another clock said, and how long its answer took. The scheduler follows the
    /// system's clock where the two agree (mechanisms 17).
    pub fn compare_clock(&self, there: Millis, took: Duration) {
        self.node.clock.compare(there, took);
    }

    /// The scheduler's clock.
    pub fn now(&self) -> Millis {
        self.node.clock.now()
    }

    /// Stops the node: appends in flight finish, then everything ends.
    pub async fn stop(&self) {
        let _ = self.root.stop_and_wait(None, None).await; // The node may have stopped by itself.
    }

    /// Whether the node has stopped and answers nothing any more.
    pub fn has_stopped(&self) -> bool {
        self.root.get_status() == ActorStatus::Stopped
    }

    /// Reads a Task's log directly, commit by commit, into memory.
    ///
    /// # Errors
    /// As the journal's `read`.
    pub async fn commits(&self, key: &TaskKey) -> Result<Vec<tenure_core::Commit>, ReadError> {
        let out: Arc<parking_lot::Mutex<Vec<_>>> = Arc::default();
        let into = Arc::clone(&out);
        let each = move |commit| {
            into.lock().push(commit);
            std::ops::ControlFlow::Continue(())
        };
        self.node.journal.read(key, 0, each).await?;
        Ok(std::mem::take(&mut *out.lock()))
    }
}

/// Ends the process if one of its loops panics (mechanisms 18).
fn end_with(what: &'static str, task: tokio::task::JoinHandle<()>) {
    tokio::spawn(async move {
        if let Err(error) = task.await
            && error.is_panic()
        {
            tracing::error!(%error, "{what} failed; the process ends");
            std::process::abort();
        }
    });
}

/// The answer is lost, not the command: the caller repeats it with the same id.
pub(crate) fn ambiguous() -> Rejection {
    Rejection::in_doubt("the answer was lost; repeat the command with the same id")
}

/// There is no capacity for a request now; the caller may send it again later.
pub fn overloaded() -> Rejection {
    Rejection::new(Code::Unavailable, "too many requests are in flight")
        .of_kind(RejectionKind::Overloaded)
        .with("retry_after_ms", 50)
}
