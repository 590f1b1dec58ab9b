//! The Task actor: decide, append, apply, answer, in that order (WAL-06).
//!
//! The actor is a thin shell around the pure Task. Its handler waits for nothing but the reading of
//! its log. While an append is in flight, commands gather in a queue; then they are decided and
//! appended together (group commit without speculation, mechanisms 2), and reads find the last
//! durable state. A refusal of the domain is a reply. The actor fails only when it no longer knows
//! its state; its supervisor then replays the log.

pub(crate) mod address;
mod batch;
mod family;
pub(crate) mod host;
mod lease_end;
mod leave;
mod not_created;
mod offers;
pub(crate) mod open;
mod settle;
pub(crate) mod shared;
pub(crate) mod stored;
pub(crate) mod waiters;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use tenure_core::command::create::ParentEnd;
use tenure_core::event::LeaseEnd;
use tenure_core::features::EDITION_2;
use tenure_core::id::{AgentId, AttemptId, Millis, PoolId, RunId, TaskId};
use tenure_core::status::Intent;
use tenure_core::table::Pos;
use tenure_core::view::{RuntimeEvent, View};
use tenure_core::{Caller, Commit, Rejection, Task};
use tenure_ports::bus::Holding;
use tenure_ports::journal::{AppendError, TaskKey};
use tenure_ports::leases::LeaseError;
use tenure_ports::map::IdMap;
use tenure_ports::{Journal, Leases};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant as Moment;

use crate::ask::{Decided, HeldAnswer, TaskRequest};
use crate::count::{InHand, One, WaitShare};
use crate::live::LiveShare;
use crate::node::NodeShared;
use crate::pool::{CreditPermit, Credits, Worker};
use crate::pool_names::PoolsOfTask;
use crate::reading::WaitingReader;
use crate::rounds::UnderWay;
use address::Address;
use shared::LentTask;
use stored::StoredTask;
use waiters::LateAnswers;

/// A function of the last durable state of a Task. Only the Task's actor sees any other state, so
/// that nothing is answered or shown before it is durable (law 3).
pub(crate) type ReadFn = Box<dyn FnOnce(Result<&View<'_>, &Rejection>) + Send>;

/// A message to a Task's actor.
pub(crate) enum Msg {
    /// A command.
    Ask(Box<TaskRequest>),
    /// Workers have capacity for ready Steps of this Task.
    Credits(Credits),
    /// The worker of this Attempt has not acknowledged its grant.
    Unacknowledged(AttemptId),
    /// Leases of these Attempts ended without a report, each at its instant.
    Over(BTreeMap<AttemptId, Instant>),
    /// The append in flight has returned.
    Landed(Landed),
    /// Decide what is in the queue.
    Flush,
    /// Something is due.
    Timer(u64),
    /// What is due is due at another instant now, as the clock was set.
    Later,
    /// The log could not be read or written; try again.
    Again,
    /// Ask the parent for its status.
    AskParent,
    /// The parent is being closed, was, or has completed.
    ParentCloses(ParentEnd),
    /// A Task was made as a child of this one.
    Adopt(TaskId),
    /// Read the Task.
    Read(ReadFn),
    /// Lend the Task to a reader, who reads it on another thread.
    Lend(WaitingReader),
    /// This worker has asked under this Run.
    Asked(RunId, Arc<Worker>),
    /// This worker's heartbeat says how far these Attempts have seen the Task's `input_refs`.
    Seen(AgentId, Vec<Holding>),
    /// A worker that took a Run may have been silent for too long.
    Silence,
    /// Send a message when the Task has ended.
    WaitForEnd(oneshot::Sender<()>),
    /// Leases of open Attempts may be gone: give each its full duration.
    Raise,
    /// Make the leases of open Attempts that are missing.
    Ensure,
    /// The node does not own the Task any more: not in this epoch, or, with none, not in any.
    Leave(Option<u64>),
}

impl fmt::Debug for Msg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Ask(_) => "Ask",
            Self::Credits(_) => "Credits",
            Self::Unacknowledged(_) => "Unacknowledged",
            Self::Over(_) => "Over",
            Self::Landed(_) => "Landed",
            Self::Flush => "Flush",
            Self::Timer(_) => "Timer",
            Self::Later => "Later",
            Self::Again => "Again",
            Self::AskParent => "AskParent",
            Self::ParentCloses(_) => "ParentCloses",
            Self::Adopt(_) => "Adopt",
            Self::Read(_) => "Read",
            Self::Lend(_) => "Lend",
            Self::Asked(..) => "Asked",
            Self::Seen(..) => "Seen",
            Self::Silence => "Silence",
            Self::WaitForEnd(_) => "WaitForEnd",
            Self::Raise => "Raise",
            Self::Ensure => "Ensure",
            Self::Leave(_) => "Leave",
        };
        f.write_str(name)
    }
}

