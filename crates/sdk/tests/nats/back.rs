//! What a worker gives back, and why.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tenure_core::event::ReleaseReason;
use tenure_core::id::AttemptId;
use tenure_core::record::Value;
use tenure_sdk::worker::StepContext;
use tenure_wire::bus::subject::WorkerVerb;
use tenure_wire::bus::worker::{Delivery, Reports, Word};
use tokio::sync::Notify;

use crate::node::{Node, grant};
use crate::server::Server;
use crate::worker::{LONG, handlers, name, start};

/// So many grants of Steps that last until they are told to end, and their Attempts.
fn long_grants(count: usize) -> (Vec<Delivery>, Vec<AttemptId>) {
    let grants: Vec<Delivery> = (0..count).map(|_| grant("wait", LONG)).collect();
    let attempts = grants.iter().map(|one| one.grant.as_ref().unwrap().attempt_id).collect();
    (grants, attempts)
}

/// Records what the worker gives back until it is so many, and answers with them as they came.
pub(crate) async fn given_back(
    node: &mut Node,
    count: usize,
    came: &[AttemptId],
) -> Vec<AttemptId> {
    let mut released = Vec::new();
    while released.len() < count {
        let (reports, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
        for report in reports.reports {
            let Word::ReleaseStep { attempt_id, fencing_token: 3, reason, .. } = report.word else {
                panic!("{report:?}")
            };
            assert_eq!(reason, ReleaseReason::Surplus);
            released.push(attempt_id);
        }
        node.record(&message, 5).await;
    }
    released.sort_by_key(|id| came.iter().position(|it| it == id));
    released
}

/// Has handlers end one after another, and records what they say: that they have run.
async fn end_all(node: &mut Node, go: &Notify, count: usize) {
    for _ in 0..count {
        go.notify_one();
        let (reports, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
        assert!(
            matches!(reports.reports[..], [ref one] if matches!(one.word, Word::EndRun { .. }))
        );
        node.record(&message, 6).await;
    }
}

/// LEASE-18: a command that has not begun for what the worker lacks goes back, and is no failure; so does a
/// Step whose handler says so. While the worker is shut down it gives back what it has for that reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_worker_cannot_run_goes_back_with_its_reason() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let no_directory = PathBuf::from("/dev/null/files");
    let handlers = handlers(&count, &go).with_builtins(no_directory).unwrap();
    let lacks = |ctx: StepContext| async move { Ok(ctx.give_back(Some(Duration::from_secs(9)))?) };
    let pool = start(&server, handlers.on("lacks", lacks).unwrap()).await;
    node.link(&name(), "l", 4).await;
    let mut command = grant("exec", LONG);
    let step = Arc::make_mut(&mut command.grant.as_mut().unwrap().step);
    step.input = Some(Value::json(b"{\"command\": [\"true\"]}".to_vec()));
    let deliveries = [command, grant("lacks", LONG), grant("wait", LONG)];
    for (number, one) in (1..).zip(deliveries) {
        node.deliver(&name(), "l", number, vec![one]).await;
        if number == 3 {
            while node.awaits_room("l").await.got != 3 {}
            break;
        }
        let (mut said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
        let why = given_back_because(said.reports.remove(0).word);
        let after = (number == 2).then_some(9_000);
        assert_eq!(why, (ReleaseReason::Unfit, after));
        node.record(&message, 5).await;
    }
    let says = async {
        let (mut said, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
        node.record(&message, 6).await;
        given_back_because(said.reports.remove(0).word)
    };
    let (_, why) = tokio::join!(pool.interrupt(), says);
    assert_eq!(why, (ReleaseReason::Draining, None));
}

fn given_back_because(word: Word) -> (ReleaseReason, Option<u64>) {
    match word {
        Word::ReleaseStep { reason, retry_after_ms, .. } => (reason, retry_after_ms),
        other => panic!("{other:?}"),
    }
}

/// S26, mechanisms 8: what is more than there are slots goes back, the newest first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_gives_back_what_it_has_no_room_for() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    node.link(&name(), "l", 4).await;
    let (grants, attempts) = long_grants(6);
    node.deliver(&name(), "l", 1, grants).await;
    assert_eq!(given_back(&mut node, 2, &attempts).await, attempts[4..]);
    end_all(&mut node, &go, 4).await;
    pool.drain().await;
    assert_eq!(pool.in_hand(), 0);
}

/// S26, mechanisms 8: so does what was asked for beyond the slots while handlers were short, once
/// they are not, though none of the long ones has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_gives_back_what_waits_behind_long_handlers() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let (count, go) = Default::default();
    let pool = start(&server, handlers(&count, &go)).await;
    node.link(&name(), "l", 4).await;
    node.deliver(&name(), "l", 1, vec![grant("count", LONG)]).await;
    let (_, message) = node.awaits::<Reports>(WorkerVerb::Report(0)).await;
    node.record(&message, 4).await;
    let (grants, attempts) = long_grants(7);
    node.deliver(&name(), "l", 2, grants).await;
    assert_eq!(given_back(&mut node, 3, &attempts).await, attempts[4..]);
    end_all(&mut node, &go, 4).await;
    pool.drain().await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
}
