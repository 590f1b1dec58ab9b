//! A worker shows what its commands wrote, for which a node asks over the link (ART-09).

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroUsize;

use tenure_sdk::nats::NatsWorker;
use tenure_sdk::worker::{Handlers, Options, WorkerPool};
use tenure_wire::bus::output::{OutputAnswer, OutputRequest, OutputStream};
use tenure_wire::bus::subject::WorkerVerb;
use tenure_wire::bus::worker::Delivery;

use crate::node::Node;
use crate::server::Server;
use crate::worker::name;

fn asked(request: u64, step: &str, from: u64) -> Delivery {
    let asked = OutputRequest {
        request,
        node: "n1".into(),
        session_id: "s".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        step_id: step.parse().unwrap(),
        ordinal: 1,
        stream: OutputStream::Stdout,
        from,
    };
    Delivery { read_output: Some(Box::new(asked)), ..Delivery::default() }
}

/// ART-09: each request gets its answer, also where there is no such file, and uses no room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_shows_what_its_commands_wrote() {
    let server = Server::start();
    let mut node = Node::start(&server, "n1").await;
    let place = tempfile::tempdir().unwrap();
    let dir = place.path().join("s/t/a/1");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("stdout.log"), "one two").unwrap();
    let connection = server.connect(name().inbox()).await;
    let (worker, deliveries) = NatsWorker::join(connection, &name(), None).await.unwrap();
    let files = Some(place.path().to_owned());
    let options = Options { files, ..Options::new(NonZeroUsize::new(4).unwrap()) };
    let _pool = WorkerPool::start(worker, deliveries, Handlers::new(), options);
    node.link(&name(), "l", 4).await;
    node.deliver(&name(), "l", 1, vec![asked(7, "a", 4), asked(8, "b", 0)]).await;
    let mut shown = BTreeMap::new();
    while shown.len() < 2 {
        let (answer, _) = node.awaits::<OutputAnswer>(WorkerVerb::Output).await;
        shown.insert(answer.request, (answer.page.data.0, answer.page.size_bytes));
    }
    let expected = [(7, (b"two".to_vec(), Some(7))), (8, (Vec::new(), None))];
    assert_eq!(shown, BTreeMap::from(expected));
    node.deliver(&name(), "l", 3, vec![asked(9, "a", 0)]).await;
    let room = loop {
        let room = node.awaits_room("l").await;
        if room.got == 3 {
            break room;
        }
    };
    assert_eq!((room.seen, room.free >= 4), (0, true));
}
