//! [`Recent`]: public events that closely follow others of their Task, to be sent together.

use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;
use tenure_wire::bus::event::{EventPage, Published};

/// How many public events are gathered at most; more are sent at once, before they are too long for a
/// message.
const GATHERED_MAX: usize = 500;

/// Tasks of which public events were sent just now, each with the events that closely followed.
#[derive(Debug, Default)]
pub(super) struct Recent(pub(super) IdMap<TaskKey, Option<Published>>);

impl Recent {
    /// What is to be sent now that this has come, in order.
    pub(super) fn take(&mut self, task: &TaskKey, next: Published) -> [Option<Published>; 2] {
        let Some(waiting) = self.0.get_mut(task) else {
            self.0.insert(task.clone(), None);
            return [Some(next), None];
        };
        let before = gather(waiting, next);
        let is_due = |it: &mut Published| {
            it.page.status.is_terminal() || it.page.events.len() >= GATHERED_MAX
        };
        [before, waiting.take_if(is_due)]
    }

    /// What has been gathered. Forgets Tasks that were quiet since.
    pub(super) fn due(&mut self) -> Vec<(TaskKey, Published)> {
        self.0.retain(|_, waiting| waiting.is_some());
        let due = self.0.iter_mut().filter_map(|(task, it)| Some((task.clone(), it.take()?)));
        due.collect()
    }
}

/// Joins commits of a Task that follow each other into one message. If these do not, answers what is to
/// be sent before.
pub(super) fn gather(waiting: &mut Option<Published>, mut next: Published) -> Option<Published> {
    match waiting {
        Some(before) if before.page.through == next.after => {
            before.page.events.append(&mut next.page.events);
            let events = std::mem::take(&mut before.page.events);
            before.page = EventPage { events, ..next.page };
            None
        }
        _ => waiting.replace(next),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
pub(super) mod tests {
    use std::sync::Arc;

    use tenure_core::Commit;
    use tenure_scheduler::Follower;
    use tenure_testkit::conformance::History;

    use super::*;

    /// The versions from which and to which each message goes.
    pub(in crate::events) fn spans(told: impl IntoIterator<Item = Published>) -> Vec<(u64, u64)> {
        told.into_iter().map(|it| (it.after, it.page.through)).collect()
    }

    /// EVENT-04: what closely follows other events is sent together, in order and only once; the end of
    /// a Task, and many events, are sent at once.
    #[test]
    fn what_comes_on_the_heels_is_told_together() {
        let mut history = History::of("s", "t");
        let key = history.key.clone();
        let mut follower = Follower::default();
        let mut next = |commit: Arc<Commit>| follower.publish(&commit).unwrap();
        let mut recent = Recent::default();
        let now = |told: [Option<Published>; 2]| spans(told.into_iter().flatten());
        let later = |recent: &mut Recent| spans(recent.due().into_iter().map(|(_, it)| it));
        let [first, second, third] =
            [history.create(), history.work(1), history.work(2)].map(&mut next);
        let gathered = (second.after, third.page.through);
        assert_eq!(now(recent.take(&key, first.clone())), [(0, first.page.through)]);
        assert!(now(recent.take(&key, second)).is_empty());
        assert!(now(recent.take(&key, third)).is_empty());
        assert_eq!(later(&mut recent), [gathered]);
        assert!(later(&mut recent).is_empty());
        assert!(recent.0.is_empty(), "it was quiet");

        let [fourth, fifth] = [history.work(3), history.work(4)].map(&mut next);
        let lost = (fourth.after, fourth.page.through);
        assert_eq!(now(recent.take(&key, fourth.clone())), [lost]);
        assert!(now(recent.take(&key, fourth)).is_empty());
        let after_a_gap = Published { after: fifth.after + 1, ..fifth.clone() };
        assert_eq!(now(recent.take(&key, after_a_gap)), [lost], "it does not follow: told before");
        let mut much = fifth;
        much.page.events = vec![much.page.events[0].clone(); GATHERED_MAX];
        assert_eq!(now(recent.take(&key, much)).len(), 2);
        let end = next(history.complete());
        let through = end.page.through;
        assert_eq!(now(recent.take(&key, end)).last().unwrap().1, through, "at once");
    }
}
