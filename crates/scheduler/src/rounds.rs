//! Tells when all commits that the log had taken by now have been published (RECOVER-08).

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Appends under way: from before they are sent to the log until what they wrote is published.
#[derive(Debug)]
pub(crate) struct AppendsInFlight {
    newest: Mutex<(Sender<()>, Receiver<()>)>,
    /// Those that a caller waits for. If it gives up, the next caller waits for them first.
    ending: AsyncMutex<Option<Receiver<()>>>,
}

/// An append is under way until this is dropped. Nothing is sent on this channel.
pub(crate) type UnderWay = Sender<()>;

impl AppendsInFlight {
    pub(crate) fn begin(&self) -> UnderWay {
        self.newest.lock().0.clone()
    }

    /// Waits until all appends that are under way now have ended. If this is cancelled, the next
    /// caller waits for them too.
    pub(crate) async fn end(&self) {
        let mut ending = self.ending.lock().await;
        all_ended(&mut ending).await;
        let (_, others) = std::mem::replace(&mut *self.newest.lock(), channel(1));
        *ending = Some(others);
        all_ended(&mut ending).await;
    }
}

async fn all_ended(ending: &mut Option<Receiver<()>>) {
    if let Some(others) = ending {
        while others.recv().await.is_some() {}
        *ending = None;
    }
}

impl Default for AppendsInFlight {
    fn default() -> Self {
        Self { newest: Mutex::new(channel(1)), ending: AsyncMutex::default() }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// RECOVER-08: a round waits for what was under way, and not for what begins later.
    #[tokio::test]
    async fn a_round_ends_with_the_last_that_had_begun() {
        let rounds = AppendsInFlight::default();
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

    /// RECOVER-08: if one caller gives up waiting, the next does not believe that all is published.
    #[tokio::test]
    async fn what_one_gave_up_waiting_for_the_next_waits_for() {
        let rounds = AppendsInFlight::default();
        let first = rounds.begin();
        assert!(rounds.end().now_or_never().is_none());
        let second = rounds.begin();
        assert!(rounds.end().now_or_never().is_none());
        drop(first);
        assert!(rounds.end().now_or_never().is_none());
        drop(second);
        assert!(rounds.end().now_or_never().is_some());
    }
}
