//! How many streams are open, of all callers together and of each.
//!
//! A stream holds a connection and memory for as long as its reader likes. One caller must not take
//! those of all others, and all together must not take those of ordinary requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use parking_lot::Mutex;
use smol_str::SmolStr;
use tenure_core::{Code, Rejection};

use crate::identity::Identity;
use crate::problem::HttpProblem;

/// The most open streams of a gateway: at some 20 KB for each connection, this is a third of a gigabyte.
pub(super) const STREAMS_MAX: usize = 16_384;

/// The most open streams of one principal, so that one with a leak leaves a quarter to the others.
pub(super) const STREAMS_OF_ONE_MAX: usize = 12_288;

/// How long a reader over the limit is told to stay away.
const COME_BACK_MS: u64 = 5_000;

/// The streams that are open.
#[derive(Debug)]
pub(super) struct OpenStreams {
    most: AtomicUsize,
    most_of_one: AtomicUsize,
    open: Mutex<OpenCounts>,
}

#[derive(Debug, Default)]
struct OpenCounts {
    all: usize,
    of: HashMap<SmolStr, usize>,
}

impl Default for OpenStreams {
    fn default() -> Self {
        Self::bounded(STREAMS_MAX, STREAMS_OF_ONE_MAX)
    }
}

impl OpenStreams {
    pub(super) fn bounded(most: usize, most_of_one: usize) -> Self {
        Self { most: most.into(), most_of_one: most_of_one.into(), open: Mutex::default() }
    }

    /// Leaves a fifth of so many connections to requests that are no streams. One caller has three quarters of the
    /// others.
    pub(super) fn fit(&self, connections: usize) {
        let most = STREAMS_MAX.min((connections * 4).div_ceil(5));
        let most_of_one = STREAMS_OF_ONE_MAX.min((most * 3).div_ceil(4));
        self.most.store(most, Ordering::Relaxed);
        self.most_of_one.store(most_of_one, Ordering::Relaxed);
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.open.lock().all
    }

    /// Opens one for a caller.
    pub(super) fn open(self: &Arc<Self>, who: &Identity) -> Result<StreamPermit, HttpProblem> {
        self.open_as(who.principal.as_str())
    }

    /// The same for a caller of this name.
    pub(super) fn open_as(self: &Arc<Self>, name: &str) -> Result<StreamPermit, HttpProblem> {
        let principal = SmolStr::new(name);
        let most = self.most.load(Ordering::Relaxed);
        let most_of_one = self.most_of_one.load(Ordering::Relaxed);
        let mut open = self.open.lock();
        if open.all >= most {
            let message = "as many streams are open as this gateway may have";
            return Err(too_many(StatusCode::SERVICE_UNAVAILABLE, message, most));
        }
        let of_one = open.of.get(&principal).copied().unwrap_or(0);
        if of_one >= most_of_one {
            let message = "this login has as many open streams as one may have";
            return Err(too_many(StatusCode::TOO_MANY_REQUESTS, message, most_of_one));
        }
        open.of.insert(principal.clone(), of_one + 1);
        open.all += 1;
        drop(open);
        Ok(StreamPermit { streams: Arc::clone(self), principal })
    }

    fn close(&self, principal: &SmolStr) {
        let mut open = self.open.lock();
        open.all -= 1;
        if let Some(of_one) = open.of.get_mut(principal) {
            *of_one -= 1;
            if *of_one == 0 {
                open.of.remove(principal);
            }
        }
    }
}

fn too_many(status: StatusCode, message: &str, limit: usize) -> HttpProblem {
    let refused = Rejection::new(Code::Unavailable, message).with("limit", limit);
    HttpProblem::new(status, refused.with("retry_after_ms", COME_BACK_MS))
}

/// The right to one open stream, until it is dropped.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    streams: Arc<OpenStreams>,
    principal: SmolStr,
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.streams.close(&self.principal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Allowed;
    use tenure_core::status::Role;
    use tenure_wire::bus::subject::Token;

    fn login(principal: &str) -> Identity {
        Identity {
            principal: Token::new(principal).unwrap(),
            role: Role::Observer,
            sessions: Allowed::All,
            pools: Allowed::All,
        }
    }

    #[test]
    fn streams_are_bounded_for_each_caller_and_for_all() {
        let streams = Arc::new(OpenStreams::bounded(3, 2));
        let (ann, bee) = (login("ann"), login("bee"));
        let status = |who| streams.open(who).err().map(|problem| problem.status());
        let mut open = vec![streams.open(&ann).unwrap(), streams.open(&ann).unwrap()];
        assert_eq!(status(&ann), Some(StatusCode::TOO_MANY_REQUESTS));
        open.push(streams.open(&bee).unwrap());
        assert_eq!(status(&bee), Some(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(streams.count(), 3);
        open.remove(0);
        assert_eq!(status(&bee), None, "one was closed");
        drop(open);
        assert_eq!((streams.count(), streams.open.lock().of.len()), (0, 0));
    }

    /// Mechanisms 15: where few connections may be open, the streams of one caller leave some to the others, too.
    #[test]
    fn streams_fit_into_the_connections() {
        let streams = Arc::new(OpenStreams::default());
        for (connections, most, of_one) in [(20_480, 16_384, 12_288), (1_024, 820, 615)] {
            streams.fit(connections);
            let mut open = Vec::new();
            while let Ok(permit) = streams.open_as("ann") {
                open.push(permit);
            }
            assert_eq!(open.len(), of_one);
            while let Ok(permit) = streams.open_as("bee") {
                open.push(permit);
            }
            assert_eq!(open.len(), most);
        }
    }
}
