//! The workers of a pool and the room of each. To give a Step out costs the same however many there are:
//! workers without room are not looked at.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use tenure_core::eligibility::{PoolFacts, Wanted, has_handler};
use tenure_core::id::AgentId;
use tenure_ports::bus::Credit;

use super::Worker;

/// So many workers with room are looked at for one that has no Step in hand that was lost.
const LOOKED_AT: usize = 64;

/// A link of a worker: the same worker may come again before its older link has gone.
type Seat = usize;

fn seat(worker: &Worker) -> Seat {
    std::ptr::from_ref(worker).addr() // Its own for as long as it sits here: it is held.
}

/// How much a worker is given, whatever room it has (DISP-19).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// What it has room for.
    All,
    /// Nothing: it is suspended.
    Nothing,
    /// One Step, to see how that goes.
    One,
    /// Nothing until that one has ended.
    Tried,
}

impl Given {
    /// What comes of it when the Step that a worker was to be tried with was none.
    fn again(self) -> Self {
        if self == Self::Tried { Self::One } else { self }
    }
}

#[derive(Debug)]
struct Member {
    worker: Arc<Worker>,
    credit: Credit,
    sent: u64,
    given: Given,
    /// Whether it is among those with room.
    is_queued: bool,
}

impl Member {
    fn left(&self) -> u64 {
        let room = self.credit.free.saturating_add(self.credit.seen).saturating_sub(self.sent);
        match self.given {
            Given::All => room,
            Given::One => room.min(1),
            Given::Nothing | Given::Tried => 0,
        }
    }

    fn take(&mut self, credits: u64) {
        self.sent += credits;
        if credits > 0 && self.given == Given::One {
            self.given = Given::Tried;
        }
    }
}

/// Which of the workers that suit is taken.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn<'a> {
    /// The one whose turn is next.
    Next,
    /// The first in an order of the caller's own.
    Own(&'a RandomState),
}

/// All workers of a pool.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: HashMap<Seat, Member>,
    /// Those that had room when last looked at, in the order of their turns; who gets some is first.
    with_room: VecDeque<Seat>,
    /// The room of all.
    free: u128,
    /// Workers that are not given all that they have room for.
    bounded: HashMap<AgentId, Given>,
}

impl Members {
    pub(super) fn join(&mut self, worker: Arc<Worker>) {
        let credit = Credit { free: 0, seen: 0, lost: 0, number: 0 };
        let given = self.bounded.get(&worker.id).copied().unwrap_or(Given::All);
        let member = Member { credit, sent: 0, given, is_queued: false, worker };
        self.all.insert(seat(&member.worker), member);
    }

    pub(super) fn leave(&mut self, worker: &Worker) {
        let Some(gone) = self.all.remove(&seat(worker)) else { return };
        self.free -= u128::from(gone.left());
        if gone.is_queued {
            let gone = seat(worker);
            self.with_room.retain(|seat| *seat != gone);
        }
    }

    fn change(&mut self, worker: &Worker, change: impl FnOnce(&mut Member)) {
        let seat = seat(worker);
        let Some(member) = self.all.get_mut(&seat) else { return };
        let before = member.left();
        change(member);
        let left = member.left();
        self.free = self.free - u128::from(before) + u128::from(left);
        if left > 0 && !std::mem::replace(&mut member.is_queued, true) {
            // Who was just heard of is there; who said it long ago may not be.
            self.with_room.push_front(seat);
        }
    }

    /// Notes what a worker says of its room; an older word that comes later says nothing.
    pub(super) fn note(&mut self, worker: &Worker, credit: Credit) {
        self.change(worker, |member| {
            if credit.number > member.credit.number {
                member.worker.hand.note_lost(credit.lost);
                member.credit = credit;
            }
        });
    }

    /// A worker is sent a Step that it may not have asked for.
    pub(super) fn charge(&mut self, worker: &Worker) {
        self.change(worker, |member| member.sent = member.sent.saturating_add(1));
    }

    /// Credits that were taken and are not spent.
    pub(super) fn give_back(&mut self, worker: &Worker, credits: u64) {
        self.change(worker, |member| member.sent = member.sent.saturating_sub(credits));
        self.try_again(&worker.id);
    }

    /// How much a worker is given from now on, on all links that it has and will have.
    pub(super) fn give(&mut self, id: &AgentId, given: Given) {
        match given {
            Given::All => self.bounded.remove(id),
            given => self.bounded.insert(id.clone(), given),
        };
        self.set_given(id, |_| given);
    }

    /// The Step that a suspended worker was tried with says nothing: it is given another.
    pub(super) fn try_again(&mut self, id: &AgentId) {
        if let Some(given) = self.bounded.get_mut(id) {
            *given = given.again();
            self.set_given(id, Given::again);
        }
    }

