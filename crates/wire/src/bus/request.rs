//! Requests of orchestrators and observers, and what they are answered with.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Operator, RetryEnded};
use tenure_core::id::{AttemptId, CommandId, Millis, SessionId, TaskId, WalName};
use tenure_core::patch::{Operation, TaskFields};
use tenure_core::status::{FailedAs, TaskStatus};
use tenure_core::view::{
    BoardInput, ExplainInput, ExplainTaskInput, InspectInput, ListInput, QueryInput, ReplayInput,
    Snapshot, ViewName, ViewsInput,
};
use tenure_core::{Command, Rejection};

use super::event::ReadEvents;
use super::operate::ListLeases;
use super::{BadMessage, V, decode, decode_input, operation};

/// Asks how the cluster is made (`hello`). Any node answers with [`Welcome`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The version.
    pub v: V,
}

/// How the cluster is made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Which node answers.
    pub node: SmolStr,
    /// Partitions of the cluster: with session and Task they give the partition to ask (OWN-01).
    pub partitions: u32,
    /// How Tasks are placed in them (OWN-01); 1 if it is left out.
    #[serde(default = "super::first_placement", skip_serializing_if = "super::is_first_placement")]
    pub placement: u32,
}

/// Everything around an operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The version.
    pub v: V,
    /// The operation, by any of its names.
    pub operation: SmolStr,
    /// The Task it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The caller's id of the command: the same again is answered as the first time (IDEM-01).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
    /// Judge only at this version (OCC-02).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
    /// Longest answer that the caller takes, in bytes (CTRL-06).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
    /// W3C traceparent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<SmolStr>,
}

/// A request to the owner of a partition (`cmd.<partition>`).
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Everything around it.
    pub head: Head,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// `task_create`. Asks for a `WriteSummary`.
    Create(Box<CreateTask>),
    /// `retry_task` with `retry_of`, on the Task that is to be. Asks for a `WriteSummary`.
    RetryEnded(Box<RetryEnded>),
    /// A command on a Task. Asks for a `WriteSummary`.
    Command(Box<Command>),
    /// `task_get`. Asks for a `TaskView`.
    Get,
    /// `task_query_steps`. Asks for a `StepPage`.
    Query(QueryInput),
    /// `task_list`. Asks for a `TaskPage` of one partition.
    Tasks(ListInput),
    /// `explain`. Asks for an `Explanation`.
    Explain(ExplainInput),
    /// `explain_task`. Asks for a `TaskExplanation`.
    ExplainTask(ExplainTaskInput),
    /// `inspect_task`. Asks for an `Inspection`.
    Inspect(InspectInput),
    /// `replay_task`. Asks for a `TaskView`.
    Replay(ReplayInput),
    /// `task_board_summary`. Asks for `TaskLines`.
    Board(BoardInput),
    /// `task_template`. Asks for a `Board`.
    Template,
    /// `task_views`. Asks for a [`ViewPage`] of one partition.
    Views(Views),
    /// `read_log`. Asks for a [`LogPage`].
    ReadLog(ReadLog),
    /// `read_parent`, of another node. Asks for a [`Parent`](tenure_core::command::create::Parent).
    ReadParent(ReadParent),
    /// `read_events`. Asks for an [`EventPage`](super::event::EventPage), and has the Task followed.
    ReadEvents(ReadEvents),
    /// `list_index`. Asks for [`Entries`] of one partition.
    List(List),
    /// `list_leases`. Asks for a [`LeasePage`](super::operate::LeasePage) of one partition.
    Leases(ListLeases),
}

/// Which commits of a Task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadLog {
    /// Those behind this event, the last of a commit.
    pub after: u64,
    /// The first of them from this byte on: one that is too long for an answer comes in parts.
    pub from: u64,
}

/// Which child asks about its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadParent {
    /// The child, which may not be made yet.
    pub child: TaskId,
    /// It is to be made, and recorded before this is answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub record: bool,
}

