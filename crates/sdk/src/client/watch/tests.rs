use std::sync::Arc;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use parking_lot::Mutex;
use tenure_core::command::create::CreateTask;
use tenure_core::event::{Body, Moved};
use tenure_core::id::{CommitId, SessionId, system_agent};
use tenure_core::view::{
    BoardInput, QueryInput, Snapshot, StepPage, TaskLines, TaskView, ViewName, WriteSummary,
};
use tenure_core::{Code, Event};
use tenure_ports::client::{Around, Listing, LogPage};
use uuid::Uuid;

use super::*;

/// A scheduler that knows one Task: as many commits of one event as were made.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    commits: u64,
    ended: bool,
    hints: Vec<UnboundedSender<Changed>>,
    reads: usize,
}

impl Fake {
    fn commit(&self, count: u64, ended: bool) {
        let mut state = self.0.lock();
        state.commits += count;
        state.ended = ended;
    }

    fn hint(&self) {
        let state = self.0.lock();
        let ended = state.ended.then_some(TaskStatus::Completed);
        let changed = Changed { task_id: task(), version: state.commits, ended };
        for hints in &state.hints {
            hints.unbounded_send(changed.clone()).unwrap();
        }
    }
}

fn task() -> TaskId {
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

impl ClientPort for Fake {
    type Changes = UnboundedReceiver<Changed>;

    fn session(&self) -> &SessionId {
        unreachable!("nobody asks")
    }

    async fn create(&self, _: Around, _: CreateTask) -> Result<WriteSummary, Rejection> {
        no_such()
    }

    async fn command(
        &self,
        _: &TaskId,
        _: Around,
        _: tenure_core::Command,
    ) -> Result<WriteSummary, Rejection> {
        no_such()
    }

    async fn get(&self, _: &TaskId) -> Result<TaskView, Rejection> {
        no_such()
    }

    async fn query(&self, _: &TaskId, _: QueryInput) -> Result<StepPage, Rejection> {
        no_such()
    }

    async fn board(&self, _: &TaskId, _: BoardInput) -> Result<TaskLines, Rejection> {
        no_such()
    }

    async fn views(&self, _: Vec<ViewName>) -> Result<(Snapshot, Vec<u32>), Rejection> {
        no_such()
    }

    /// Two commits a page.
    async fn log(&self, _: &TaskId, after: u64) -> Result<LogPage, Rejection> {
        let mut state = self.0.lock();
        state.reads += 1;
        let behind = after.saturating_add(1)..=state.commits;
        let commits: Vec<_> = behind.map(commit).collect();
        let more = commits.len() > 2;
        let commits = commits.into_iter().take(2).collect();
        let status = if state.ended { TaskStatus::Completed } else { TaskStatus::Running };
        let (version, now) = (state.commits, 0);
        Ok(LogPage { commits, more, version, status, now, leases: Vec::new() })
    }

    async fn list(&self, _: bool) -> Result<Listing, Rejection> {
        no_such()
    }

    async fn changes(&self, _: Option<&TaskId>) -> Result<Self::Changes, Rejection> {
        let (to, hints) = unbounded();
        self.0.lock().hints.push(to);
        Ok(hints)
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_hands_out_every_commit_in_order_until_the_end() {
    let fake = Fake::default();
    fake.commit(5, false);
    let client = Client::new(fake.clone());
    let mut watch = Box::pin(client.watch(&task(), 1));
    for seq in 2..=5 {
        assert_eq!(watch.next().await.unwrap().unwrap().first_seq, seq);
    }
    fake.commit(2, true);
    fake.hint();
    fake.hint();
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 6);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 7);
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_needs_no_hint() {
    let fake = Fake::default();
    fake.commit(1, false);
    let mut watch = Box::pin(Client::new(fake.clone()).watch(&task(), 0));
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 1);
    fake.commit(1, true);
    assert_eq!(watch.next().await.unwrap().unwrap().first_seq, 2);
    assert!(watch.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_end_is_seen_at_the_first_look_by_a_hint_and_without_one() {
    let ended = |version| Ended { status: TaskStatus::Completed, version };
    let fake = Fake::default();
    let client = Client::new(fake.clone());
    let (by_hint, task) = (client.clone(), task());
    let name = task.clone();
    let waiting = tokio::spawn(async move { by_hint.wait_for_end(&name).await });
    while fake.0.lock().reads == 0 {
        tokio::task::yield_now().await;
    }
    fake.commit(3, true);
    fake.hint();
    assert_eq!(waiting.await.unwrap(), Ok(ended(3)));
    assert_eq!(fake.0.lock().reads, 1, "the hint said it all");
    assert_eq!(client.wait_for_end(&task).await, Ok(ended(3)));
    fake.commit(0, false);
    let (lost, later) = (client.wait_for_end(&task), async {
        tokio::time::sleep(LOOK / 2).await;
        fake.commit(1, true);
    });
    assert_eq!(tokio::join!(lost, later).0, Ok(ended(4)));
}
