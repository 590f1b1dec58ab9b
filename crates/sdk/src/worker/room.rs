//! How much more a worker would take: what it states as its credit.

use std::time::Duration;

use tenure_ports::bus::Credit;

/// Handlers shorter than this get a prefetch of three times the concurrency: the way to the
/// scheduler and back costs more than they do (mechanisms 8).
const SHORT: Duration = Duration::from_millis(5);

/// Handlers longer than this get none: no long Step waits behind another while a worker idles.
const LONG: Duration = Duration::from_millis(50);

/// What the worker has in hand, and how much more it would take.
#[derive(Debug)]
pub(super) struct Room {
    concurrency: usize,
    seen: u64,
    pub(super) in_hand: usize,
    pub(super) accepting: bool,
    /// Statements of room so far.
    stated: u64,
    /// Moving average of handler times; none before the first.
    handler_time: Option<Duration>,
}

impl Room {
    /// Of a worker that has nothing in hand.
    pub(super) fn of(concurrency: usize) -> Self {
        Self { concurrency, seen: 0, in_hand: 0, accepting: true, stated: 0, handler_time: None }
    }

    pub(super) fn credit(&mut self) -> Credit {
        self.stated += 1;
        let capacity = if self.accepting { self.concurrency + self.prefetch() } else { 0 };
        let free = capacity.saturating_sub(self.in_hand) as u64;
        Credit { free, seen: self.seen, number: self.stated }
    }

    fn prefetch(&self) -> usize {
        match self.handler_time {
            Some(time) if time < SHORT => 3 * self.concurrency,
            Some(time) if time < LONG => self.concurrency / 2,
            _ => 0,
        }
    }

    pub(super) fn take(&mut self) {
        self.seen += 1;
        self.in_hand += 1;
    }

    pub(super) fn free_up(&mut self, took: Option<Duration>) -> Credit {
        self.in_hand -= 1;
        if let Some(took) = took {
            let old = self.handler_time.unwrap_or(took);
            self.handler_time = Some(old.mul_f64(0.9) + took.mul_f64(0.1));
        }
        self.credit()
    }
}
