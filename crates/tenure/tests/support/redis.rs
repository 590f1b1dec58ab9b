//! One command to Redis, for tests that meddle with it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Sends a command to the Redis on a port. Answers what it says, without the framing.
pub(crate) fn says(port: u16, words: &[&str]) -> String {
    let mut redis = TcpStream::connect(("127.0.0.1", port)).unwrap();
    redis.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    redis.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = redis.read_to_end(&mut answer); // Until it says no more.
    let answer = String::from_utf8(answer).unwrap();
    let lines = answer.lines().filter(|line| !line.starts_with(['*', '$', ':', '+']));
    lines.collect::<Vec<_>>().join("\n")
}
