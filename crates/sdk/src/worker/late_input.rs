//! Input that comes to a Task after the claim of an Attempt, for the handler to take (CTRL-12).

use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::id::Ref;
use tenure_wire::bus::worker::LateInput;
use tokio::sync::Notify;

/// The late input of an Attempt in hand.
#[derive(Debug, Clone, Default)]
pub(super) struct LateInputs(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    list: Mutex<InputList>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct InputList {
    /// How many entries of the Task's list the claim had, and the handler has taken since.
    seen: u32,
    /// Whether the handler has taken any.
    has_taken: bool,
    /// What has arrived and was not taken yet.
    waiting: Vec<Ref>,
}

impl LateInputs {
    /// Those of an Attempt whose claim had so many entries.
    pub(super) fn after(claimed: u32) -> Self {
        let list = Mutex::new(InputList { seen: claimed, ..InputList::default() });
        Self(Arc::new(Inner { list, ..Inner::default() }))
    }

    /// Takes in what a node sends. What is here already, or comes after a gap, changes nothing: with the next
    /// heartbeat comes again what the handler has not seen.
    pub(super) fn arrive(&self, LateInput { after, input_refs, .. }: LateInput) {
        {
            let mut list = self.0.list.lock();
            let here = list.seen as usize + list.waiting.len();
            let Some(known) = here.checked_sub(after as usize) else { return };
            list.waiting.extend(input_refs.into_iter().skip(known));
        }
        self.0.arrived.notify_waiters();
    }

    /// What has arrived since the last call: it counts as seen from now on.
    pub(super) fn take(&self) -> Vec<Ref> {
        let mut list = self.0.list.lock();
        let taken = std::mem::take(&mut list.waiting);
        list.seen += u32::try_from(taken.len()).unwrap_or(u32::MAX);
        list.has_taken |= !taken.is_empty();
        taken
    }

    /// As [`take`](Self::take); waits until there is something.
    pub(super) async fn next(&self) -> Vec<Ref> {
        loop {
            let arrived = self.0.arrived.notified();
            let taken = self.take();
            if !taken.is_empty() {
                return taken;
            }
            arrived.await;
        }
    }

    /// How many entries of the Task's list the handler has seen, if more than the claim had.
    pub(super) fn seen(&self) -> Option<u64> {
        let list = self.0.list.lock();
        list.has_taken.then_some(u64::from(list.seen))
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::id::AttemptId;
    use uuid::Uuid;

    use super::*;

    fn input(after: u32, names: &[&str]) -> LateInput {
        let input_refs = names.iter().map(|name| Ref::new(name).unwrap()).collect();
        LateInput { attempt_id: AttemptId(Uuid::nil()), after, input_refs }
    }

    fn taken(inputs: &LateInputs) -> Vec<String> {
        inputs.take().iter().map(|it| it.as_str().to_owned()).collect()
    }

    /// CTRL-12: input that comes twice is taken once, a repeated entry twice, and what was taken counts as seen.
    #[test]
    fn each_entry_is_taken_once() {
        let inputs = LateInputs::after(1);
        assert_eq!((taken(&inputs), inputs.seen()), (vec![], None));
        inputs.arrive(input(1, &["urn:a", "urn:a"]));
        inputs.arrive(input(1, &["urn:a", "urn:a", "urn:b"]));
        assert_eq!(inputs.seen(), None, "the handler has not taken it");
        assert_eq!(
            (taken(&inputs), inputs.seen()),
            (vec!["urn:a".into(), "urn:a".into(), "urn:b".into()], Some(4))
        );
        inputs.arrive(input(3, &["urn:b"]));
        inputs.arrive(input(6, &["urn:d"]));
        assert_eq!((taken(&inputs), inputs.seen()), (vec![], Some(4)), "known, and behind a gap");
    }

    /// CTRL-12: a handler may wait for input.
    #[tokio::test]
    async fn a_handler_waits_for_input() {
        let inputs = LateInputs::after(0);
        let waiting = tokio::spawn({
            let inputs = inputs.clone();
            async move { inputs.next().await.len() }
        });
        tokio::task::yield_now().await;
        inputs.arrive(input(0, &["urn:a"]));
        assert_eq!(waiting.await.unwrap(), 1);
    }
}
