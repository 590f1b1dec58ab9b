//! Requests of orchestrators and observers, and the answers to them.
//!
//! Step 2 of the walk in docs/architecture.md.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Operator, Write};
use tenure_core::features::Features;
use tenure_core::id::{AttemptId, CommandId, Millis, SessionId, TaskId, WalName};
use tenure_core::patch::{Operation, TaskFields};
use tenure_core::record::Labels;
use tenure_core::status::{FailedAs, TaskStatus};
pub use tenure_core::view::{
    BoardInput, ExplainInput, ExplainTaskInput, GetInput, InspectInput, ListInput, QueryInput,
    ReplayInput, TemplateInput,
};
use tenure_core::view::{Snapshot, ViewName, ViewsInput};
use tenure_core::{Command, Context, Rejection};

pub use super::ask::Ask;
use super::{BadMessage, MESSAGE_MAX, V, decode_within, operation};

/// Asks for the partitions and the placement of the cluster (`hello`). Any node answers with [`Welcome`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// The version.
    pub v: V,
    /// The features of the caller (EVOLVE-02).
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
}

/// The partitions and the placement of the cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Welcome {
    /// The node that answers.
    pub node: SmolStr,
    /// How many partitions there are: a caller computes a Task's partition with it (OWN-01).
    pub partitions: u32,
    /// The version of the placement of Tasks in them (OWN-01); 1 if left out.
    #[serde(default = "super::first_placement", skip_serializing_if = "super::is_first_placement")]
    pub placement: u32,
    /// The features of the node (EVOLVE-02).
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
}

/// The fields around an operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestHead {
    /// The version.
    pub v: V,
    /// The operation, by any of its names.
    pub operation: SmolStr,
    /// The Task it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The caller's id for the command: a repeated command gets the first answer (IDEM-01).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_id: Option<CommandId>,
    /// Carry the command out only at this version (OCC-02).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
    /// Carry the command out only if orchestrators have last changed the Task at this version (OCC-07).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_spec_version: Option<u64>,
    /// The longest answer that the caller accepts, in bytes (CTRL-06).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<usize>,
    /// For how long the caller waits for the answer, in milliseconds: a query is given up then. Absent: it does not
    /// say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_ms: Option<u64>,
    /// W3C traceparent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<SmolStr>,
}

impl RequestHead {
    /// The context of a command; `made` gives its id if the caller has not.
    ///
    /// # Errors
    /// The error of `made`.
    pub fn context<E>(self, made: impl FnOnce() -> Result<CommandId, E>) -> Result<Context, E> {
        let Self { command_id, expected_version, expected_spec_version, trace, .. } = self;
        let command_id = command_id.map_or_else(made, Ok)?;
        Ok(Context { command_id, expected_version, expected_spec_version, trace })
    }
}

/// A request to the owner of a partition (`cmd.<partition>`).
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The fields around the operation.
    pub head: RequestHead,
    /// The operation with its input.
    pub ask: Ask,
}

/// Which commits of a Task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReadLog {
    /// Commits after this event, which is the last of a commit.
    pub after: u64,
    /// The first of them from this byte on: a commit that is too long for an answer comes in parts.
    pub from: u64,
    /// How many milliseconds the owner may hold its answer if there is nothing behind `after`, at most
    /// [`READ_HELD_MS_MAX`]. With `after` 0, a reader that waits until the Task is settled may ask before it is made.
    #[serde(skip_serializing_if = "is_zero")]
    pub wait_ms: u64,
    /// Until when it holds the answer.
    #[serde(skip_serializing_if = "is_default")]
    pub until: ReadUntil,
}

/// For how long an owner holds the answer to a reader of a log at most: a good deal shorter than a request takes
/// to be repeated.
pub const READ_HELD_MS_MAX: u64 = 2_000;

/// What a reader of a log waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReadUntil {
    /// The next commit.
    #[default]
    More,
    /// The end of the Task, or a Step that waits for something from outside: commits before that are read
    /// together with it.
    Settled,
}

