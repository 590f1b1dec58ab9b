//! A log that is read part by part.

use std::ops::ControlFlow;
use std::sync::Arc;

use futures::StreamExt as _;
use parking_lot::Mutex;
use tenure_cluster::Settings;
use tenure_core::Commit;
use tenure_ports::Journal as _;
use tenure_ports::conformance::History;

use crate::journal::{connect, create, owner, settings, work};
use crate::servers::nats;

/// VIEW-12: page by page a long log costs its pages, and once the way back from its end.
#[tokio::test]
async fn old_parts_of_a_long_log_are_near_once_one_was_read() {
    const PAGE: u64 = 1_000;
    let server = nats();
    let journal = owner(&server, Settings { partitions: 1, ..settings("one") }).await;
    let mut history = History::of("s", "t");
    create(&journal, &mut history).await;
    for _ in 0..300 {
        work(&journal, &mut history, 20).await.unwrap(); // A frame each.
    }
    let spy = connect(&server).await;
    let mut asked = spy.subscribe("$JS.API.DIRECT.GET.>").await.unwrap();
    spy.flush().await.unwrap();
    let (mut read, mut fetched) = (Vec::new(), Vec::new());
    while read.len() < history.commits.len() {
        let first = read.last().map_or(1, |commit: &Commit| commit.last_seq() + 1);
        let page = Arc::<Mutex<Vec<Commit>>>::default();
        let into = Arc::clone(&page);
        let each = move |commit| {
            into.lock().push(commit);
            ControlFlow::Continue(())
        };
        journal.read_part(&history.key, first..=first + PAGE - 1, each).await.unwrap();
        read.append(&mut page.lock());
        spy.publish("$JS.API.DIRECT.GET.so.far", "".into()).await.unwrap();
        let mut frames = 0;
        while !asked.next().await.unwrap().subject.ends_with(".so.far") {
            frames += 1;
        }
        fetched.push(frames);
    }
    assert!(read.iter().eq(history.commits.iter().map(|commit| &**commit)));
    assert!(fetched[0] >= 300, "from its end: {fetched:?}");
    assert!(fetched.len() >= 6 && fetched[1..].iter().all(|frames| *frames <= 120), "{fetched:?}");
}
