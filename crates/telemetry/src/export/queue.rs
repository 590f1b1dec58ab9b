//! The queue of ended Tasks that wait to become traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::counts::Instruments;
use crate::health::Signal;
use crate::trace::{EndedRun, EndedTask};

/// How many Attempts and Tasks may wait: some 20 MB of them.
const WAITING_MAX: usize = 65_536;

/// An entry of the queue.
#[derive(Debug)]
pub(crate) enum Queued {
    /// An ended Task, with its permit.
    Ended(EndedTask, QueuePermit),
    /// A handler that a worker has run, with its permit.
    Ran(Box<EndedRun>, QueuePermit),
    /// A question: how often something was lost. It is answered once everything before it in the
    /// queue has been sent.
    Asked(oneshot::Sender<u64>),
}

/// The sending end of the queue. What exceeds its capacity is counted and dropped; nobody waits.
#[derive(Debug)]
pub(crate) struct ExportQueue {
    sender: UnboundedSender<Queued>,
    used: Arc<AtomicUsize>,
    /// How often something exceeded the capacity, or was not accepted.
    lost: Arc<AtomicU64>,
    counts: Option<Arc<Instruments>>,
}

/// A part of the queue's capacity. Dropping this gives it back.
#[derive(Debug)]
pub(crate) struct QueuePermit {
    used: Arc<AtomicUsize>,
    size: usize,
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.used.fetch_sub(self.size, Ordering::AcqRel);
    }
}

impl ExportQueue {
    pub(crate) fn new(counts: Option<Arc<Instruments>>) -> (Self, UnboundedReceiver<Queued>) {
        let (sender, receiver) = unbounded_channel();
        (Self { sender, used: Arc::default(), lost: Arc::default(), counts }, receiver)
    }

    /// Capacity for a Task with so many Attempts. A Task that is larger than the whole queue gets
    /// it if the queue is empty.
    pub(crate) fn capacity_for(&self, attempts: usize) -> Option<QueuePermit> {
        let size = attempts + 1;
        let take = |used: usize| {
            (used == 0 || used.saturating_add(size) <= WAITING_MAX).then(|| used + size)
        };
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        if taken.is_ok() {
            return Some(QueuePermit { used: Arc::clone(&self.used), size });
        }
        self.lost.fetch_add(1, Ordering::AcqRel);
        if let Some(counts) = &self.counts {
            counts.note_dropped(Signal::Traces, spans_of(attempts));
        }
        None
    }

    pub(crate) fn put(&self, task: EndedTask, capacity: QueuePermit) {
        let _ = self.sender.send(Queued::Ended(task, capacity)); // Telemetry may have ended.
    }

    pub(crate) fn put_run(&self, run: EndedRun, capacity: QueuePermit) {
        let _ = self.sender.send(Queued::Ran(Box::new(run), capacity)); // As above.
    }

    /// Answers, once everything that is in the queue now has been sent, how often something was
    /// lost.
    pub(crate) fn taken(&self) -> oneshot::Receiver<u64> {
        let (reply, answer) = oneshot::channel();
        let _ = self.sender.send(Queued::Asked(reply)); // As above.
        answer
    }

    /// The count of losses, to which the loop that sends adds its own.
    pub(crate) fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }
}

/// How many spans a Task with so many Attempts has, if no worker reported a start.
fn spans_of(attempts: usize) -> u64 {
    1 + 3 * attempts as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_has_a_bound_and_its_room_comes_back() {
        let (queue, _receiver) = ExportQueue::new(None);
        let whole = queue.capacity_for(WAITING_MAX * 2).expect("alone, any task fits");
        assert!(queue.capacity_for(0).is_none());
        drop(whole);
        let most = queue.capacity_for(WAITING_MAX - 2).unwrap();
        let last = queue.capacity_for(0).unwrap();
        assert!(queue.capacity_for(0).is_none());
        drop((most, last));
        assert!(queue.capacity_for(9).is_some());
    }
}
