//! Groups of a pool's workers, by the sessions that they serve (DISP-20).
//!
//! Workers that serve the same sessions are one group, and Tasks whose sessions the same groups serve
//! wait in one line. So whether free workers may take what waits is one comparison of two sets of
//! groups for a whole line, however many Tasks are in it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use smol_str::SmolStr;
use tenure_core::eligibility::principal_of;
use tenure_core::id::{AgentId, PoolId, SessionId};
use tenure_core::sessions::WorkerSessions;
use tenure_core::{Code, Rejection};
use tenure_ports::map::IdMap;

use super::members::Seat;
use crate::fair::SHARE;

/// How many different lists of sessions the workers of a pool may have: a set of groups is one word.
pub(super) const GROUPS_MAX: usize = 64;

/// Of so many sessions a pool remembers which groups serve them.
const SESSIONS_MAX: usize = 4_096;

/// How long a worker waits that came with one list of sessions too many.
const FULL_AGAIN_MS: u64 = 2_000;

/// A set of groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct GroupSet(u64);

impl GroupSet {
    /// All groups that there can be.
    #[cfg(test)]
    pub(super) const EVERY: Self = Self(u64::MAX);

    pub(super) fn add(&mut self, group: usize) {
        self.0 |= 1 << group;
    }

    pub(super) fn remove(&mut self, group: usize) {
        self.0 &= !(1 << group);
    }

    pub(super) const fn has(self, group: usize) -> bool {
        self.0 & (1 << group) != 0
    }

    pub(super) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The groups that are in both.
    pub(super) const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The groups that are only in this one.
    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        (0..GROUPS_MAX).filter(move |&group| self.has(group))
    }

    /// Whether some group is in both.
    pub(super) const fn meets(self, other: Self) -> bool {
        !self.both(other).is_empty()
    }
}

/// The workers that serve the same sessions.
#[derive(Debug, Default)]
pub(super) struct WorkerGroup {
    pub(super) sessions: WorkerSessions,
    /// How many links its workers have.
    links: usize,
    /// How many of them each principal has.
    holders: IdMap<SmolStr, usize>,
    /// Of these the one to whom the group counts.
    owner: SmolStr,
    /// Links that had capacity when they were last checked, in the order of their turns. One that
    /// gets capacity comes first.
    pub(super) available: VecDeque<Seat>,
    /// The capacity of all its workers.
    pub(super) free: u128,
}

/// The groups of a pool. A group without workers stays until another needs its number.
#[derive(Debug, Default)]
pub(super) struct Groups {
    all: Vec<WorkerGroup>,
    /// The groups whose workers have capacity.
    open: GroupSet,
    /// The groups that have workers.
    manned: GroupSet,
    /// The groups whose workers serve all sessions: one at most.
    unbounded: GroupSet,
    /// The groups that serve a session, of those for which it was asked. To find that out takes as long as there are
    /// patterns.
    serving: RefCell<IdMap<SessionId, GroupSet>>,
}

/// Why there is no group for one more list of sessions.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoGroup {
    /// There are as many different lists as there may be.
    AllTaken,
    /// The principal has so many of them, its share.
    HasShare(usize),
}

impl WorkerGroup {
    fn join(&mut self, principal: &str) {
        if self.links == 0 {
            self.owner = principal.into();
        }
        self.links += 1;
        match self.holders.get_mut(principal) {
            Some(links) => *links += 1,
            None => drop(self.holders.insert(principal.into(), 1)),
        }
    }

    /// The group counts to another principal whose workers need it once the one to whom it counted has left.
    fn leave(&mut self, principal: &str) {
        self.links -= 1;
        let Some(links) = self.holders.get_mut(principal) else { return };
        *links -= 1;
        if *links == 0 {
            self.holders.remove(principal);
            if self.owner == principal {
                self.owner = self.holders.keys().next().cloned().unwrap_or_default();
            }
        }
    }
}