    fn set_given(&mut self, id: &AgentId, new: impl Fn(Given) -> Given) {
        for worker in self.links_of(id) {
            self.change(&worker, |member| member.given = new(member.given));
        }
    }

    /// Whether a worker is here and is given all that it has room for.
    pub(super) fn is_trusted(&self, id: &AgentId) -> bool {
        self.trusted().any(|worker| worker.id == *id)
    }

    /// Links of those that are.
    pub(super) fn trusted(&self) -> impl Iterator<Item = &Worker> + Clone {
        let trusted = self.all.values().filter(|member| member.given == Given::All);
        trusted.map(|member| &*member.worker)
    }

    /// Links of those that are not.
    pub(super) fn suspended(&self) -> impl Iterator<Item = &Worker> {
        let suspended = self.all.values().filter(|member| member.given != Given::All);
        suspended.map(|member| &*member.worker)
    }

    /// Whether any worker is not given all that it has room for, here or gone.
    pub(super) fn bounds_some(&self) -> bool {
        !self.bounded.is_empty()
    }

    /// The pause of a suspended worker is over: it is given one Step, unless it has one. Answers whether it is
    /// here.
    pub(super) fn try_one(&mut self, id: &AgentId) -> bool {
        let links = self.links_of(id);
        let is_idle = links.iter().all(|link| link.hand.is_idle());
        if let Some(given) = self.bounded.get_mut(id)
            && (*given == Given::Nothing || is_idle)
        {
            *given = Given::One;
            self.set_given(id, |_| Given::One);
        }
        !links.is_empty()
    }

    pub(super) fn links_of(&self, id: &AgentId) -> Vec<Arc<Worker>> {
        let all = self.all.values().map(|member| &member.worker);
        all.filter(|worker| worker.id == *id).map(Arc::clone).collect()
    }

    /// What a worker would take now.
    pub(super) fn left(&self, worker: &Worker) -> u64 {
        self.all.get(&seat(worker)).map_or(0, Member::left)
    }

    /// Credits of a worker that were spent or are lent, and how many it has said to have seen.
    pub(super) fn sent_and_seen(&self, worker: &Worker) -> (u64, u64) {
        let member = self.all.get(&seat(worker));
        member.map_or((0, 0), |member| (member.sent, member.credit.seen))
    }

    /// How many workers there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Credits there are.
    pub(super) fn free(&self) -> usize {
        usize::try_from(self.free).unwrap_or(usize::MAX)
    }

    /// Takes a credit of a worker that suits: of one that has a Step in hand that was lost before only if no
    /// other has room (LEASE-19).
    pub(super) fn take_one(
        &mut self,
        turn: Turn<'_>,
        suits: impl Fn(&Worker) -> bool,
    ) -> Option<Arc<Worker>> {
        let with_room = |seat: &Seat| self.all.get(seat).filter(|member| member.left() > 0);
        let seats = self.with_room.iter().enumerate();
        let mut fits = seats.filter_map(|(at, seat)| Some((at, &*with_room(seat)?.worker)));
        let mut apart =
            fits.clone().take(LOOKED_AT).filter(|(_, it)| is_without_lost(it) && suits(it));
        let apart = match turn {
            Turn::Next => apart.next(),
            Turn::Own(order) => apart.min_by_key(|(_, worker)| order.hash_one(&worker.id)),
        };
        let (at, _) = apart.or_else(|| fits.find(|(_, worker)| suits(worker)))?;
        let seat = self.with_room.remove(at)?;
        let worker = Arc::clone(&self.all.get(&seat)?.worker);
        self.take_from(seat, 1);
        Some(worker)
    }

    /// The workers that may take a Step, by what a claim judges.
    pub(super) fn facts(&self, wanted: Wanted<'_>) -> PoolFacts {
        let mut facts = PoolFacts::default();
        for member in self.all.values().filter(|member| wanted.admits(&member.worker.id)) {
            let handlers = member.worker.handlers.as_deref();
            facts.add(has_handler(handlers, wanted.handler), member.left());
        }
        facts
    }

    /// Takes up to `wanted` credits, of one worker after another: of those that have a Step in hand
    /// that was lost before only what the others have no room for (LEASE-19).
    pub(super) fn take(
        &mut self,
        wanted: usize,
        unfit: &[AgentId],
    ) -> (usize, Vec<(Arc<Worker>, u64)>) {
        let mut out = Vec::new();
        let fits = |worker: &Worker| !unfit.contains(&worker.id);
        let better = |worker: &Worker| fits(worker) && is_without_lost(worker);
        let left = self.take_of(wanted, LOOKED_AT, better, &mut out);
        let left = self.take_of(left, usize::MAX, fits, &mut out);
        (wanted - left, out)
    }

