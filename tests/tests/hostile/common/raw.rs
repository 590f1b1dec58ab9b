//! A client of NATS that says what no library would: bytes as they are.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How long the server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The longest line that the server sends: its greeting.
const LINE_MAX: u64 = 64 << 10;

/// A message that came.
#[derive(Debug, Clone)]
pub(crate) struct RawMessage {
    pub(crate) payload: Vec<u8>,
}

/// A connection of a user.
#[derive(Debug)]
pub(crate) struct RawClient {
    way: TcpStream,
    reader: BufReader<TcpStream>,
    /// What came and was not taken yet.
    pub(crate) messages: VecDeque<RawMessage>,
    /// What the server said was wrong.
    pub(crate) errors: Vec<String>,
    next_sid: u64,
}

impl RawClient {
    /// Connects as a user, and waits until the server has let it in.
    pub(crate) fn connect(port: u16, user: &str, password: &str) -> Result<Self> {
        let way = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        way.set_nodelay(true)?;
        way.set_write_timeout(Some(PATIENCE))?;
        let reader = BufReader::with_capacity(64 << 10, way.try_clone()?);
        let (messages, errors) = (VecDeque::new(), Vec::new());
        let mut client = Self { way, reader, messages, errors, next_sid: 1 };
        let hello = serde_json::json!({"verbose": false, "pedantic": false, "headers": true, "no_responders": true,
            "protocol": 1, "lang": "raw", "version": "0", "name": "attacker", "user": user, "pass": password});
        client.send(format!("CONNECT {hello}\r\n").as_bytes())?;
        client.flush()?;
        ensure!(client.errors.is_empty(), "{user} is not let in: {:?}", client.errors);
        Ok(client)
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.way.write_all(bytes)?)
    }

    /// Subscribes.
    pub(crate) fn subscribe(&mut self, subject: &str) -> Result<()> {
        let sid = self.next_sid;
        self.next_sid += 1;
        self.send(format!("SUB {subject} {sid}\r\n").as_bytes())
    }

    /// Waits until the server has read everything that was sent, and takes what has come meanwhile.
    pub(crate) fn flush(&mut self) -> Result<()> {
        self.send(b"PING\r\n")?;
        let until = Instant::now() + PATIENCE;
        while !self.take_one(until)? {}
        Ok(())
    }

    /// Waits for a message.
    pub(crate) fn next(&mut self, within: Duration) -> Result<Option<RawMessage>> {
        let until = Instant::now() + within;
        while self.messages.is_empty() {
            if Instant::now() >= until {
                return Ok(None);
            }
            match self.take_one(until) {
                Err(error) if is_late(&error) => return Ok(None),
                other => other?,
            };
        }
        Ok(self.messages.pop_front())
    }

    /// Takes one thing that the server says. Answers whether it was a `PONG`.
    fn take_one(&mut self, until: Instant) -> Result<bool> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        self.reader.get_ref().set_read_timeout(Some(left))?;
        // A line that has begun comes to its end: the time is for its first byte.
        if self.reader.fill_buf()?.is_empty() {
            bail!("the server has closed the connection: {:?}", self.errors);
        }
        self.reader.get_ref().set_read_timeout(Some(PATIENCE))?;
        let mut line = Vec::new();
        (&mut self.reader).take(LINE_MAX).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match word {
            "PONG" => return Ok(true),
            "PING" => self.send(b"PONG\r\n")?,
            "MSG" | "HMSG" => self.take_message(word, rest)?,
            "-ERR" => self.errors.push(rest.trim_matches('\'').to_owned()),
            _ => {}
        }
        Ok(false)
    }

    fn take_message(&mut self, word: &str, rest: &str) -> Result<()> {
        let mut words: Vec<&str> = rest.split(' ').collect();
        let length: usize = words.pop().context("no length")?.parse()?;
        let head = match word {
            "HMSG" => words.pop().context("no length of headers")?.parse()?,
            _ => 0,
        };
        let mut bytes = vec![0; length + 2];
        self.reader.read_exact(&mut bytes)?;
        bytes.truncate(length);
        let payload = bytes.split_off(head);
        self.messages.push_back(RawMessage { payload });
        Ok(())
    }
}

/// Whether nothing came in time.
fn is_late(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    matches!(kind, Some(ErrorKind::WouldBlock | ErrorKind::TimedOut))
}

/// A message as it is sent: subject, reply, headers and payload are bytes that nobody looks at.
pub(crate) fn frame(
    subject: &[u8],
    reply: Option<&[u8]>,
    head: Option<&[u8]>,
    payload: &[u8],
) -> Vec<u8> {
    let mut bytes = match head {
        Some(_) => b"HPUB ".to_vec(),
        None => b"PUB ".to_vec(),
    };
    bytes.extend_from_slice(subject);
    if let Some(reply) = reply {
        bytes.push(b' ');
        bytes.extend_from_slice(reply);
    }
    let head_length = head.map_or(0, <[u8]>::len);
    if head.is_some() {
        bytes.extend_from_slice(format!(" {head_length}").as_bytes());
    }
    bytes.extend_from_slice(format!(" {}\r\n", head_length + payload.len()).as_bytes());
    bytes.extend_from_slice(head.unwrap_or_default());
    bytes.extend_from_slice(payload);
    bytes.extend_from_slice(b"\r\n");
    bytes
}