impl Groups {
    /// The group for a worker that serves these sessions, and whether there was none.
    pub(super) fn join(
        &mut self,
        sessions: &WorkerSessions,
        worker: &AgentId,
    ) -> Result<(usize, bool), NoGroup> {
        let principal = principal_of(worker);
        // A group without workers may be needed by others, as a new one.
        let known = self.all.iter().position(|group| group.sessions == *sessions);
        if known.is_none_or(|known| self.all[known].links == 0) {
            self.check_share(principal)?;
        }
        let (group, is_new) = match known {
            Some(known) => (known, false),
            None => (self.add(sessions)?, true),
        };
        self.all[group].join(principal);
        self.manned.add(group);
        Ok((group, is_new))
    }

    /// A principal gets one more group while it has fewer than [`SHARE`] times as many as are free, so that others find
    /// some.
    fn check_share(&self, principal: &str) -> Result<(), NoGroup> {
        let manned = self.all.iter().filter(|group| group.links > 0);
        let (taken, own) = manned.fold((0, 0), |(taken, own), group| {
            (taken + 1, own + usize::from(group.owner == principal))
        });
        match GROUPS_MAX - taken {
            0 => Err(NoGroup::AllTaken),
            free if own >= SHARE * free => Err(NoGroup::HasShare(own)),
            _ => Ok(()),
        }
    }

    /// Whether workers that serve these sessions have a group.
    pub(super) fn has(&self, sessions: &WorkerSessions) -> bool {
        self.all.iter().any(|group| group.sessions == *sessions)
    }

    fn add(&mut self, sessions: &WorkerSessions) -> Result<usize, NoGroup> {
        let group = WorkerGroup { sessions: sessions.clone(), ..WorkerGroup::default() };
        let at = match self.all.len() < GROUPS_MAX {
            true => self.all.len(),
            false => self.all.iter().position(|group| group.links == 0).ok_or(NoGroup::AllTaken)?,
        };
        self.unbounded.remove(at);
        if sessions.is_all() {
            self.unbounded.add(at);
        }
        for (session, serving) in self.serving.get_mut() {
            match sessions.admits(session) {
                true => serving.add(at),
                false => serving.remove(at),
            }
        }
        match self.all.get_mut(at) {
            Some(unused) => *unused = group,
            None => self.all.push(group),
        }
        Ok(at)
    }

    /// A worker of a group has left.
    pub(super) fn leave(&mut self, group: usize, worker: &AgentId) {
        self.all[group].leave(principal_of(worker));
        if self.all[group].links == 0 {
            self.manned.remove(group);
        }
    }

    /// The groups that serve a session, with workers or without.
    pub(super) fn serving(&self, session: &SessionId) -> GroupSet {
        let mut all = self.serving.borrow_mut();
        if let Some(known) = all.get(session) {
            return *known;
        }
        let serving = self.found_serving(session);
        if all.len() >= SESSIONS_MAX {
            all.clear();
        }
        all.insert(session.clone(), serving);
        serving
    }

    /// How many sessions a new list is matched with.
    pub(super) fn known_sessions(&self) -> usize {
        self.serving.borrow().len()
    }

    fn found_serving(&self, session: &SessionId) -> GroupSet {
        let mut serving = GroupSet::default();
        for (group, it) in self.all.iter().enumerate() {
            if it.sessions.admits(session) {
                serving.add(group);
            }
        }
        serving
    }

    /// The groups whose workers have capacity.
    pub(super) const fn open(&self) -> GroupSet {
        self.open
    }

    /// The groups that have workers.
    pub(super) const fn manned(&self) -> GroupSet {
        self.manned
    }

    pub(super) fn get_mut(&mut self, group: usize) -> &mut WorkerGroup {
        &mut self.all[group]
    }

    pub(super) fn get(&self, group: usize) -> &WorkerGroup {
        &self.all[group]
    }

    /// Notes by how much the capacity of a group has changed.
    pub(super) fn note_free(&mut self, group: usize, before: u64, after: u64) {
        let free = &mut self.all[group].free;
        *free = *free - u128::from(before) + u128::from(after);
        match *free {
            0 => self.open.remove(group),
            _ => self.open.add(group),
        }
    }

