//! A small server that takes the updates that an agent sends by itself (push notifications).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver as Updates, Sender, channel};
use std::thread;
use std::time::Duration;

/// Whatever is waited for comes sooner than this.
const SOON: Duration = Duration::from_secs(20);

/// An update.
pub struct Update {
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Update {
    /// The value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }
}

/// Listens on a free port of 127.0.0.1 until the end of the program.
pub struct Receiver {
    pub url: String,
    came: Updates<Update>,
}

impl Receiver {
    pub fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/updates", listener.local_addr().expect("an address"));
        let (sender, came) = channel();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || serve(stream, &sender));
            }
        });
        Self { url, came }
    }

    /// The updates up to the first whose text has this.
    pub fn until(&self, last: &str) -> Vec<Update> {
        let mut told: Vec<Update> = Vec::new();
        while told.last().is_none_or(|update| !update.body.contains(last)) {
            told.push(self.came.recv_timeout(SOON).expect("another update"));
        }
        told
    }
}

/// Takes the requests of one connection.
fn serve(stream: TcpStream, sender: &Sender<Update>) -> Option<()> {
    let mut answers = stream.try_clone().ok()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.to_owned())),
                None if line.trim_end().is_empty() => break,
                None => {} // What is asked for.
            }
        }
        let mut update = Update { headers, body: String::new() };
        let length = update.header("content-length")?.parse().ok()?;
        reader.by_ref().take(length).read_to_string(&mut update.body).ok()?;
        sender.send(update).ok()?;
        answers.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").ok()?;
    }
}