impl ReadLog {
    /// What there is now, as for a reader that does not wait.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { wait_ms: 0, until: ReadUntil::More, ..self }
    }

    /// The same for a reader that waits.
    #[must_use]
    pub fn waiting(self, until: ReadUntil) -> Self {
        Self { wait_ms: READ_HELD_MS_MAX, until, ..self }
    }
}

impl From<u64> for ReadLog {
    /// The commits after this event.
    fn from(after: u64) -> Self {
        Self { after, ..Self::default() }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes fields so.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // As above.
fn is_default(until: &ReadUntil) -> bool {
    *until == ReadUntil::default()
}

/// Asks about the parent of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadParent {
    /// The child, which may not exist yet.
    pub child: TaskId,
    /// Whether the child is about to be created: then the parent records it before it answers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub record: bool,
}

/// Commits of a Task, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogPage {
    /// Each commit as its lines in a log file.
    pub commits: Vec<RawBytes>,
    /// Set if the one commit is cut: its next part begins at this byte, after the same event.
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
    /// How long the leases of open Attempts still last. This and what follows is left out of an answer that was held.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseLeft>,
    /// Where the log is (2.1 `wal_path`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_path: Option<String>,
    /// Steps that a Task may hold there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps_max: Option<usize>,
}

/// How long a lease still lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeaseLeft {
    /// The Attempt of the lease.
    pub attempt_id: AttemptId,
    /// In milliseconds; 0 if it has ended.
    pub left_ms: u64,
}

/// Bytes: lines of a log, or a part of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBytes(pub Vec<u8>);

impl Serialize for RawBytes {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&self.0)
    }
}

impl JsonSchema for RawBytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "Bytes: `bin` in MessagePack." })
    }
}

impl<'de> Deserialize<'de> for RawBytes {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl serde::de::Visitor<'_> for Bytes {
            type Value = RawBytes;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, v: &[u8]) -> Result<RawBytes, E> {
                Ok(RawBytes(v.to_vec()))
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<RawBytes, E> {
                Ok(RawBytes(v.as_bytes().to_vec()))
            }
        }
        d.deserialize_bytes(Bytes)
    }
}

/// Which Tasks of a partition to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct List {
    /// Only Tasks after this one, in the order of their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<TaskId>,
    /// Whether to list ended Tasks, too.
    pub include_terminal: bool,
    /// Instead, only this many of the live Tasks, oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<usize>,
    /// Of those, only Tasks after `after` in that order; this is when `after` was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_created_at: Option<Millis>,
}

/// Which views of the Tasks of a partition: live ones, and the newest ended ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Views {
    /// Only of Tasks after this one, in the order of their ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<TaskId>,
    /// Names of views; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<ViewName>,
    /// Only Tasks with these native statuses; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = TaskStatus::ALL.len()))]
    pub statuses: Option<Vec<TaskStatus>>,
    /// Whether to leave out internal and hidden Tasks (VIEW-10).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub user_facing: bool,
}

impl Views {
    /// The request for a page after this Task.
    pub fn page(input: ViewsInput, after: Option<TaskId>) -> Self {
        let ViewsInput { views, statuses, user_facing } = input;
        Self { after, views, statuses, user_facing }
    }

    /// The input, and the Task after which the page begins.
    pub fn into_input(self) -> (ViewsInput, Option<TaskId>) {
        let Self { after, views, statuses, user_facing } = self;
        (ViewsInput { views, statuses, user_facing }, after)
    }
}

/// Views of some Tasks of a session in one partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ViewPage {
    /// The views.
    pub snapshot: Snapshot,
    /// The last of those Tasks, if there are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
}

/// Tasks of a session in one partition, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entries {
    /// The Tasks.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub more: bool,
}

/// What the index knows of a Task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IndexEntry")]
pub struct Entry {
    /// The session.
    pub session_id: SessionId,
    /// The Task.
    pub task_id: TaskId,
    /// Name of its log.
    pub wal_name: WalName,
    /// For people.
    pub title: String,
    /// Names and values by which listings find it (LABEL-01).
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// When it was created.
    pub created_at: Millis,
    /// Time of its last event that the index knows.
    pub updated_at: Millis,
    /// Terminal status; absent while it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TaskStatus>,
    /// How it failed, if by a time limit or by losses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_as: Option<FailedAs>,
    /// Whether it is archived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub archived: bool,
    /// Whether its log cannot be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub damaged: bool,
}

