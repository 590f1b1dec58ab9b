//! [`GatheredPages`]: the pages of many partitions that become one answer. Their bytes are bounded while they come, as
//! those who made the Tasks have chosen how long they are.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use tenure_core::Rejection;
use tenure_wire::bus::{MESSAGE_MAX, encode};

/// How many bytes of pages one answer is made of at most, as they are on the bus.
const GATHERED_MAX: usize = 64 << 20;

/// How many bytes of capacity are taken at a time.
const STEP: usize = 64 << 10;

/// What capacity was taken, until it is dropped.
pub type TakenCapacity = Box<dyn Send>;

/// Takes so many bytes of the capacity that clients share, or says why there is none.
type TakeCapacity = dyn Fn(usize) -> Result<TakenCapacity, Rejection> + Send + Sync;

/// The capacity of a client for the pages of many partitions that it gathers.
#[derive(Clone)]
pub(super) struct GatheringCapacity(Arc<TakeCapacity>);

impl Default for GatheringCapacity {
    /// As much as an answer may need: the client is alone in its process.
    fn default() -> Self {
        Self::new(|_| Ok(Box::new(())))
    }
}

impl fmt::Debug for GatheringCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatheringCapacity").finish_non_exhaustive()
    }
}

impl GatheringCapacity {
    pub(super) fn new(
        take: impl Fn(usize) -> Result<TakenCapacity, Rejection> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(take))
    }
}

/// The pages of one answer, counted.
pub(super) struct GatheredPages {
    capacity: GatheringCapacity,
    too_long: fn() -> Rejection,
    state: Mutex<GatheredBytes>,
}

#[derive(Default)]
struct GatheredBytes {
    bytes: usize,
    capacity: usize,
    taken: Vec<TakenCapacity>,
    refused: Option<Rejection>,
}

impl GatheredPages {
    /// Nothing yet; `too_long` says what to ask for instead of too much.
    pub(super) fn new(capacity: &GatheringCapacity, too_long: fn() -> Rejection) -> Self {
        Self { capacity: capacity.clone(), too_long, state: Mutex::default() }
    }

    /// Counts one more page.
    ///
    /// # Errors
    /// There is no capacity for it, or it makes the answer too long.
    pub(super) fn add(&self, page: &impl Serialize) -> Result<(), Rejection> {
        let bytes = encode(page).map_or(MESSAGE_MAX, |written| written.len());
        let mut state = self.state.lock();
        let added = self.grow(&mut state, bytes);
        state.refused = state.refused.take().or(added.clone().err());
        added
    }

    fn grow(&self, state: &mut GatheredBytes, bytes: usize) -> Result<(), Rejection> {
        state.bytes += bytes;
        if state.bytes > GATHERED_MAX {
            return Err((self.too_long)());
        }
        let lacking = state.bytes.saturating_sub(state.capacity).next_multiple_of(STEP);
        if lacking > 0 {
            state.taken.push((self.capacity.0)(lacking)?);
            state.capacity += lacking;
        }
        Ok(())
    }

    /// Whether all pages are there: a partition that was refused here did not fail to answer.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn check(&self) -> Result<(), Rejection> {
        self.state.lock().refused.take().map_or(Ok(()), Err)
    }
}

/// What to ask for instead of views that are too long.
pub(super) fn too_long_views() -> Rejection {
    let message = "the views of this session are too long for one answer: ask for fewer of them (`views`), or of fewer \
                   tasks (`statuses`), or list the tasks page by page";
    Rejection::invalid("views", message).with("limit", GATHERED_MAX)
}

/// What to ask for instead of a list that is too long.
pub(super) fn too_long_list() -> Rejection {
    let message = "the tasks of this page, and those that are looked through for it, are too long for one answer: ask \
                   for a shorter page (`limit`), or for fewer tasks (`statuses`)";
    Rejection::invalid("limit", message).with("limit", GATHERED_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tenure_core::Code;

    use super::*;

    /// Mechanisms 15: the capacity is taken as pages come, is given back with the answer, and no page comes without.
    #[test]
    fn pages_are_gathered_as_far_as_there_is_capacity() {
        struct Taken(Arc<AtomicUsize>, usize);
        impl Drop for Taken {
            fn drop(&mut self) {
                self.0.fetch_sub(self.1, Ordering::Relaxed);
            }
        }
        let taken = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&taken);
        let capacity = GatheringCapacity::new(move |bytes| {
            if count.load(Ordering::Relaxed) + bytes > 4 * STEP {
                return Err(Rejection::new(Code::Unavailable, "full"));
            }
            count.fetch_add(bytes, Ordering::Relaxed);
            Ok(Box::new(Taken(Arc::clone(&count), bytes)))
        });
        let gathered = GatheredPages::new(&capacity, too_long_views);
        gathered.add(&"short").unwrap();
        gathered.add(&"short").unwrap();
        assert_eq!(taken.load(Ordering::Relaxed), STEP);
        gathered.add(&"x".repeat(3 * STEP)).unwrap();
        assert!(gathered.check().is_ok());
        assert_eq!(gathered.add(&"x".repeat(STEP)).unwrap_err().code, Code::Unavailable);
        assert_eq!(gathered.check().unwrap_err().code, Code::Unavailable);
        drop(gathered);
        assert_eq!(taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_answer_has_a_length_whatever_capacity_there_is() {
        let gathered = GatheredPages::new(&GatheringCapacity::default(), too_long_list);
        let page = "x".repeat(512 << 10);
        let pages = (0..1_000).take_while(|_| gathered.add(&page).is_ok()).count();
        assert_eq!(pages, GATHERED_MAX / page.len() - 1, "each has a few bytes around it");
        assert_eq!(gathered.check().unwrap_err().details["field"], "limit");
    }
}
