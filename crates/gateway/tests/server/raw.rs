//! Requests as bytes, so that tests can send what no client would.

use std::time::Duration;

use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// The longest that a test waits for anything.
pub(crate) const WAITS: Duration = Duration::from_secs(30);

/// An answer as it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RawAnswer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl RawAnswer {
    /// The value of a header; the test fails if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.find(name).unwrap_or_else(|| panic!("{name} is missing: {}", self.head))
    }

    /// The value of a header.
    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(its, _)| its.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The code of a problem.
    pub(crate) fn code(&self) -> String {
        let body: Json = serde_json::from_str(&self.body).unwrap();
        body["code"].as_str().unwrap().to_owned()
    }
}

/// A connection on which bytes are sent and answers are read.
pub(crate) struct Raw<T> {
    stream: T,
    read: Vec<u8>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Raw<T> {
    pub(crate) fn new(stream: T) -> Self {
        Self { stream, read: Vec::new() }
    }

    /// Sends bytes. The other end may have closed the connection meanwhile.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = timeout(WAITS, self.stream.write_all(bytes.as_ref())).await.unwrap();
        let _ = self.stream.flush().await;
    }

    /// The next answer, with a body whose length it says; none at the end.
    pub(crate) async fn answer(&mut self) -> Option<RawAnswer> {
        while !self.has(b"\r\n\r\n") {
            if !self.more().await {
                return None;
            }
        }
        let head = self.take_until(b"\r\n\r\n");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = RawAnswer { status, head, body: String::new() };
        let length = answer.find("content-length").map_or(0, |it| it.parse().unwrap());
        while self.read.len() < length && self.more().await {}
        let body: Vec<u8> = self.read.drain(..length.min(self.read.len())).collect();
        answer.body = String::from_utf8(body).unwrap();
        Some(answer)
    }

    /// Everything up to the end of the connection.
    pub(crate) async fn rest(&mut self) -> String {
        while self.more().await {}
        String::from_utf8(std::mem::take(&mut self.read)).unwrap()
    }

    /// Waits until so many bytes are there that were not read yet.
    pub(crate) async fn until(&mut self, text: &str) {
        while !self.has(text.as_bytes()) {
            assert!(self.more().await, "the connection ended before {text:?}");
        }
    }

    fn has(&self, wanted: &[u8]) -> bool {
        self.read.windows(wanted.len()).any(|found| found == wanted)
    }

    fn take_until(&mut self, end: &[u8]) -> String {
        let at = self.read.windows(end.len()).position(|found| found == end).unwrap();
        String::from_utf8(self.read.drain(..at + end.len()).collect()).unwrap()
    }

    /// Reads on; no if the connection has ended.
    async fn more(&mut self) -> bool {
        let mut some = vec![0; 64 << 10];
        match timeout(WAITS, self.stream.read(&mut some)).await.expect("something comes") {
            Ok(0) | Err(_) => false,
            Ok(length) => {
                self.read.extend_from_slice(&some[..length]);
                true
            }
        }
    }
}
