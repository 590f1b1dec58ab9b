//! Decide, append, apply, answer: what holds while an append is in flight, and when it fails.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    self, completing, create, dag, envelope, events, key, node, node_on, replayed, status, until,
};
use futures::StreamExt as _;
use tenure_core::command::{Close, Why};
use tenure_core::event::{Body, LeaseEnd};
use tenure_core::id::{AgentId, PoolId, SessionId, WalName};
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::{Code, Command, Commit, Rejection};
use tenure_local::MemoryLeases;
use tenure_ports::Journal;
use tenure_ports::bus::{Credit, WorkerPort as _};
use tenure_ports::journal::{AppendError, Entry, ReadError, TaskKey};
use tenure_scheduler::{Config, Scheduler};
use tenure_testkit::faulty::Fault;
use tenure_testkit::{Faulty, MemoryJournal};
use tokio::sync::broadcast::error::TryRecvError;

/// WAL-06, WAL-10, EVENT-01: nobody is answered, and nothing published, before the append is durable;
/// readers see the last durable state meanwhile.
#[tokio::test]
async fn nothing_leaves_the_actor_before_the_append_returns() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let mut published = node.subscribe();
    let gate = node.journal().hold_next();
    let pausing = tokio::spawn({
        let (node, key) = (node.clone(), key.clone());
        async move { node.command(&key, envelope(), Command::PauseTask(Why::default())).await }
    });
    while node.journal().writes() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(!pausing.is_finished() && published.try_recv().is_err());
    assert_eq!(status(&node, &key).await, TaskStatus::Running);
    gate.open();
    assert_eq!(pausing.await.unwrap().unwrap().status, TaskStatus::Paused);
    assert_eq!(published.try_recv().unwrap().commit.events[0].body.event_type(), "task_paused");
}

/// WAL-05, mechanisms 2: commands that arrive while an append is in flight are decided together
/// and appended together.
#[tokio::test]
async fn waiting_commands_share_one_append() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let gate = node.journal().hold_next();
    let before = node.journal().writes();
    let mut asked = Vec::new();
    for i in 0..100_u32 {
        let (node, key) = (node.clone(), key.clone());
        let why = Why::default();
        let command = if i % 2 == 0 { Command::PauseTask(why) } else { Command::ResumeTask(why) };
        asked.push(tokio::spawn(async move { node.command(&key, envelope(), command).await }));
        tokio::task::yield_now().await;
    }
    while node.journal().writes() == before {
        tokio::task::yield_now().await;
    }
    gate.open();
    for one in asked {
        one.await.unwrap().unwrap();
    }
    assert!(node.journal().writes() - before <= 4, "{} appends", node.journal().writes() - before);
    assert_eq!(
        replayed(&node, &key).await.version(),
        node.read(&key, |task| task.version()).await.unwrap()
    );
}

/// Mechanisms 2: the actor of a Task that ends is drained: whoever speaks while the end is written, or
/// just after, is answered.
#[tokio::test]
async fn what_is_said_behind_the_end_of_a_task_is_answered() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let gate = node.journal().hold_next();
    let ask = |command: Command| {
        let (node, key) = (node.clone(), key.clone());
        tokio::spawn(async move { node.command(&key, envelope(), command).await })
    };
    let cancelled = ask(Command::TaskCancel(Close::default()));
    while !node.journal().is_spent() {
        tokio::task::yield_now().await;
    }
    let mut asked = Vec::new();
    for n in 0..300_u32 {
        if n == 100 {
            gate.open();
        }
        asked.push(ask(Command::PauseTask(Why::default())));
        if n % 3 > 0 {
            tokio::task::yield_now().await; // Others come together.
        }
    }
    assert_eq!(cancelled.await.unwrap().unwrap().status, TaskStatus::Cancelled);
    for one in asked {
        assert_eq!(one.await.unwrap().unwrap_err().code, Code::TaskTerminal);
    }
    assert_eq!(events(&node, &key).await.last(), Some(&"task_cancelled"));
}

