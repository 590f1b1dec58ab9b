//! What was folded from logs and is not in use just now: whoever asks next need not have the log read
//! again. Only so much is kept as came out of a number of bytes of logs, beside the last of all.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes of logs whose folds are kept: each takes some times as many in memory.
const BYTES_MAX: u64 = 32 << 20;

/// How long one is kept that nobody asks for.
const KEPT: Duration = Duration::from_secs(60);

/// Bytes of a log of which none are known, for each event.
const EVENT_BYTES: u64 = 64;

/// Folds by what they are asked for by, the oldest first.
#[derive(Debug)]
pub(crate) struct Folds<K, V>(Mutex<VecDeque<Kept<K, V>>>);

#[derive(Debug)]
struct Kept<K, V> {
    key: K,
    fold: V,
    bytes: u64,
    since: Instant,
}

impl<K, V> Default for Folds<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V> Folds<K, V> {
    /// Takes one out, for whoever goes on with it.
    pub(crate) fn take(&self, key: &K) -> Option<V> {
        let mut all = self.0.lock();
        let at = all.iter().position(|kept| kept.key == *key)?;
        all.remove(at).map(|kept| kept.fold)
    }

    /// Keeps one of a log of so many events and bytes. It takes the place of another of its key.
    pub(crate) fn put(&self, key: K, fold: V, events: u64, bytes: u64) {
        let mut gone = Vec::new(); // Dropped without the lock: they may be large.
        let mut all = self.0.lock();
        if let Some(at) = all.iter().position(|kept| kept.key == key) {
            gone.extend(all.remove(at));
        }
        let bytes = bytes.max(events * EVENT_BYTES);
        all.push_back(Kept { key, fold, bytes, since: Instant::now() });
        let mut sum: u64 = all.iter().map(|kept| kept.bytes).sum();
        while sum > BYTES_MAX && all.len() > 1 {
            sum -= all.front().map_or(0, |oldest| oldest.bytes);
            gone.extend(all.pop_front());
        }
        drop(all);
    }

    /// Lets those go that nobody has asked for lately.
    pub(crate) fn sweep(&self) {
        let is_old = |kept: &Kept<K, V>| kept.since.elapsed() >= KEPT;
        let mut gone = Vec::new(); // As above.
        let mut all = self.0.lock();
        while all.front().is_some_and(is_old) {
            gone.extend(all.pop_front());
        }
        drop(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_newest_folds_are_kept_for_a_while_and_the_last_however_long_it_is() {
        let folds = Folds::default();
        for (key, bytes) in [("a", BYTES_MAX / 2), ("b", BYTES_MAX / 2), ("c", BYTES_MAX / 4)] {
            folds.put(key, key, 1, bytes);
        }
        assert_eq!((folds.take(&"a"), folds.take(&"b")), (None, Some("b")));
        assert_eq!(folds.take(&"b"), None, "it was taken");
        folds.put("d", "first", 1, 1);
        folds.put("d", "second", 1, 1);
        assert_eq!((folds.take(&"d"), folds.take(&"d")), (Some("second"), None));
        folds.put("long", "long", BYTES_MAX, 0);
        assert_eq!((folds.take(&"c"), folds.take(&"long")), (None, Some("long")));
        folds.put("e", "e", 1, 1);
        tokio::time::sleep(KEPT / 2).await;
        folds.put("f", "f", 1, 1);
        tokio::time::sleep(KEPT / 2).await;
        folds.sweep();
        assert_eq!((folds.take(&"e"), folds.take(&"f")), (None, Some("f")));
    }
}
