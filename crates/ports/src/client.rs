//! [`ClientPort`]: what orchestrators and observers ask of a scheduler, one API in process and over
//! a network.

use std::future::Future;
use std::time::Duration;

use futures::stream::BoxStream;
use tenure_core::command::Write;
use tenure_core::id::{AttemptId, Millis, SessionId, TaskId};
use tenure_core::status::{End, TaskStatus};
use tenure_core::view::{ListInput, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary};
use tenure_core::{Commit, Context, Query, Rejection};
use tenure_wire::bus::event::Published;
use tenure_wire::bus::request::ReadLog;

use crate::erased::ErasedClient;
use crate::journal::Entry;

/// How long a scheduler goes on following a Task after a caller has asked for its events.
pub const FOLLOWED: Duration = Duration::from_secs(15);

/// Commits of a Task, and the Task's state beside them.
#[derive(Debug, Clone, PartialEq)]
pub struct LogPage {
    /// Oldest first.
    pub commits: Vec<Commit>,
    /// Whether there are more.
    pub more: bool,
    /// Version of the Task.
    pub version: u64,
    /// Its native status.
    pub status: TaskStatus,
    /// The owner's clock.
    pub now: Millis,
    /// Milliseconds that the leases of open Attempts still last; 0 for those that have ended. This and what follows
    /// is left out if the answer was held.
    pub leases: Vec<(AttemptId, u64)>,
    /// Where the log is (2.1 `wal_path`).
    pub wal_path: Option<String>,
    /// How many Steps a Task may hold there; `None` if the answer does not say.
    pub steps_max: Option<usize>,
}

/// Tasks of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// In the order of their ids.
    pub entries: Vec<Entry>,
    /// Partitions that did not answer (OWN-08).
    pub missing_partitions: Vec<u32>,
}

/// A hint that a Task has changed. It may get lost, come twice or late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The Task.
    pub task_id: TaskId,
    /// Its version, at least.
    pub version: u64,
    /// Its terminal status, if it has ended.
    pub ended: Option<TaskStatus>,
}

impl Changed {
    /// The hint that a commit gives to those who wait for changes.
    pub fn of(task: &TaskId, commit: &Commit) -> Self {
        let end = commit.events.iter().find_map(|event| event.body.end());
        Self { task_id: task.clone(), version: commit.last_seq(), ended: end.map(End::status) }
    }
}

/// An end of the bus that answers one kind of query about a Task, or sends or gets one kind of its parts.
pub trait Answers<Q: Query> {
    /// Answers the query.
    fn answer(
        &self,
        task: &TaskId,
        query: Q,
    ) -> impl Future<Output = Result<Q::Output, Rejection>> + Send;
}

macro_rules! answers_all {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($brings:ty))* }
        other { $($other:ident($_query:ty))* }
    ) => {
        /// An end that answers every query about a Task, as the Task stands and as it was, and every request for a
        /// part.
        pub trait AnswersAll: $(Answers<$asks> +)* $(Answers<$reads> +)* $(Answers<$brings> +)* {}

        impl<T> AnswersAll for T
        where
            T: $(Answers<$asks> +)* $(Answers<$reads> +)* $(Answers<$brings> +)*
        {
        }
    };
}

tenure_wire::queries!(answers_all);

/// A caller's end of the bus: an orchestrator or an observer in its session.
///
/// A call that fails with a retryable code (`unavailable`, `not_owner`, `storage_error`) says
/// nothing about what happened. The adapter repeats it with the same `command_id` for as long as
/// its settings say, and then returns the refusal.
pub trait ClientPort: AnswersAll + Clone + Send + Sync + 'static {
    /// The session that the caller acts in.
    fn session(&self) -> &SessionId;

    /// The same end behind a pointer. An adapter that is no generic type overrides this with the same body, so that
    /// its own crate contains the code, and not each crate that calls this.
    #[must_use]
    fn erased(self) -> ErasedClient {
        ErasedClient::new(self)
    }

    /// Whether no call will be answered here any more, because the scheduler in this process has
    /// stopped. Over a network another scheduler may always come.
    fn is_over(&self) -> bool {
        false
    }

    /// The same end with a limit on answers, in bytes as they are sent (CTRL-06). To stay below it,
    /// the answer to a write, and a Task, leave out more and more of themselves and say where the
    /// rest can be read; a page of Steps, Tasks or events has fewer entries, but at least one.
    /// Other answers come in parts.
    #[must_use]
    fn within(&self, max_bytes: usize) -> Self;

    /// Makes or changes a Task, and answers when that is durable. For a create, too, `task` names
    /// the Task; a Task that is made again from another one is made under this id.
    fn write(
        &self,
        task: &TaskId,
        context: Context,
        what: impl Into<Write> + Send,
    ) -> impl Future<Output = Result<WriteSummary, Rejection>> + Send;

    /// Asks about a Task, or for a part of something of a Task that is too long for one answer:
    ///
    /// - [`ReadEvents`](tenure_wire::bus::event::ReadEvents): public events after event `after` of its log, some of
    ///   them, from the first on. The scheduler follows the Task for [`FOLLOWED`] after each such request.
    /// - [`BlobGet`](tenure_wire::bus::blob::BlobGet): a part of a blob (VALUE-01).
    /// - [`BlobPut`](tenure_wire::bus::blob::BlobPut): brings a part of a blob. The Task need not exist yet
    ///   (VALUE-01).
    fn ask<Q: Query>(
        &self,
        task: &TaskId,
        query: Q,
    ) -> impl Future<Output = Result<Q::Output, Rejection>> + Send
    where
        Self: Answers<Q>,
    {
        self.answer(task, query)
    }

    /// `task_list`: a page of the Tasks of the session. It names the partitions that did not answer.
    fn tasks(&self, input: ListInput) -> impl Future<Output = Result<TaskPage, Rejection>> + Send;

    /// `task_views`: views of the Tasks of the session, of live ones and of the newest ended ones,
    /// and the partitions that did not answer.
    fn views(
        &self,
        input: ViewsInput,
    ) -> impl Future<Output = Result<(Snapshot, Vec<u32>), Rejection>> + Send;

    /// Commits after an event, which is 0 or the last event of a commit. A reader that waits is answered with what
    /// there is when its time is over, and at once if there is no capacity to hold its answer.
    fn log(
        &self,
        task: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> impl Future<Output = Result<LogPage, Rejection>> + Send;

    /// Public events of a Task that the scheduler follows, from the return of this call on. Some
    /// may get lost: a caller that needs all of them [asks](Self::ask) for the missing ones.
    fn published(
        &self,
        task: &TaskId,
    ) -> impl Future<Output = Result<BoxStream<'static, Published>, Rejection>> + Send;

    /// What happens around Runs and changes no Task, of one Task or of all of the session, from the
    /// return of this call on. Some may get lost, and nobody can read them later (EVENT-07).
    fn runtime(
        &self,
        task: Option<&TaskId>,
    ) -> impl Future<Output = Result<BoxStream<'static, RuntimeEvent>, Rejection>> + Send;

    /// Tasks of the session, live ones and, if asked for, ended ones.
    fn list(
        &self,
        include_terminal: bool,
    ) -> impl Future<Output = Result<Listing, Rejection>> + Send;

    /// Hints of changes of one Task, or of all of the session, from the return of this call on. A caller
    /// that waits for something reads once after this call, and again from time to time (mechanisms 11).
    fn changes(
        &self,
        task: Option<&TaskId>,
    ) -> impl Future<Output = Result<BoxStream<'static, Changed>, Rejection>> + Send;
}
