//! [`FoldTurns`]: whose log is folded next.
//!
//! A fold takes a Task's worth of memory and the time of a processor, so there are few at a time. A caller with many
//! requests waits behind itself: of those that may begin next, only a few are of one caller.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use smol_str::SmolStr;
use tenure_core::{Code, Rejection, RejectionKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How many logs are folded at a time.
const FOLDS_MAX: usize = 4;

/// How many of them one caller has.
const OF_ONE_MAX: usize = 2;

/// How long a request waits for its turn.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// How long a caller is told to stay away whose request had no turn.
const COME_BACK_MS: u64 = 2_000;

/// The turns of a gateway.
#[derive(Debug)]
pub(crate) struct FoldTurns {
    all: Arc<Semaphore>,
    of: Mutex<HashMap<SmolStr, Weak<Semaphore>>>,
}

/// The right to fold a log, until it is dropped.
#[derive(Debug)]
pub(crate) struct FoldTurn {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Default for FoldTurns {
    fn default() -> Self {
        Self::of(FOLDS_MAX)
    }
}

impl FoldTurns {
    /// So many turns at a time, of which one caller has two.
    pub(crate) fn of(most: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(most)), of: Mutex::default() }
    }

    /// Waits for the turn of a caller.
    ///
    /// # Errors
    /// `unavailable`: it did not come in time.
    pub(crate) async fn take(&self, principal: &str) -> Result<FoldTurn, Rejection> {
        let own = self.own(principal);
        let taken = async {
            let _own = own.acquire_owned().await.ok()?;
            let _all = Arc::clone(&self.all).acquire_owned().await.ok()?;
            Some(FoldTurn { _all, _own })
        };
        timeout(WAIT_MAX, taken).await.ok().flatten().ok_or_else(|| {
            let message = "too many long tasks are asked for as a whole: read less, or come again";
            let refused = Rejection::new(Code::Unavailable, message);
            refused.of_kind(RejectionKind::Overloaded).with("retry_after_ms", COME_BACK_MS)
        })
    }

    fn own(&self, principal: &str) -> Arc<Semaphore> {
        let mut all = self.of.lock();
        if let Some(own) = all.get(principal).and_then(Weak::upgrade) {
            return own;
        }
        all.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(OF_ONE_MAX));
        all.insert(principal.into(), Arc::downgrade(&own));
        own
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Mechanisms 15: whoever asks for hundreds of long Tasks waits behind itself, and for so long at most.
    #[tokio::test(start_paused = true)]
    async fn callers_take_turns() {
        let turns = FoldTurns::default();
        let mut held: Vec<_> =
            (0..OF_ONE_MAX).map(|_| turns.take("eve").now_or_never().unwrap().unwrap()).collect();
        let mut waits: Vec<_> = (0..300).map(|_| Box::pin(turns.take("eve"))).collect();
        for wait in &mut waits {
            assert!(wait.now_or_never().is_none());
        }
        for bob in ["bob", "ann"] {
            held.push(turns.take(bob).now_or_never().unwrap().unwrap());
        }
        let mut next = Box::pin(turns.take("bob"));
        assert!((&mut next).now_or_never().is_none(), "all turns are taken");
        held.remove(0);
        assert!((&mut waits[0]).now_or_never().is_none(), "it came behind the other");
        assert!(next.now_or_never().is_some());
        drop(held);
        drop(waits);
        assert!(turns.take("joe").await.is_ok());
        assert_eq!(turns.of.lock().len(), 1, "who has gone is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_come_is_refused() {
        let turns = FoldTurns::default();
        let held = [turns.take("eve").await.unwrap(), turns.take("eve").await.unwrap()];
        let refused = turns.take("eve").await.unwrap_err();
        assert_eq!(
            (refused.code, &refused.details["retry_after_ms"]),
            (Code::Unavailable, &2_000.into())
        );
        drop(held);
        turns.take("eve").await.unwrap();
    }
}
