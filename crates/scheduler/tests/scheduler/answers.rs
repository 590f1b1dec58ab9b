//! What writes are answered with.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use crate::common::{
    POOL, View, cancel, completes, create, dag, envelope, key, node, orchestrator, session, step_id,
};
use futures::StreamExt as _;
use tenure_core::Command;
use tenure_core::Context;
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Dispatch, RunAndWhy, StepReport, Write};
use tenure_core::id::{AgentId, CommandId};
use tenure_core::record::Labels;
use tenure_core::status::{Policy, Role, StepStatus, TaskStatus};
use tenure_core::view::snapshot::RECENT_MAX;
use tenure_core::view::write::TaskHeader;
use tenure_core::view::{Known, ListInput, Snapshot, ViewsInput, write_summary};
use tenure_ports::Journal as _;
use tenure_ports::bus::{Credit, Delivery, Holding, WorkerPort as _};
use tenure_ports::client::ClientPort as _;
use tenure_ports::journal::{Entry, Overview};

/// CTRL-04: a write answers with the Task in short, the Steps it changed, its events and the
/// version; the same again when it is repeated.
#[tokio::test]
async fn a_write_answers_with_a_summary() {
    let node = node().await;
    let created = node.create(envelope(), dag("t", "a b<-a c<-b"), Policy::Auto).await.unwrap();
    let key = key("t");
    let summary = created.summary.unwrap();
    assert_eq!((summary.version, summary.event_ids.len()), (3, 3));

    let mut report = StepReport::on(step_id("a"));
    report.status = Some(StepStatus::Completed);
    let (first, command) = (envelope(), Command::TaskUpdateStep(report));
    for _ in 0..2 {
        let answer = node.command(&key, first.clone(), command.clone()).await.unwrap();
        let summary = answer.summary.unwrap();
        assert_eq!(summary.version, node.read(&key, |task| task.version()).await.unwrap());
        assert_eq!(summary.event_ids.len(), 2);
        let TaskHeader::Summary(task) = summary.task else { panic!("a summary") };
        assert_eq!((task.native_status, task.counts.completed), (TaskStatus::Running, 1));
    }
    let answer = node.command(&key, first, command).await.unwrap();
    assert_eq!(answer.reply.written.unwrap().count, 2);
}

/// Mechanisms 4: an answer says whether its command wrote anything just now, which fences it; a repeat
/// does not, nor what changes nothing.
#[tokio::test]
async fn an_answer_says_whether_its_command_wrote() {
    let node = node().await;
    let client = node.client(Role::Orchestrator, AgentId::new("o").unwrap(), session());
    let around = |id: &str| Context::new(CommandId::new(id).unwrap());
    let writes = async |id: &str, what: Write| {
        client.carry_out(&key("t").task_id, around(id), what).await.unwrap().is_written
    };
    let wrote = async |id: &str, command: &Command| writes(id, command.clone().into()).await;
    let mut input = dag("t", "a");
    (input.dispatch, input.completion) = (Some(Policy::Manual), Some(Policy::Manual));
    assert!(writes("1", input.clone().into()).await);
    assert!(!writes("1", input.into()).await);
    let dispatch = Command::DispatchWorker(Dispatch {
        allowed_step_ids: None,
        bindings: None,
        instructions: None,
        on_behalf: None,
        ttl_ms: None,
        wait: Some(false),
        worker_pool_id: POOL.parse().unwrap(),
    });
    assert!(wrote("2", &dispatch).await);
    assert!(!wrote("2", &dispatch).await);
    assert!(wrote("3", &dispatch).await);

    let id = AgentId::new("w").unwrap();
    let (link, mut inbox) = node.join(id, POOL.parse().unwrap(), None).unwrap();
    link.credit(Credit { free: 2, seen: 0, lost: 0, number: 1 });
    let Some(Delivery::Run(used)) = inbox.next().await else { panic!("an offer comes") };
    let Some(Delivery::Run(unused)) = inbox.next().await else { panic!("an offer comes") };
    let claim = async || {
        link.claim_anew(&used, &step_id("a"), &CommandId::new("c").unwrap()).await.unwrap()
    };
    let (claimed, is_written) = claim().await;
    assert!(is_written);
    assert_eq!(claim().await, (claimed.clone(), false));
    let report = async || {
        let report = link.report(&Holding::of(&claimed), completes(&claimed), None);
        report.in_full().await.unwrap()
    };
    let first = report().await;
    let again = report().await;
    assert_eq!((first.is_written, again.is_written), (true, false));
    assert_eq!(first.recorded(), again.recorded());
    let stop = Command::CancelRun(RunAndWhy { reason: None, run_id: unused.run_id });
    assert!(wrote("4", &stop).await);
    assert!(!wrote("5", &stop).await, "it has ended");
}

/// CTRL-04: who may not see the Task is told where it is, and no more.
#[tokio::test]
async fn a_summary_shows_no_more_than_its_reader_may_see() {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    let paused = node.command(&key, envelope(), Command::PauseTask(Default::default())).await;
    let mut stranger = orchestrator();
    stranger.role = tenure_core::status::Role::SubAgent;
    let reply = paused.unwrap().reply;
    let now = node.now();
    let look =
        move |task: &View<'_>| write_summary(task, &stranger, &reply, &Known::new(now, &|_| None));
    let summary = node.read(&key, look).await.unwrap();
    assert!(matches!(summary.task, TaskHeader::Reference(_)) && summary.steps.is_empty());
}

