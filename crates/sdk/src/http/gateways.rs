//! [`GatewayLinks`]: the gateways that a program may use, and which one it uses now.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tenure_core::Rejection;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::connect::{GatewayAddress, HttpConnectError, HttpSettings};
use super::link::{GatewayLink, HttpRequest};
use crate::patience::unavailable;

/// The ways to some gateways, one of which is used. A request that gets no final answer there goes to
/// the next one when it is repeated, and so do all others from then on.
pub(super) struct GatewayLinks {
    links: Vec<Arc<GatewayLink>>,
    /// The place of the one that is used.
    at: AtomicUsize,
    turns: Semaphore,
}

impl fmt::Debug for GatewayLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.links.iter().map(|link| link.address())).finish()
    }
}

impl GatewayLinks {
    /// Reads the settings, and connects to nobody.
    ///
    /// # Errors
    /// The settings cannot be used.
    pub(super) async fn of(settings: &HttpSettings) -> Result<Self, HttpConnectError> {
        let addresses = GatewayAddress::all(settings).await?;
        let links = addresses.into_iter().map(|address| Arc::new(GatewayLink::new(address)));
        let turns = Semaphore::new(settings.connections_max.max(1));
        Ok(Self { links: links.collect(), at: AtomicUsize::new(0), turns })
    }

    /// Waits for a turn to send requests, until the permit is dropped.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>, Rejection> {
        self.turns.acquire().await.map_err(|_| unavailable("the client is closed"))
    }

    /// How many gateways there are.
    pub(super) fn count(&self) -> usize {
        self.links.len()
    }

    /// The gateway that is used now, and its place.
    pub(super) fn current(&self) -> (usize, Arc<GatewayLink>) {
        let at = self.at.load(Ordering::Relaxed);
        (at, Arc::clone(&self.links[at]))
    }

    /// Uses the next gateway, unless another request has led to it already.
    pub(super) fn move_on(&self, from: usize) {
        let next = (from + 1) % self.links.len();
        let moved = self.at.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
        if moved.is_ok() && next != from {
            let (from, to) = (self.links[from].address(), self.links[next].address());
            tracing::debug!(?from, ?to, "another gateway is asked from now on");
        }
    }

    /// Sends a request of the bus once, and reads its answer.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<(T, Vec<u32>), Rejection> {
        let (at, link) = self.current();
        self.noted(at, link.call(request, within).await)
    }

    /// Sends a request for JSON once, and reads its answer.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<T, Rejection> {
        let (at, link) = self.current();
        self.noted(at, link.json(request, within).await)
    }

    /// Sends a request on a connection of its own, which is closed with the body of the answer.
    pub(super) async fn open(
        &self,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<Incoming, Rejection> {
        let (at, link) = self.current();
        self.noted(at, link.open(request, within).await)
    }

    /// The answer. A gateway that has none, or that cannot reach the scheduler, is left for the next.
    fn noted<T>(&self, at: usize, answer: Result<T, Rejection>) -> Result<T, Rejection> {
        if answer.as_ref().is_err_and(|refused| refused.code.is_retryable()) {
            self.move_on(at);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many requests fail at a gateway at the same time, one step leads to the next gateway.
    #[tokio::test]
    async fn requests_that_fail_together_move_on_once() {
        let gateways =
            GatewayLinks::of(&"http://one,http://two,http://three".into()).await.unwrap();
        let refused = || Err::<(), _>(unavailable("nobody is there"));
        for _ in 0..3 {
            assert!(gateways.noted(0, refused()).is_err());
            assert_eq!(gateways.current().0, 1);
        }
        gateways.noted(1, Ok(())).unwrap();
        assert!(gateways.noted(1, Err::<(), _>(Rejection::invalid("limit", "it is 0"))).is_err());
        assert_eq!(gateways.current().0, 1, "an answer is an answer");
        for (from, next) in [(1, 2), (2, 0)] {
            assert!(gateways.noted(from, refused()).is_err());
            assert_eq!(gateways.current().0, next);
        }
    }
}
