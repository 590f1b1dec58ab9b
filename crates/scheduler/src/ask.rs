//! Requests to a Task's actor, and their answers.

use std::fmt;

use smol_str::SmolStr;
use tenure_core::command::create::{CreateTask, Defaults, Parent};
use tenure_core::command::{Caller, Wait};
use tenure_core::id::{AttemptId, CommandId, Digest, Millis, RunId};
use tenure_core::status::TaskStatus;
use tenure_core::task::Made;
use tenure_core::view::{View, WriteSummary};
use tenure_core::{Command, Context, Rejection, Reply};
use tenure_ports::bus::Recorded;
use tokio::sync::oneshot;

use crate::fair::FairPermit;
use crate::handle::Lane;

/// Who sends a command, and with which context.
#[derive(Debug, Clone)]
pub struct Envelope {
    /// The caller, as the transport authenticated it.
    pub caller: Caller,
    /// What the caller sent with the command; none for a command of the scheduler and for a
    /// worker's report.
    pub context: Option<Context>,
}

impl Envelope {
    /// A command of this caller with this id.
    pub fn new(caller: Caller, command_id: Option<CommandId>) -> Self {
        Self { caller, context: command_id.map(Context::new) }
    }

    /// The caller's id of the command.
    pub(crate) fn command_id(&self) -> Option<&CommandId> {
        self.context.as_ref().map(|context| &context.command_id)
    }

    /// The version at which alone the command may be decided.
    pub(crate) fn expected_version(&self) -> Option<u64> {
        self.context.as_ref()?.expected_version
    }

    /// The `spec_version` at which alone the command may be decided.
    pub(crate) fn expected_spec_version(&self) -> Option<u64> {
        self.context.as_ref()?.expected_spec_version
    }

    /// W3C traceparent.
    pub(crate) fn trace(&self) -> Option<&SmolStr> {
        self.context.as_ref()?.trace.as_ref()
    }
}

/// The answer to a write, given once it is durable.
#[derive(Debug, Clone, PartialEq)]
pub struct WriteAnswer {
    /// The command's events, the version after them, the Steps that it changed.
    pub reply: Reply,
    /// Whether the events were written just now. Then the log itself has fenced the answer; a
    /// repetition, or a command that changes nothing, was only looked up (mechanisms 4).
    pub is_written: bool,
    /// The reply as its caller may see it, with leases as they are when it is answered (CTRL-04);
    /// none for what workers report.
    pub summary: Option<Box<WriteSummary>>,
    /// The Run that the command made.
    pub run_id: Option<RunId>,
    /// The Attempt that the command made.
    pub attempt_id: Option<AttemptId>,
    /// The native status of the Task now.
    pub status: TaskStatus,
    /// Whether the caller is asked to stop, as the Task or the caller's Run is being closed
    /// (CANCEL-07).
    pub cancel_requested: bool,
    /// How long the caller then has left to stop, in milliseconds (POL-12).
    pub time_left_ms: Option<u64>,
}

/// A decision. It becomes an answer only with a view of what is durable.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) reply: Reply,
    /// As [`WriteAnswer::is_written`].
    pub(crate) is_written: bool,
}

impl WriteAnswer {
    pub(crate) fn of(
        view: &View<'_>,
        caller: &Caller,
        Decided { reply, is_written }: Decided,
        summary: Option<WriteSummary>,
        now: Millis,
    ) -> Self {
        let (run_id, attempt_id) = match reply.made {
            Made::Nothing => (None, None),
            Made::Run(pos) => (Some(view.run_at(pos).run_id), None),
            Made::Attempt(pos) => {
                let attempt = view.attempt_at(pos);
                (Some(attempt.run_id), Some(attempt.attempt_id))
            }
        };
        Self {
            reply,
            is_written,
            summary: summary.map(Box::new),
            run_id,
            attempt_id,
            status: view.status(),
            cancel_requested: view.asks_to_stop(caller),
            time_left_ms: view.time_of_caller_to_stop(caller, now),
        }
    }

    /// The answer that a worker gets to a report.
    pub fn recorded(&self) -> Recorded {
        let Self { cancel_requested, time_left_ms, .. } = *self;
        Recorded { version: self.reply.version, cancel_requested, time_left_ms }
    }
}

/// The answer to a caller's write.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// What the caller may see of the answer.
    pub summary: WriteSummary,
    /// As [`WriteAnswer::is_written`].
    pub is_written: bool,
}

/// Where an answer goes.
pub(crate) type ReplyTo = oneshot::Sender<Result<WriteAnswer, Rejection>>;

/// What a request asks of the Task.
pub(crate) enum TaskOrder {
    Create(Box<(CreateTask, Defaults, Option<Parent>)>),
    Command(Command),
}

/// A request in the queue of a Task. The permit bounds how many there are.
pub(crate) struct TaskRequest {
    pub(crate) what: TaskOrder,
    pub(crate) envelope: Envelope,
    pub(crate) digest: Option<Digest>,
    pub(crate) reply_to: ReplyTo,
    /// How the request is served. A worker's report is answered without a summary.
    pub(crate) lane: Lane,
    pub(crate) permit: Option<FairPermit>,
}

impl fmt::Debug for TaskRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskRequest").field("envelope", &self.envelope).finish_non_exhaustive()
    }
}

/// An answer that waits for the append, or for the end of something.
#[derive(Debug)]
pub(crate) struct HeldAnswer {
    pub(crate) result: Result<Decided, Rejection>,
    pub(crate) waits: Option<Wait>,
    pub(crate) reply_to: ReplyTo,
    pub(crate) caller: Caller,
    /// Whether the answer carries a summary, which a worker's report does not.
    pub(crate) is_summarised: bool,
    pub(crate) _permit: Option<FairPermit>,
}
