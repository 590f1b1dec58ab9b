//! The workers of a pool and the capacity of each. Dispatching a Step costs the same however many
//! workers there are: the pool does not look at workers without capacity.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use tenure_core::id::{AgentId, SessionId};
use tenure_core::sessions::{SESSION_PATTERNS_MAX, SessionPattern, WorkerSessions};
use tenure_ports::bus::Credit;
use tenure_ports::map::IdMap;

use super::Worker;
use super::groups::{GroupSet, Groups, NoGroup};
use super::sample::SeenLink;
use super::turns::Supply;

/// How many workers with capacity the pool checks for one that has no lost Step in hand.
pub(super) const LOOKED_AT: usize = 64;

/// How many of the workers that last came to have capacity are remembered.
const ARRIVED_MAX: usize = 128;

/// A link of a worker: the same worker may join again before its older link has gone.
pub(super) type Seat = usize;

fn seat(worker: &Worker) -> Seat {
    // Unique while the worker is a member, as the member holds an `Arc` of it.
    std::ptr::from_ref(worker).addr()
}

/// How much the pool gives a worker, whatever capacity the worker has (DISP-19).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowance {
    /// What it has capacity for.
    All,
    /// Nothing: the worker is suspended.
    Nothing,
    /// One Step, as a trial.
    One,
    /// Nothing until the trial Step has ended.
    Tried,
}

impl Allowance {
    /// The allowance after the trial has ended without saying anything: another trial.
    fn again(self) -> Self {
        if self == Self::Tried { Self::One } else { self }
    }
}

#[derive(Debug)]
struct Member {
    worker: Arc<Worker>,
    credit: Credit,
    sent: u64,
    given: Allowance,
    /// The group of workers that serve the same sessions.
    group: usize,
    /// Whether it is in the line of its group.
    is_queued: bool,
}

impl Member {
    fn left(&self) -> u64 {
        let room = self.credit.free.saturating_add(self.credit.seen).saturating_sub(self.sent);
        match self.given {
            Allowance::All => room,
            Allowance::One => room.min(1),
            Allowance::Nothing | Allowance::Tried => 0,
        }
    }

    fn take(&mut self, credits: u64) {
        self.sent += credits;
        if credits > 0 && self.given == Allowance::One {
            self.given = Allowance::Tried;
        }
    }
}

/// All workers of a pool.
#[derive(Debug, Default)]
pub(super) struct Members {
    all: IdMap<Seat, Member>,
    /// The same by the sessions that they serve.
    groups: Groups,
    /// The capacity of all members.
    free: u128,
    /// Workers with a smaller allowance than [`Allowance::All`].
    bounded: IdMap<AgentId, Allowance>,
    /// How often a worker without capacity came to have some, and which ones did last.
    arrivals: u64,
    arrived: VecDeque<Seat>,
}

impl Members {
    /// Whether some worker serves or served just these sessions, and its group is still there.
    pub(super) fn has_group(&self, sessions: &WorkerSessions) -> bool {
        self.groups.has(sessions)
    }

    /// How many sessions a new list of them is matched with.
    pub(super) fn known_sessions(&self) -> usize {
        self.groups.known_sessions()
    }

    /// Adds a link. Answers whether no worker served just its sessions before.
    pub(super) fn join(&mut self, worker: Arc<Worker>) -> Result<bool, NoGroup> {
        let (group, is_new) = self.groups.join(&worker.sessions, &worker.id)?;
        let credit = Credit { free: 0, seen: 0, lost: 0, number: 0 };
        let given = self.bounded.get(&worker.id).copied().unwrap_or(Allowance::All);
        let member = Member { credit, sent: 0, given, group, is_queued: false, worker };
        self.all.insert(seat(&member.worker), member);
        Ok(is_new)
    }

    /// The groups that serve a session.
    pub(super) fn serving(&self, session: &SessionId) -> GroupSet {
        self.groups.serving(session)
    }

