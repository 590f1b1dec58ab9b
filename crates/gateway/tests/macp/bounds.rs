//! What one sender may take.

use tenure_gateway::macp::MacpSettings;

use crate::agent::{code, start};
use crate::site::{Site, settings};

/// Mechanisms 15: an initiator has so many open sessions and no more, whoever else has how many. What was accepted is
/// acknowledged again, and a session that has ended makes room.
#[tokio::test(flavor = "multi_thread")]
async fn open_sessions_of_one_initiator_are_bounded() {
    let site = Site::open().await;
    let gateway = site.served(MacpSettings { open_max: 2, ..settings() }, None).await;
    let (eve, bob) = (gateway.agent("eve").await, gateway.agent("bob").await);
    let first = eve.starts(start(&["bob"])).await;
    let second = uuid::Uuid::new_v4().to_string();
    let envelope = eve.envelope(&second, "SessionStart", &start(&["bob"]));
    assert!(eve.send(envelope.clone()).await.ok);
    let third = uuid::Uuid::new_v4().to_string();
    let refused = eve.send(eve.envelope(&third, "SessionStart", &start(&["bob"]))).await;
    assert_eq!(code(&refused), "RATE_LIMITED");
    assert!(refused.error.unwrap().message.contains("--macp-open-max"));
    let again = eve.send(envelope).await;
    assert!(again.ok && again.duplicate, "{again:?}");
    bob.starts(start(&["eve"])).await;
    assert!(eve.cancel(&first).await.unwrap().ok);
    eve.starts(start(&["bob"])).await;

    // A gateway that begins anew learns of them as it reads them.
    drop(gateway);
    let gateway = site.served(MacpSettings { open_max: 2, ..settings() }, None).await;
    let eve = gateway.agent("eve").await;
    eve.metadata(&second).await;
    let read = async || {
        let id = uuid::Uuid::new_v4().to_string();
        let ack = eve.send(eve.envelope(&id, "SessionStart", &start(&["bob"]))).await;
        if ack.ok {
            assert!(eve.cancel(&id).await.unwrap().ok);
        }
        ack.ok
    };
    let full = async { while read().await {} };
    tokio::time::timeout(crate::agent::SOON, full).await.expect("it has read both");
}