/// An append that was to create a Task, and why it failed.
type FailedCreation = Box<(Flight, AppendError)>;

/// What became of an append and of the leases taken beside it.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) append: Result<(), AppendError>,
    pub(crate) leases: Result<(), LeaseError>,
}

/// Something to decide, in the queue of the actor.
pub(crate) enum Waiting {
    Ask(Box<TaskRequest>),
    Credits(Credits),
    Expired(Vec<AttemptId>, LeaseEnd),
    Unacknowledged(AttemptId),
    ParentCloses(ParentEnd),
    Adopt(TaskId),
    Due,
}

impl Waiting {
    /// Whether this may be appended where a partition has no capacity for more: it ends work, or
    /// nobody would ask for it again.
    fn is_urgent(&self) -> bool {
        match self {
            Self::Ask(ask) => ask.lane.is_urgent(),
            Self::Credits(_)
            | Self::Expired(..)
            | Self::Unacknowledged(_)
            | Self::ParentCloses(_)
            | Self::Adopt(_)
            | Self::Due => true,
        }
    }
}

/// What the actor knows of the Task.
pub(crate) enum Life {
    /// The Task does not exist yet.
    New,
    /// Its state is known.
    Known(Box<Task>),
    /// The Task rests, and is not in memory.
    Stored(StoredTask),
    /// Its log cannot be read: this answers every request (RECOVER-04).
    Unreadable(Rejection),
}

/// How an address begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Begin {
    /// The Task may not exist; if it does, the actor reads it.
    Create,
    /// The actor reads the Task from its log.
    Open,
    /// The actor reads the Task with the first message, unless that is of a reader that has gone.
    Look,
}

pub(crate) struct ActorTask<J, L> {
    key: TaskKey,
    node: Arc<NodeShared<J, L>>,
    system: Caller,
    /// The epoch in which the node owned the Task when this actor state was made.
    epoch: u64,
    /// Whether its log may hold what the second edition of the contract added (EVOLVE-02): in one epoch this
    /// does not change.
    holds_edition_2: bool,
    life: Life,
    /// Nothing has had it read yet.
    is_unread: bool,
    /// All that is done once when a Task is made or read has been done (its parent is watched, its leases are
    /// confirmed), so that it is not repeated when the Task is read again.
    is_open: bool,
    /// Whether the Task is where readers find it, and not in `life`.
    is_shared: bool,
    waiting: VecDeque<Waiting>,
    flush_is_due: bool,
    flight: Option<Flight>,
    /// Pools that were told of ready Steps or Runs here.
    offered: Vec<PoolId>,
    /// The pools that the Task names (DISP-21).
    pools: PoolsOfTask,
    /// Open Attempts, as they count in the hands of their workers.
    held: IdMap<AttemptId, InHand>,
    /// Open Attempts whose grant was sent once more. If such a grant is not acknowledged, the
    /// worker may still be at work.
    notify_again: Vec<AttemptId>,
    /// Leases that were over at the last scan, and since when.
    over: BTreeMap<AttemptId, Instant>,
    /// Answers that wait for the end of the Task or of a Run.
    late: LateAnswers,
    watchers: Vec<(oneshot::Sender<()>, One)>,
    /// What its Steps wait for, as the node counts it.
    waits: WaitShare,
    /// Attempts whose workers were asked to stop.
    told: Vec<AttemptId>,
    /// How many entries of the Task's `input_refs` were sent to all holders that lacked them; what is lost on the
    /// way comes again with their heartbeats.
    inputs_pushed: u32,
    /// Set once the parent has ended and spares its children; none for a Task without a parent.
    spared: Option<Arc<AtomicBool>>,
    /// The last intent of which the children were notified.
    children_notified: Option<Intent>,
    timer: Option<(Moment, JoinHandle<()>)>,
    timer_generation: u64,
    /// Attempts that a failed append was to end: they are ended once the log can be written.
    undone: Vec<(Vec<AttemptId>, LeaseEnd)>,
    /// The log could not be written just now. Until the actor tries again, it begins nothing but
    /// what a caller asks for.
    pauses: bool,
    /// A timer is set that checks for silent workers that took Runs.
    listens: bool,
    /// How often reading the log has failed.
    failed_reads: u32,
    /// Until when no Step fails by its own time limit, since the Task was read: on the node's
    /// steady line.
    spared_until: Millis,
    /// By how much the Task's steady line is ahead of the node's (mechanisms 17).
    lead: Millis,
    /// Left to another node.
    is_left: bool,
    /// What it adds to the live Tasks of the node.
    share: Option<LiveShare>,
    /// Since when it rests, if it does.
    rested: Option<Moment>,
    /// Bytes of its log, if the Task had ended when it was read.
    ended_bytes: Option<u64>,
}

