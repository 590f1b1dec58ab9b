//! The Task actor: decide, append, apply, answer, in that order (WAL-06).
//!
//! The actor is a thin shell around the pure Task. Its handler waits for nothing but the reading of
//! its log: while an append is in flight, commands gather in a queue and are then decided together
//! and appended together (group commit without speculation, mechanisms 2), and reads find the last
//! durable state. A domain "no" is a reply. The actor stops only when it no longer knows its state;
//! its supervisor then replays the log.

mod batch;
mod family;
mod leave;
mod offers;
pub(crate) mod open;
mod settle;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tenure_core::command::Wait;
use tenure_core::event::LeaseEnd;
use tenure_core::id::{AttemptId, Millis, PoolId, RunId, TaskId};
use tenure_core::status::Intent;
use tenure_core::{Caller, Commit, Rejection, Task};
use tenure_ports::journal::{AppendError, TaskKey};
use tenure_ports::leases::LeaseError;
use tenure_ports::{Journal, Leases};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::ask::{Answer, Ask, Held};
use crate::node::Node;
use crate::pool::{Credits, Loan, Worker};

/// What is done with the last durable state of a Task.
pub(crate) type Reader = Box<dyn FnOnce(Result<&Task, &Rejection>) + Send>;

/// What a Task's actor is told.
pub(crate) enum Msg {
    /// A command.
    Ask(Box<Ask>),
    /// Workers have room for ready Steps of this Task.
    Credits(Credits),
    /// Leases of these Attempts ended.
    Expired(Vec<AttemptId>, LeaseEnd),
    /// The append in flight has returned.
    Landed(Landed),
    /// Decide what has gathered.
    Flush,
    /// Something is due.
    Timer(u64),
    /// The log may be written, or read, again after that failed.
    Again,
    /// Ask the parent how it is.
    AskParent,
    /// The parent is being closed, or was.
    ParentCloses(Intent),
    /// A Task was made whose parent this is.
    Adopt(TaskId),
    /// Look at the Task.
    Read(Reader),
    /// A worker has asked under a Run that it took.
    Asked(RunId, Arc<Worker>),
    /// A worker that took a Run may have been silent for too long.
    Silence,
    /// Tell when the Task has ended.
    WaitForEnd(oneshot::Sender<()>),
    /// Leases of open Attempts may be gone: they are raised.
    Raise,
    /// The node does not own the Task any more: not in this epoch, or in any.
    Leave(Option<u64>),
}

impl fmt::Debug for Msg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Ask(_) => "Ask",
            Self::Credits(_) => "Credits",
            Self::Expired(..) => "Expired",
            Self::Landed(_) => "Landed",
            Self::Flush => "Flush",
            Self::Timer(_) => "Timer",
            Self::Again => "Again",
            Self::AskParent => "AskParent",
            Self::ParentCloses(_) => "ParentCloses",
            Self::Adopt(_) => "Adopt",
            Self::Read(_) => "Read",
            Self::Asked(..) => "Asked",
            Self::Silence => "Silence",
            Self::WaitForEnd(_) => "WaitForEnd",
            Self::Raise => "Raise",
            Self::Leave(_) => "Leave",
        };
        f.write_str(name)
    }
}

/// What became of an append and of the leases taken beside it.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) append: Result<(), AppendError>,
    pub(crate) leases: Result<(), LeaseError>,
}

/// Something to decide.
pub(crate) enum Waiting {
    Ask(Box<Ask>),
    Credits(Credits),
    Expired(Vec<AttemptId>, LeaseEnd),
    ParentCloses(Intent),
    Adopt(TaskId),
    Due,
}

/// Whether the Task can be worked on.
pub(crate) enum Life {
    /// It does not exist yet.
    New,
    /// Its state is known.
    Known(Box<Task>),
    /// Its log cannot be read: everything is answered with this (RECOVER-04).
    Unreadable(Rejection),
}

/// How an actor begins.
pub(crate) enum Begin {
    /// The Task may not exist; if it does, it is read.
    Create,
    /// The Task is read from its log.
    Open,
}

pub(crate) struct Arguments<J, L> {
    pub(crate) key: TaskKey,
    pub(crate) node: Arc<Node<J, L>>,
    pub(crate) begin: Begin,
}

