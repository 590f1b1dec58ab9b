//! How a server stops.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::site::{Site, request};
use crate::whole::{TASKS, Whole};

#[tokio::test]
async fn what_is_under_way_is_answered_and_nothing_new_begins() {
    let site = Site::open().await;
    let (mut writing, mut idle) = (site.connect().await, site.connect().await);
    writing.send(request("POST /held", &[])).await;
    idle.send(request("GET /who", &[])).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    site.is_held().await;
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
    site.is_held().await;
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
    site.is_held().await;
    site.stop();
    assert_eq!(writing.answer().await, None);
    site.stopped().await;
}

/// Whoever follows a command would keep the gateway for as long as that runs.
#[tokio::test]
async fn who_follows_an_output_is_broken_off_at_once() {
    let whole = Whole::open().await;
    let task = whole.create("long").await;
    let link = whole.join().await;
    let came = whole.deliveries(&link).await;
    assert!(came["deliveries"][0]["grant"].is_object(), "the step is at work: {came}");
    let mut follower = whole.connect().await;
    let path = format!("GET {TASKS}/{task}/steps/a/attempts/1/logs?follow=true");
    follower.send(request(&path, &[])).await;
    follower.until("\r\n\r\n").await;
    let began = Instant::now();
    whole.stop();
    let rest = follower.rest().await;
    assert!(rest.starts_with("HTTP/1.1 200 ") && !rest.ends_with("0\r\n\r\n"), "{rest}");
    whole.stopped().await;
    assert!(began.elapsed() < Duration::from_secs(4), "nobody had to be waited for");
}

/// A worker whose gateway stops joins another one, and does not wait here until all answers have ended.
#[tokio::test]
async fn workers_are_parted_with_at_once() {
    let whole = Whole::open().await;
    let link = whole.join().await;
    let mut fetching = whole.connect().await;
    fetching.send(request(&format!("GET {link}/deliveries?wait=20s"), &[])).await;
    whole.is_answering(1).await;
    whole.stop();
    let answer = fetching.answer().await.unwrap();
    assert_eq!((answer.status, answer.code()), (404, "worker_gone".into()));
    whole.stopped().await;
}