/// An append in flight, and what to do when it returns.
pub(crate) struct Flight {
    creates: bool,
    /// It contains something that may not be refused for want of capacity.
    is_urgent: bool,
    /// The request that creates the Task, to be answered when it is durable, or decided again.
    creation: Option<Box<(TaskRequest, Result<Decided, Rejection>)>>,
    commits: Vec<Arc<Commit>>,
    answers: Vec<HeldAnswer>,
    /// Attempts made for workers that had credits.
    grants: Vec<(Pos, CreditPermit)>,
    /// Attempts that workers claimed by themselves.
    claimed: Vec<Pos>,
    /// Attempts that end with it.
    ended: Vec<AttemptId>,
    /// Attempts that it ends because their workers no longer hold them.
    expired: Vec<(Vec<AttemptId>, LeaseEnd)>,
    /// Credits that found no Step.
    unused: Credits,
    /// Runtime events, which change no Task, to be sent when it returns.
    told: Vec<RuntimeEvent>,
    /// The append itself.
    append: Option<JoinHandle<()>>,
    /// Held until the commits have been published.
    _under_way: Option<UnderWay>,
}

impl<J: Journal, L: Leases> ActorTask<J, L> {
    fn new(key: TaskKey, node: Arc<NodeShared<J, L>>) -> Self {
        Self {
            system: Caller::system(key.session_id.clone()),
            // With this epoch the Task counts as not owned, and accepts nothing.
            epoch: node.journal.epoch(&key).unwrap_or(u64::MAX),
            holds_edition_2: node.journal.may_hold(&key, EDITION_2),
            waits: WaitShare::of(&node.waits, key.partition(node.config.partitions)),
            pools: PoolsOfTask::none(&node.pool_names, key.session_id.clone()),
            key,
            life: Life::New,
            is_unread: false,
            is_open: false,
            is_shared: false,
            waiting: VecDeque::new(),
            flush_is_due: false,
            flight: None,
            offered: Vec::new(),
            held: IdMap::default(),
            notify_again: Vec::new(),
            over: BTreeMap::new(),
            late: LateAnswers::default(),
            watchers: Vec::new(),
            told: Vec::new(),
            inputs_pushed: 0,
            spared: None,
            children_notified: None,
            timer: None,
            timer_generation: 0,
            undone: Vec::new(),
            pauses: false,
            listens: false,
            failed_reads: 0,
            spared_until: 0,
            lead: node.clock.lead(Millis::MIN),
            is_left: false,
            share: None,
            rested: None,
            ended_bytes: None,
            node,
        }
    }

    /// Queues something to decide. If more messages are in the mailbox, the flush is a message
    /// behind them, so that they are decided together.
    fn gather(&mut self, myself: &Address, waiting: Waiting) {
        self.waiting.push_back(waiting);
        if myself.has_more() {
            self.flush_soon(myself);
        } else if !self.flush_is_due {
            self.flush(myself);
        }
    }

    fn flush_soon(&mut self, myself: &Address) {
        if self.flight.is_none() && !self.flush_is_due && !self.waiting.is_empty() {
            self.flush_is_due = myself.cast(Msg::Flush).is_ok();
        }
    }