pub(crate) struct State<J, L> {
    key: TaskKey,
    node: Arc<Node<J, L>>,
    system: Caller,
    /// The epoch in which the node owns the Task as this actor knows it.
    epoch: u64,
    life: Life,
    waiting: VecDeque<Waiting>,
    flush_is_due: bool,
    flight: Option<Flight>,
    /// Pools that believe there are ready Steps here.
    offered: Vec<PoolId>,
    /// Workers of open Attempts, to tell them what they must know.
    holders: HashMap<AttemptId, Arc<Worker>>,
    /// Open Attempts that their workers were told of once more: that one did not hear of it says
    /// nothing of whether he is at work.
    told_again: Vec<AttemptId>,
    /// Answers that wait for the Task or a Run to end.
    late: Vec<(Wait, Held)>,
    watchers: Vec<oneshot::Sender<()>>,
    /// Attempts whose worker was told to stop.
    told: Vec<AttemptId>,
    /// What children were told that this Task does to them.
    children_told: Option<Intent>,
    timer: Option<(Millis, JoinHandle<()>)>,
    timer_generation: u64,
    /// What a failed append was to end, to be ended once the log can be written.
    undone: Vec<(Vec<AttemptId>, LeaseEnd)>,
    /// The log could not be written just now. Until it is tried again nothing is begun here but what
    /// somebody asks for.
    rests: bool,
    /// A look at who took a Run and is silent is under way.
    listens: bool,
    /// How often the log could not be read.
    unread: u32,
    /// No longer in the directory: what still arrives goes to the actor that is.
    retired: bool,
}

/// An append in flight, and what is to be done when it returns.
pub(crate) struct Flight {
    creates: bool,
    /// The create itself, to be answered when it is durable, or asked again.
    creation: Option<Box<(Ask, Result<Answer, Rejection>)>>,
    commits: Vec<Arc<Commit>>,
    answers: Vec<Held>,
    /// Attempts made for workers that asked for work.
    grants: Vec<(tenure_core::table::Pos, Loan)>,
    /// Attempts that workers claimed by themselves.
    claimed: Vec<AttemptId>,
    /// Attempts that end with it.
    ended: Vec<AttemptId>,
    /// Attempts that it ends because nobody holds them any more.
    expired: Vec<(Vec<AttemptId>, LeaseEnd)>,
    /// Credits that found no Step.
    unused: Credits,
    /// The append itself.
    append: Option<JoinHandle<()>>,
}

pub(crate) struct TaskActor<J, L>(std::marker::PhantomData<fn() -> (J, L)>);

