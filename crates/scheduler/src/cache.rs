//! Caches what was folded from logs and is not in use just now, so that the next request need not
//! read the log again. The cache is bounded by the bytes of the logs that were folded; the last
//! entry stays whatever its size.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Bytes of logs whose folds are cached; each fold takes a multiple of that in memory.
const BYTES_MAX: u64 = 32 << 20;

/// How long an entry is cached that nobody asks for.
const KEPT: Duration = Duration::from_secs(60);

/// Bytes per event that are assumed for a log whose size is not known.
const EVENT_BYTES: u64 = 64;

/// Folds by the key under which requests ask for them.
#[derive(Debug)]
pub(crate) struct TaskCache<K, V>(Mutex<AgedCache<K, V>>);

#[derive(Debug)]
struct AgedCache<K, V> {
    kept: HashMap<K, CacheEntry<V>>,
    /// Their keys by age, the oldest first.
    by_age: BTreeMap<u64, K>,
    /// How many entries there ever were.
    count: u64,
    bytes: u64,
}

#[derive(Debug)]
struct CacheEntry<V> {
    fold: V,
    bytes: u64,
    since: Instant,
    /// Its number in the order of insertion.
    age: u64,
}

impl<K, V> Default for TaskCache<K, V> {
    fn default() -> Self {
        Self(Mutex::new(AgedCache {
            kept: HashMap::new(),
            by_age: BTreeMap::new(),
            count: 0,
            bytes: 0,
        }))
    }
}

impl<K: Eq + Hash + Clone, V> TaskCache<K, V> {
    /// Takes an entry out; the caller goes on with it.
    pub(crate) fn take(&self, key: &K) -> Option<V> {
        self.0.lock().take(key).map(|kept| kept.fold)
    }

    pub(crate) fn holds(&self, key: &K) -> bool {
        self.0.lock().kept.contains_key(key)
    }

    /// Caches the fold of a log of so many events and bytes. It replaces an entry of the same key.
    pub(crate) fn put(&self, key: K, fold: V, events: u64, bytes: u64) {
        let mut gone = Vec::new(); // Dropped without the lock: they may be large.
        let mut shelf = self.0.lock();
        gone.extend(shelf.take(&key));
        let (bytes, age) = (bytes.max(events * EVENT_BYTES), shelf.count);
        shelf.count += 1;
        shelf.bytes += bytes;
        shelf.by_age.insert(age, key.clone());
        shelf.kept.insert(key, CacheEntry { fold, bytes, since: Instant::now(), age });
        while shelf.bytes > BYTES_MAX && shelf.kept.len() > 1 {
            gone.extend(shelf.take_oldest());
        }
        drop(shelf);
    }

    /// Drops entries that nobody has asked for lately.
    pub(crate) fn sweep(&self) {
        let mut gone = Vec::new(); // As above.
        let mut shelf = self.0.lock();
        while shelf.oldest().is_some_and(|oldest| oldest.since.elapsed() >= KEPT) {
            gone.extend(shelf.take_oldest());
        }
        drop(shelf);
    }
}

impl<K: Eq + Hash, V> AgedCache<K, V> {
    fn take(&mut self, key: &K) -> Option<CacheEntry<V>> {
        let kept = self.kept.remove(key)?;
        self.by_age.remove(&kept.age);
        self.bytes -= kept.bytes;
        Some(kept)
    }

    fn oldest(&self) -> Option<&CacheEntry<V>> {
        self.kept.get(self.by_age.first_key_value()?.1)
    }

    fn take_oldest(&mut self) -> Option<CacheEntry<V>> {
        let (_, key) = self.by_age.pop_first()?;
        self.take(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_newest_folds_are_kept_for_a_while_and_the_last_however_long_it_is() {
        let cache = TaskCache::default();
        for (key, bytes) in [("a", BYTES_MAX / 2), ("b", BYTES_MAX / 2), ("c", BYTES_MAX / 4)] {
            cache.put(key, key, 1, bytes);
        }
        assert_eq!((cache.take(&"a"), cache.take(&"b")), (None, Some("b")));
        assert_eq!(cache.take(&"b"), None, "it was taken");
        cache.put("d", "first", 1, 1);
        cache.put("d", "second", 1, 1);
        assert_eq!((cache.take(&"d"), cache.take(&"d")), (Some("second"), None));
        cache.put("long", "long", BYTES_MAX, 0);
        assert_eq!((cache.take(&"c"), cache.take(&"long")), (None, Some("long")));
        cache.put("e", "e", 1, 1);
        tokio::time::sleep(KEPT / 2).await;
        cache.put("f", "f", 1, 1);
        tokio::time::sleep(KEPT / 2).await;
        cache.sweep();
        assert_eq!((cache.take(&"e"), cache.take(&"f")), (None, Some("f")));
    }
}
