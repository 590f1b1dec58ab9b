//! Takes the messages of a subscription in turns, one of each sender that has some: a sender who sends more than the
//! node can handle waits behind itself, and loses its own messages (mechanisms 15).
//!
//! The client library has one queue for each subscription, and drops what finds it full, whoever sent it. So all that
//! has come is sorted by its sender before the next messages are handled, however much that is: tokio would give a
//! task a part of it at a time, and the rest would fill the queue. Sorting is quick, and the queue stays short. What a
//! sender sends while too many messages of it wait is skipped by the library as it is read ([`WaitingBytes::skips`]).
//!
//! Then a few messages are handled, one of each sender in turn, and everything else that is under way in the node goes
//! on before the next few: that is a round. A sender of a long message lets as many rounds pass as its bytes are worth
//! before the next one that waits is handled. So whoever is served over several rounds, for a Task from its creation
//! to its end, waits for little in each of them, and a node that has nothing else to do waits for nothing.
//!
//! Step 3 of the walk in docs/architecture.md.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_nats::{Message, Subscriber};
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use smol_str::SmolStr;
use tenure_ports::map::IdMap;
use tokio::task::coop::unconstrained;

use crate::gate::Gate;

/// How many messages of one sender may wait in one subscription: a quarter of what the client library has.
const WAITING_OF_ONE: usize = 16_384;

/// How many messages are handled before everything else that is under way goes on.
const HANDLED_AT_ONCE: usize = 64;

/// How many bytes a round may have: the message that reaches this number is its last. A sender of a message with more
/// bytes lets one round pass for each time that the message has so many.
const BYTES_AT_ONCE: usize = 64 << 10;

/// How many bytes the waiting messages of one sender may have in all subscriptions of a node.
const BYTES_OF_ONE: usize = 32 << 20;

/// How many those of all senders may have.
const BYTES_OF_ALL: usize = 256 << 20;

/// Where the principal of a sender stands in a subject: `<cluster>.v1.<role>.<pool or session>.<principal>.…`.
const PRINCIPAL_AT: usize = 4;

/// The messages that wait in a node, by sender.
#[derive(Debug, Default)]
pub(crate) struct WaitingBytes {
    held: Mutex<HeldBytes>,
    /// How many senders are full.
    full: AtomicUsize,
    /// How many messages were skipped as they were read, as their sender had too many.
    skipped: AtomicU64,
    /// How many others were dropped for that.
    dropped: AtomicU64,
}

/// There is no place for a message.
#[derive(Debug, PartialEq, Eq)]
enum NoPlace {
    /// Its sender has as much as one may have.
    Sender,
    /// All senders together have too much.
    Node,
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: usize,
    of: IdMap<SmolStr, HeldOfOne>,
    /// The subject of the message that was skipped last: the next one has the same, mostly.
    skipped: Vec<u8>,
}

/// What of one sender waits.
#[derive(Debug, Default)]
struct HeldOfOne {
    messages: usize,
    bytes: usize,
    /// It had too many: its messages are skipped as they are read, until half of those that wait are handled.
    is_full: bool,
}

impl WaitingBytes {
    /// Counts a message that is to wait, if it may.
    fn take(&self, sender: &str, bytes: usize) -> Result<(), NoPlace> {
        let HeldBytes { all, of, .. } = &mut *self.held.lock();
        match of.get_mut(sender) {
            Some(held) => {
                if held.bytes + bytes > BYTES_OF_ONE {
                    return Err(NoPlace::Sender);
                }
                if *all + bytes > BYTES_OF_ALL {
                    return Err(NoPlace::Node);
                }
                held.messages += 1;
                held.bytes += bytes;
            }
            // A sender who has no message waiting always finds a place.
            None => {
                of.insert(sender.into(), HeldOfOne { messages: 1, bytes, is_full: false });
            }
        }
        *all += bytes;
        Ok(())
    }

    fn give_back(&self, sender: &str, messages: usize, bytes: usize) {
        let HeldBytes { all, of, skipped } = &mut *self.held.lock();
        *all = all.saturating_sub(bytes);
        let Some(held) = of.get_mut(sender) else { return };
        held.messages = held.messages.saturating_sub(messages);
        held.bytes = held.bytes.saturating_sub(bytes);
        let is_half = held.messages <= WAITING_OF_ONE / 2 && held.bytes <= BYTES_OF_ONE / 2;
        if held.is_full && is_half {
            held.is_full = false;
            self.full.fetch_sub(1, Ordering::Relaxed);
            skipped.clear();
        }
        if held.messages == 0 {
            of.remove(sender);
        }
    }