    /// Takes credits of workers that suit, among so many. Answers how many are still wanted.
    fn take_of(
        &mut self,
        wanted: usize,
        looked_at: usize,
        suits: impl Fn(&Worker) -> bool,
        out: &mut Vec<(Arc<Worker>, u64)>,
    ) -> usize {
        let mut left = wanted;
        for _ in 0..self.with_room.len().min(looked_at) {
            if left == 0 {
                break;
            }
            let Some(seat) = self.with_room.pop_front() else { break };
            let Some(member) = self.all.get(&seat) else { continue };
            let credits = match suits(&member.worker) {
                true => member.left().min(left as u64),
                false => 0,
            };
            if credits > 0 {
                left -= usize::try_from(credits).unwrap_or(left);
                out.push((Arc::clone(&member.worker), credits));
            }
            self.take_from(seat, credits);
        }
        left
    }

    /// Takes credits of a member that is not queued now; it is again, as the last, if it has more.
    fn take_from(&mut self, seat: Seat, credits: u64) {
        let Some(member) = self.all.get_mut(&seat) else { return };
        member.take(credits);
        self.free -= u128::from(credits);
        member.is_queued = member.left() > 0;
        if member.is_queued {
            self.with_room.push_back(seat);
        }
        if credits > 0 && member.given == Given::Tried {
            let id = member.worker.id.clone();
            self.give(&id, Given::Tried); // On all its links.
        }
    }
}

/// Whether a worker has no Step in hand that was lost before.
fn is_without_lost(worker: &Worker) -> bool {
    !worker.hand.has_lost()
}

#[cfg(test)]
mod tests {
    use futures::channel::mpsc::unbounded;

    use super::*;

    fn worker(id: &str) -> Arc<Worker> {
        let (inbox, _) = unbounded();
        let (id, pool) = (AgentId::new(id).unwrap(), "p".parse().unwrap());
        Arc::new(Worker { id, pool, handlers: None, inbox, hand: Arc::default() })
    }

    fn says(free: u64, seen: u64, number: u64) -> Credit {
        Credit { free, seen, lost: 0, number }
    }

    fn taken(from: (usize, Vec<(Arc<Worker>, u64)>)) -> Vec<(String, u64)> {
        let taken: Vec<_> =
            from.1.iter().map(|(worker, n)| (worker.id.as_str().to_owned(), *n)).collect();
        assert_eq!(taken.iter().map(|(_, n)| n).sum::<u64>(), from.0 as u64);
        taken
    }

    /// What is free is the sum of what each has left, after any change.
    fn check(members: &Members) {
        let sum: u128 = members.all.values().map(|member| u128::from(member.left())).sum();
        assert_eq!(members.free, sum);
        for (seat, member) in &members.all {
            let places = members.with_room.iter().filter(|place| *place == seat).count();
            assert_eq!(places, usize::from(member.is_queued));
            assert!(member.is_queued || member.left() == 0);
        }
    }

    #[test]
    fn workers_with_room_take_turns() {
        let mut members = Members::default();
        let [a, b, c] = ["a", "b", "c"].map(worker);
        for worker in [&a, &b, &c] {
            members.join(Arc::clone(worker));
        }
        assert!(taken(members.take(5, &[])).is_empty());
        members.note(&a, says(2, 0, 1));
        members.note(&b, says(2, 0, 1));
        check(&members);
        assert_eq!(taken(members.take(1, &[])), [("b".into(), 1)]);
        assert_eq!(taken(members.take(1, &[])), [("a".into(), 1)]);
        assert_eq!(taken(members.take(1, &[])), [("b".into(), 1)]);
        assert_eq!(taken(members.take(9, &[])), [("a".into(), 1)]);
        assert_eq!((members.free(), members.with_room.len()), (0, 0));
        members.give_back(&b, 1);
        check(&members);
        assert_eq!(taken(members.take(9, &[])), [("b".into(), 1)]);
        members.note(&a, says(1, 2, 2));
        members.note(&a, says(9, 0, 1)); // Late.
        check(&members);
        assert_eq!((members.left(&a), members.left(&b), members.left(&c)), (1, 0, 0));
    }

    #[test]
    fn those_that_do_not_fit_keep_their_room() {
        let mut members = Members::default();
        let [a, b] = ["a", "b"].map(worker);
        for worker in [&a, &b] {
            members.join(Arc::clone(worker));
            members.note(worker, says(1, 0, 1));
        }
        assert_eq!(taken(members.take(2, std::slice::from_ref(&a.id))), [("b".into(), 1)]);
        check(&members);
        assert_eq!(taken(members.take(2, &[])), [("a".into(), 1)]);
    }

