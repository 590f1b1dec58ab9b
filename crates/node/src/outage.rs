//! Logs when a connection to NATS is lost, with the servers' addresses and the first error of the
//! attempts to connect again, and when the connection is there again. However many attempts fail,
//! each outage has at most two warnings.

use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Instant;

use async_nats::Event;
use parking_lot::Mutex;

/// What to log of an event of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Notice {
    /// The connection is lost.
    Lost,
    /// No server lets the client in; with the first error of this outage.
    Unreachable(String),
    /// The connection is there again; with how many attempts had failed.
    Back { failed: u64, seconds: u64 },
    /// Something else that an operator may want to know.
    Other(String),
}

/// An outage of a connection, from the moment that it was lost.
#[derive(Debug)]
struct Outage {
    since: Instant,
    failed: u64,
}

/// The state of one connection.
#[derive(Debug, Default)]
struct ConnectionState {
    outage: Option<Outage>,
}

impl ConnectionState {
    /// Notes an event, and answers what to log of it.
    fn note(&mut self, event: &Event) -> Option<Notice> {
        match (event, &mut self.outage) {
            (Event::Disconnected, None) => {
                self.outage = Some(Outage { since: Instant::now(), failed: 0 });
                Some(Notice::Lost)
            }
            (Event::Disconnected, Some(_)) | (Event::Closed, _) => None,
            (Event::ClientError(error), Some(outage)) => {
                outage.failed += 1;
                (outage.failed == 1).then(|| Notice::Unreachable(error.to_string()))
            }
            (Event::Connected, _) => {
                let Outage { since, failed } = self.outage.take()?;
                Some(Notice::Back { failed, seconds: since.elapsed().as_secs() })
            }
            (other, _) => Some(Notice::Other(other.to_string())),
        }
    }
}

/// The function that the client library calls with the events of a connection. `part`: which part
/// of the node uses it. `servers`: the addresses, without logins.
pub(crate) fn event_log(
    part: &str,
    servers: String,
) -> impl Fn(Event) -> Ready<()> + Send + Sync + 'static {
    let (part, state) = (Arc::<str>::from(part), Mutex::new(ConnectionState::default()));
    move |event| {
        let (part, notice) = (&*part, state.lock().note(&event));
        match notice {
            Some(Notice::Lost) => {
                tracing::warn!(part, servers, "the connection to NATS is lost, and is made again");
            }
            Some(Notice::Unreachable(error)) => tracing::warn!(
                part,
                servers,
                error,
                "no NATS server lets this node in; this is said once until one does"
            ),
            Some(Notice::Back { failed, seconds }) => {
                tracing::info!(part, servers, failed, seconds, "NATS is connected again");
            }
            Some(Notice::Other(event)) => tracing::info!(part, event, "NATS"),
            None => {}
        }
        ready(())
    }
}

#[cfg(test)]
mod tests {
    use async_nats::ClientError;

    use super::*;

    /// An outage has two warnings, the first error among them, however many attempts fail.
    #[test]
    fn an_outage_is_said_once_with_its_cause_and_its_end() {
        let mut state = ConnectionState::default();
        let refused = |why: &str| Event::ClientError(ClientError::Other(why.to_owned()));
        assert_eq!(state.note(&Event::Connected), None, "the first connection is no news");
        assert_eq!(state.note(&Event::Disconnected), Some(Notice::Lost));
        let said = state.note(&refused("refused"));
        let cause = |why: &String| why.contains("refused");
        assert!(matches!(&said, Some(Notice::Unreachable(why)) if cause(why)), "{said:?}");
        for _ in 0..100 {
            assert_eq!(state.note(&refused("refused")), None);
        }
        assert_eq!(state.note(&Event::Disconnected), None);
        let back = state.note(&Event::Connected);
        assert_eq!(back, Some(Notice::Back { failed: 101, seconds: 0 }));
        assert_eq!(state.note(&Event::Connected), None, "it is said once");
        assert_eq!(state.note(&Event::Disconnected), Some(Notice::Lost), "the next outage is new");
    }
}
