//! Takes the messages of a subscription in turns, one of each sender that has some: a sender who sends more than the
//! node can handle waits behind itself, and loses its own messages (mechanisms 15).
//!
//! The client library has one queue for each subscription, and drops what finds it full, whoever sent it. So what
//! has come is sorted by its sender before the next message is handled. That is quick, and the queue stays short.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_nats::{Message, Subscriber};
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use smol_str::SmolStr;

use crate::gate::Gate;

/// How many messages of one sender may wait in one subscription: a quarter of what the client library has.
const WAITING_OF_ONE: usize = 16_384;

/// How many bytes the waiting messages of one sender may have in all subscriptions of a node.
const BYTES_OF_ONE: usize = 32 << 20;

/// How many those of all senders may have.
const BYTES_OF_ALL: usize = 256 << 20;

/// Where the principal of a sender stands in a subject: `<cluster>.v1.<role>.<pool or session>.<principal>.…`.
const PRINCIPAL_AT: usize = 4;

/// The bytes of all messages that wait in a node, by sender.
#[derive(Debug, Default)]
pub(crate) struct WaitingBytes {
    held: Mutex<HeldBytes>,
    /// How many messages were dropped, as their sender had too many.
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: usize,
    of: HashMap<SmolStr, usize>,
}

impl WaitingBytes {
    /// Counts a message that is to wait. Answers whether it may.
    fn take(&self, sender: &SmolStr, bytes: usize) -> bool {
        let HeldBytes { all, of } = &mut *self.held.lock();
        let held = of.get(sender).copied().unwrap_or(0);
        // A sender of whom nothing waits always finds a place.
        let fits = held + bytes <= BYTES_OF_ONE && *all + bytes <= BYTES_OF_ALL;
        if fits || held == 0 {
            *all += bytes;
            of.insert(sender.clone(), held + bytes);
        }
        fits || held == 0
    }

    fn give_back(&self, sender: &SmolStr, bytes: usize) {
        let HeldBytes { all, of } = &mut *self.held.lock();
        *all = all.saturating_sub(bytes);
        let left = of.get(sender).copied().unwrap_or(0).saturating_sub(bytes);
        match left {
            0 => drop(of.remove(sender)),
            _ => drop(of.insert(sender.clone(), left)),
        }
    }

    /// Notes a message that is dropped. Answers how many there were before, if that is news.
    fn note_dropped(&self) -> Option<u64> {
        let count = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        count.is_power_of_two().then_some(count)
    }
}

/// The messages of one subscription that wait to be handled.
pub(crate) struct WaitingMessages {
    bytes: Arc<WaitingBytes>,
    of: HashMap<SmolStr, VecDeque<Message>>,
    /// Senders that have some, the next one first.
    turns: VecDeque<SmolStr>,
}

impl WaitingMessages {
    pub(crate) fn new(bytes: Arc<WaitingBytes>) -> Self {
        Self { bytes, of: HashMap::new(), turns: VecDeque::new() }
    }

    /// Puts a message behind those of its sender. Gives it back if the sender has too many.
    #[allow(clippy::result_large_err)] // It is moved once, as it was on the way here.
    fn push(&mut self, message: Message) -> Result<(), Message> {
        let sender = sender_of(&message.subject);
        let is_full = self.of.get(&sender).is_some_and(|all| all.len() >= WAITING_OF_ONE);
        if is_full || !self.bytes.take(&sender, weight(&message)) {
            return Err(message);
        }
        let all = self.of.entry(sender.clone()).or_default();
        if all.is_empty() {
            self.turns.push_back(sender);
        }
        all.push_back(message);
        Ok(())
    }

    /// The next message: of each sender one, in turns.
    fn pop(&mut self) -> Option<Message> {
        let sender = self.turns.pop_front()?;
        let all = self.of.get_mut(&sender)?;
        let message = all.pop_front();
        match all.is_empty() {
            true => drop(self.of.remove(&sender)),
            false => self.turns.push_back(sender.clone()),
        }
        if let Some(message) = &message {
            self.bytes.give_back(&sender, weight(message));
        }
        message
    }
}