/// Commits of a Task, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogPage {
    /// Each as the lines that a log file has of it.
    pub commits: Vec<Lines>,
    /// The one commit is cut off: its next part is that from this byte on, behind the same event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<u64>,
    /// Whether there are more commits.
    pub more: bool,
    /// Version of the Task.
    pub version: u64,
    /// Its native status.
    pub status: TaskStatus,
    /// The owner's clock.
    pub now: Millis,
    /// How long leases of open Attempts last, in milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseLeft>,
    /// Where the log is (2.1 `wal_path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_path: Option<String>,
    /// Steps that a Task may hold there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_max: Option<usize>,
}

/// How long a lease lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseLeft {
    /// Whose.
    pub attempt_id: AttemptId,
    /// In milliseconds; 0 if it has ended.
    pub left_ms: u64,
}

/// Lines of a log, as bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines(pub Vec<u8>);

impl Serialize for Lines {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Lines {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = Lines;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, v: &[u8]) -> Result<Lines, E> {
                Ok(Lines(v.to_vec()))
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Lines, E> {
                Ok(Lines(v.as_bytes().to_vec()))
            }
        }
        d.deserialize_bytes(Bytes)
    }
}

/// Which Tasks of a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct List {
    /// Only those behind this one, in the order of their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<TaskId>,
    /// Ended Tasks too.
    pub include_terminal: bool,
    /// Instead of that, so many of the live ones, the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<usize>,
    /// Of those only such as come behind `after` in that order, which was created then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_created_at: Option<Millis>,
}

/// Which views of the Tasks of a partition: live ones, and the newest ended ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Views {
    /// Only of those behind this one, in the order of their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<TaskId>,
    /// Names of views; none: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewName>,
    /// Native statuses of the Tasks that are shown; none: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statuses: Option<Vec<TaskStatus>>,
    /// Without internal and hidden Tasks (VIEW-10).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub user_facing: bool,
}

impl Views {
    /// A page of what is asked for.
    pub fn page(input: ViewsInput, after: Option<TaskId>) -> Self {
        let ViewsInput { views, statuses, user_facing } = input;
        Self { after, views, statuses, user_facing }
    }

    /// What is asked for, and the Task behind which the page begins.
    pub fn into_input(self) -> (ViewsInput, Option<TaskId>) {
        let Self { after, views, statuses, user_facing } = self;
        (ViewsInput { views, statuses, user_facing }, after)
    }
}

/// Views of some Tasks of a session in one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ViewPage {
    /// Of those Tasks.
    pub snapshot: Snapshot,
    /// The last of them, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
}

/// Tasks of a session in one partition, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entries {
    /// The Tasks.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub more: bool,
}

/// What the index knows of a Task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// Name of its log.
    pub wal_name: WalName,
    /// For people.
    pub title: String,
    /// When it was created.
    pub created_at: Millis,
    /// Time of its last event that the index knows.
    pub updated_at: Millis,
    /// Terminal status; none while it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TaskStatus>,
    /// How it failed, if not plainly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_as: Option<FailedAs>,
    /// Whether it is archived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// Whether its log cannot be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
}

/// What the owner publishes when commits of a Task are durable (`tenure.v1.event.…`): a hint, that
/// may get lost. Whoever needs them all reads the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// The version.
    pub v: V,
    /// Version of the Task after them.
    pub version: u64,
    /// Terminal status, if the Task has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TaskStatus>,
}

/// The operation of a patch, as one of its own: its fields are the input.
const UPDATE_TASK: &str = "update_task";

/// Names of what is asked beside the commands.
const EXPLAIN: &str = "explain";
const EXPLAIN_TASK: &str = "explain_task";
const REPLAY_TASK: &str = "replay_task";
const READ_LOG: &str = "read_log";
const READ_PARENT: &str = "read_parent";
const READ_EVENTS: &str = "read_events";
const LIST_INDEX: &str = "list_index";
const LIST_LEASES: &str = "list_leases";

