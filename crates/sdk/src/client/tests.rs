//! A scheduler of one Task, for tests of clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tenure_core::command::Write;
use tenure_core::event::{Body, Moved};
use tenure_core::id::TaskId;
use tenure_core::id::{CommitId, SessionId, system_agent};
use tenure_core::status::TaskStatus;
use tenure_core::view::public::EventName;
use tenure_core::view::{
    ListInput, Normal, RuntimeEvent, Snapshot, TaskPage, ViewsInput, WriteSummary,
};
use tenure_core::{Code, Commit, Context, Event, Query, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::{Answers, Changed, Listing, LogPage};
use tenure_wire::bus::V;
use tenure_wire::bus::event::{EventPage, Published, ReadEvents, TaskEvent};
use tenure_wire::bus::request::{ReadLog, ReadUntil};
use uuid::Uuid;

/// A scheduler that knows one Task, with as many commits of one event each as the test made.
#[derive(Clone, Default)]
pub(super) struct Fake(pub(super) Arc<Mutex<State>>);

/// How it answers a reader of its log that waits.
#[derive(Default, Clone, Copy)]
pub(super) enum Holds {
    #[default]
    InTime,
    /// At once, as if it held too many answers.
    AtOnce,
    /// Not at all, as an older one.
    Refuses,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) holds: Holds,
    pub(super) commits: u64,
    ended: bool,
    hints: Vec<UnboundedSender<Changed>>,
    listeners: Vec<UnboundedSender<Published>>,
    pub(super) reads: usize,
    /// It has stopped, and will never answer again.
    pub(super) is_over: bool,
    /// The answers to the next requests, one each.
    pub(super) refuses: VecDeque<Rejection>,
}

impl Fake {
    pub(super) fn commit(&self, count: u64, ended: bool) {
        let mut state = self.0.lock();
        state.commits += count;
        state.ended = ended;
    }

    pub(super) fn hint(&self) {
        let state = self.0.lock();
        let ended = state.ended.then_some(TaskStatus::Completed);
        let changed = Changed { task_id: task(), version: state.commits, ended };
        for hints in &state.hints {
            hints.unbounded_send(changed.clone()).unwrap();
        }
    }
}

impl Fake {
    /// Answers so many requests as when nobody owns the Task for a while.
    pub(super) fn falls_silent(&self, questions: usize) {
        let unanswered = || Rejection::new(Code::Unavailable, "nobody serves this now");
        let not_owner = || Rejection::new(Code::NotOwner, "another does");
        let all = (0..questions).map(|n| if n % 2 == 0 { unanswered() } else { not_owner() });
        self.0.lock().refuses.extend(all);
    }

    /// Refuses the next request for good.
    pub(super) fn refuses(&self, code: Code) {
        self.0.lock().refuses.push_back(Rejection::new(code, "for good"));
    }
}

pub(super) fn task() -> TaskId {
    TaskId::new("t").unwrap()
}

fn no_such<T>() -> Result<T, Rejection> {
    Err(Rejection::new(Code::ToolNotAvailable, "not in this test"))
}

fn commit(first_seq: u64) -> Commit {
    let body = Body::TaskRunning(Moved { from: TaskStatus::Pending, reason: None });
    let event = Event { actor: system_agent(), run: None, step_id: None, body };
    Commit {
        commit_id: CommitId(Uuid::now_v7()),
        first_seq,
        created_at: 0,
        command_id: None,
        command_digest: None,
        epoch: 0,
        trace: None,
        events: vec![event],
    }
}

/// An event for each commit, and a second one for every third.
fn events(state: &State, behind: u64, most: usize) -> EventPage {
    let one = |seq: u64, n: u64| TaskEvent {
        event_id: format!("{seq}.{n}").into(),
        event: EventName::Updated,
        native_event: "task_updated".into(),
        session_id: SessionId::new("s").unwrap(),
        task_id: task(),
        step_id: None,
        run_id: None,
        attempt_id: None,
        wal_seq: seq,
        status: Normal::Running,
        native_status: TaskStatus::Running,
        terminal: false,
        actor: system_agent(),
        created_at: 0,
        data: serde_json::Value::Null,
    };
    let read = (behind.saturating_add(1)..=state.commits).take(most);
    let through = read.clone().last().unwrap_or(behind);
    let events = read.flat_map(|seq| (0..=u64::from(seq % 3 == 0)).map(move |n| one(seq, n)));
    let status = if state.ended { TaskStatus::Completed } else { TaskStatus::Running };
    EventPage { events: events.collect(), through, version: state.commits, status }
}

