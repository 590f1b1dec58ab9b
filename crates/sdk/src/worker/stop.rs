//! How a handler is asked to stop, and until when (CTX-09, POL-12).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// By how much an end must move to be another one: each answer tells the time left anew.
const MOVED: Duration = Duration::from_secs(1);

/// The request that a handler stop.
#[derive(Debug, Clone, Default)]
pub(super) struct StopRequest {
    /// Set when the handler should stop.
    pub(super) cancelled: CancellationToken,
    /// Set when it is ended by force.
    pub(super) forced: CancellationToken,
    until: Arc<Mutex<Option<Instant>>>,
}

impl StopRequest {
    /// Asks the handler to stop within a time, after which it is ended by force. Of several requests the
    /// last one counts that knows the time; `grace` is the time of one that does not.
    pub(super) fn ask(&self, time_left: Option<Duration>, grace: Duration) {
        let at = Instant::now() + time_left.unwrap_or(grace);
        let is_another = |old: Instant| (old.max(at) - old.min(at)) > MOVED;
        {
            let mut until = self.until.lock();
            match *until {
                Some(old) if time_left.is_none() || !is_another(old) => return,
                _ => *until = Some(at),
            }
        }
        self.cancelled.cancel();
        let (until, forced) = (Arc::clone(&self.until), self.forced.clone());
        tokio::spawn(async move {
            tokio::time::sleep_until(at).await;
            if until.lock().is_some_and(|until| until <= Instant::now()) {
                forced.cancel();
            }
        });
    }

    /// How long the handler has left; `None`: nobody asked it to stop.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let until = *self.until.lock();
        until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    /// CTX-09, POL-12: the time that the scheduler tells counts, not the worker's own, and a handler is
    /// told how much of it is left.
    #[tokio::test(start_paused = true)]
    async fn a_handler_has_the_time_that_the_scheduler_tells() {
        let stop = StopRequest::default();
        assert_eq!(stop.time_left(), None);
        stop.ask(Some(Duration::from_secs(20)), GRACE);
        assert!(stop.cancelled.is_cancelled());
        tokio::time::sleep(Duration::from_secs(14)).await;
        assert!(!stop.forced.is_cancelled(), "a handler that takes 14 s saves its checkpoint");
        assert_eq!(stop.time_left(), Some(Duration::from_secs(6)));
        tokio::time::sleep(Duration::from_millis(6_001)).await;
        assert!(stop.forced.is_cancelled());
        assert_eq!(stop.time_left(), Some(Duration::ZERO));
    }

    /// POL-12: the end moves with what the scheduler says, either way; a request that tells no time moves
    /// nothing.
    #[tokio::test(start_paused = true)]
    async fn a_later_word_moves_the_end() {
        let stop = StopRequest::default();
        stop.ask(None, GRACE);
        stop.ask(Some(Duration::from_secs(30)), GRACE);
        stop.ask(None, GRACE);
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(!stop.forced.is_cancelled());
        stop.ask(Some(Duration::from_secs(2)), GRACE);
        tokio::time::sleep(Duration::from_millis(2_001)).await;
        assert!(stop.forced.is_cancelled());
    }
}