    /// The groups whose workers have capacity.
    pub(super) const fn open(&self) -> GroupSet {
        self.groups.open()
    }

    /// The groups that have workers.
    pub(super) const fn manned(&self) -> GroupSet {
        self.groups.manned()
    }

    /// The sessions that the workers serve; none if one of them serves all. At most so many as one worker
    /// may name.
    pub(super) fn sessions(&self) -> Option<Vec<SessionPattern>> {
        let mut all = BTreeSet::new();
        for served in self.groups.served() {
            all.extend(served.patterns()?.iter().cloned());
        }
        (!all.is_empty()).then(|| all.into_iter().take(SESSION_PATTERNS_MAX).collect())
    }

    pub(super) fn leave(&mut self, worker: &Worker) {
        let Some(gone) = self.all.remove(&seat(worker)) else { return };
        self.free -= u128::from(gone.left());
        self.groups.note_free(gone.group, gone.left(), 0);
        self.groups.leave(gone.group, &worker.id);
        if gone.is_queued {
            let (group, gone) = (gone.group, seat(worker));
            self.groups.get_mut(group).available.retain(|seat| *seat != gone);
        }
    }

    fn change(&mut self, worker: &Worker, change: impl FnOnce(&mut Member)) {
        let seat = seat(worker);
        let Some(member) = self.all.get_mut(&seat) else { return };
        let before = member.left();
        change(member);
        let left = member.left();
        self.free = self.free - u128::from(before) + u128::from(left);
        self.groups.note_free(member.group, before, left);
        if before == 0 && left > 0 {
            self.arrivals += 1;
            self.arrived.truncate(ARRIVED_MAX - 1);
            self.arrived.push_front(seat);
        }
        if left > 0 && !std::mem::replace(&mut member.is_queued, true) {
            // A worker that has just sent its capacity is there; one that sent it long ago may not
            // be.
            self.groups.get_mut(member.group).available.push_front(seat);
        }
    }

    /// Notes the capacity that a worker states. A statement older than the last is ignored. A worker cannot have seen
    /// more than it was sent: by saying so it would get more Steps than it has free slots.
    pub(super) fn note(&mut self, worker: &Worker, credit: Credit) {
        self.change(worker, |member| {
            if credit.number > member.credit.number {
                member.worker.hand.note_lost(credit.lost);
                member.credit = Credit { seen: credit.seen.min(member.sent), ..credit };
            }
        });
    }

    /// Charges a worker for a Step that it may not have asked for.
    pub(super) fn charge(&mut self, worker: &Worker) {
        self.change(worker, |member| member.sent = member.sent.saturating_add(1));
    }

    /// Takes back credits that were taken and not spent.
    pub(super) fn give_back(&mut self, worker: &Worker, credits: u64) {
        self.change(worker, |member| member.sent = member.sent.saturating_sub(credits));
        self.try_again(&worker.id);
    }

    /// Sets the allowance of a worker, on all links that it has and will have.
    pub(super) fn give(&mut self, id: &AgentId, given: Allowance) {
        match given {
            Allowance::All => self.bounded.remove(id),
            given => self.bounded.insert(id.clone(), given),
        };
        self.set_given(id, |_| given);
    }

    /// The trial Step of a suspended worker said nothing: the worker gets another.
    pub(super) fn try_again(&mut self, id: &AgentId) {
        if let Some(given) = self.bounded.get_mut(id) {
            *given = given.again();
            self.set_given(id, Allowance::again);
        }
    }

    fn set_given(&mut self, id: &AgentId, new: impl Fn(Allowance) -> Allowance) {
        for worker in self.links_of(id) {
            self.change(&worker, |member| member.given = new(member.given));
        }
    }

    /// Whether a worker is a member and gets all that it has capacity for.
    pub(super) fn is_trusted(&self, id: &AgentId) -> bool {
        self.trusted().any(|worker| worker.id == *id)
    }