    /// The capacity of these groups.
    pub(super) fn free_in(&self, groups: GroupSet) -> u128 {
        let known = groups.both(self.open);
        known.iter().map(|group| self.all[group].free).sum()
    }

    /// Those of these groups that have workers, in the order in which they are given work: workers that
    /// serve all sessions come last, as only they can take what no other may.
    pub(super) fn of(&self, groups: GroupSet) -> impl Iterator<Item = usize> + use<> {
        let there = groups.both(self.manned);
        there.without(self.unbounded).iter().chain(there.both(self.unbounded).iter())
    }

    /// The sessions that each group with workers serves.
    pub(super) fn served(&self) -> impl Iterator<Item = &WorkerSessions> {
        self.all.iter().filter(|group| group.links > 0).map(|group| &group.sessions)
    }
}

/// The refusal of one more list of sessions to a worker.
pub(super) fn too_many_groups(pool: &PoolId, worker: &AgentId, why: &NoGroup) -> Rejection {
    let message = match why {
        NoGroup::AllTaken => format!(
            "the workers of pool {pool} have {GROUPS_MAX} different lists of sessions, and there may be no more: give \
             workers the same list, or other pools"
        ),
        NoGroup::HasShare(own) => format!(
            "the workers of {} have {own} of the {GROUPS_MAX} different lists of sessions that there may be in pool \
             {pool}, and the rest is for others: give workers the same list, or other pools",
            principal_of(worker)
        ),
    };
    refusal(message, FULL_AGAIN_MS)
}

/// The refusal of a new list so soon after another.
pub(super) fn too_many_lists(pool: &PoolId, wait: Duration) -> Rejection {
    let message = format!(
        "workers of pool {pool} come with one new list of sessions after another, and many tasks wait there: come \
         again later, or give workers the same list"
    );
    refusal(message, u64::try_from(wait.as_millis()).unwrap_or(FULL_AGAIN_MS).max(100))
}