/// Published by the owner when commits of a Task are durable (`tenure.v1.event.…`). It is a hint,
/// and may get lost: a reader that needs every commit reads the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Committed {
    /// The version.
    pub v: V,
    /// Version of the Task after them.
    pub version: u64,
    /// Terminal status, if the Task has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<TaskStatus>,
}

/// A patch operation that callers may also use as an operation of its own: its fields are the input.
pub(super) const UPDATE_TASK: &str = "update_task";

impl Request {
    /// A request; the operation gives its name.
    pub fn new(
        task_id: Option<TaskId>,
        command_id: Option<CommandId>,
        ask: impl Into<Ask>,
    ) -> Self {
        let ask = ask.into();
        let operation = SmolStr::new(ask.operation());
        let head = RequestHead { operation, task_id, command_id, ..RequestHead::default() };
        Self { head, ask }
    }

    /// A request that creates or changes a Task.
    pub fn command(task: &TaskId, context: Context, what: Write) -> Self {
        let Context { command_id, expected_version, expected_spec_version, trace } = context;
        let Self { head, ask } = Self::new(Some(task.clone()), Some(command_id), what);
        Self { head: RequestHead { expected_version, expected_spec_version, trace, ..head }, ask }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// `validation_error`: the bytes are no request, the operation is unknown, or the input is not
    /// the operation's.
    pub fn read(bytes: &[u8]) -> Result<Self, Rejection> {
        Self::read_within(MESSAGE_MAX, bytes)
    }

    /// Reads a request of a transport that carries up to `most` bytes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_within(most: usize, bytes: &[u8]) -> Result<Self, Rejection> {
        let head: RequestHead = decode_within(most, bytes)?;
        let name = head.operation.as_str();
        let ask = match Operator::called(name) {
            _ if name == UPDATE_TASK => {
                let fields = Box::new(operation::required_input::<TaskFields>(bytes)?);
                let operations = vec![Operation::UpdateTask(fields)];
                Ask::Command(Box::new(Command::TaskUpdate { operations }))
            }
            Some(Operator::TaskCreate) => {
                let input: CreateTask = operation::input(bytes)?;
                Ask::Create(Box::new(input.called(name)))
            }
            Some(Operator::RetryTask) if again(most, bytes)? => {
                Ask::RetryEnded(Box::new(operation::input(bytes)?))
            }
            operator => match Ask::read_query(operator.map_or(name, |it| it.as_str()), bytes) {
                Some(query) => query?,
                None if operator.is_some() => {
                    Ask::Command(Box::new(operation::asked(name, bytes)?))
                }
                None => return Err(unknown_operation(name)),
            },
        };
        Ok(Self { head, ask })
    }

    /// The request as bytes.
    ///
    /// # Errors
    /// The request is too long.
    pub fn write(&self) -> Result<Vec<u8>, BadMessage> {
        self.write_within(MESSAGE_MAX)
    }

    /// The request as bytes, for a transport that carries up to `most` of them.
    ///
    /// # Errors
    /// The request is longer.
    pub fn write_within(&self, most: usize) -> Result<Vec<u8>, BadMessage> {
        self.ask.write(most, &self.head)
    }
}

/// Whether a `retry_task` is of an ended Task: it then names the Task in `retry_of`.
fn again(most: usize, bytes: &[u8]) -> Result<bool, BadMessage> {
    #[derive(Deserialize)]
    struct Asked {
        #[serde(default)]
        input: Option<Of>,
    }
    #[derive(Deserialize)]
    struct Of {
        #[serde(default)]
        retry_of: Option<IgnoredAny>,
    }
    Ok(decode_within::<Asked>(most, bytes)?.input.is_some_and(|input| input.retry_of.is_some()))
}

pub(super) fn unknown_operation(name: &str) -> Rejection {
    let name: String = name.chars().take(80).collect();
    Rejection::invalid("operation", format!("there is no operation {name:?}"))
}
