//! A connection that speaks just enough HTTP/1.1 to ask, so that the generator takes little of the
//! processor that it shares with what it measures.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that is kept open.
pub(crate) struct Line {
    stream: TcpStream,
    /// What has come and is not read yet.
    buffer: Vec<u8>,
}

/// An answer with its whole body.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Result<Json> {
        let text = String::from_utf8_lossy(&self.body);
        ensure!(self.status < 300, "status {}: {text}", self.status);
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// A request without a body.
pub(crate) fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

/// A request for a stream of events.
pub(crate) fn stream(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n")
        .into_bytes()
}

/// A request with a body of JSON.
pub(crate) fn post(path: &str, body: &[u8]) -> Vec<u8> {
    post_with(path, "", body)
}

/// The same with more headers, each of which is a whole line.
pub(crate) fn post_with(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         {headers}content-length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

impl Line {
    pub(crate) async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// Sends a request and reads the answer.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<Answer> {
        self.stream.write_all(request).await?;
        let head = self.head().await?;
        let status = status(&head)?;
        let length = match header(&head, "content-length") {
            Some(length) => length.parse()?,
            None if status == 204 => 0,
            None if header(&head, "transfer-encoding") == Some("chunked") => {
                return Ok(Answer { status, body: self.chunks().await? });
            }
            None => bail!("an answer without a length: {head}"),
        };
        let body = self.take(length).await?;
        Ok(Answer { status, body })
    }

    /// Reads a body that comes in chunks.
    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                match find(&self.buffer, b"\r\n") {
                    Some(end) => break end,
                    None => self.more().await?,
                }
            };
            let size = String::from_utf8(self.take(end + 2).await?)?;
            let size = usize::from_str_radix(size.trim_end(), 16)?;
            body.extend(&self.take(size + 2).await?[..size]);
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// The next bytes, so many.
    async fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Sends a request and reads the head of the answer; the stream that follows is read with `until`.
    pub(crate) async fn begin(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).await?;
        let head = self.head().await?;
        ensure!(status(&head)? == 200, "no stream: {head}");
        Ok(())
    }

    /// Reads a stream until it has said this, and drops what it said.
    pub(crate) async fn until(&mut self, wanted: &[u8]) -> Result<()> {
        loop {
            if let Some(at) = find(&self.buffer, wanted) {
                self.buffer.drain(..at + wanted.len());
                return Ok(());
            }
            self.more().await?;
        }
    }

    /// Reads the digits that come next in a stream, up to something else.
    pub(crate) async fn digits(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| !byte.is_ascii_digit()) {
                return Ok(String::from_utf8(self.buffer.drain(..end).collect())?);
            }
            self.more().await?;
        }
    }

    /// Reads and drops what comes, for ever.
    pub(crate) async fn drain(mut self) -> Result<()> {
        loop {
            self.buffer.clear();
            self.more().await?;
        }
    }

    async fn head(&mut self) -> Result<String> {
        loop {
            if let Some(end) = find(&self.buffer, b"\r\n\r\n") {
                let head = self.buffer.drain(..end + 4).collect();
                return Ok(String::from_utf8(head)?);
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<()> {
        ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the gateway has closed");
        Ok(())
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn status(head: &str) -> Result<u16> {
    let status = head.split(' ').nth(1).context("no status")?;
    Ok(status.parse()?)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}