impl<J, L> TaskActor<J, L> {
    pub(crate) fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<J: Journal, L: Leases> Actor for TaskActor<J, L> {
    type Msg = Msg;
    type State = State<J, L>;
    type Arguments = Arguments<J, L>;

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        args: Arguments<J, L>,
    ) -> Result<State<J, L>, ActorProcessingErr> {
        let mut state = State::new(args.key, args.node);
        if matches!(args.begin, Begin::Open) {
            Box::pin(state.open(&myself)).await;
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Msg>,
        msg: Msg,
        state: &mut State<J, L>,
    ) -> Result<(), ActorProcessingErr> {
        if state.retired {
            state.forward(msg);
            return Ok(());
        }
        match msg {
            Msg::Ask(ask) => state.gather(&myself, Waiting::Ask(ask)),
            Msg::Credits(credits) => state.gather(&myself, Waiting::Credits(credits)),
            Msg::Expired(mut attempts, why) => {
                attempts.retain(|id| why != LeaseEnd::Released || !state.told_again.contains(id));
                if !attempts.is_empty() {
                    state.gather(&myself, Waiting::Expired(attempts, why));
                }
            }
            Msg::Flush => {
                state.flush_is_due = false;
                state.flush(&myself);
            }
            Msg::Landed(landed) => state.land(&myself, landed).await?,
            Msg::Timer(generation) => state.wake(&myself, generation),
            // What is rare is kept apart: it would make every message's future large.
            Msg::Again => Box::pin(state.try_again(&myself)).await,
            Msg::AskParent => state.ask_parent(&myself),
            Msg::ParentCloses(intent) => state.gather(&myself, Waiting::ParentCloses(intent)),
            Msg::Adopt(child) => state.gather(&myself, Waiting::Adopt(child)),
            Msg::Read(reader) => state.read(reader),
            Msg::Asked(run, worker) => state.note_asked(&myself, run, &worker),
            Msg::Silence => state.end_silence(&myself),
            Msg::WaitForEnd(watcher) => state.watch(watcher),
            Msg::Raise => state.raise_leases(),
            Msg::Leave(of) => state.leave_epoch(&myself, of),
        }
        state.retire(&myself);
        Ok(())
    }

    /// A node that stops has its appends finish. Who waits for one is told that its fate is not
    /// known: the same command again, with the same id, says it.
    async fn post_stop(
        &self,
        _: ActorRef<Msg>,
        state: &mut State<J, L>,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(append) = state.flight.take().and_then(|flight| flight.append) {
            let _ = append.await; // Its panics were told.
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Msg>,
        _: SupervisionEvent,
        _: &mut State<J, L>,
    ) -> Result<(), ActorProcessingErr> {
        Ok(()) // A Task has no children; the default would stop it.
    }
}

impl<J: Journal, L: Leases> State<J, L> {
    fn new(key: TaskKey, node: Arc<Node<J, L>>) -> Self {
        Self {
            system: Caller::system(key.session_id.clone()),
            // Of an epoch that is none nothing is accepted.
            epoch: node.journal.epoch(&key).unwrap_or(u64::MAX),
            key,
            node,
            life: Life::New,
            waiting: VecDeque::new(),
            flush_is_due: false,
            flight: None,
            offered: Vec::new(),
            holders: HashMap::new(),
            told_again: Vec::new(),
            late: Vec::new(),
            watchers: Vec::new(),
            told: Vec::new(),
            children_told: None,
            timer: None,
            timer_generation: 0,
            undone: Vec::new(),
            rests: false,
            listens: false,
            unread: 0,
            retired: false,
        }
    }

    /// Hands a message that crossed this actor's retirement to its successor.
    fn forward(&self, msg: Msg) {
        match msg {
            Msg::Ask(_) | Msg::Read(_) | Msg::WaitForEnd(_) => {
                if let Ok(successor) = self.node.task(&self.key, Begin::Open) {
                    let _ = successor.cast(msg); // If it is gone too, the caller is told.
                }
            }
            // Credits go back to their pool by themselves.
            Msg::Credits(_)
            | Msg::Expired(..)
            | Msg::Landed(_)
            | Msg::Flush
            | Msg::Timer(_)
            | Msg::Again
            | Msg::AskParent
            | Msg::ParentCloses(_)
            | Msg::Asked(..)
            | Msg::Silence
            | Msg::Raise
            | Msg::Leave(_)
            | Msg::Adopt(_) => {}
        }
    }

    /// Queues something to decide. What is in the mailbox behind it comes along: the flush is a
    /// message of its own.
    fn gather(&mut self, myself: &ActorRef<Msg>, waiting: Waiting) {
        self.waiting.push_back(waiting);
        self.flush_soon(myself);
    }

    fn flush_soon(&mut self, myself: &ActorRef<Msg>) {
        if self.flight.is_none() && !self.flush_is_due && !self.waiting.is_empty() {
            self.flush_is_due = myself.cast(Msg::Flush).is_ok();
        }
    }

    fn read(&self, reader: Reader) {
        match &self.life {
            _ if !self.is_owned() => reader(Err(&crate::node::not_owner(&self.key))),
            Life::Known(task) if !self.is_being_created() => reader(Ok(task)),
            Life::Unreadable(rejection) => reader(Err(rejection)),
            Life::New | Life::Known(_) => reader(Err(&crate::node::not_found(&self.key))),
        }
    }

    fn is_being_created(&self) -> bool {
        self.flight.as_ref().is_some_and(|f| f.creates)
    }

    fn watch(&mut self, watcher: oneshot::Sender<()>) {
        match &self.life {
            Life::Known(task) if task.is_terminal() && self.flight.is_none() => {
                let _ = watcher.send(()); // Nobody may be waiting any more.
            }
            Life::Unreadable(_) => {}
            Life::New | Life::Known(_) => self.watchers.push(watcher),
        }
    }

    /// Whether the node owns the Task as it did when this actor began.
    fn is_owned(&self) -> bool {
        self.node.journal.epoch(&self.key) == Some(self.epoch)
    }

    fn wake(&mut self, myself: &ActorRef<Msg>, generation: u64) {
        if generation == self.timer_generation {
            self.timer = None;
            self.gather(myself, Waiting::Due);
        }
    }

    /// Sets the one timer to the next moment at which something is due.
    fn set_timer(&mut self, myself: &ActorRef<Msg>) {
        let Life::Known(task) = &self.life else { return };
        let due = task.next_due().filter(|_| !self.rests);
        if self.timer.as_ref().map(|(at, _)| *at) == due {
            return;
        }
        if let Some((_, old)) = self.timer.take() {
            old.abort();
        }
        self.timer_generation += 1;
        let Some(at) = due else { return };
        let (generation, actor) = (self.timer_generation, myself.clone());
        let instant = self.node.clock.instant_of(at);
        let sleeper = tokio::spawn(async move {
            tokio::time::sleep_until(instant).await;
            let _ = actor.cast(Msg::Timer(generation)); // The Task may have gone.
        });
        self.timer = Some((at, sleeper));
    }

    /// An actor is needed while its Task is live or somebody waits; after that it lets its queue
    /// run empty (`drain`, never `stop`, which would drop what is queued).
    fn retire(&mut self, myself: &ActorRef<Msg>) {
        let idle = self.flight.is_none() && self.waiting.is_empty() && self.late.is_empty();
        let over = match &self.life {
            Life::Known(task) => task.is_terminal(),
            Life::Unreadable(_) | Life::New => !self.rests,
        };
        if idle && over && !self.retired && self.node.directory.remove(&self.key, myself) {
            self.retired = true;
            self.node.journal.release(&self.key);
            if let Some((_, timer)) = self.timer.take() {
                timer.abort();
            }
            let _ = myself.drain();
        }
    }
}
