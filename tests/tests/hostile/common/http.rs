//! Requests over HTTP, as little as is needed of it.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;

use super::stage::token;

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
    let (status, _, body) = exchange(port, token, method, path, "", body)?;
    Ok((status, body))
}

/// The same with more lines of the head, and answers the status, the head and the body.
pub(crate) fn exchange(
    port: u16,
    token: Option<&str>,
    method: &str,
    path: &str,
    more: &str,
    body: Option<&Json>,
) -> Result<(u16, String, String)> {
    let mut way = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    way.set_nodelay(true)?;
    way.set_read_timeout(Some(PATIENCE))?;
    way.set_write_timeout(Some(PATIENCE))?;
    let body = body.map(Json::to_string).unwrap_or_default();
    let more = format!("{more}Content-Length: {}\r\n", body.len());
    let request = head(token, method, path, &more) + &body;
    way.write_all(request.as_bytes())?;
    let mut said = Vec::new();
    way.read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let status = status(&said).with_context(|| format!("{method} {path}: {said:?}"))?;
    let (head, body) = said.split_once("\r\n\r\n").unwrap_or((&said, ""));
    let body = match head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        true => joined(body),
        false => body.to_owned(),
    };
    Ok((status, head.to_owned(), body))
}

/// A request of the attacker on a connection that stays.
pub(crate) fn posted(path: &str, more: &str, body: &Json) -> Vec<u8> {
    let (token, body) = (token("attacker"), body.to_string());
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {token}\r\n{more}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends a request from this address, and answers the status, and the connection on which the rest is not read.
pub(crate) async fn held(
    from: Ipv4Addr,
    port: u16,
    request: &[u8],
) -> Result<(u16, tokio::net::TcpStream)> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    let mut way = socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    way.write_all(request).await?;
    let mut said = [0; 64];
    let length = way.read(&mut said).await?;
    Ok((status(&String::from_utf8_lossy(&said[..length])).unwrap_or_default(), way))
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
    let login = token.map(|it| format!("Authorization: Bearer {it}\r\n")).unwrap_or_default();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         {login}{more}\r\n"
    )
}

/// The status of an answer.
pub(crate) fn status(said: &str) -> Option<u16> {
    said.split(' ').nth(1)?.parse().ok()
}
