//! What reading costs: a log is read once for all who look at a Task that has ended, and once for who
//! goes through it page by page.
#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

use std::sync::Arc;

use crate::common::{Node, cancel, create, dag, envelope, node, node_on, orchestrator};
use tenure_core::Command;
use tenure_core::command::Why;
use tenure_core::status::Role;
use tenure_core::view::{GetInput, InspectInput, ListInput, QueryInput};
use tenure_ports::client::ClientPort;
use tenure_ports::journal::TaskKey;
use tenure_scheduler::load_until;
use tenure_wire::bus::event::ReadEvents;
use tenure_wire::bus::request::ReadLog;

/// A Task with so many commits of so many bytes each, on a node that has not read it yet.
async fn long(commits: usize, bytes: usize) -> (Node, TaskKey) {
    let node = node().await;
    let key = create(&node, dag("t", "a")).await.unwrap();
    for number in 0..commits {
        let title = format!("{number} {}", "x".repeat(bytes));
        let operations = format!(
            r#"[{{"op": "update_step", "step_id": "a", "fields": {{"title": "{title}"}}}}]"#
        );
        let operations = serde_json::from_str(&operations).unwrap();
        node.command(&key, envelope(), Command::TaskUpdate { operations }).await.unwrap();
    }
    cancel(&node, &key).await.unwrap();
    node.stop().await;
    (node_on(Arc::clone(node.journal())).await, key)
}

fn client(node: &Node) -> impl ClientPort {
    node.client(Role::Orchestrator, orchestrator().agent, orchestrator().session_id)
}

/// How many commits its log has.
async fn commits_of(node: &Node, key: &TaskKey) -> u64 {
    let before = node.journal().commits_read();
    load_until(&**node.journal(), key, u64::MAX).await.unwrap();
    node.journal().commits_read() - before
}

/// GET-01, RECOVER-02: an ended Task is folded once for all who ask, in whatever pages; and a change of it
/// is seen by the next.
#[tokio::test]
async fn an_ended_task_is_read_once_for_all_who_look() {
    let (node, key) = long(20, 1).await;
    let (client, task) = (client(&node), &key.task_id);
    let log = commits_of(&node, &key).await;
    let before = node.journal().commits_read();
    for offset in 0..10 {
        let view = client.ask(task, GetInput {}).await.unwrap();
        assert!(view.task.native_status.is_terminal());
        let include_terminal_steps = true;
        let input = QueryInput { offset, include_terminal_steps, ..QueryInput::default() };
        client.ask(task, input).await.unwrap();
    }
    assert!(node.journal().commits_read() - before <= log, "more than once");
    let version = node.read(&key, |task| task.version()).await.unwrap();
    node.command(&key, envelope(), Command::ArchiveTask(Why::default())).await.unwrap();
    for _ in 0..2 {
        let view = client.ask(task, GetInput {}).await.unwrap();
        assert_eq!((view.task.archived, view.task.version), (true, version + 1));
    }
    assert!(node.journal().commits_read() - before <= log, "the change was made on what was read");
}

/// VIEW-12: who reads a log page by page has each page read, and not all of the Task for each; a page has
/// bytes of commits as an answer has them, however long each is.
#[tokio::test]
async fn each_page_of_a_log_is_read_alone() {
    let (node, key) = long(100, 16 << 10).await;
    let (client, before) = (client(&node), node.journal().commits_read());
    let (mut after, mut pages, mut commits) = (0, 0, 0);
    loop {
        let page = client.log(&key.task_id, after).await.unwrap();
        let bytes: usize = page.commits.iter().map(|commit| format!("{commit:?}").len()).sum();
        assert!(bytes < 2 << 20, "{bytes}");
        (pages, commits) = (pages + 1, commits + page.commits.len() as u64);
        let Some(last) = page.commits.last().filter(|_| page.more) else { break };
        after = last.last_seq();
    }
    assert!((3..=8).contains(&pages), "{pages}");
    let read = node.journal().commits_read() - before;
    assert!(read <= commits + pages, "{read} commits were read for {commits}");
}

/// VIEW-12: a commit that is too long for a page is read once for all of its parts, which are the lines of
/// the log as others read it.
#[tokio::test]
async fn a_commit_in_parts_is_read_once() {
    const MOST: usize = 10_000;
    let steps: Vec<String> = (0..1_000).map(|step| format!("s{step}")).collect();
    let node = node().await;
    let key = create(&node, dag("t", &steps.join(" "))).await.unwrap();
    cancel(&node, &key).await.unwrap();
    let client = node.client(Role::Observer, orchestrator().agent, orchestrator().session_id);
    let whole = client.log_page(&key.task_id, ReadLog::default(), usize::MAX).await.unwrap();
    let whole: Vec<u8> = whole.commits.into_iter().flat_map(|lines| lines.0).collect();
    let (commits, before) = (commits_of(&node, &key).await, node.journal().commits_read());
    let (mut which, mut lines, mut pages) = (ReadLog::default(), Vec::new(), 0_u64);
    let mut ends = client.log(&key.task_id, 0).await.unwrap().commits.into_iter();
    let own = node.journal().commits_read() - before;
    loop {
        let page = client.log_page(&key.task_id, which, MOST).await.unwrap();
        assert!(page.commits.iter().map(|lines| lines.0.len()).sum::<usize>() <= MOST);
        pages += 1;
        let count = page.commits.len();
        lines.extend(page.commits.into_iter().flat_map(|lines| lines.0));
        match page.cut {
            Some(from) => which.from = from,
            None if page.more => {
                let last = ends.by_ref().nth(count - 1).unwrap();
                which = last.last_seq().into();
            }
            None => break,
        }
    }
    assert!(lines == whole, "the parts are the whole");
    assert!(pages > 20, "{pages}");
    let read = node.journal().commits_read() - before - own;
    assert!(read <= 2 * commits, "{read} commits were read of {commits}, in {pages} pages");
}