    /// The links of workers that get all that they have capacity for.
    pub(super) fn trusted(&self) -> impl Iterator<Item = &Worker> + Clone {
        let trusted = self.all.values().filter(|member| member.given == Allowance::All);
        trusted.map(|member| &*member.worker)
    }

    /// The links of workers that do not.
    pub(super) fn suspended(&self) -> impl Iterator<Item = &Worker> {
        let suspended = self.all.values().filter(|member| member.given != Allowance::All);
        suspended.map(|member| &*member.worker)
    }

    /// Whether any worker's allowance is limited, whether it is a member now or not.
    pub(super) fn bounds_some(&self) -> bool {
        !self.bounded.is_empty()
    }

    /// The pause of a suspended worker is over: it gets one Step as a trial, unless it has one.
    /// Answers whether the worker is a member.
    pub(super) fn try_one(&mut self, id: &AgentId) -> bool {
        let links = self.links_of(id);
        let is_idle = links.iter().all(|link| link.hand.is_idle());
        if let Some(given) = self.bounded.get_mut(id)
            && (*given == Allowance::Nothing || is_idle)
        {
            *given = Allowance::One;
            self.set_given(id, |_| Allowance::One);
        }
        !links.is_empty()
    }

    pub(super) fn links_of(&self, id: &AgentId) -> Vec<Arc<Worker>> {
        let all = self.all.values().map(|member| &member.worker);
        all.filter(|worker| worker.id == *id).map(Arc::clone).collect()
    }

    /// Whether a link is a member.
    pub(super) fn has(&self, worker: &Worker) -> bool {
        self.all.contains_key(&seat(worker))
    }

    /// How many Steps a worker would take now.
    pub(super) fn left(&self, worker: &Worker) -> u64 {
        self.all.get(&seat(worker)).map_or(0, Member::left)
    }

    /// How many credits of a worker were spent or are lent, and how many it has said to have seen.
    pub(super) fn sent_and_seen(&self, worker: &Worker) -> (u64, u64) {
        let member = self.all.get(&seat(worker));
        member.map_or((0, 0), |member| (member.sent, member.credit.seen))
    }

    /// How many workers there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// The credits of all members.
    pub(super) fn free(&self) -> usize {
        usize::try_from(self.free).unwrap_or(usize::MAX)
    }

    /// The credits of these groups.
    pub(super) fn free_in(&self, groups: GroupSet) -> usize {
        usize::try_from(self.groups.free_in(groups)).unwrap_or(usize::MAX)
    }

    /// Takes a credit of the worker of these groups with the least key; among equal ones, of the first in
    /// turn. Workers without a key do not suit. Checks at most `looked_at` of the workers with capacity.
    pub(super) fn take_best<K: Ord>(
        &mut self,
        looked_at: usize,
        groups: GroupSet,
        key: impl Fn(&Worker) -> Option<K>,
    ) -> Option<Arc<Worker>> {
        let has_capacity = |seat: &Seat| self.all.get(seat).filter(|member| member.left() > 0);
        let seats = self.groups.of(groups.both(self.groups.open())).flat_map(|group| {
            self.groups.get(group).available.iter().enumerate().map(move |at| (group, at))
        });
        let keys = seats.take(looked_at).filter_map(|(group, (at, seat))| {
            Some(((group, at), key(&has_capacity(seat)?.worker)?))
        });
        let ((group, at), _) = keys.min_by(|(_, a), (_, b)| a.cmp(b))?;
        let seat = self.groups.get_mut(group).available.remove(at)?;
        let worker = Arc::clone(&self.all.get(&seat)?.worker);
        self.take_from(seat, 1);
        Some(worker)
    }

    /// All links as they are now.
    pub(super) fn seen_links(&self) -> Vec<SeenLink> {
        let seen = |member: &Member| SeenLink {
            worker: Arc::clone(&member.worker),
            group: member.group,
            left: member.left(),
        };
        self.all.values().map(seen).collect()
    }

