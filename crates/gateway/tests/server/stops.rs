//! How a server stops.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::site::{Site, request};

#[tokio::test]
async fn what_is_under_way_is_answered_and_nothing_new_begins() {
    let site = Site::open().await;
    let (mut writing, mut idle) = (site.connect().await, site.connect().await);
    writing.send(request("POST /held", &[])).await;
    idle.send(request("GET /who", &[])).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    tokio::time::sleep(Duration::from_millis(50)).await; // So that the server has read the other.
    site.stop();
    assert_eq!(idle.rest().await, "", "an idle connection ends");
    while TcpStream::connect(site.address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    site.gate.add_permits(1);
    let answer = writing.answer().await.unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (200, "let go"));
    site.stopped().await;
}

#[tokio::test]
async fn streams_and_long_polls_end_at_once() {
    let site = Site::open().await;
    let (mut stream, mut poll) = (site.connect().await, site.connect().await);
    stream.send(request("GET /events", &[])).await;
    stream.until("data: first").await;
    poll.send(request("GET /held", &[])).await;
    tokio::time::sleep(Duration::from_millis(50)).await; // So that the server has read it.
    let began = Instant::now();
    site.stop();
    assert!(stream.rest().await.ends_with("0\r\n\r\n"));
    let polled = poll.answer().await.unwrap();
    assert_eq!((polled.status, polled.code()), (503, "unavailable".into()));
    assert_eq!(polled.header("retry-after"), "1");
    site.stopped().await;
    assert!(began.elapsed() < Duration::from_secs(4), "nobody had to be waited for");
}

#[tokio::test]
async fn what_does_not_end_is_broken_off() {
    let site = Site::with(|settings, _| settings.limits.grace = Duration::from_millis(200)).await;
    let mut writing = site.connect().await;
    writing.send(request("POST /held", &[])).await;
    tokio::time::sleep(Duration::from_millis(50)).await; // So that the server has read it.
    site.stop();
    assert_eq!(writing.answer().await, None);
    site.stopped().await;
}
