//! What one principal may read, and that others do not notice it.

use std::time::Duration;

use tenure_core::Code;
use tenure_core::view::{TaskView, WriteSummary};
use tenure_node::{ReadLimits, Settings};
use tenure_wire::bus::request::{Ask, GetInput, LogPage};
use tenure_wire::bus::subject::Token;

use crate::common::{Caller, Servers, until};

async fn get(caller: &Caller) -> Result<TaskView, tenure_core::Rejection> {
    caller.ask("t", "unused", Ask::Get(GetInput {})).await
}

/// Mechanisms 16: whoever has read more than its share is told so, and when to come again. Its commands, and the reads
/// of others, go on; so do its own once that time is over.
#[tokio::test(flavor = "multi_thread")]
async fn reads_cost_the_share_of_who_reads() {
    let servers = Servers::start();
    let reads = ReadLimits { bytes_per_second: 1_000, ..ReadLimits::default() };
    let _node = servers.node_of(Settings { reads, ..servers.settings("n1") }).await;
    let bob = Caller::new(&servers).await;
    bob.create("t", &["a"]).await;
    let mut refused = None;
    for _ in 0..100 {
        refused = get(&bob).await.err();
        if refused.is_some() {
            break;
        }
    }
    let refused = refused.unwrap();
    assert_eq!((refused.code, refused.kind()), (Code::Unavailable, overloaded()));
    assert_eq!(refused.details["limit"], "bytes_per_second");
    assert!(refused.details["retry_after_ms"].as_u64().is_some_and(|ms| ms >= 10));
    bob.create("u", &["a"]).await;

    let mut name = bob.name.clone();
    name.principal = Token::new("eve").unwrap();
    let options = async_nats::ConnectOptions::new()
        .custom_inbox_prefix("_INBOX.orchestrator.eve.b1")
        .request_timeout(Some(Duration::from_secs(10)));
    let eve = Caller { name, client: options.connect(servers.url()).await.unwrap() };
    get(&eve).await.unwrap();
    until(async || get(&bob).await.is_ok()).await;
}

fn overloaded() -> Option<tenure_core::RejectionKind> {
    Some(tenure_core::RejectionKind::Overloaded)
}

/// A hundred reads of everything that somebody asks for at once are all answered, and another's are answered meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn reads_of_one_wait_for_their_turn() {
    let servers = Servers::start();
    let reads = ReadLimits { at_once: 2, of_one_at_once: 1, ..ReadLimits::default() };
    let node = servers.node_of(Settings { reads, ..servers.settings("n1") }).await;
    let bob = Caller::new(&servers).await;
    let made: WriteSummary = bob.create("t", &["a", "b"]).await;
    let all = futures::future::join_all((0..100).map(|_| bob.log("t"))).await;
    let versions: Vec<u64> =
        all.into_iter().map(|page: Result<LogPage, _>| page.unwrap().version).collect();
    assert!(versions.iter().all(|version| *version >= made.version), "{versions:?}");
    node.stop().await;
}