#[derive(Deserialize)]
struct Input<T> {
    input: T,
}

/// A message whose input need not say anything.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Default + Deserialize<'de>"))]
pub(super) struct MaybeInput<T> {
    #[serde(default, deserialize_with = "operation::or_nothing")]
    pub(super) input: T,
}

/// The input of what asks for nothing in particular.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

impl Request {
    /// A request of a caller that names itself.
    pub fn new(task_id: Option<TaskId>, command_id: Option<CommandId>, ask: Ask) -> Self {
        let operation = SmolStr::new(ask.operation());
        let head = Head { operation, task_id, command_id, ..Head::default() };
        Self { head, ask }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// `validation_error`: bytes that are no request, an operation that is unknown, an input that is
    /// not the operation's.
    pub fn read(bytes: &[u8]) -> Result<Self, Rejection> {
        let head: Head = decode(bytes)?;
        let ask = match head.operation.as_str() {
            EXPLAIN => Ask::Explain(decode_input::<Input<ExplainInput>>(bytes)?.input),
            EXPLAIN_TASK => Ask::ExplainTask(maybe(bytes)?),
            REPLAY_TASK => Ask::Replay(maybe(bytes)?),
            READ_LOG => Ask::ReadLog(maybe(bytes)?),
            READ_PARENT => Ask::ReadParent(decode_input::<Input<ReadParent>>(bytes)?.input),
            READ_EVENTS => Ask::ReadEvents(maybe(bytes)?),
            LIST_INDEX => Ask::List(maybe(bytes)?),
            LIST_LEASES => Ask::Leases(maybe(bytes)?),
            UPDATE_TASK => {
                let fields = Box::new(decode_input::<Input<TaskFields>>(bytes)?.input);
                let operations = vec![Operation::UpdateTask(fields)];
                Ask::Command(Box::new(Command::TaskUpdate { operations }))
            }
            other => match Operator::called(other) {
                Some(Operator::TaskGet) => nothing(bytes, Ask::Get)?,
                Some(Operator::TaskQuerySteps) => Ask::Query(maybe(bytes)?),
                Some(Operator::TaskList) => Ask::Tasks(maybe(bytes)?),
                Some(Operator::InspectTask) => Ask::Inspect(maybe(bytes)?),
                Some(Operator::TaskBoardSummary) => Ask::Board(maybe(bytes)?),
                Some(Operator::TaskTemplate) => nothing(bytes, Ask::Template)?,
                Some(Operator::TaskViews) => Ask::Views(maybe(bytes)?),
                Some(Operator::TaskCreate) => {
                    let input = decode_input::<Input<CreateTask>>(bytes)?.input;
                    Ask::Create(Box::new(input.called(other)))
                }
                Some(Operator::RetryTask) if again(bytes)? => {
                    Ask::RetryEnded(Box::new(decode_input::<Input<RetryEnded>>(bytes)?.input))
                }
                Some(_) => Ask::Command(Box::new(operation::asked(other, bytes)?)),
                None => return Err(unknown_operation(other)),
            },
        };
        Ok(Self { head, ask })
    }

    /// The request as bytes.
    ///
    /// # Errors
    /// It is too long.
    pub fn write(&self) -> Result<Vec<u8>, BadMessage> {
        #[derive(Serialize)]
        struct With<'a, T> {
            #[serde(flatten)]
            head: &'a Head,
            input: &'a T,
        }
        #[derive(Serialize)]
        struct Around<'a> {
            v: V,
            #[serde(flatten)] // As `operation` and `input`.
            command: &'a Command,
            #[serde(skip_serializing_if = "Option::is_none")]
            task_id: Option<&'a TaskId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            command_id: Option<&'a CommandId>,
            #[serde(skip_serializing_if = "Option::is_none")]
            expected_version: Option<u64>,
            #[serde(skip_serializing_if = "Option::is_none")]
            max_bytes: Option<usize>,
            #[serde(skip_serializing_if = "Option::is_none")]
            trace: Option<&'a SmolStr>,
        }
        let head = &self.head;
        match &self.ask {
            Ask::Create(input) => super::encode(&With { head, input }),
            Ask::RetryEnded(input) => super::encode(&With { head, input }),
            Ask::Command(command) => super::encode(&Around {
                v: head.v,
                command,
                task_id: head.task_id.as_ref(),
                command_id: head.command_id.as_ref(),
                expected_version: head.expected_version,
                max_bytes: head.max_bytes,
                trace: head.trace.as_ref(),
            }),
            Ask::Get | Ask::Template => super::encode(head),
            Ask::Query(input) => super::encode(&With { head, input }),
            Ask::Tasks(input) => super::encode(&With { head, input }),
            Ask::Explain(input) => super::encode(&With { head, input }),
            Ask::ExplainTask(input) => super::encode(&With { head, input }),
            Ask::Inspect(input) => super::encode(&With { head, input }),
            Ask::Replay(input) => super::encode(&With { head, input }),
            Ask::Board(input) => super::encode(&With { head, input }),
            Ask::Views(input) => super::encode(&With { head, input }),
            Ask::ReadLog(input) => super::encode(&With { head, input }),
            Ask::ReadParent(input) => super::encode(&With { head, input }),
            Ask::ReadEvents(input) => super::encode(&With { head, input }),
            Ask::List(input) => super::encode(&With { head, input }),
            Ask::Leases(input) => super::encode(&With { head, input }),
        }
    }
}