fn refusal(message: String, again_ms: u64) -> Rejection {
    let refused = Rejection::new(Code::Unavailable, message);
    refused.with("field", "sessions").with("retry_after_ms", again_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(patterns: &str) -> WorkerSessions {
        WorkerSessions::read(patterns).unwrap()
    }

    fn boot(n: usize) -> AgentId {
        AgentId::new(format!("w{n}.b1")).unwrap()
    }

    fn join(groups: &mut Groups, patterns: &str, worker: usize) -> Result<(usize, bool), NoGroup> {
        groups.join(&some(patterns), &boot(worker))
    }

    /// How many more lists a principal gets.
    fn take_all(groups: &mut Groups, who: &str) -> usize {
        let worker = AgentId::new(who).unwrap();
        let lists = (0..).map(|n| some(&format!("{}-{n}", principal_of(&worker))));
        lists.take_while(|list| groups.has(list) || groups.join(list, &worker).is_ok()).count()
    }

    /// DISP-20: a principal whose workers come with ever new lists does not keep those of others out, and what it
    /// gives back is for all.
    #[test]
    fn no_principal_takes_all_lists() {
        let mut groups = Groups::default();
        let taken = ["eve.b1", "mallory.b1", "bob.b1"].map(|who| take_all(&mut groups, who));
        assert_eq!(taken, [48, 12, 3]);
        let again = groups.join(&some("more"), &AgentId::new("eve.b2").unwrap());
        assert_eq!(again, Err(NoGroup::HasShare(48)), "another boot is the same principal");
        let refused = too_many_groups(&"p".parse().unwrap(), &boot(0), &NoGroup::HasShare(48));
        assert!(refused.code == Code::Unavailable && refused.message.contains("w0 have 48 of"));
        let eve = AgentId::new("eve.b3").unwrap();
        assert_eq!(groups.join(&some("eve-7"), &eve), Ok((7, false)), "a list that there is");
        assert_eq!(groups.join(&some("last"), &boot(0)), Ok((63, true)));
        assert_eq!(join(&mut groups, "more", 1), Err(NoGroup::AllTaken));
        for group in 0..40 {
            groups.leave(group, &AgentId::new("eve.b1").unwrap());
        }
        assert_eq!(take_all(&mut groups, "bob.b1"), 3 + 29);
        let back = groups.join(&some("eve-39"), &eve);
        assert_eq!(back, Ok((39, false)), "its group is there without workers");
    }

    /// A list counts to somebody whose workers have it, as long as they do.
    #[test]
    fn a_list_counts_to_one_who_needs_it() {
        let mut groups = Groups::default();
        for worker in [0, 1, 0] {
            join(&mut groups, "a", worker).unwrap();
        }
        let owner = |groups: &Groups| groups.get(0).owner.to_string();
        assert_eq!(owner(&groups), "w0");
        groups.leave(0, &boot(0));
        assert_eq!(owner(&groups), "w0", "it has another link");
        groups.leave(0, &boot(0));
        assert_eq!(owner(&groups), "w1");
        groups.leave(0, &boot(1));
        assert_eq!((owner(&groups), groups.get(0).holders.len()), (String::new(), 0));
        join(&mut groups, "a", 2).unwrap();
        assert_eq!(owner(&groups), "w2");
    }

    /// DISP-20: a list of sessions is one group, however many workers have it; a group whose workers
    /// have left gives its number to the next.
    #[test]
    fn workers_with_the_same_sessions_are_one_group() {
        let mut groups = Groups::default();
        assert_eq!(join(&mut groups, "a,b", 0), Ok((0, true)));
        assert_eq!(join(&mut groups, "b,a", 0), Ok((0, false)));
        for n in 1..GROUPS_MAX {
            assert_eq!(join(&mut groups, &format!("s{n}"), n), Ok((n, true)));
        }
        assert_eq!(join(&mut groups, "more", 99), Err(NoGroup::AllTaken));
        groups.leave(0, &boot(0));
        let more = join(&mut groups, "more", 99);
        assert_eq!(more, Err(NoGroup::AllTaken), "one of its workers is there");
        groups.leave(0, &boot(0));
        assert_eq!(join(&mut groups, "more", 99), Ok((0, true)));
        let serving = groups.serving(&"more".parse().unwrap());
        assert!(groups.has(&some("more")) && !groups.has(&some("a,b")));
        assert!(serving.has(0) && !groups.serving(&"a".parse().unwrap()).meets(GroupSet::EVERY));
    }

    /// DISP-20: what is remembered of sessions stays true when a group's number goes to other workers, and is bounded.
    #[test]
    fn who_serves_a_session_is_found_out_once() {
        let mut groups = Groups::default();
        let name = |n: usize| format!("s{n}").parse().unwrap();
        for n in 0..GROUPS_MAX {
            join(&mut groups, &format!("s{n},t*"), n).unwrap();
        }
        for n in 0..2 * SESSIONS_MAX {
            assert_eq!(groups.serving(&name(n)), groups.found_serving(&name(n)));
        }
        assert!(groups.serving.borrow().len() <= SESSIONS_MAX);
        let was = groups.serving(&name(7));
        groups.leave(7, &boot(7));
        groups.leave(9, &boot(9));
        join(&mut groups, "s7*", 0).unwrap();
        join(&mut groups, "*", 1).unwrap();
        for session in [name(7), name(9), name(70), "t1".parse().unwrap()] {
            assert_eq!(groups.serving(&session), groups.found_serving(&session), "{session}");
        }
        assert!(was.has(7) && groups.serving(&name(7)).has(7) && groups.serving(&name(7)).has(9));
    }

    #[test]
    fn who_serves_all_sessions_is_given_work_last() {
        let mut groups = Groups::default();
        for sessions in ["*", "a", "b*"] {
            join(&mut groups, sessions, 0).unwrap();
        }
        let order = |session: &str| -> Vec<usize> {
            groups.of(groups.serving(&session.parse().unwrap())).collect()
        };
        assert_eq!(order("a"), [1, 0]);
        assert_eq!(order("bee"), [2, 0]);
        assert_eq!(order("other"), [0]);
    }
}
