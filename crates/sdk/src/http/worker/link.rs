//! [`LinkedGateway`]: a gateway at which the worker has joined, and what the worker sends there.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tenure_core::Rejection;
use tenure_ports::bus::Credit;

use crate::http::link::{BYTES, GatewayLink, HttpRequest, JSON};
use crate::patience::ambiguous;

/// How long a request for deliveries waits at the gateway.
const WAIT: Duration = Duration::from_secs(10);

/// How much later its answer may come.
const LATE: Duration = Duration::from_secs(3);

/// How long a gateway may take to say that it still has the link.
const LOOK: Duration = Duration::from_secs(2);

/// Deliveries as the gateway sends them. Each is read by itself, so that one from a newer gateway does not
/// spoil the others.
#[derive(Debug, Deserialize)]
pub(super) struct FetchedPage {
    pub(super) deliveries: Vec<Box<RawValue>>,
    /// The number to acknowledge them with.
    pub(super) last: u64,
}

/// A worker's capacity on a link, as its gateway reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct SaidCapacity {
    pub(super) number: u64,
    free: u64,
    seen: u64,
    lost: u64,
}

/// A gateway at which the worker has joined.
pub(super) struct LinkedGateway {
    /// Its place among the gateways.
    pub(super) place: usize,
    gateway: Arc<GatewayLink>,
    /// The path of the link. It has the link's name, which is a secret.
    path: String,
    /// How many Steps and Runs had come to the worker before this link began.
    before: u64,
    /// Number of the last delivery that came on this link.
    after: AtomicU64,
    /// Number of the last statement of capacity that the gateway has for certain.
    room: AtomicU64,
}

impl fmt::Debug for LinkedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LinkedGateway").field(self.gateway.address()).finish()
    }
}

impl LinkedGateway {
    /// A link with this path, on which deliveries up to `after` have come.
    pub(super) fn new(
        (place, gateway): (usize, Arc<GatewayLink>),
        path: String,
        before: u64,
        after: u64,
    ) -> Self {
        let (after, room) = (AtomicU64::new(after), AtomicU64::new(0));
        Self { place, gateway, path, before, after, room }
    }

    /// The address as errors show it.
    pub(super) fn shown(&self) -> &str {
        self.gateway.address().shown()
    }

    /// The counts of this link, if it is the one with this path.
    pub(super) fn counts(&self, path: &str) -> Option<(u64, u64)> {
        (self.path == path).then(|| (self.before, self.after()))
    }

    /// Number of the last delivery that came on this link.
    pub(super) fn after(&self) -> u64 {
        self.after.load(Ordering::Acquire)
    }

    /// Notes that deliveries have come up to this number.
    pub(super) fn note_came(&self, last: u64) {
        self.after.fetch_max(last, Ordering::AcqRel);
    }

    /// A worker's capacity in the counts of this link, which began with none.
    pub(super) fn room_of(&self, credit: Credit) -> SaidCapacity {
        let all = credit.free.saturating_add(credit.seen).saturating_sub(self.before);
        let seen = credit.seen.saturating_sub(self.before);
        let (number, lost) = (credit.number, credit.lost);
        SaidCapacity { number, free: all - seen, seen, lost }
    }

    /// Whether the gateway has a statement of capacity for certain.
    pub(super) fn has_room(&self, number: u64) -> bool {
        self.room.load(Ordering::Acquire) >= number
    }

    /// Notes that the gateway has this statement of capacity.
    pub(super) fn note_room(&self, number: u64) {
        self.room.fetch_max(number, Ordering::AcqRel);
    }

    /// Sends a request once. Its path is the part behind that of the link.
    pub(super) async fn send(
        &self,
        request: &HttpRequest,
        within: Duration,
    ) -> Result<Bytes, Rejection> {
        let path = format!("{}{}", self.path, request.path);
        self.gateway.bytes(&HttpRequest { path, ..request.clone() }, within).await
    }

    /// Waits for deliveries, and acknowledges those that came before.
    pub(super) async fn fetch(&self) -> Result<FetchedPage, Rejection> {
        let path = format!("/deliveries?wait={}s&after={}", WAIT.as_secs(), self.after());
        read(&self.send(&get(path), WAIT + LATE).await?)
    }

    /// Asks whether the gateway still has the link.
    pub(super) async fn look(&self) -> Result<(), Rejection> {
        self.send(&get(String::new()), LOOK).await.map(drop)
    }

    /// Ends the link: what has not come on it goes back.
    pub(super) async fn leave(&self, within: Duration) -> Result<(), Rejection> {
        let path = format!("?after={}", self.after());
        self.send(&HttpRequest::bare(Method::DELETE, path, JSON), within).await.map(drop)
    }
}

/// A request for JSON.
fn get(path: String) -> HttpRequest {
    HttpRequest::bare(Method::GET, path, JSON)
}

/// A request that sends JSON.
///
/// # Errors
/// `validation_error`: what is said cannot be written as JSON.
pub(super) fn json(
    method: Method,
    path: String,
    said: &impl Serialize,
) -> Result<HttpRequest, Rejection> {
    let body = serde_json::to_vec(said);
    let body = body.map_err(|bad| Rejection::invalid("body", bad.to_string()))?.into();
    Ok(HttpRequest { body, ..HttpRequest::bare(method, path, JSON) })
}

/// A request for bytes as they are.
pub(super) fn get_bytes(path: String) -> HttpRequest {
    HttpRequest::bare(Method::GET, path, BYTES)
}

/// A request that sends bytes as they are.
pub(super) fn put_bytes(path: String, bytes: Vec<u8>) -> HttpRequest {
    let bare = HttpRequest::bare(Method::PUT, path, JSON);
    HttpRequest { sends: BYTES, body: bytes.into(), ..bare }
}

/// Reads an answer. One that cannot be read does not say whether the request took effect.
pub(super) fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, Rejection> {
    serde_json::from_slice(answer)
        .map_err(|bad| ambiguous(format!("an answer of the gateway cannot be read: {bad}")))
}

#[cfg(test)]
mod tests {
    use super::super::double::linked;
    use super::*;

    /// Mechanisms 8: the counts of a link begin with it. What came before it, and is not yet counted in
    /// what the worker says, uses capacity.
    #[tokio::test]
    async fn capacity_is_said_in_the_counts_of_the_link() {
        for (before, (free, seen), said) in [
            (0, (4, 7), (4, 7)),
            (7, (4, 7), (4, 0)), // All of it came before.
            (7, (4, 9), (4, 2)),
            (7, (4, 5), (2, 0)), // Two that came before are not counted yet.
            (9, (1, 5), (0, 0)),
        ] {
            let room = linked(before).await.room_of(Credit { free, seen, lost: 2, number: 5 });
            assert_eq!((room.number, room.lost, (room.free, room.seen)), (5, 2, said), "{before}");
        }
    }

    #[tokio::test]
    async fn what_the_gateway_has_is_not_said_again() {
        let link = linked(0).await;
        assert!(link.has_room(0) && !link.has_room(1));
        link.note_room(3);
        link.note_room(2);
        assert!(link.has_room(3) && !link.has_room(4));
    }
}