/// WAL-07: a failed append fails every command in it, refusals included, and changes nothing.
#[tokio::test]
async fn a_failed_append_refuses_its_commands_and_leaves_the_state_as_it_was() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let before = node.read(&key, |task| task.to_task()).await.unwrap();
    node.journal().next(Fault::Fail);
    let refused = node.command(&key, envelope(), Command::PauseTask(Why::default())).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, Code::StorageError);
    assert_eq!(refused.details["kind"], "append_failed");
    let after = node.read(&key, |task| task.to_task()).await.unwrap();
    assert_eq!(before, after);
    assert_eq!(replayed(&node, &key).await, after);
    node.command(&key, envelope(), Command::PauseTask(Why::default())).await.unwrap();
}

/// WAL-07: where the log does not answer before anything is handed to it, nothing has come of a command, and
/// whoever asked is told to ask again soon: that is no failure of storage.
#[tokio::test]
async fn a_log_that_does_not_answer_is_asked_again_soon() {
    let is_away = |refused: Rejection| {
        let details = &refused.details;
        assert_eq!((refused.code, details.contains_key("kind")), (Code::Unavailable, false));
        assert!(details.contains_key("retry_after_ms"));
    };
    let node = node().await;
    node.journal().next(Fault::Away);
    is_away(create(&node, dag("t", "a")).await.unwrap_err());
    let missing = node.read(&key("t"), |task| task.version()).await.unwrap_err();
    assert_eq!(missing.code, Code::TaskNotFound);
    let key = create(&node, dag("t", "a")).await.unwrap();
    let before = node.read(&key, |task| task.to_task()).await.unwrap();
    node.journal().next(Fault::Away);
    let pause = envelope();
    let asked = node.command(&key, pause.clone(), Command::PauseTask(Why::default())).await;
    is_away(asked.unwrap_err());
    assert_eq!(node.read(&key, |task| task.to_task()).await.unwrap(), before);
    assert_eq!(replayed(&node, &key).await, before);
    node.command(&key, pause, Command::PauseTask(Why::default())).await.unwrap();
}

/// WAL-09, mechanisms 14: after an append of unknown fate the actor stops, its supervisor replays,
/// and what the log has is what is true, kept or lost.
#[tokio::test]
async fn after_an_append_of_unknown_fate_the_log_is_read_again() {
    for (fault, expected) in
        [(Fault::UnknownKept, TaskStatus::Paused), (Fault::UnknownLost, TaskStatus::Running)]
    {
        let node = node().await;
        let key = create(&node, dag("t", "a")).await.unwrap();
        node.journal().next(fault);
        let pause = envelope();
        let asked = node.command(&key, pause.clone(), Command::PauseTask(Why::default())).await;
        let asked = asked.unwrap_err();
        assert_eq!((asked.code, &asked.details["kind"]), (Code::StorageError, &"ambiguous".into()));
        assert_eq!(status(&node, &key).await, expected);
        assert_eq!(
            replayed(&node, &key).await,
            node.read(&key, |task| task.to_task()).await.unwrap()
        );
        // IDEM-01: repeating the command with its id settles it either way, once.
        node.command(&key, pause, Command::PauseTask(Why::default())).await.unwrap();
        let paused = events(&node, &key).await.iter().filter(|e| **e == "task_paused").count();
        assert_eq!(paused, 1);
    }
}

/// WAL-09: whoever asked for what only the next owner will find settled is told so, and may ask again.
#[tokio::test]
async fn what_the_next_owner_will_know_is_in_doubt_until_then() {
    let is_in_doubt = |refused: Rejection| {
        assert_eq!(
            (refused.code, &refused.details["kind"]),
            (Code::Unavailable, &"ambiguous".into())
        );
    };
    let node = node().await;
    node.journal().next(Fault::Unsettled);
    is_in_doubt(create(&node, dag("t", "a")).await.unwrap_err());
    let key = create(&node, dag("t", "a")).await.unwrap();
    node.journal().next(Fault::Unsettled);
    let pause = node.command(&key, envelope(), Command::PauseTask(Why::default())).await;
    is_in_doubt(pause.unwrap_err());
    assert_eq!(status(&node, &key).await, TaskStatus::Running);
}

