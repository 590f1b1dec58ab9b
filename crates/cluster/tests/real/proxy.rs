//! A way to a server that can be slow, or be held: connections stay open, and what was said meanwhile
//! arrives when the way is fast again.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// How often a way looks whether something is due.
const LOOK: Duration = Duration::from_millis(2);

/// Longer than any test.
pub(crate) const HELD: Duration = Duration::from_secs(3_600);

/// How slow the ways are, in milliseconds.
#[derive(Debug, Default)]
struct Delays {
    to_server: AtomicU64,
    from_server: AtomicU64,
}

/// A proxy on a port of its own, for the rest of the test.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    delays: Arc<Delays>,
    said: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) fn before(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let delays = Arc::<Delays>::default();
        let said = Arc::<AtomicUsize>::default();
        let (shared, count) = (Arc::clone(&delays), Arc::clone(&said));
        spawn(move || {
            for client in listener.incoming().flatten() {
                // Whoever cannot be served notices: the connection is dropped.
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)) {
                    join(&client, &server, &shared, &count);
                }
            }
        });
        Self { port, delays, said }
    }

    /// How often something was said to the server.
    pub(crate) fn said(&self) -> usize {
        self.said.load(Ordering::Acquire)
    }

    /// How long what is said takes from now on, and what is under way, to the server and back.
    pub(crate) fn delay(&self, to_server: Duration, from_server: Duration) {
        let millis = |delay: Duration| u64::try_from(delay.as_millis()).unwrap();
        self.delays.to_server.store(millis(to_server), Ordering::Release);
        self.delays.from_server.store(millis(from_server), Ordering::Release);
    }
}

fn join(client: &TcpStream, server: &TcpStream, delays: &Arc<Delays>, count: &Arc<AtomicUsize>) {
    for (from, to, is_from_server) in [(client, server, false), (server, client, true)] {
        from.set_nodelay(true).unwrap();
        let (mut from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
        let (say, said) = channel();
        let (delays, count) = (Arc::clone(delays), Arc::clone(count));
        spawn(move || carry(to, &said, &delays, is_from_server));
        spawn(move || {
            let mut bytes = vec![0; 64 << 10];
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                count.fetch_add(usize::from(!is_from_server), Ordering::AcqRel);
                let _ = say.send((Instant::now(), bytes[..length].to_vec())); // The other end may be gone.
            }
        });
    }
}

fn carry(
    mut to: TcpStream,
    said: &Receiver<(Instant, Vec<u8>)>,
    delays: &Delays,
    is_from_server: bool,
) {
    let delay = if is_from_server { &delays.from_server } else { &delays.to_server };
    while let Ok((at, bytes)) = said.recv() {
        while at.elapsed() < Duration::from_millis(delay.load(Ordering::Acquire)) {
            sleep(LOOK);
        }
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both); // It may be gone.
}
