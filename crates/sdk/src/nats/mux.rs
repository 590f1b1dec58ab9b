//! Hands each reply to the request that waits for it. All replies come to one subscription, and the
//! last token of the subject is the id of the request.
//!
//! Step 2 of the walk in docs/architecture.md.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NatsReply {
    /// An answer.
    Body(Bytes),
    /// The server says that nobody is subscribed to the subject of the request.
    Nobody,
}

/// The requests that wait, by id. An entry lives as long as its request waits.
#[derive(Debug)]
pub(super) struct Waiters {
    last: u64,
    open: HashMap<u64, Waiter>,
}

/// The first id is drawn at random: where two connections have the same inbox, the reply to a request of one
/// does not look like that to a request of the other.
impl Default for Waiters {
    fn default() -> Self {
        let last = RandomState::new().build_hasher().finish() >> 1;
        Self { last, open: HashMap::new() }
    }
}

#[derive(Debug)]
enum Waiter {
    One(oneshot::Sender<NatsReply>),
    Many(UnboundedSender<NatsReply>),
}

impl Waiters {
    fn one(&mut self) -> (u64, oneshot::Receiver<NatsReply>) {
        let (to, replies) = oneshot::channel();
        (self.add(Waiter::One(to)), replies)
    }

    fn many(&mut self) -> (u64, UnboundedReceiver<NatsReply>) {
        let (to, replies) = unbounded_channel();
        (self.add(Waiter::Many(to)), replies)
    }

    fn add(&mut self, waiter: Waiter) -> u64 {
        self.last += 1;
        self.open.insert(self.last, waiter);
        self.last
    }

    /// Hands a reply to the request that waits for it, or drops it if none does.
    pub(super) fn deliver(&mut self, id: u64, reply: NatsReply) {
        match self.open.get(&id) {
            // The receiver may be dropped at this moment.
            Some(Waiter::Many(to)) => drop(to.send(reply)),
            Some(Waiter::One(_)) => {
                if let Some(Waiter::One(to)) = self.open.remove(&id) {
                    drop(to.send(reply));
                }
            }
            None => {}
        }
    }

    fn forget(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// No reply will come any more: ends all waits.
    pub(super) fn close(&mut self) {
        self.open.clear();
    }
}

/// The id that a reply subject ends with.
pub(super) fn id_of(subject: &str) -> Option<u64> {
    subject.rsplit('.').next()?.parse().ok()
}

/// The entry of a request that waits, removed when this is dropped.
#[derive(Debug)]
pub(super) struct WaiterSlot {
    pub(super) id: u64,
    waiters: Arc<Mutex<Waiters>>,
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.waiters.lock().forget(self.id);
    }
}

/// Waits for one reply.
pub(super) fn one(waiters: &Arc<Mutex<Waiters>>) -> (WaiterSlot, oneshot::Receiver<NatsReply>) {
    let (id, replies) = waiters.lock().one();
    (WaiterSlot { id, waiters: Arc::clone(waiters) }, replies)
}

/// Waits for as many as come.
pub(super) fn many(waiters: &Arc<Mutex<Waiters>>) -> (WaiterSlot, UnboundedReceiver<NatsReply>) {
    let (id, replies) = waiters.lock().many();
    (WaiterSlot { id, waiters: Arc::clone(waiters) }, replies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &'static str) -> NatsReply {
        NatsReply::Body(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn each_reply_reaches_the_one_who_waits_for_it() {
        let waiters = Arc::default();
        let (a, mut to_a) = one(&waiters);
        let (b, mut to_b) = one(&waiters);
        waiters.lock().deliver(b.id, body("b"));
        waiters.lock().deliver(a.id, NatsReply::Nobody);
        assert_eq!(to_a.try_recv(), Ok(NatsReply::Nobody));
        assert_eq!(to_b.try_recv(), Ok(body("b")));
        assert_eq!(waiters.lock().open.len(), 0);
    }

    #[test]
    fn a_second_reply_to_one_question_is_passed_over() {
        let waiters = Arc::default();
        let (place, mut replies) = one(&waiters);
        waiters.lock().deliver(place.id, body("first"));
        waiters.lock().deliver(place.id, body("second"));
        assert_eq!(replies.try_recv(), Ok(body("first")));
    }

    #[test]
    fn who_asks_many_hears_all_of_them() {
        let waiters = Arc::default();
        let (place, mut replies) = many(&waiters);
        waiters.lock().deliver(place.id, body("first"));
        waiters.lock().deliver(place.id, body("second"));
        assert_eq!(replies.try_recv(), Ok(body("first")));
        assert_eq!(replies.try_recv(), Ok(body("second")));
        assert!(replies.try_recv().is_err());
    }

    #[test]
    fn whoever_stops_waiting_leaves_nothing_behind() {
        let waiters = Arc::default();
        let (alone, replies) = one(&waiters);
        let (several, all) = many(&waiters);
        let id = alone.id;
        drop((alone, replies, several, all));
        waiters.lock().deliver(id, body("late"));
        assert!(waiters.lock().open.is_empty());
    }

    #[test]
    fn the_last_token_names_the_question() {
        assert_eq!(id_of("_INBOX.worker.p.b.r.17"), Some(17));
        assert_eq!(id_of("_INBOX.worker.p.b.r.x"), None);
    }
}