/// VIEW-01: the pages of a snapshot are together what it is at once: every Task is counted once, and
/// of many ended ones the newest are shown.
#[tokio::test(start_paused = true)]
async fn pages_of_views_are_the_whole() {
    let node = node().await;
    for n in 0..RECENT_MAX + 10 {
        let task = create(&node, dag(&format!("t{n}"), "a")).await.unwrap();
        tokio::time::advance(std::time::Duration::from_millis(1)).await;
        if n >= 5 {
            cancel(&node, &task).await.unwrap();
        }
    }
    let port = node.client(Role::Observer, AgentId::new("eye").unwrap(), session());
    let (whole, _) = port.views(ViewsInput::default()).await.unwrap();
    let overview = Overview::of(node.journal().entries(Some(&session())).await.unwrap());
    let (mut all, mut after, mut pages) = (Snapshot::asking(&[]), None, 0);
    let asked = ViewsInput::default();
    loop {
        let (page, next) = port.views_page(&asked, &overview, after.as_ref(), 7).await.unwrap();
        all.merge(page);
        (after, pages) = (next, pages + 1);
        if after.is_none() {
            break;
        }
    }
    assert_eq!(pages, (5 + RECENT_MAX).div_ceil(7));
    assert_eq!(all.finish(), whole);
    let totals = whole.task_summary.unwrap();
    assert_eq!((totals.active, totals.terminal), (5, 5 + RECENT_MAX as u64));
    assert_eq!(totals.recent_terminal.len(), RECENT_MAX);
    assert!(totals.recent_terminal.iter().all(|task| task.task_id.as_str() != "t5"), "the oldest");
    assert_eq!(whole.tasks.unwrap().len(), 5 + RECENT_MAX, "of all views");
}

/// LIST-06, VIEW-07: pages follow each other, though Tasks lie between whose logs cannot be read.
#[tokio::test]
async fn what_cannot_be_read_is_not_counted_in_a_list() {
    let node = node().await;
    for id in ["a", "b", "c", "d", "e"] {
        create(&node, dag(id, "a")).await.unwrap();
    }
    let mut entries = node.journal().entries(Some(&session())).await.unwrap();
    let unread = |entry: &&mut Entry| ["a", "c"].contains(&entry.key.task_id.as_str());
    for entry in entries.iter_mut().filter(unread) {
        entry.damaged = true;
        entry.key.task_id = format!("{}-lost", entry.key.task_id).parse().unwrap();
    }
    let client = node.client(Role::Orchestrator, AgentId::new("o").unwrap(), session());
    let (mut seen, mut from) = (Vec::new(), Some(0));
    while let Some(offset) = from {
        let input = ListInput { limit: Some(1), offset, ..ListInput::default() };
        let page = client.tasks_page(entries.clone(), &input, 10).await.unwrap();
        seen.extend(page.tasks.iter().map(|task| task.task_id.to_string()));
        from = page.next_offset;
    }
    assert_eq!(seen, ["b", "d", "e"]);
}

/// LABEL-01, LIST-07: a list has the Tasks that have all labels given, live and ended ones, page by page; the
/// index leaves out the others, so that their logs are not read.
#[tokio::test]
async fn a_list_by_labels_reads_no_other_log() {
    let node = node().await;
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect::<Labels>()
    };
    for n in 0..12 {
        let team = if n % 3 == 0 { "blue" } else { "red" };
        let given = labels(&[("team", team), ("n", ["even", "odd"][n % 2])]);
        let id = format!("t{n:02}");
        let key = create(&node, CreateTask { labels: given, ..dag(&id, "a") }).await.unwrap();
        if n >= 6 {
            cancel(&node, &key).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(2)).await; // No two end in one millisecond.
        }
    }
    let mut entries = node.journal().entries(Some(&session())).await.unwrap();
    for entry in &mut entries {
        if entry.labels["team"] != "blue" {
            entry.key.task_id = "nobody".parse().unwrap(); // A read of this log would tell.
        }
    }
    let client = node.client(Role::Orchestrator, AgentId::new("o").unwrap(), session());
    let list = async |pairs: &[(&str, &str)]| {
        let (mut seen, mut from) = (Vec::new(), Some(0));
        while let Some(offset) = from {
            let (limit, include_terminal, labels) = (Some(1), true, labels(pairs));
            let input =
                ListInput { limit, offset, include_terminal, labels, ..ListInput::default() };
            let page = client.tasks_page(entries.clone(), &input, 10).await.unwrap();
            seen.extend(page.tasks.iter().map(|task| task.task_id.to_string()));
            from = page.next_offset;
        }
        seen
    };
    assert_eq!(list(&[("team", "blue")]).await, ["t00", "t03", "t09", "t06"]);
    assert_eq!(list(&[("team", "blue"), ("n", "odd")]).await, ["t03", "t09"]);
    assert!(list(&[("team", "green")]).await.is_empty());
}
