//! Requests over HTTP, as little as is needed of it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value as Json;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends a request on a connection of its own, and answers the status and the body.
pub(crate) fn ask(
    port: u16,
    token: Option<&str>,
    method: &str,
    path: &str,
    body: Option<&Json>,
) -> Result<(u16, String)> {
    let mut way = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    way.set_nodelay(true)?;
    way.set_read_timeout(Some(PATIENCE))?;
    way.set_write_timeout(Some(PATIENCE))?;
    let body = body.map(Json::to_string).unwrap_or_default();
    let request = head(token, method, path, &format!("Content-Length: {}\r\n", body.len())) + &body;
    way.write_all(request.as_bytes())?;
    let mut said = Vec::new();
    way.read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let status = status(&said).with_context(|| format!("{method} {path}: {said:?}"))?;
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
    match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        true => Ok((status, joined(body))),
        false => Ok((status, body.to_owned())),
    }
}

/// A body that came in chunks.
fn joined(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((length, rest)) = chunks.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap_or_default();
        let Some(chunk) = rest.get(..length).filter(|_| length > 0) else { break };
        body.push_str(chunk);
        chunks = rest.get(length + 2..).unwrap_or_default();
    }
    body
}

/// The head of a request after which the connection is closed, with more lines of it.
pub(crate) fn head(token: Option<&str>, method: &str, path: &str, more: &str) -> String {
    let token = token.map(|it| format!("Authorization: Bearer {it}\r\n")).unwrap_or_default();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {token}{more}\r\n"
    )
}

/// The status of an answer.
pub(crate) fn status(said: &str) -> Option<u16> {
    said.split(' ').nth(1)?.parse().ok()
}