impl Drop for WaitingMessages {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// Handles the messages of a subscription until it ends. What waits when the future is dropped stays in `waiting`.
pub(crate) async fn hear(
    gate: &Arc<Gate>,
    messages: &mut Subscriber,
    waiting: &mut WaitingMessages,
) {
    loop {
        let mut next = match waiting.turns.is_empty() {
            true => match messages.next().await {
                Some(first) => Some(first),
                None => return,
            },
            false => None,
        };
        loop {
            match messages.next().now_or_never() {
                Some(Some(message)) => {
                    for message in next.take().into_iter().chain([message]) {
                        put(gate, waiting, message).await;
                    }
                }
                Some(None) if next.is_none() && waiting.turns.is_empty() => return,
                Some(None) | None => break,
            }
        }
        // What came alone need not wait.
        if let Some(message) = next.or_else(|| waiting.pop()) {
            gate.hear(message).await;
        }
        tokio::task::consume_budget().await;
    }
}

async fn put(gate: &Arc<Gate>, waiting: &mut WaitingMessages, message: Message) {
    if let Err(message) = waiting.push(message) {
        let news = gate.waiting.note_dropped();
        if let Some(dropped) = news {
            let (sender, subject) = (sender_of(&message.subject), message.subject.as_str());
            tracing::warn!(%sender, subject, dropped, "messages are dropped: their sender sends too many");
        }
        // Who repeats it reads now and then why.
        if news.is_some() || is_answered(&gate.waiting) {
            gate.turn_back(&message).await;
        }
    }
}

/// Whether this is one of those dropped messages that are answered: one of 64, so that answers cost little.
fn is_answered(waiting: &WaitingBytes) -> bool {
    waiting.dropped.load(Ordering::Relaxed).is_multiple_of(64)
}

fn sender_of(subject: &str) -> SmolStr {
    subject.split('.').nth(PRINCIPAL_AT).unwrap_or_default().into()
}

/// What a message takes, with what the client library keeps of it.
fn weight(message: &Message) -> usize {
    message.length + size_of::<Message>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sender: &str, number: usize, bytes: usize) -> Message {
        Message {
            subject: format!("tenure.v1.worker.pool.{sender}.boot.{number}").into(),
            reply: None,
            payload: vec![0; bytes].into(),
            headers: None,
            status: None,
            description: None,
            length: bytes,
        }
    }

    fn popped(waiting: &mut WaitingMessages) -> Option<String> {
        let subject = waiting.pop()?.subject;
        let tokens: Vec<&str> = subject.split('.').collect();
        Some(format!("{}{}", tokens[4], tokens[6]))
    }

    /// Whoever sends much waits behind itself, and each sender's messages keep their order.
    #[test]
    fn senders_take_turns() {
        let bytes = Arc::default();
        let mut waiting = WaitingMessages::new(Arc::clone(&bytes));
        for (sender, number) in [("eve", 1), ("eve", 2), ("eve", 3), ("bob", 1), ("bob", 2)] {
            waiting.push(message(sender, number, 10)).unwrap();
        }
        let order: Vec<String> = std::iter::from_fn(|| popped(&mut waiting)).collect();
        assert_eq!(order, ["eve1", "bob1", "eve2", "bob2", "eve3"]);
        assert!(bytes.held.lock().of.is_empty() && waiting.of.is_empty());
    }

    /// Mechanisms 15: who has filled its own part loses its own messages, and others find a place.
    #[test]
    fn a_sender_fills_its_own_part_alone() {
        let bytes = Arc::default();
        let mut waiting = WaitingMessages::new(Arc::clone(&bytes));
        for number in 0..WAITING_OF_ONE {
            waiting.push(message("eve", number, 0)).unwrap();
        }
        assert!(waiting.push(message("eve", 0, 0)).is_err());
        waiting.push(message("bob", 0, 0)).unwrap();
        let mut other = WaitingMessages::new(Arc::clone(&bytes));
        let mut taken = 0;
        while other.push(message("ann", taken, 1 << 20)).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 31, "bytes count in all subscriptions");
        assert!(waiting.push(message("ann", 0, 1 << 20)).is_err());
        waiting.push(message("bob", 1, 1 << 20)).unwrap();
        drop((waiting, other));
        assert!(bytes.held.lock().of.is_empty(), "what was dropped is given back");
    }

    /// However many senders there are, all of them together are bounded, and each has one message at least.
    #[test]
    fn all_senders_together_are_bounded() {
        let bytes = WaitingBytes::default();
        let sender = |number: usize| SmolStr::from(format!("s{number}"));
        for number in 0..8 {
            assert!(bytes.take(&sender(number), BYTES_OF_ONE), "{number}");
        }
        assert!(bytes.take(&sender(8), 1), "the first always finds a place");
        assert!(!bytes.take(&sender(8), 1));
        bytes.give_back(&sender(0), BYTES_OF_ONE);
        assert!(bytes.take(&sender(8), 1));
    }
}