impl Ask {
    /// The operation's name.
    pub fn operation(&self) -> &'static str {
        match self {
            Self::Create(_) => Operator::TaskCreate.as_str(),
            Self::RetryEnded(_) => Operator::RetryTask.as_str(),
            Self::Command(command) => command.operation().as_str(),
            Self::Get => Operator::TaskGet.as_str(),
            Self::Tasks(_) => Operator::TaskList.as_str(),
            Self::Explain(_) => EXPLAIN,
            Self::ExplainTask(_) => EXPLAIN_TASK,
            Self::Inspect(_) => Operator::InspectTask.as_str(),
            Self::Replay(_) => REPLAY_TASK,
            Self::Board(_) => Operator::TaskBoardSummary.as_str(),
            Self::Template => Operator::TaskTemplate.as_str(),
            Self::Views(_) => Operator::TaskViews.as_str(),
            Self::Query(_) => Operator::TaskQuerySteps.as_str(),
            Self::ReadLog(_) => READ_LOG,
            Self::ReadParent(_) => READ_PARENT,
            Self::ReadEvents(_) => READ_EVENTS,
            Self::List(_) => LIST_INDEX,
            Self::Leases(_) => LIST_LEASES,
        }
    }
}

/// Whether a `retry_task` is of a Task that has ended: it says which.
fn again(bytes: &[u8]) -> Result<bool, BadMessage> {
    #[derive(Default, Deserialize)]
    struct Of {
        #[serde(default)]
        retry_of: Option<IgnoredAny>,
    }
    Ok(decode::<MaybeInput<Of>>(bytes)?.input.retry_of.is_some())
}

/// Asks for what takes no input.
fn nothing(bytes: &[u8], ask: Ask) -> Result<Ask, BadMessage> {
    maybe::<Nothing>(bytes).map(|_| ask)
}

/// An input that need not say anything.
fn maybe<T: Default + DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    decode_input::<MaybeInput<T>>(bytes).map(|asked| asked.input)
}

pub(super) fn unknown_operation(name: &str) -> Rejection {
    let name: String = name.chars().take(80).collect();
    Rejection::invalid("operation", format!("there is no operation {name:?}"))
}