/// A node that ran `a b c<-a,b` and died while two of its Steps were held: its log, and the Task.
async fn dies_holding_two() -> (Arc<Faulty<MemoryJournal>>, TaskKey) {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let first = node_on(Arc::clone(&journal)).await;
    let stuck = common::workers(&first, 4, |_| async {
        std::future::pending::<()>().await;
        Ok(())
    });
    let key = create(&first, dag("t", "a b c<-a,b")).await.unwrap();
    until(&first, &key, |task| task.tally().held() == 2).await;
    drop(stuck);
    first.stop().await;
    (journal, key)
}

/// RECOVER-07: to read a Task back publishes and writes nothing, and has no worker do again what is done, or
/// what another holds.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_read_back_does_nothing_anew() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let mut config = Config::embedded(PoolId::new(common::POOL).unwrap());
    config.embedded = false; // Attempts of an earlier boot may be alive.
    let leases = Arc::new(MemoryLeases::default());
    let start = || Scheduler::start(Arc::clone(&journal), Arc::clone(&leases), config.clone());
    let first = start().await.unwrap();
    let workers = common::workers(&first, 4, |ctx| async move {
        if ctx.step_id().as_str() == "b" {
            std::future::pending::<()>().await;
        }
        Ok(ctx.complete(None)?)
    });
    let key = create(&first, dag("t", "a b c<-b d<-a")).await.unwrap();
    until(&first, &key, |task| {
        task.tally().of(StepStatus::Completed) == 2 && task.tally().held() == 1
    })
    .await;
    let before = first.commits(&key).await.unwrap();
    first.leave(key.partition(config.partitions), None).await; // As a node that has died.

    let second = start().await.unwrap();
    let mut published = second.subscribe();
    let id = AgentId::new("eager").unwrap();
    let (link, mut inbox) = second.join(id, config.default_worker_pool_id.clone(), None).unwrap();
    link.credit(Credit { free: 4, seen: 0, lost: 0, number: 1 });
    assert_eq!(second.resume_all().await.unwrap(), 1);
    assert_eq!(second.read(&key, |task| task.tally().held()).await.unwrap(), 1);
    let granted = tokio::time::timeout(Duration::from_secs(10), inbox.next()).await;
    assert!(granted.is_err(), "{granted:?}");
    assert!(matches!(published.try_recv(), Err(TryRecvError::Empty)));
    assert_eq!(second.commits(&key).await.unwrap(), before);
    drop(workers);
}

/// WAL-07: what the scheduler decides by itself, claims and the ends of orphaned Attempts, it decides
/// again after an append that failed.
#[tokio::test(start_paused = true)]
async fn after_a_failed_append_the_scheduler_goes_on_by_itself() {
    let (journal, key) = dies_holding_two().await;
    let second = node_on(journal).await;
    let _workers = completing(&second, 2);
    for _ in 0..3 {
        second.journal().next(Fault::Fail);
    }
    second.resume_all().await.unwrap();
    until(&second, &key, |task| task.head().status == TaskStatus::Completed).await;
    let task = replayed(&second, &key).await;
    assert_eq!(task.durable().attempts_len(), 5);
}

/// WAL-07, LEASE-15: that Attempts of an earlier boot are over is decided again after an append that failed,
/// as what it is, and not found out when their leases have run out.
#[tokio::test(start_paused = true)]
async fn the_end_of_orphans_whose_append_failed_is_written_again() {
    let (journal, key) = dies_holding_two().await;
    let second = node_on(journal).await;
    second.journal().next(Fault::Fail);
    second.resume_all().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(second.journal().is_spent());
    let task = replayed(&second, &key).await;
    assert_eq!(task.tally().held(), 0);
    let commits = second.commits(&key).await.unwrap();
    let ends = commits.iter().flat_map(|c| &c.events).filter_map(|event| match &event.body {
        Body::StepLeaseExpired(end) => Some(end.reason),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), [LeaseEnd::HostRestarted; 2]);
}

/// A create whose append fails has made nothing; the id is free.
#[tokio::test]
async fn a_failed_create_makes_nothing() {
    let node = node().await;
    node.journal().next(Fault::Fail);
    let refused = create(&node, dag("t", "a")).await.unwrap_err();
    assert_eq!(refused.code, Code::StorageError);
    let missing = node.read(&key("t"), |task| task.version()).await.unwrap_err();
    assert_eq!(missing.code, Code::TaskNotFound);
    create(&node, dag("t", "a")).await.unwrap();
}

