//! What a node says when it does not know: of an append whose fate is open, and of what the next owner may
//! have written.

use tenure_cluster::{JetStreamJournal, LogSettings};
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::{Code, Rejection};
use tenure_wire::bus::subject::ClusterName;
use tenure_wire::bus::worker::{Reported, Reports};
use tenure_wire::bus::{Answer, V, decode, encode};

use crate::common::{PARTITIONS, Servers};
use crate::workers::{one_granted, report, tell};

fn is_in_doubt(refused: &Rejection) -> bool {
    let kind = refused.details.get("kind").and_then(|kind| kind.as_str());
    (refused.code, kind) == (Code::Unavailable, Some("ambiguous"))
}

/// WAL-09, mechanisms 1: while the fate of an append is open whoever waits for it is told so, and not left
/// without a word.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_an_append_of_open_fate_is_told() {
    let servers = Servers::start();
    let mut settings = servers.settings("n1");
    settings.scheduler.limits.lease_ms = 60_000;
    let _node = servers.node_of(settings).await;
    let (bob, alice, claim) = one_granted(&servers).await;
    // Nobody answers for it any more.
    let partition = bob.key("t1").partition(PARTITIONS);
    let context = async_nats::jetstream::new(servers.client().await);
    context.delete_stream(format!("TENURE_WAL_{partition}")).await.unwrap();
    let is_there = |id: &String| bob.key(id).partition(PARTITIONS) == partition;
    let other = (2..).map(|n| format!("t{n}")).find(is_there).unwrap();
    let reported = tell(&alice, vec![report(&claim, StepStatus::Completed)]);
    let created = bob.try_create(&other, "c", &["a"]);
    let (reported, created) = tokio::join!(reported, created);
    let refused = created.unwrap_err();
    assert!(is_in_doubt(&refused), "{refused:?}");
    assert!(reported[0].error.as_ref().is_some_and(is_in_doubt), "{reported:?}");
}

/// OWN-03, mechanisms 4: a node that is certain of its lease, and behind another owner all the same, does
/// not tell a worker that its Attempt is over: it may be one that the other has made.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_behind_ends_no_attempt() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let (bob, alice, mut claim) = one_granted(&servers).await;
    let partition = bob.key("t1").partition(PARTITIONS);
    claim.attempt_id = tenure_core::id::AttemptId(uuid::Uuid::now_v7());
    claim.fencing_token += 100;
    let reports =
        Reports { v: V, room: None, reports: vec![report(&claim, StepStatus::Completed)] };
    let subject = format!("{}.report.{partition}", alice.name.root(&ClusterName::default()));
    let said = encode(&reports).unwrap();

    let settings =
        LogSettings { partitions: PARTITIONS, node: "n9".into(), ..LogSettings::default() };
    let next = JetStreamJournal::open(servers.client().await, settings).await.unwrap();
    next.take(partition).await.unwrap();
    // Once it has stepped down by itself nobody is there until it has read what the other wrote.
    if let Ok(answer) = alice.client.request(subject, said.into()).await {
        let answer = decode::<Answer<Reported>>(&answer.payload).unwrap().into_result();
        assert_eq!(answer.map_err(|refused| refused.code), Err(Code::NotOwner));
    }
    assert_eq!(bob.log_when_served("t1").await.status, TaskStatus::Running);
}