    /// From now on the messages of this sender are skipped, as too many of them wait.
    fn note_full(&self, sender: &str) {
        if let Some(held) = self.held.lock().of.get_mut(sender)
            && !std::mem::replace(&mut held.is_full, true)
        {
            self.full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the message of a subject is to be skipped, as too many of its sender wait.
    pub(crate) fn skips(&self, subject: &[u8]) -> bool {
        if self.full.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let HeldBytes { of, skipped, .. } = &mut *self.held.lock();
        if skipped != subject {
            let sender = str::from_utf8(subject).map(sender_of).unwrap_or_default();
            if !of.get(sender).is_some_and(|held| held.is_full) {
                return false;
            }
            skipped.clear();
            skipped.extend_from_slice(subject);
        }
        self.skipped.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// How many messages were dropped or skipped.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed) + self.skipped.load(Ordering::Relaxed)
    }

    /// Notes a message that is dropped. Answers how many were dropped by now, without those that were skipped.
    fn note_dropped(&self) -> u64 {
        self.dropped.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// The messages of one subscription that wait to be handled.
pub(crate) struct WaitingMessages {
    bytes: Arc<WaitingBytes>,
    of: IdMap<SmolStr, SenderMessages>,
    /// Senders that have some, the next one first.
    turns: VecDeque<SmolStr>,
    /// How many rounds there were.
    round: usize,
}

/// Those of one sender.
struct SenderMessages {
    all: VecDeque<Message>,
    /// The first round in which its next message may be handled.
    from_round: usize,
}

impl WaitingMessages {
    pub(crate) fn new(bytes: Arc<WaitingBytes>) -> Self {
        Self { bytes, of: IdMap::default(), turns: VecDeque::new(), round: 0 }
    }

    /// Puts a message behind those of its sender. Gives it back if the sender has too many.
    #[allow(clippy::result_large_err)] // It is moved once, as it was on the way here.
    fn push(&mut self, message: Message) -> Result<(), Message> {
        // Nothing is allocated for a message that is dropped: there may be a million of them in a second.
        let sender = sender_of(&message.subject);
        let waiting = self.of.get_mut(sender);
        let is_full = waiting.as_ref().is_some_and(|those| those.all.len() >= WAITING_OF_ONE);
        let taken = match is_full {
            true => Err(NoPlace::Sender),
            false => self.bytes.take(sender, weight(&message)),
        };
        match taken {
            Ok(()) => {}
            Err(NoPlace::Node) => return Err(message),
            Err(NoPlace::Sender) => {
                self.bytes.note_full(sender);
                return Err(message);
            }
        }
        match waiting {
            Some(those) => those.all.push_back(message),
            None => {
                let sender = SmolStr::from(sender);
                self.turns.push_back(sender.clone());
                let all = VecDeque::from([message]);
                self.of.insert(sender, SenderMessages { all, from_round: self.round });
            }
        }
        Ok(())
    }

    /// The next message of this round, which has one of each sender at most.
    fn pop(&mut self) -> Option<Message> {
        for _ in 0..self.turns.len() {
            let sender = self.turns.pop_front()?;
            let Some(those) = self.of.get_mut(&sender) else { continue };
            if those.from_round > self.round {
                self.turns.push_back(sender);
                continue;
            }
            let Some(message) = those.all.pop_front() else { continue };
            self.bytes.give_back(&sender, 1, weight(&message));
            those.from_round = self.round + message.length / BYTES_AT_ONCE;
            match those.all.is_empty() {
                true => drop(self.of.remove(&sender)),
                false => self.turns.push_back(sender),
            }
            return Some(message);
        }
        None
    }
}

impl Drop for WaitingMessages {
    fn drop(&mut self) {
        for (sender, those) in &self.of {
            let bytes = those.all.iter().map(weight).sum();
            self.bytes.give_back(sender, those.all.len(), bytes);
        }
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
        let (mut handled, mut bytes) = (0, 0);
        while handled < HANDLED_AT_ONCE && bytes < BYTES_AT_ONCE {
            loop {
                match unconstrained(messages.next()).now_or_never() {
                    Some(Some(message)) => {
                        for message in next.take().into_iter().chain([message]) {
                            put(gate, waiting, message).await;
                        }
                    }
                    Some(None) if next.is_none() && waiting.turns.is_empty() => return,
                    Some(None) | None => break,
                }
            }
            // A message that came alone need not wait.
            let Some(message) = next.take().or_else(|| waiting.pop()) else { break };
            (handled, bytes) = (handled + 1, bytes + message.length);
            gate.hear(message).await;
        }
        waiting.round += 1;
        if bytes >= BYTES_AT_ONCE || !waiting.turns.is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

async fn put(gate: &Arc<Gate>, waiting: &mut WaitingMessages, message: Message) {
    if let Err(message) = waiting.push(message) {
        let count = gate.waiting.note_dropped();
        let is_news = count.is_power_of_two();
        if is_news {
            let dropped = gate.waiting.dropped();
            let (sender, subject) = (sender_of(&message.subject), message.subject.as_str());
            tracing::warn!(%sender, subject, dropped, "messages are dropped: their sender sends too many");
        }
        // A sender who repeats its messages is told now and then why they are dropped: one of 64 may be answered, so
        // that this costs little.
        if is_news || count.is_multiple_of(64) {
            gate.turn_back(&message).await;
        }
    }
}

fn sender_of(subject: &str) -> &str {
    subject.split('.').nth(PRINCIPAL_AT).unwrap_or_default()
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

    /// Mechanisms 15: who sends long messages lets others go first for as many rounds as these are worth.
    #[test]
    fn a_long_message_costs_its_sender_rounds() {
        let mut waiting = WaitingMessages::new(Arc::default());
        for (sender, number, bytes) in
            [("eve", 1, 4 * BYTES_AT_ONCE), ("eve", 2, 10), ("bob", 1, 10), ("bob", 2, 10)]
        {
            waiting.push(message(sender, number, bytes)).unwrap();
        }
        let mut rounds = Vec::new();
        while !waiting.turns.is_empty() {
            let popped: Vec<String> = std::iter::from_fn(|| popped(&mut waiting)).collect();
            rounds.push(popped.join(" "));
            waiting.round += 1;
        }
        assert_eq!(rounds, ["eve1 bob1 bob2", "", "", "", "eve2"]);
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

    /// Mechanisms 15: while too many messages of a sender wait, others of it are skipped before anything is kept of
    /// them. Those of others are not, and its own are taken again once half of what waited is handled.
    #[test]
    fn who_has_too_many_is_skipped_until_half_is_handled() {
        let bytes = Arc::default();
        let mut waiting = WaitingMessages::new(Arc::clone(&bytes));
        let skips =
            |who: &str| bytes.skips(format!("tenure.v1.worker.pool.{who}.boot.1").as_bytes());
        for number in 0..WAITING_OF_ONE {
            waiting.push(message("eve", number, 0)).unwrap();
        }
        assert!(!skips("eve"), "there was a place for each");
        assert!(waiting.push(message("eve", 0, 0)).is_err());
        assert!(skips("eve") && skips("eve") && !skips("bob") && !bytes.skips(b"\xff.v1"));
        assert_eq!(bytes.dropped(), 2);
        for _ in 0..WAITING_OF_ONE / 2 - 1 {
            waiting.pop().unwrap();
        }
        assert!(skips("eve"));
        waiting.pop().unwrap();
        assert!(!skips("eve"));
        assert!(waiting.push(message("eve", 0, BYTES_OF_ONE)).is_err());
        drop(waiting);
        assert!(!skips("eve") && bytes.held.lock().of.is_empty());
    }

    /// However many senders there are, all of them together are bounded, and each has one message at least.
    #[test]
    fn all_senders_together_are_bounded() {
        let bytes = WaitingBytes::default();
        let sender = |number: usize| format!("s{number}");
        for number in 0..8 {
            bytes.take(&sender(number), BYTES_OF_ONE).unwrap();
        }
        bytes.take(&sender(8), 1).unwrap(); // The first always finds a place.
        assert_eq!(bytes.take(&sender(8), 1), Err(NoPlace::Node));
        bytes.give_back(&sender(0), 1, BYTES_OF_ONE);
        bytes.take(&sender(8), 1).unwrap();
    }
}
