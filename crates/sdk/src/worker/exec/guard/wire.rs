//! The messages between runner and guard: JSON values, one a line, both ways over one socket.
//!
//! Runner and guard are of one build, so the messages have no version.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::launch::Launch;
use super::super::supervise::Status;

/// An order of the runner. A closed socket means the same as `Kill`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum Order {
    /// Always the first one.
    Start(Launch),
    /// Ask the group to end.
    Terminate,
    /// Kill all.
    Kill,
}

/// A report of the guard: either `NotStarted`, or `Started`, `Ended`, `Cleared` in this order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum GuardReport {
    /// The command runs.
    Started { pid: i32 },
    /// The command could not be started, and nothing is left of the attempt.
    NotStarted { errno: Option<i32>, message: String },
    /// The leader ended.
    Ended(Status),
    /// No process of the command is left.
    Cleared,
}

/// One message as it is sent. JSON has no raw line break, so a line break ends it.
pub(in super::super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// The bytes that were received and not yet decoded.
#[derive(Debug, Default)]
pub(in super::super) struct Inbox(Vec<u8>);

impl Inbox {
    /// Where received bytes are appended.
    pub(in super::super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// The next whole message, if it has arrived.
    pub(in super::super) fn take<T: DeserializeOwned>(&mut self) -> Option<serde_json::Result<T>> {
        let end = self.0.iter().position(|byte| *byte == b'\n')?;
        let message = serde_json::from_slice(&self.0[..end]);
        self.0.drain(..=end);
        Some(message)
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_however_they_were_cut() {
        let mut sent = encode(&GuardReport::Started { pid: 7 }).expect("encodes");
        sent.extend(encode(&GuardReport::Ended(Status::Signaled(9))).expect("encodes"));
        let mut inbox = Inbox::default();
        let mut received = Vec::new();
        for byte in sent {
            inbox.buffer().push(byte);
            received.extend(inbox.take::<GuardReport>());
        }
        assert!(matches!(
            received.as_slice(),
            [Ok(GuardReport::Started { pid: 7 }), Ok(GuardReport::Ended(Status::Signaled(9)))]
        ));
    }
}
