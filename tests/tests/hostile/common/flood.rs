//! One who sends requests over HTTP on many connections, on each the next before the last is answered.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::Result;
use serde_json::Value as Json;

use super::judge::{Going, Told};
use super::stage::{Stage, token};

/// How many requests of a connection are not answered yet.
const UNANSWERED: u64 = 8;

/// How long it waits where nothing can be sent or read.
const IDLE: Duration = Duration::from_millis(1);

/// What an answer begins with.
const ANSWER: &[u8] = b"HTTP/1.1 ";

/// One connection.
struct FloodWay {
    way: TcpStream,
    /// What is not sent yet.
    left: Vec<u8>,
    /// The end of what was read, which may be the beginning of an answer.
    tail: Vec<u8>,
    unanswered: u64,
}

impl FloodWay {
    fn open(port: u16) -> Result<Self> {
        let way = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        way.set_nonblocking(true)?;
        Ok(Self { way, left: Vec::new(), tail: Vec::new(), unanswered: 0 })
    }

    /// Sends what it can. Answers whether it did, or none if the connection is over.
    fn send(&mut self) -> Option<bool> {
        if self.left.is_empty() {
            return Some(false);
        }
        match self.way.write(&self.left) {
            Ok(length) => {
                self.left.drain(..length);
                Some(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(false),
            Err(_) => None,
        }
    }

    /// Reads what has come, and notes the status of each answer. Answers as [`send`](Self::send).
    fn read(&mut self, told: &mut Told) -> Option<bool> {
        let mut piece = [0; 16 << 10];
        let length = match self.way.read(&mut piece) {
            Ok(0) => return None,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(false),
            Err(_) => return None,
        };
        self.tail.extend_from_slice(&piece[..length]);
        let (mut from, whole) = (0, ANSWER.len() + 3);
        while let Some(at) = self.tail[from..].windows(whole).position(|it| it.starts_with(ANSWER))
        {
            let status = &self.tail[from + at + ANSWER.len()..from + at + whole];
            told.note(String::from_utf8_lossy(status));
            self.unanswered = self.unanswered.saturating_sub(1);
            from += at + whole;
        }
        let kept = self.tail.len().saturating_sub(whole - 1).max(from);
        self.tail.drain(..kept);
        Some(true)
    }
}

/// A request of the attacker on a connection that stays.
pub(crate) fn request(path: &str, more: &str, body: &Json) -> Vec<u8> {
    let (token, body) = (token("attacker"), body.to_string());
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {token}\r\n{more}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends one request after another until the attack is over, each made of its number.
pub(crate) fn flood(
    stage: &Stage,
    going: &Going,
    connections: usize,
    make: impl Fn(u64) -> Vec<u8>,
) -> Result<Told> {
    let mut told = Told::default();
    let mut ways: Vec<FloodWay> =
        (0..connections).map(|_| FloodWay::open(stage.http)).collect::<Result<_>>()?;
    while going.is_on() {
        let mut did = false;
        for way in &mut ways {
            if way.left.is_empty() && way.unanswered < UNANSWERED {
                way.left = make(told.sent);
                way.unanswered += 1;
                told.sent += 1;
            }
            match way.send().zip(way.read(&mut told)) {
                Some((sent, read)) => did |= sent || read,
                None => {
                    told.note("closed");
                    *way = FloodWay::open(stage.http)?;
                }
            }
        }
        if !did {
            std::thread::sleep(IDLE);
        }
    }
    Ok(told)
}