impl Fake {
    /// Returns when there is something to read, or when that takes too long.
    async fn hold(&self, after: u64, wait_ms: u64, until: ReadUntil) -> Result<(), Rejection> {
        for _ in 0..wait_ms {
            if self.answers(after, until)? {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    fn answers(&self, after: u64, until: ReadUntil) -> Result<bool, Rejection> {
        let state = self.0.lock();
        let is_enough = until == ReadUntil::More && state.commits > after;
        match state.holds {
            Holds::Refuses => Err(Rejection::invalid("wait_ms", "it is not known")),
            Holds::AtOnce => Ok(true),
            Holds::InTime => Ok(state.ended || is_enough || !state.refuses.is_empty()),
        }
    }
}

impl Fake {
    /// Publishes all events behind event `after` to those who listen.
    pub(super) fn publish(&self, after: u64) {
        let state = self.0.lock();
        let published = Published { v: V, after, page: events(&state, after, usize::MAX) };
        for listener in &state.listeners {
            listener.unbounded_send(published.clone()).unwrap();
        }
    }
}

macro_rules! answers {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { ReadEvents($_events:ty) $($part:ident($brings:ty))* }
        other { $($other:ident($_query:ty))* }
    ) => {
        $(answers!($asks);)*
        $(answers!($reads);)*
        $(answers!($brings);)*
    };
    ($query:ty) => {
        impl Answers<$query> for Fake {
            async fn answer(
                &self,
                _: &TaskId,
                _: $query,
            ) -> Result<<$query as Query>::Output, Rejection> {
                no_such()
            }
        }
    };
}

tenure_wire::queries!(answers);

impl Answers<ReadEvents> for Fake {
    /// Four commits a page.
    async fn answer(&self, _: &TaskId, which: ReadEvents) -> Result<EventPage, Rejection> {
        let mut state = self.0.lock();
        state.reads += 1;
        match state.refuses.pop_front() {
            Some(refused) => Err(refused),
            None => Ok(events(&state, which.after, 4)),
        }
    }
}

impl ClientPort for Fake {
    fn session(&self) -> &SessionId {
        unreachable!("nobody asks")
    }

    fn is_over(&self) -> bool {
        self.0.lock().is_over
    }

    fn within(&self, _: usize) -> Self {
        unreachable!("nobody asks")
    }

    async fn write(
        &self,
        _: &TaskId,
        _: Context,
        _: impl Into<Write> + Send,
    ) -> Result<WriteSummary, Rejection> {
        no_such()
    }

    async fn tasks(&self, _: ListInput) -> Result<TaskPage, Rejection> {
        no_such()
    }

    async fn views(&self, _: ViewsInput) -> Result<(Snapshot, Vec<u32>), Rejection> {
        no_such()
    }

    /// Two commits a page.
    async fn log(
        &self,
        _: &TaskId,
        which: impl Into<ReadLog> + Send,
    ) -> Result<LogPage, Rejection> {
        let ReadLog { after, wait_ms, until, .. } = which.into();
        self.0.lock().reads += 1;
        if wait_ms > 0 {
            self.hold(after, wait_ms, until).await?;
        }
        let mut state = self.0.lock();
        if let Some(refused) = state.refuses.pop_front() {
            return Err(refused);
        }
        let behind = after.saturating_add(1)..=state.commits;
        let commits: Vec<_> = behind.map(commit).collect();
        let more = commits.len() > 2;
        let commits = commits.into_iter().take(2).collect();
        let status = if state.ended { TaskStatus::Completed } else { TaskStatus::Running };
        let (version, now, leases) = (state.commits, 0, Vec::new());
        let (wal_path, steps_max) = (None, None);
        Ok(LogPage { commits, more, version, status, now, leases, wal_path, steps_max })
    }

    async fn published(&self, _: &TaskId) -> Result<BoxStream<'static, Published>, Rejection> {
        let mut state = self.0.lock();
        if let Some(refused) = state.refuses.pop_front() {
            return Err(refused);
        }
        let (to, published) = unbounded();
        state.listeners.push(to);
        Ok(published.boxed())
    }

    async fn runtime(
        &self,
        _: Option<&TaskId>,
    ) -> Result<BoxStream<'static, RuntimeEvent>, Rejection> {
        no_such()
    }

    async fn list(&self, _: bool) -> Result<Listing, Rejection> {
        no_such()
    }

    async fn changes(&self, _: Option<&TaskId>) -> Result<BoxStream<'static, Changed>, Rejection> {
        let mut state = self.0.lock();
        if let Some(refused) = state.refuses.pop_front() {
            return Err(refused);
        }
        let (to, hints) = unbounded();
        state.hints.push(to);
        Ok(hints.boxed())
    }
}
