//! [`ReportOrder`]: what is said of a Run goes out in its order, though each report is a request of its own.

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::id::RunId;
use tenure_ports::map::IdMap;
use tokio::sync::oneshot;

/// The last report of each Run that has some under way.
#[derive(Debug, Default)]
pub(super) struct ReportOrder(Mutex<ReportTails>);

#[derive(Debug, Default)]
struct ReportTails {
    /// How many reports there were so far.
    count: u64,
    of: IdMap<RunId, ReportTail>,
}

#[derive(Debug)]
struct ReportTail {
    number: u64,
    /// Is closed when that report has had its try.
    over: oneshot::Receiver<()>,
}

impl ReportOrder {
    /// A place behind all reports of the Run so far. The next report waits until this is dropped.
    pub(super) fn enter(self: &Arc<Self>, run: RunId) -> ReportTurn {
        let (ends, over) = oneshot::channel();
        let mut tails = self.0.lock();
        tails.count += 1;
        let number = tails.count;
        let before = tails.of.insert(run, ReportTail { number, over }).map(|tail| tail.over);
        ReportTurn { order: Arc::clone(self), run, number, before, _ends: ends }
    }
}

/// The place of a report behind those before it.
#[derive(Debug)]
pub(super) struct ReportTurn {
    order: Arc<ReportOrder>,
    run: RunId,
    number: u64,
    before: Option<oneshot::Receiver<()>>,
    _ends: oneshot::Sender<()>,
}

impl ReportTurn {
    /// Waits until the report before this one has had its try.
    pub(super) async fn comes(&mut self) {
        if let Some(before) = self.before.take() {
            let _ = before.await; // Nothing is ever sent: the sender is dropped.
        }
    }
}

impl Drop for ReportTurn {
    fn drop(&mut self) {
        let mut tails = self.order.0.lock();
        if tails.of.get(&self.run).is_some_and(|tail| tail.number == self.number) {
            tails.of.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use uuid::Uuid;

    use super::*;

    /// A report waits for those of its own Run alone, and nothing is kept of a Run of which all is said.
    #[test]
    fn reports_of_a_run_go_one_after_another() {
        let order = Arc::new(ReportOrder::default());
        let (run, other) = (RunId(Uuid::from_u128(1)), RunId(Uuid::from_u128(2)));
        let mut first = order.enter(run);
        let (mut second, mut third) = (order.enter(run), order.enter(run));
        let mut of_other = order.enter(other);
        assert!(first.comes().now_or_never().is_some());
        assert!(of_other.comes().now_or_never().is_some());
        let mut waits = Box::pin(second.comes());
        assert!(waits.as_mut().now_or_never().is_none());
        drop(first);
        assert!(waits.as_mut().now_or_never().is_some());
        drop(waits);
        drop(second);
        assert!(third.comes().now_or_never().is_some());
        drop((third, of_other));
        assert!(order.0.lock().of.is_empty());
    }
}
