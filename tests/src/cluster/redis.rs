//! As much of Redis' protocol as it takes to do harm.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};

/// Has Redis carry out a command, and answers what it said, as it said it.
///
/// # Errors
/// It does not answer, or with an error.
pub fn command(port: u16, words: &[&str]) -> Result<String> {
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    connection.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    connection.write_all(text.as_bytes())?;
    let mut answer = [0; 4096];
    let length = connection.read(&mut answer)?; // Commands here are answered in one piece.
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    ensure!(length > 0 && !answer.starts_with('-'), "{words:?}: {answer:?}");
    Ok(answer)
}
