//! How often a feed sends: at once while it is quiet, and seldom when it has many readers and much to say.
//!
//! Each batch costs a write for each reader. A feed that has sent a batch gathers what comes next for a
//! time that grows with the number of its readers, so all its writes take a bounded share of a core.

use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::time::{Instant, sleep_until};

/// The time between two batches, for each reader. A write takes some 10 µs: this makes a tenth of a core.
const PAUSE_OF_ONE: Duration = Duration::from_micros(100);

/// The longest time between two batches.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A pause that is shorter is none: timers have milliseconds.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// How many items a batch has at most.
const ITEMS_MAX: usize = 256;

/// When a feed may send again.
#[derive(Debug)]
pub(super) struct Tempo(Instant);

impl Tempo {
    /// Now.
    pub(super) fn new() -> Self {
        Self(Instant::now())
    }

    /// Notes that a batch goes to so many readers.
    pub(super) fn sent_to(&mut self, readers: usize) {
        let readers = u32::try_from(readers).unwrap_or(u32::MAX);
        let pause = PAUSE_OF_ONE.saturating_mul(readers).min(PAUSE_MAX);
        self.0 = Instant::now() + if pause < PAUSE_MIN { Duration::ZERO } else { pause };
    }

    /// The items of the next batch: the next item, and those that come until the feed may send. An urgent
    /// item does not wait. None if there are no more.
    pub(super) async fn gather<S: Stream + Unpin>(
        &self,
        from: &mut S,
        mut is_urgent: impl FnMut(&S::Item) -> bool,
    ) -> Option<Vec<S::Item>> {
        let mut item = from.next().await?;
        let (mut items, mut due) = (Vec::new(), pin!(sleep_until(self.0)));
        loop {
            let goes_out = is_urgent(&item);
            items.push(item);
            if goes_out || items.len() == ITEMS_MAX {
                return Some(items);
            }
            item = tokio::select! {
                biased;
                Some(next) = from.next() => next,
                () = &mut due => return Some(items),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc;
    use futures::stream;

    use super::*;

    fn never(_: &u32) -> bool {
        false
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_goes_out_together_and_at_once() {
        let (to, mut items) = mpsc::unbounded();
        (1..=3).for_each(|item| to.unbounded_send(item).unwrap());
        let (tempo, begun) = (Tempo::new(), Instant::now());
        assert_eq!(tempo.gather(&mut items, never).await, Some(vec![1, 2, 3]));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        drop(to);
        assert_eq!(tempo.gather(&mut items, never).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_with_many_readers_gathers_longer() {
        for (readers, pause_ms, count) in [(9, 0, 1), (5_000, 500, 2), (usize::MAX, 1_000, 2)] {
            let (to, mut items) = mpsc::unbounded();
            let (mut tempo, begun) = (Tempo::new(), Instant::now());
            tempo.sent_to(readers);
            to.unbounded_send(1).unwrap();
            let later = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let _ = to.unbounded_send(2);
                std::future::pending::<()>().await;
            });
            let batch = tempo.gather(&mut items, never).await.unwrap();
            assert_eq!(batch.len(), count, "{readers}");
            let (pause, took) = (Duration::from_millis(pause_ms), begun.elapsed());
            assert!(took >= pause && took < pause + Duration::from_millis(5), "{took:?}");
            later.abort();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_urgent_item_does_not_wait() {
        let (to, mut items) = mpsc::unbounded();
        let (mut tempo, begun) = (Tempo::new(), Instant::now());
        tempo.sent_to(5_000);
        (1..=3).for_each(|item| to.unbounded_send(item).unwrap());
        assert_eq!(tempo.gather(&mut items, |item| *item == 2).await, Some(vec![1, 2]));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_batch_is_bounded() {
        let mut items = stream::iter(0..1_000_u32).fuse();
        let batch = Tempo::new().gather(&mut items, never).await.unwrap();
        assert_eq!(batch.len(), ITEMS_MAX);
    }
}