    /// Whether a worker of these groups has capacity and is none of these (sorted). If at so many arrivals
    /// none had, it checks only who arrived later; 0: all.
    fn has_fit(&self, unfit: &[AgentId], groups: GroupSet, none_at: u64) -> bool {
        let fits = |seat: &Seat| {
            let member = self.all.get(seat).filter(|member| groups.has(member.group));
            member.is_some_and(|it| it.left() > 0 && unfit.binary_search(&it.worker.id).is_err())
        };
        let later = usize::try_from(self.arrivals - none_at).unwrap_or(usize::MAX);
        if none_at > 0 && later <= self.arrived.len() {
            return self.arrived.iter().take(later).any(fits);
        }
        let open = self.groups.of(groups.both(self.open()));
        open.into_iter().any(|group| self.groups.get(group).available.iter().any(fits))
    }

    /// Takes up to `wanted` credits of these groups, of one worker after another. Of workers that have a
    /// lost Step in hand it takes only what the others have no capacity for (LEASE-19). Of workers that do
    /// not fit (sorted) it takes none.
    pub(super) fn take(
        &mut self,
        wanted: usize,
        unfit: &[AgentId],
        groups: GroupSet,
    ) -> (usize, Vec<(Arc<Worker>, u64)>) {
        let mut out = Vec::new();
        let fits = |worker: &Worker| unfit.binary_search(&worker.id).is_err();
        let better = |worker: &Worker| fits(worker) && is_without_lost(worker);
        let mut left = wanted;
        for group in self.groups.of(groups.both(self.open())) {
            left = self.take_of((left, group), LOOKED_AT, better, &mut out);
        }
        for group in self.groups.of(groups.both(self.open())) {
            left = self.take_of((left, group), usize::MAX, fits, &mut out);
        }
        (wanted - left, out)
    }

    /// Takes credits of suitable workers among the first `looked_at` of a group. Answers how many are
    /// still wanted.
    fn take_of(
        &mut self,
        (wanted, group): (usize, usize),
        looked_at: usize,
        suits: impl Fn(&Worker) -> bool,
        out: &mut Vec<(Arc<Worker>, u64)>,
    ) -> usize {
        let mut left = wanted;
        for _ in 0..self.groups.get(group).available.len().min(looked_at) {
            if left == 0 {
                break;
            }
            let Some(seat) = self.groups.get_mut(group).available.pop_front() else { break };
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

    /// Takes credits of a member that is not queued now. If it has more, it is queued again as the
    /// last.
    fn take_from(&mut self, seat: Seat, credits: u64) {
        let Some(member) = self.all.get_mut(&seat) else { return };
        member.take(credits);
        self.free -= u128::from(credits);
        self.groups.note_free(member.group, credits, 0);
        member.is_queued = member.left() > 0;
        if member.is_queued {
            self.groups.get_mut(member.group).available.push_back(seat);
        }
        if credits > 0 && member.given == Allowance::Tried {
            let id = member.worker.id.clone();
            self.give(&id, Allowance::Tried); // On all its links.
        }
    }
}

impl Supply for Members {
    type Taken = Vec<(Arc<Worker>, u64)>;

    fn open(&self) -> GroupSet {
        self.open()
    }

    fn serving(&self, session: &SessionId) -> GroupSet {
        self.serving(session)
    }

    fn free_in(&self, groups: GroupSet) -> usize {
        self.free_in(groups)
    }

    fn arrivals(&self) -> u64 {
        self.arrivals
    }

    fn has_fit(&self, unfit: &[AgentId], groups: GroupSet, none_at: u64) -> bool {
        self.has_fit(unfit, groups, none_at)
    }

    fn take(&mut self, wanted: usize, unfit: &[AgentId], groups: GroupSet) -> (usize, Self::Taken) {
        self.take(wanted, unfit, groups)
    }
}

/// Whether a worker has no Step in hand that was lost before.
fn is_without_lost(worker: &Worker) -> bool {
    !worker.hand.has_lost()
}

#[cfg(test)]
mod tests;
