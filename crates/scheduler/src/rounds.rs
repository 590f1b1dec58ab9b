//! When everything that the log has taken was told (RECOVER-08).

use parking_lot::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Appends under way, from before they are sent to the log until others were told of what they wrote.
#[derive(Debug)]
pub(crate) struct Rounds(Mutex<(Sender<()>, Receiver<()>)>);

/// An append is under way until this is dropped. Nothing is sent with it.
pub(crate) type UnderWay = Sender<()>;

impl Rounds {
    pub(crate) fn begin(&self) -> UnderWay {
        self.0.lock().0.clone()
    }

    /// Waits for the end of all that are under way. One asks at a time.
    pub(crate) async fn end(&self) {
        let (own, mut others) = std::mem::replace(&mut *self.0.lock(), channel(1));
        drop(own);
        while others.recv().await.is_some() {}
    }
}

impl Default for Rounds {
    fn default() -> Self {
        Self(Mutex::new(channel(1)))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// RECOVER-08: what was under way is waited for, what begins later is not.
    #[tokio::test]
    async fn a_round_ends_with_the_last_that_had_begun() {
        let rounds = Rounds::default();
        rounds.end().await;
        let (first, second) = (rounds.begin(), rounds.begin());
        let mut end = Box::pin(rounds.end());
        assert!(end.as_mut().now_or_never().is_none());
        let _later = rounds.begin();
        drop(first);
        assert!(end.as_mut().now_or_never().is_none());
        drop(second);
        end.await;
    }
}
