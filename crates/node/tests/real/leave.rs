//! Workers are told to leave, and within which time.

use std::time::Duration;

use tenure_core::Code;
use tenure_core::features::Features;
use tenure_core::sessions::WorkerSessions;
use tenure_wire::bus::V;
use tenure_wire::bus::operate::{Drain, Drained};
use tenure_wire::bus::worker::{Delivery, Hello};

use crate::common::{Caller, Hand, Servers};
use crate::workers::{drain, on_the_next_link};

/// docs/protocol.md, `drain`: a worker is told how much is left of the shortest time, also on its next link.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_told_what_is_left_of_the_shortest_time() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::join(&servers, "alice").await;
    let is_drain = |sent: &[Delivery], least: u64, most: u64| {
        let [one] = sent else { panic!("{sent:?}") };
        assert!(one.drain, "{one:?}");
        let left = one.time_left_ms.unwrap();
        assert!((least..=most).contains(&left), "{left} ms, not {least} to {most}");
    };
    drain(&bob, &alice, Some(60_000)).await;
    is_drain(&alice.take().await, 50_000, 60_000);
    alice.room(0).await;
    drain(&bob, &alice, Some(90_000)).await;
    is_drain(&alice.take().await, 50_000, 60_000);
    alice.room(0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (handlers, features) = (Some(vec!["noop".parse().unwrap()]), Features::default());
    let hello = Hello {
        v: V,
        handlers,
        sessions: WorkerSessions::ALL,
        worker_host: None,
        worker_build: None,
        features,
    };
    alice.say("hello", &hello).await;
    let old = alice.link.clone();
    is_drain(&on_the_next_link(&mut alice, &old, 1).await, 40_000, 59_700);
}

/// docs/protocol.md, `drain`: a worker that is told no time has all of it; 0 is no time at all; more than 30 days
/// are refused.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_to_leave_has_bounds() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::join(&servers, "alice").await;
    drain(&bob, &alice, None).await;
    let all = Delivery { drain: true, ..Delivery::default() };
    assert_eq!(alice.take().await, std::slice::from_ref(&all));
    alice.room(0).await;
    let which = |within_ms| {
        let principal = Some("alice".into());
        Drain { v: V, pool: None, principal, boot: None, within_ms: Some(within_ms) }
    };
    let over = which(Drain::WITHIN_MS_MAX + 1);
    let refused = bob.say::<Drained>("drain", &over).await.unwrap_err();
    assert_eq!(refused.code, Code::ValidationError);
    bob.say::<Drained>("drain", &which(Drain::WITHIN_MS_MAX)).await.unwrap();
    assert!(alice.take().await[0].time_left_ms.is_some());
    alice.room(0).await;
    drain(&bob, &alice, Some(0)).await;
    assert_eq!(alice.take().await, [Delivery { time_left_ms: Some(0), ..all }]);
}
