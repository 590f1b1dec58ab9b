//! What docs/protocol.md says to whoever writes a worker or a client from it, sent as it says.

use serde_json::{Value as Json, json};
use tenure_core::{Code, Rejection};
use tenure_wire::bus::encode;
use tenure_wire::bus::operate::{NodeFacts, Nodes, RefusedFacts};
use tenure_wire::bus::{V, subject::WorkerName};

use crate::common::{Caller, Hand, Servers, until};

/// Bytes of a worker, as they are.
async fn say(hand: &Hand, subject: String, bytes: Vec<u8>) {
    hand.client.publish(subject, bytes.into()).await.unwrap();
    hand.client.flush().await.unwrap();
}

async fn hello(hand: &Hand, message: &Json) {
    say(hand, format!("{}.hello", hand.name.root()), encode(message).unwrap()).await;
}

fn is_of(refused: &Rejection, field: &str, right: &str) {
    assert_eq!((refused.code, &refused.details["field"]), (Code::ValidationError, &field.into()));
    assert!(refused.message.contains(right), "{refused}");
}

async fn refused(bob: &Caller) -> Vec<RefusedFacts> {
    bob.say::<NodeFacts>("nodes", &Nodes { v: V, audit: false }).await.unwrap().refused
}

/// CTRL-09: a worker whose hello or whose room cannot be taken would wait for work for ever. It is told what is
/// wrong, though it asked for no answer, and so is whoever looks for workers.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_told_why_it_gets_no_work() {
    let servers = Servers::start();
    let _node = servers.node().await;
    let bob = Caller::new(&servers).await;
    let mut alice = Hand::unheard(&servers, "alice").await;
    let form = "1 to 64 characters a-z";
    for (message, field, right) in [
        (json!({"v": 1, "handlers": ["echo", "sendEmail"]}), "handlers", form),
        (json!({"v": 1, "handlers": "echo"}), "handlers", "expected a sequence"),
        (json!({"v": 2, "handlers": ["echo"]}), "v", "only 1"),
        (json!({"handlers": ["echo"]}), "message", "missing field `v`"),
        (json!([1, ["echo"]]), "message", "a map with named fields"),
        (json!("hello"), "message", "a map with named fields"),
    ] {
        hello(&alice, &message).await;
        is_of(&alice.refusal().await, field, right);
    }
    say(&alice, format!("{}.hello", alice.name.root()), Vec::new()).await;
    is_of(&alice.refusal().await, "message", "cannot be read");
    let said = refused(&bob).await;
    let [one] = &said[..] else { panic!("one login: {said:?}") };
    assert_eq!((one.pool.as_str(), one.principal.as_str()), ("default", "alice"));
    assert_eq!(one.boot.as_str(), "b1");
    is_of(&one.error, "message", "cannot be read");

    alice.hello().await;
    assert_eq!(refused(&bob).await, [], "it has a link");
    let room = |more: Json| {
        let mut room =
            json!({"v": 1, "link": alice.link, "number": 1, "free": 1, "seen": 0, "got": 0});
        room.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        encode(&room).unwrap()
    };
    let to = format!("{}.node.{}", alice.name.root(), alice.node);
    let (many, less) = (room(json!({"free": "many"})), room(json!({"free": -1})));
    for (bytes, right) in [(many, "expected u64"), (less, "expected u64")] {
        say(&alice, to.clone(), bytes).await;
        is_of(&alice.refusal().await, "free", right);
    }
    is_of(&refused(&bob).await[0].error, "free", "expected u64");

    let WorkerName { principal, boot, .. } = &alice.name;
    let elsewhere = format!("tenure.v1.worker.Mail.{principal}.{boot}.hello");
    say(&alice, elsewhere, encode(&json!({"v": 1})).unwrap()).await;
    is_of(&alice.refusal().await, "worker_pool_id", form);
    until(async || refused(&bob).await.iter().any(|one| one.pool == "Mail")).await;
}