/// VIEW-12: who inspects a Task is told of as many events at a time as a page of its log has, by their number and
/// by their bytes, also of a single long commit; the next part goes on where this one ends.
#[tokio::test]
async fn an_inspection_comes_in_pages_as_the_log_does() {
    let steps: Vec<String> = (0..5_000).map(|step| format!("s{step}")).collect();
    let wide = node().await;
    let wide_key = create(&wide, dag("t", &steps.join(" "))).await.unwrap();
    let (long, long_key) = long(100, 16 << 10).await;
    for (node, key, pages_min) in [(wide, wide_key, 2), (long, long_key, 3)] {
        let client = client(&node);
        let version = node.read(&key, |task| task.version()).await.unwrap();
        let (mut told, mut pages, mut next) = (Vec::new(), 0, None);
        loop {
            let input = InspectInput { from_seq: next, ..InspectInput::default() };
            let page = client.ask(&key.task_id, input).await.unwrap();
            assert!(page.timeline.len() <= 4_096, "{}", page.timeline.len());
            let bytes: usize = page.timeline.iter().map(|one| one.payload.to_string().len()).sum();
            assert!(bytes < 1 << 20 || page.timeline.len() == 1, "{bytes}");
            (pages, next) = (pages + 1, page.next_seq);
            told.extend(page.timeline.into_iter().map(|one| one.wal_seq));
            if next.is_none() {
                break;
            }
        }
        assert!(pages >= pages_min, "{pages}");
        assert!(told.iter().copied().eq(1..=version), "each event comes once");
    }
}

/// EVENT-01: who reads public events page by page has each commit read once, and a commit that has more than
/// a page of them too.
#[tokio::test]
async fn each_page_of_events_goes_on_where_the_last_one_ended() {
    let steps: Vec<String> = (0..3_500).map(|step| format!("s{step}")).collect();
    let wide = node().await;
    let wide_key = create(&wide, dag("t", &steps.join(" "))).await.unwrap();
    cancel(&wide, &wide_key).await.unwrap();
    let (long, long_key) = long(2_200, 1).await;
    for (node, key, pages_min) in [(wide, wide_key, 7), (long, long_key, 3)] {
        let (client, before) = (client(&node), node.journal().commits_read());
        let (mut after, mut pages, mut told) = (0, 0, Vec::new());
        loop {
            let page = client.ask(&key.task_id, ReadEvents { after }).await.unwrap();
            pages += 1;
            told.extend(page.events);
            after = page.through;
            if page.through >= page.version {
                break;
            }
        }
        assert!(pages >= pages_min, "{pages}");
        let read = node.journal().commits_read() - before;
        let commits = commits_of(&node, &key).await;
        // To know how the Task stands it is read once more.
        assert!(read <= 2 * commits + pages, "{read} commits were read of {commits}");
        let places: Vec<u64> = told.iter().map(|event| event.wal_seq).collect();
        assert!(places.is_sorted() && *places.last().unwrap() == after);
        let again = client.ask(&key.task_id, ReadEvents { after: places[0] }).await.unwrap();
        let behind = told.iter().filter(|event| event.wal_seq > places[0]);
        assert!(again.events.iter().eq(behind.take(again.events.len())), "the same from anywhere");
    }
}

/// LIST-07: a list does not wait for the log of one Task: it has the others, names that one, and has it when
/// it was read.
#[tokio::test(start_paused = true)]
async fn a_list_does_not_wait_for_a_log_that_takes_long() {
    let (node, key) = long(3, 1).await;
    let live = create(&node, dag("live", "a")).await.unwrap();
    let client = client(&node);
    let all = || ListInput { include_terminal: true, ..ListInput::default() };
    let gate = node.journal().hold_reads();
    let page = client.tasks(all()).await.unwrap();
    let tasks: Vec<_> = page.tasks.iter().map(|task| &task.task_id).collect();
    assert_eq!((tasks, page.unreadable), (vec![&live.task_id], vec![key.task_id.clone()]));
    gate.open();
    let whole = client.tasks(all()).await.unwrap();
    assert_eq!((whole.tasks.len(), whole.unreadable.len()), (2, 0));
}