/// ID-03, IDEM-03, OWN-07: of concurrent creates of one id one wins; a repeat with its key or
/// content gets the first Task, anything else a conflict.
#[tokio::test]
async fn one_of_many_creates_of_an_id_wins() {
    let node = node().await;
    let creates = (0..20).map(|n| {
        let mut input = dag("t", "a");
        input.summary = n.to_string().into();
        create(&node, input)
    });
    let results = futures::future::join_all(creates).await;
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    let lost = results.into_iter().filter_map(Result::err).map(|r| r.code);
    assert!(lost.into_iter().all(|code| code == Code::TaskIdConflict));

    let keyed = |summary: &str| {
        let of_key = "05b978f5-7af2-5116-8fbe-7948c0824699"; // IDEM-03, in the session of these tests.
        let mut input = dag(of_key, "a");
        input.idempotency_key = Some("once".into());
        input.summary = summary.into();
        input
    };
    let first =
        node.create(envelope(), keyed("x"), tenure_core::status::Policy::Auto).await.unwrap();
    let again =
        node.create(envelope(), keyed("x"), tenure_core::status::Policy::Auto).await.unwrap();
    assert_eq!(first.reply.written, again.reply.written);
    let other = node.create(envelope(), keyed("y"), tenure_core::status::Policy::Auto).await;
    assert_eq!(other.unwrap_err().code, Code::IdempotencyConflict);
}

/// OWN-05, RECOVER-01, RECOVER-03, RECOVER-10, LEASE-15: a node that starts on the log of a dead one knows
/// all live Tasks; Attempts of the earlier boot end at once and their Steps run again.
#[tokio::test]
async fn a_new_boot_ends_the_attempts_of_the_old_one_and_goes_on() {
    let (journal, key) = dies_holding_two().await;
    let second = node_on(journal).await;
    let _workers = completing(&second, 4);
    assert_eq!(second.resume_all().await.unwrap(), 1);
    second.wait_for_end(&key).await.unwrap();
    let events = events(&second, &key).await;
    let count = |name: &str| events.iter().filter(|e| **e == name).count();
    assert_eq!(count("task_step_lease_expired"), 2);
    assert_eq!(count("task_step_claimed"), 5);
    assert_eq!(count("task_step_completed"), 3);
    let task = replayed(&second, &key).await;
    assert_eq!(task.head().status, TaskStatus::Completed);
    assert!(second.commits(&key).await.unwrap().iter().all(|commit| commit.epoch == 0));
    // RETRY-03: a restarted host counts in no budget.
    assert_eq!(task.step(&common::step_id("a")).unwrap().state.lost_count, 0);
}

/// RECOVER-04: a log that cannot be read makes its own Task unavailable, and no other.
#[tokio::test]
async fn an_unreadable_log_makes_one_task_unavailable() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let first = node_on(Arc::clone(&journal)).await;
    let (bad, good) = (
        create(&first, dag("bad", "a")).await.unwrap(),
        create(&first, dag("good", "a")).await.unwrap(),
    );
    first.stop().await;
    let second = node_on(Arc::clone(&journal)).await;
    journal.fail_reads(1);
    let refused = second.read(&bad, |task| task.version()).await.unwrap_err();
    assert_eq!(
        (refused.code, &refused.details["kind"]),
        (Code::StorageError, &"replay_failed".into())
    );
    assert_eq!(status(&second, &good).await, TaskStatus::Running);
}

/// RECOVER-04: a log that does not answer is not one that cannot be replayed: its Task is `unavailable`, for
/// as long as that lasts, and is read as soon as the log answers.
#[tokio::test(start_paused = true)]
async fn a_log_that_does_not_answer_is_read_when_it_does() {
    let journal = Arc::new(Faulty::new(MemoryJournal::default()));
    let first = node_on(Arc::clone(&journal)).await;
    let key = create(&first, dag("t", "a")).await.unwrap();
    first.stop().await;
    let second = node_on(Arc::clone(&journal)).await;
    journal.be_silent(true);
    for _ in 0..2 {
        let refused = second.read(&key, |task| task.version()).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.details.contains_key("kind")),
            (Code::Unavailable, false)
        );
        assert!(refused.details.contains_key("retry_after_ms"));
        tokio::time::sleep(Duration::from_secs(200)).await; // An outage that lasts.
    }
    journal.be_silent(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(status(&second, &key).await, TaskStatus::Running);
}

