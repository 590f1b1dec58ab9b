//! The limits of a server, and the connections that it has.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// What connections and requests may take. The default is for a server that anybody may reach.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// The most connections. Ten thousand readers of streams are some, and each takes some 20 KB.
    pub connections_max: usize,
    /// The most connections of one address, so that one leaves some to the others. Of addresses of
    /// version 6 those of one line (a `/64`) count together.
    pub connections_of_one_max: usize,
    /// How long the head of a request may take, from the moment the connection is open or the answer
    /// before it has been sent. So this is also how long a connection may be idle.
    pub head_timeout: Duration,
    /// The most bytes of the head of a request: a token of 16 KiB, and as much for the rest.
    pub head_bytes_max: usize,
    /// How long the handshake of TLS may take.
    pub handshake_timeout: Duration,
    /// How long a connection has to read what it is sent, or 64 KiB of it if that is more.
    pub write_stall: Duration,
    /// The most bytes of a body: as many as a blob may have.
    pub body_bytes_max: usize,
    /// The most bytes of all bodies of requests that are not answered yet.
    pub bodies_bytes_max: usize,
    /// The most bytes of all long answers that were not read yet.
    pub answers_bytes_max: usize,
    /// How long a long answer may take, if its length is known, until its last byte was taken.
    pub answer_timeout: Duration,
    /// How long a request may take until its answer begins: a little longer than a long poll.
    pub request_timeout: Duration,
    /// How long a server that stops waits for its answers to end.
    pub grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 20_480,
            connections_of_one_max: 15_360,
            head_timeout: Duration::from_secs(30),
            head_bytes_max: 32 << 10,
            handshake_timeout: Duration::from_secs(10),
            write_stall: Duration::from_secs(30),
            body_bytes_max: 16 << 20,
            bodies_bytes_max: 256 << 20,
            answers_bytes_max: 512 << 20,
            answer_timeout: Duration::from_secs(600),
            request_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(10),
        }
    }
}

/// The connections that there are.
#[derive(Debug)]
pub(super) struct OpenConnections {
    max: usize,
    of_one_max: usize,
    counts: Mutex<ConnectionCounts>,
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    all: usize,
    of: HashMap<IpAddr, usize>,
}

/// One of the connections; it is counted out when this is dropped.
#[derive(Debug)]
pub(super) struct OneConnection {
    of: Arc<OpenConnections>,
    from: Option<IpAddr>,
}

impl OpenConnections {
    pub(super) fn bounded(max: usize, of_one_max: usize) -> Arc<Self> {
        Arc::new(Self { max, of_one_max, counts: Mutex::default() })
    }

    /// Counts one more, from this address or from a Unix socket; `None` if there are too many.
    pub(super) fn add(self: &Arc<Self>, from: Option<IpAddr>) -> Option<OneConnection> {
        let from = from.map(line_of);
        let mut counts = self.counts.lock();
        if counts.all >= self.max {
            return None;
        }
        if let Some(from) = from {
            let of_one = counts.of.get(&from).copied().unwrap_or(0);
            if of_one >= self.of_one_max {
                return None;
            }
            counts.of.insert(from, of_one + 1);
        }
        counts.all += 1;
        drop(counts);
        Some(OneConnection { of: Arc::clone(self), from })
    }
}

impl Drop for OneConnection {
    fn drop(&mut self) {
        let mut counts = self.of.counts.lock();
        counts.all -= 1;
        let Some(from) = self.from else { return };
        if let Some(of_one) = counts.of.get_mut(&from) {
            *of_one -= 1;
            if *of_one == 0 {
                counts.of.remove(&from);
            }
        }
    }
}

/// What stands for all addresses of one caller: an address of version 4, or the first half of one of
/// version 6, as everybody who has a line has all of the other half.
pub(crate) fn line_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn connections_are_bounded_for_each_address_and_for_all() {
        let open = OpenConnections::bounded(4, 2);
        let mut mine = vec![open.add(at("192.0.2.1")).unwrap(), open.add(at("192.0.2.1")).unwrap()];
        assert!(open.add(at("::ffff:192.0.2.1")).is_none(), "it is the same address");
        let theirs = open.add(at("192.0.2.2")).unwrap();
        let local = open.add(None).unwrap();
        assert!(open.add(at("192.0.2.3")).is_none() && open.add(None).is_none());
        mine.pop();
        mine.push(open.add(at("192.0.2.1")).unwrap());
        drop((mine, theirs, local));
        let counts = open.counts.lock();
        assert_eq!((counts.all, counts.of.len()), (0, 0));
    }

    #[test]
    fn the_addresses_of_one_line_are_one_caller() {
        let line = |text: &str| line_of(text.parse().unwrap());
        assert_eq!(line("2001:db8::1"), line("2001:db8::ffff:1"));
        assert_ne!(line("2001:db8::1"), line("2001:db8:0:1::1"));
        assert_eq!(line("::ffff:192.0.2.1"), line("192.0.2.1"));
        assert_ne!(line("192.0.2.1"), line("192.0.2.2"));
    }
}