    /// LEASE-19: of a worker that keeps its place only what others have no room for.
    #[test]
    fn room_beside_a_step_that_was_lost_is_the_last() {
        let mut members = Members::default();
        let [a, b] = ["a", "b"].map(worker);
        for (worker, room) in [(&b, 2), (&a, 3)] {
            members.join(Arc::clone(worker));
            members.note(worker, says(room, 0, 1));
        }
        assert!(a.hand.try_take_apart());
        let one = |members: &mut Members| {
            members.take_one(Turn::Next, |_| true).map(|it| it.id.to_string())
        };
        assert_eq!(one(&mut members), Some("b".into()));
        assert_eq!(taken(members.take(2, &[])), [("b".into(), 1), ("a".into(), 1)]);
        check(&members);
        assert_eq!(one(&mut members), Some("a".into()));
        check(&members);
    }

    /// What was said on a link that has gone is no room on the next, and what comes back late is not
    /// given to it.
    #[test]
    fn another_link_of_a_worker_is_another_member() {
        let mut members = Members::default();
        let (old, new) = (worker("a"), worker("a"));
        members.join(Arc::clone(&old));
        members.note(&old, says(3, 0, 7));
        assert_eq!(taken(members.take(1, &[])), [("a".into(), 1)]);
        members.join(Arc::clone(&new));
        members.note(&new, says(1, 0, 1));
        check(&members);
        assert_eq!((members.left(&old), members.left(&new), members.count()), (2, 1, 2));
        members.leave(&old);
        members.give_back(&old, 1);
        members.charge(&old);
        check(&members);
        assert_eq!((members.free(), members.count()), (1, 1));
        members.charge(&new);
        members.charge(&new);
        check(&members);
        assert_eq!(members.free(), 0);
        members.note(&new, says(2, 2, 2));
        assert_eq!(members.left(&new), 2);
        members.leave(&new);
        check(&members);
        assert_eq!((members.free(), members.with_room.len()), (0, 0));
    }

    /// DISP-19: whatever is done to a worker that is suspended, and on whichever of its links.
    #[test]
    fn a_suspended_worker_is_given_nothing_then_one() {
        let mut members = Members::default();
        let [a, b] = ["a", "b"].map(worker);
        for worker in [&a, &b] {
            members.join(Arc::clone(worker));
            members.note(worker, says(5, 0, 1));
        }
        members.give(&a.id, Given::Nothing);
        check(&members);
        assert_eq!((members.left(&a), members.free()), (0, 5));
        assert!(members.try_one(&a.id));
        check(&members);
        assert_eq!(members.left(&a), 1);
        assert_eq!(
            members.take_one(Turn::Next, |it| it.id == a.id).map(|it| it.id.to_string()),
            Some("a".into())
        );
        check(&members);
        members.note(&a, says(9, 1, 2));
        check(&members);
        assert_eq!(members.left(&a), 0, "it has that one");
        members.give_back(&a, 1);
        check(&members);
        assert_eq!(taken(members.take(9, std::slice::from_ref(&b.id))), [("a".into(), 1)]);
        check(&members);
        let again = worker("a");
        members.leave(&a);
        members.join(Arc::clone(&again));
        members.note(&again, says(3, 0, 1));
        check(&members);
        assert_eq!(members.left(&again), 0, "another link is not another trial");
        members.give_back(&a, 1);
        check(&members);
        assert_eq!(members.left(&again), 1, "what comes back on the older link was no trial");
        let other = worker("a");
        members.join(Arc::clone(&other));
        members.note(&other, says(3, 0, 1));
        assert_eq!(
            taken(members.take(9, std::slice::from_ref(&b.id))).len(),
            1,
            "one on all links"
        );
        check(&members);
        members.leave(&other);
        members.try_again(&a.id);
        check(&members);
        assert_eq!(members.left(&again), 1);
        members.give(&a.id, Given::All);
        check(&members);
        assert_eq!((members.left(&again), members.bounds_some()), (3, false));
        members.leave(&again);
        members.give(&a.id, Given::Nothing);
        assert!(!members.try_one(&a.id), "it has gone");
        check(&members);
    }

    #[test]
    fn more_than_a_count_holds_is_no_overflow() {
        let mut members = Members::default();
        for id in ["a", "b"] {
            let worker = worker(id);
            members.join(Arc::clone(&worker));
            members.note(&worker, says(u64::MAX, u64::MAX, 1));
        }
        check(&members);
        assert_eq!(members.free(), usize::MAX);
        assert_eq!(members.take(usize::MAX, &[]).0, usize::MAX);
        check(&members);
    }
}