    fn read(&self, reader: ReadFn) {
        match &self.life {
            _ if !self.is_owned() => reader(Err(&crate::node::not_owner(&self.key))),
            Life::Known(task) if !self.is_being_created() => reader(Ok(&task.durable())),
            Life::Unreadable(rejection) => reader(Err(rejection)),
            Life::Stored(_) => reader(Err(&crate::handle::overloaded())), // It was to be read before.
            Life::New | Life::Known(_) => reader(Err(&crate::node::not_found(&self.key))),
        }
    }

    /// Lends the Task to a reader, unless the reader has gone.
    fn lend(&self, myself: &Address, reader: WaitingReader) {
        if reader.has_gone() {
            return;
        }
        let lent = match &self.life {
            _ if !self.is_owned() => Err(crate::node::not_owner(&self.key)),
            _ if self.is_shared => Ok(LentTask::of(myself)),
            Life::Unreadable(rejection) => Err(rejection.clone()),
            Life::Stored(_) => Err(crate::handle::overloaded()), // As above.
            Life::New | Life::Known(_) => Err(crate::node::not_found(&self.key)),
        };
        reader.lend(lent);
    }

    /// Takes the Task back from where readers find it, before the actor does anything with it.
    async fn fetch(&mut self, myself: &Address) {
        if std::mem::take(&mut self.is_shared)
            && let Some(task) = myself.shared().take().await
        {
            self.life = Life::Known(task);
        }
    }

    /// Puts the Task where readers find it, if it is durable.
    fn share(&mut self, myself: &Address) {
        if self.is_shared || self.is_unread {
            return;
        }
        match std::mem::replace(&mut self.life, Life::New) {
            Life::Known(task) if !self.is_being_created() => {
                myself.shared().put(task, self.epoch);
                self.is_shared = true;
            }
            life => {
                match &life {
                    Life::Stored(_) => myself.shared().store(),
                    _ => myself.shared().empty(),
                }
                self.life = life;
            }
        }
    }

    fn is_being_created(&self) -> bool {
        self.flight.as_ref().is_some_and(|f| f.creates)
    }

    fn watch(&mut self, watcher: oneshot::Sender<()>) {
        match &self.life {
            Life::Known(task) if task.is_terminal() && self.flight.is_none() => {
                let _ = watcher.send(()); // The watcher may have gone.
            }
            // A watcher asks again, and is then told why the Task cannot be read.
            Life::Unreadable(_) if !self.pauses => {}
            Life::New | Life::Known(_) | Life::Stored(_) | Life::Unreadable(_) => {
                self.watchers.push((watcher, self.node.waiters.one()))
            }
        }
    }

    /// Whether the node owns the Task as it did when this actor began.
    fn is_owned(&self) -> bool {
        self.node.journal.epoch(&self.key) == Some(self.epoch)
    }

    fn wake(&mut self, myself: &Address, generation: u64) {
        if generation == self.timer_generation {
            self.timer = None;
            self.gather(myself, Waiting::Due);
        }
    }

    /// Sets the one timer to the next moment at which something is due.
    pub(crate) fn set_timer(&mut self, myself: &Address) {
        self.spare_steps(self.node.steps_spared_until());
        let (clock, lead) = (&self.node.clock, self.lead);
        let due = match &mut self.life {
            Life::Known(task) => {
                task.note_steady_ahead(clock.steady_ahead(lead));
                task.next_due()
            }
            Life::Stored(stored) => stored.due,
            Life::New | Life::Unreadable(_) => return,
        };
        let due = due.filter(|_| !self.pauses);
        let due = due.map(|at| clock.instant_of(at.saturating_sub(lead)));
        if self.timer.as_ref().map(|(at, _)| *at) == due {
            return;
        }
        if let Some((_, old)) = self.timer.take() {
            old.abort();
        }
        self.timer_generation += 1;
        let Some(at) = due else { return };
        let (generation, actor) = (self.timer_generation, myself.clone());
        let sleeper = tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            let _ = actor.cast(Msg::Timer(generation)); // The Task may have gone.
        });
        self.timer = Some((at, sleeper));
    }

    /// Lets no Step fail by its own time limit until then, on the node's steady line, nor before
    /// [`spared_until`](Self::spared_until).
    fn spare_steps(&mut self, until: Millis) {
        if let Life::Known(task) = &mut self.life {
            task.spare_steps_until(until.max(self.spared_until).saturating_add(self.lead));
        }
    }
}
