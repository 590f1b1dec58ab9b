//! The limits of connections, heads and bodies, at them and over them.

use std::time::{Duration, Instant};

use tenure_gateway::server::ServerLimits;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::raw::WAITS;
use crate::site::{LONG, Site, request, two_tokens};

async fn limited(change: impl FnOnce(&mut ServerLimits)) -> Site {
    Site::with(|settings, _| change(&mut settings.limits)).await
}

#[tokio::test]
async fn who_sends_its_head_slowly_is_cut_off() {
    let site = limited(|limits| limits.head_timeout = Duration::from_millis(300)).await;
    let began = Instant::now();
    let mut slow = site.connect().await;
    slow.send("GET /who HTTP/1.1\r\nhost: localhost\r\n").await;
    let dripping = async {
        for _ in 0..100 {
            slow.send("x: y\r\n").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = dripping => {}
        () = tokio::time::sleep(Duration::from_millis(900)) => {}
    }
    slow.rest().await; // It ends, whatever was sent meanwhile.
    assert!(began.elapsed() < Duration::from_secs(10));

    let mut idle = site.connect().await;
    idle.send(request("GET /who", &[])).await;
    assert_eq!(idle.answer().await.unwrap().status, 200);
    assert_eq!(idle.rest().await, "", "nobody keeps a connection for ever");
}

#[tokio::test]
async fn a_head_has_so_many_bytes_and_lines() {
    let site = limited(|limits| limits.head_bytes_max = 8 << 10).await;
    let long = |length| request("GET /who", &[("x", &"y".repeat(length))]);
    for (bytes, status) in [((8 << 10) - 64, 200), (8 << 10, 431)] {
        let mut connection = site.connect().await;
        connection.send(long(bytes)).await;
        assert_eq!(connection.answer().await.map(|it| it.status), Some(status), "{bytes}");
    }
    let mut connection = site.connect().await;
    connection.send(long(1 << 20)).await;
    // The connection may end before the answer could be read.
    assert!(connection.answer().await.is_none_or(|answer| answer.status == 431));
    for (lines, status) in [(99, 200), (100, 431)] {
        let headers: Vec<_> = (0..lines).map(|_| ("x", "y")).collect();
        assert_eq!(site.ask("GET /who", &headers).await.status, status, "{lines} and the host");
    }
}

#[tokio::test]
async fn a_body_has_so_many_bytes() {
    let site = limited(|limits| limits.body_bytes_max = 1_000).await;
    let mut connection = site.connect().await;
    connection.send(request("POST /count", &[("content-length", "1000")])).await;
    connection.send([b'x'; 1_000]).await;
    assert_eq!(connection.answer().await.unwrap().body, "1000");

    for length in ["1001", "1073741824", "9223372036854775807"] {
        let answer = site.ask("POST /count", &[("content-length", length)]).await;
        assert_eq!(answer.status, 413, "{length}: refused before anything is read");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    let mut connection = site.connect().await;
    connection.send(request("POST /count", &[("transfer-encoding", "chunked")])).await;
    for _ in 0..1_001 {
        connection.send("1\r\nx\r\n").await;
    }
    assert_eq!(connection.answer().await.unwrap().status, 413);
}

/// Whoever says no length sends for as long as it may.
#[tokio::test]
async fn a_body_of_a_gigabyte_ends_at_the_limit() {
    let site = Site::open().await;
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let head = request("POST /count", &[("transfer-encoding", "chunked")]);
    stream.write_all(head.as_bytes()).await.unwrap();
    let piece = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
    let mut sent = 0;
    while sent < 1 << 30 && timeout(WAITS, stream.write_all(&piece)).await.unwrap().is_ok() {
        sent += piece.len();
    }
    assert!(sent >= 16 << 20, "{sent}");
    assert!(sent < 64 << 20, "the connection is closed: {sent}");
    assert_eq!(site.ask("GET /who", &[]).await.status, 200);
}

#[tokio::test]
async fn who_sends_its_body_slowly_is_cut_off() {
    let site = limited(|limits| limits.request_timeout = Duration::from_millis(300)).await;
    let began = Instant::now();
    let mut slow = site.connect().await;
    slow.send(request("POST /count", &[("content-length", "1000")])).await;
    for _ in 0..20 {
        slow.send("x").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The connection may end before the answer could be read.
    assert!(slow.answer().await.is_none_or(|answer| answer.status == 503));
    slow.rest().await;
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn all_bodies_together_have_so_many_bytes() {
    let site = limited(|limits| limits.bodies_bytes_max = 1_500).await;
    let mut first = site.connect().await;
    first.send(request("POST /count", &[("content-length", "1001")])).await;
    first.send([b'x'; 1_000]).await;
    let status = async || {
        let mut other = site.connect().await;
        other.send(request("POST /count", &[("content-length", "1000")])).await;
        other.send([b'x'; 1_000]).await;
        other.answer().await.unwrap().status
    };
    // The first body may come a moment after the second one.
    while status().await != 503 {
        tokio::task::yield_now().await;
    }
    first.send("x").await;
    assert_eq!(first.answer().await.unwrap().body, "1001");
    assert_eq!(status().await, 200);
}

#[tokio::test]
async fn connections_are_bounded_and_the_next_one_is_told() {
    let site = limited(|limits| limits.connections_max = 2).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut connection = site.connect().await;
        connection.send(request("GET /who", &[])).await;
        assert_eq!(connection.answer().await.unwrap().status, 200);
        open.push(connection);
    }
    let refused = site.connect().await.answer().await.unwrap();
    assert_eq!((refused.status, refused.code()), (503, "unavailable".into()));
    assert_eq!(refused.header("retry-after"), "1");
    open.pop();
    loop {
        let mut connection = site.connect().await;
        connection.send(request("GET /who", &[])).await;
        if connection.answer().await.is_some_and(|answer| answer.status == 200) {
            return;
        }
    }
}

#[tokio::test]
async fn connections_of_one_address_are_bounded() {
    let site = limited(|limits| limits.connections_of_one_max = 1).await;
    let mut first = site.connect().await;
    first.send(request("GET /who", &[])).await;
    assert_eq!(first.answer().await.unwrap().status, 200);
    assert_eq!(site.connect().await.answer().await.unwrap().status, 503);
}

#[tokio::test]
async fn a_route_has_so_long_to_answer() {
    let site = limited(|limits| limits.request_timeout = Duration::from_millis(100)).await;
    let read = site.ask("GET /held", &[]).await;
    assert_eq!((read.status, read.code()), (503, "unavailable".into()));
    let write = site.ask("POST /held", &[]).await;
    assert!(write.status == 503 && write.body.contains("ambiguous"), "{}", write.body);
    let mut stream = site.connect().await;
    stream.send(request("GET /events", &[])).await;
    stream.until("data: first").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    site.stop();
    assert!(stream.rest().await.ends_with("0\r\n\r\n"), "a stream goes on for longer");
}

#[tokio::test]
async fn who_does_not_read_is_cut_off() {
    let site = limited(|limits| limits.write_stall = Duration::from_millis(300)).await;
    let mut slow = site.connect().await;
    slow.send(request("GET /flood", &[])).await;
    slow.until("xxxx").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    slow.rest().await; // What the system had taken, and then the end.
}

/// Mechanisms 15: whoever does not read what it has asked for costs itself, and others have their answers.
#[tokio::test]
async fn the_long_answers_of_one_caller_are_bounded_until_they_are_read() {
    let site = Site::with(|settings, dir| {
        settings.identities = Some(two_tokens(dir));
        settings.limits.answers_bytes_max = 5 * LONG; // Ann has three, then bob has one.
    })
    .await;
    let asks = async |line: &str, token: &str| {
        let mut reader = site.connect().await;
        reader.send(request(line, &[("authorization", &format!("Bearer {token}"))])).await;
        reader.until("\r\n\r\n").await;
        reader
    };
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut reader = asks("GET /long", "ann-token").await;
        reader.until("xxxx").await;
        held.push(reader);
    }
    let refused = site.ask_as("ann-token", "GET /long").await;
    assert_eq!((refused.status, refused.code()), (503, "unavailable".into()));
    assert_eq!(refused.header("retry-after"), "2");
    let written = site.ask_as("ann-token", "POST /long").await;
    assert!(written.status == 503 && written.body.contains("ambiguous"), "{}", written.body);
    assert_eq!(site.ask_as("ann-token", "GET /who").await.status, 200, "a short one takes nothing");
    assert_eq!(site.ask_as("bob-token", "GET /long").await.body.len(), LONG);
    let first = held.remove(0).answer().await.unwrap();
    assert_eq!((first.status, first.body.len()), (200, LONG));
    assert_eq!(site.ask_as("ann-token", "GET /long").await.body.len(), LONG);
    drop(held);
}

#[tokio::test]
async fn who_takes_too_long_for_an_answer_is_cut_off() {
    let site = limited(|limits| limits.answer_timeout = Duration::from_secs(2)).await;
    let mut slow = site.connect().await;
    slow.send(request("GET /long", &[])).await;
    slow.until("xxxx").await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(slow.rest().await.len() < LONG);
}
