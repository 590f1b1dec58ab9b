//! One who sends requests over HTTP on many connections, on each the next before the last is answered.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::Result;

use super::judge::{Going, Told};
use super::stage::Stage;

/// How many requests of a connection are not answered yet.
const UNANSWERED: u64 = 8;

/// How long it waits where nothing can be sent or read.
const IDLE: Duration = Duration::from_millis(1);

/// What an answer begins with.
const ANSWER: &str = "HTTP/1.1 ";

/// Characters of the status that follows.
const STATUS: usize = 3;

/// One connection.
struct FloodWay {
    way: TcpStream,
    /// What is not sent yet.
    left: Vec<u8>,
    /// The end of what was read, which may be the beginning of an answer.
    tail: String,
    unanswered: u64,
}

impl FloodWay {
    fn open(port: u16) -> Result<Self> {
        let way = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        way.set_nonblocking(true)?;
        Ok(Self { way, left: Vec::new(), tail: String::new(), unanswered: 0 })
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

    /// Reads what has come, and notes the status of each answer, and each of these words. Answers as
    /// [`send`](Self::send).
    fn read(&mut self, told: &mut Told, words: &[&str]) -> Option<bool> {
        let mut piece = [0; 16 << 10];
        let length = match self.way.read(&mut piece) {
            Ok(0) => return None,
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(false),
            Err(_) => return None,
        };
        self.tail.push_str(&String::from_utf8_lossy(&piece[..length]));
        for word in words {
            self.tail.match_indices(word).for_each(|_| told.note(*word));
        }
        let (mut from, whole) = (0, ANSWER.len() + STATUS);
        for (at, _) in self.tail.match_indices(ANSWER) {
            // A status that has not come as a whole is looked for again when it has.
            let Some(status) = self.tail.get(at + ANSWER.len()..at + whole) else { break };
            told.note(status);
            self.unanswered = self.unanswered.saturating_sub(1);
            from = at + whole;
        }
        let mut kept = self.tail.len().saturating_sub(whole - 1).max(from);
        while !self.tail.is_char_boundary(kept) {
            kept += 1;
        }
        self.tail.drain(..kept);
        Some(true)
    }
}

/// Sends one request after another until the attack is over, each made of its number. It notes which of these words the
/// answers have, and what statuses.
pub(crate) fn flood(
    stage: &Stage,
    going: &Going,
    connections: usize,
    words: &[&str],
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
            match way.send().zip(way.read(&mut told, words)) {
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