/// WAL-06: a node that stops has the appends in flight finish: what it leaves behind no longer changes.
#[tokio::test(start_paused = true)]
async fn a_node_that_stops_has_its_appends_finish() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let gate = node.journal().hold_next();
    let (asking, task) = (node.clone(), key.clone());
    let pause =
        async move { asking.command(&task, envelope(), Command::PauseTask(Why::default())).await };
    let paused = tokio::spawn(pause);
    while !node.journal().is_spent() {
        tokio::task::yield_now().await;
    }
    let stopping = node.clone();
    let stopped = tokio::spawn(async move { stopping.stop().await });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!stopped.is_finished(), "it waits for the append");
    gate.open();
    stopped.await.unwrap();
    assert_eq!(events(&node, &key).await.last(), Some(&"task_paused"));
    let answer = paused.await.unwrap();
    assert!(answer.is_ok() || answer.unwrap_err().code == Code::Unavailable);
}

/// ID-03, IDEM-03: a create of an id whose log is being read just now is judged once it is known.
#[tokio::test(start_paused = true)]
async fn a_create_of_a_task_that_is_being_read_is_judged_by_it() {
    let first = node().await;
    let envelope = envelope();
    let policy = tenure_core::status::Policy::Auto;
    let made = first.create(envelope.clone(), dag("t", "a"), policy).await.unwrap();
    first.stop().await;
    let second = node_on(Arc::clone(first.journal())).await;
    let gate = second.journal().hold_reads();
    let again = second.create(envelope, dag("t", "a"), policy);
    let other = create(&second, dag("t", "b"));
    let opened = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        gate.open();
    };
    let (again, other, ()) = tokio::join!(again, other, opened);
    assert_eq!(again.unwrap().reply.written, made.reply.written);
    assert_eq!(other.unwrap_err().code, Code::TaskIdConflict);
    let created = events(&second, &key("t")).await;
    assert_eq!(created.iter().filter(|event| **event == "task_created").count(), 1);
}

/// The log of a Task whose creation broke off before it had one whole commit: the id is not free, and
/// there is nothing to read.
#[derive(Default)]
struct Unborn(MemoryJournal);

impl Journal for Unborn {
    async fn create(
        &self,
        _: &TaskKey,
        _: &WalName,
        _: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        Err(AppendError::TaskExists)
    }

    async fn append(
        &self,
        key: &TaskKey,
        after: u64,
        commits: Vec<Arc<Commit>>,
    ) -> Result<(), AppendError> {
        self.0.append(key, after, commits).await
    }

    async fn read<F>(&self, key: &TaskKey, after: u64, each: F) -> Result<(), ReadError>
    where
        F: FnMut(Commit) -> ControlFlow<()> + Send + 'static,
    {
        self.0.read(key, after, each).await
    }

    async fn entry(&self, key: &TaskKey) -> Result<Option<Entry>, ReadError> {
        self.0.entry(key).await
    }

    async fn entries(&self, session: Option<&SessionId>) -> Result<Vec<Entry>, ReadError> {
        self.0.entries(session).await
    }

    fn release(&self, key: &TaskKey) {
        self.0.release(key);
    }

    fn epoch(&self, key: &TaskKey) -> Option<u64> {
        self.0.epoch(key)
    }
}

/// Mechanisms 14: whether such a creation will ever count is not known before a restart, and who asks
/// for it again is told so: he is neither refused for good nor kept waiting.
#[tokio::test(start_paused = true)]
async fn a_creation_that_broke_off_is_answered_as_unknown() {
    let config = Config::embedded(PoolId::new(common::POOL).unwrap());
    let node = Scheduler::start(Arc::<Unborn>::default(), Arc::<MemoryLeases>::default(), config);
    let node = node.await.unwrap();
    let policy = tenure_core::status::Policy::Auto;
    let create = node.create(envelope(), dag("t", "a"), policy);
    let answer = tokio::time::timeout(Duration::from_secs(60), create).await.expect("an answer");
    assert_eq!(answer.unwrap_err().code, Code::Unavailable);
}
