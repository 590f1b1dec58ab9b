//! Tests of [`super`].

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::unbounded;
use tenure_core::Code;
use tenure_core::sessions::WorkerSessions;
use tenure_ports::bus::Credit;

use super::super::groups::Groups;
use super::super::members::Members;
use super::super::{CreditPermit, Msg, Pool, PoolActor, PoolState, Worker};
use super::regroup::{REGROUPED_AT_ANY_TIME, REGROUPED_EACH};
use super::*;

#[path = "overflow/tests.rs"]
mod overflow;
#[path = "priorities/tests.rs"]
mod priorities;
#[path = "unfit/tests.rs"]
mod unfit;

/// Groups of workers, with so many free credits each. The worker of the group with number 3 is `w3`.
#[derive(Default)]
struct Workers {
    groups: Groups,
    free: Vec<usize>,
    /// How often workers came to have credits. Whoever has Tasks in overflow lines counts it up.
    arrivals: u64,
    /// How often somebody asked for credits.
    asked: usize,
    /// How often somebody looked for a worker that fits.
    looks: Cell<usize>,
}

impl Workers {
    fn of(groups: &[(&str, usize)]) -> Self {
        let mut workers = Self::default();
        groups.iter().for_each(|(sessions, free)| workers.join(sessions, *free));
        workers
    }

    fn join(&mut self, sessions: &str, free: usize) {
        let sessions = WorkerSessions::read(sessions).unwrap();
        let (group, _) = self.groups.join(&sessions, &id(self.free.len())).unwrap();
        assert_eq!(group, self.free.len());
        self.free.push(free);
    }
}

impl Supply for Workers {
    type Taken = usize;

    fn open(&self) -> GroupSet {
        let mut open = GroupSet::default();
        let free = self.free.iter().enumerate().filter(|(_, free)| **free > 0);
        free.for_each(|(group, _)| open.add(group));
        open
    }

    fn serving(&self, session: &SessionId) -> GroupSet {
        self.groups.serving(session)
    }

    fn free_in(&self, groups: GroupSet) -> usize {
        self.groups.of(groups).map(|group| self.free[group]).sum()
    }

    fn arrivals(&self) -> u64 {
        self.arrivals
    }

    fn has_fit(&self, unfit: &[AgentId], groups: GroupSet, _: u64) -> bool {
        assert!(unfit.is_sorted());
        self.looks.set(self.looks.get() + 1);
        let mut free = self.groups.of(groups).filter(|group| self.free[*group] > 0);
        free.any(|group| !unfit.contains(&id(group)))
    }

    fn take(&mut self, wanted: usize, unfit: &[AgentId], groups: GroupSet) -> (usize, usize) {
        self.asked += 1;
        let mut left = wanted;
        for group in self.groups.of(groups).filter(|group| !unfit.contains(&id(*group))) {
            let given = self.free[group].min(left);
            self.free[group] -= given;
            left -= given;
        }
        (wanted - left, wanted - left)
    }
}

fn id(group: usize) -> AgentId {
    AgentId::new(format!("w{group}")).unwrap()
}

/// So many workers that all serve the session `s`, each alone in its group.
fn workers_of_s(n: usize) -> Workers {
    let mut workers = Workers::default();
    (0..n).for_each(|group| workers.join(&format!("s,only-{group}"), 0));
    workers
}

fn key(session: &str, task: usize) -> TaskKey {
    let task_id = format!("t{task}").parse().unwrap();
    TaskKey { session_id: session.parse().unwrap(), task_id }
}

fn ready(ready: usize) -> Left {
    Left { ready, ..Left::nothing(&Address::nowhere()) }
}

/// Who is served, in turn, until nobody is.
fn served(turns: &mut Turns, workers: &mut Workers) -> Vec<String> {
    let mut all = Vec::new();
    while let Some((key, _, given)) = turns.serve(workers) {
        all.push(format!("{}/{} {given}", key.session_id, key.task_id));
    }
    all
}

/// DISP-20: Tasks of a session that no free worker serves hold up nobody, and are not looked at, however many they
/// are; they keep their places.
#[tokio::test(start_paused = true)]
async fn what_no_worker_serves_blocks_nobody() {
    let (mut turns, mut workers) = (Turns::new(), Workers::of(&[("main", 0), ("ci-*", 2)]));
    for task in 0..10_000 {
        turns.put(key("other", task), ready(1), &workers);
    }
    turns.put(key("main", 0), ready(1), &workers);
    turns.put(key("ci-1", 0), ready(1), &workers);
    turns.put(key("ci-2", 0), ready(1), &workers);
    assert!(turns.has_next(&workers));
    assert_eq!(served(&mut turns, &mut workers), ["ci-1/t0 1", "ci-2/t0 1"]);
    assert_eq!(workers.asked, 2, "only who gets something is looked at");
    assert!(!turns.has_next(&workers));
    assert_eq!(turns.waiting(), 10_001);
    let manned = workers.groups.manned();
    assert_eq!(turns.waiting_for_credits(manned, workers.open()), 1, "nobody comes for the others");
    workers.join("*", 1);
    turns.regroup(&workers);
    assert_eq!(turns.waiting_for_credits(manned, GroupSet::default()), 1);
    assert_eq!(served(&mut turns, &mut workers), ["other/t0 1"], "the first that came");
}

/// DISP-20, P16: lines that the same workers serve take turns as one line would; a Task that is being decided takes
/// credits at once only if no other has the turn for these credits.
#[tokio::test(start_paused = true)]
async fn sessions_that_the_same_workers_serve_take_turns() {
    let (mut turns, mut workers) = (Turns::new(), Workers::of(&[("*", 3), ("a", 0)]));
    for (session, task) in [("a", 0), ("b", 0), ("a", 1), ("b", 1)] {
        turns.put(key(session, task), ready(2), &workers);
    }
    assert_eq!(served(&mut turns, &mut workers), ["a/t0 1", "b/t0 1", "a/t1 1"]);
    workers.free = vec![0, 2];
    assert_eq!(turns.serve_at_once(&key("b", 0), 1, &mut workers), 0, "nobody is free for it");
    assert_eq!(turns.serve_at_once(&key("a", 0), 1, &mut workers), 0, "another has the turn");
    assert_eq!(turns.serve_at_once(&key("a", 1), 1, &mut workers), 1);
    workers.free = vec![5, 0];
    assert_eq!(served(&mut turns, &mut workers)[0], "b/t1 2", "it has waited longest");
}

/// Tasks that came to have nothing ready go out of a line to which no worker comes.
#[tokio::test(start_paused = true)]
async fn a_line_without_workers_keeps_only_what_waits() {
    let (mut turns, workers) = (Turns::new(), Workers::default());
    for task in 0..1_000 {
        turns.put(key("s", task), ready(1), &workers);
    }
    turns.put(key("s", 0), Left { priority: 7, ..ready(3) }, &workers);
    assert_eq!(turns.waiting(), 1_002);
    for task in 0..1_000 {
        turns.put(key("s", task), ready(0), &workers);
    }
    assert!(turns.is_empty() && turns.waiting() == 0);
    assert!(turns.entries.len() <= SPENT_MAX + 1, "{}", turns.entries.len());
}

/// Tasks that no free worker fits are passed over as a whole, whatever number they are, and count as waiting; they
/// keep their places for a worker that fits.
#[tokio::test(start_paused = true)]
async fn what_no_free_worker_fits_is_passed_over() {
    let (mut turns, mut workers) = (Turns::new(), workers_of_s(2));
    for task in 0..1_000 {
        turns.put(key("s", task), ready(1), &workers);
        turns.put_unfit(key("s", task), ready(1), &id(0), &workers);
    }
    workers.free = vec![3, 0];
    assert!(!turns.has_next(&workers) && turns.serve(&mut workers).is_none());
    assert_eq!(turns.serve_at_once(&key("s", 5), 1, &mut workers), 0, "it waits as the others do");
    turns.put(key("s", 1_000), ready(2), &workers);
    assert!(turns.has_next(&workers));
    assert_eq!(turns.serve_at_once(&key("s", 2_000), 1, &mut workers), 0, "another has the turn");
    assert_eq!(served(&mut turns, &mut workers), ["s/t1000 2"], "nobody shares them with it");
    assert_eq!(workers.asked, 1);
    assert_eq!(turns.serve_at_once(&key("s", 2_000), 1, &mut workers), 1, "nobody waits for it");
    assert_eq!((turns.waiting(), turns.is_empty()), (1_000, false));
    let manned = workers.groups.manned();
    assert_eq!(turns.waiting_for_credits(manned, GroupSet::default()), 1_000);
    workers.free = vec![9, 2];
    assert_eq!(served(&mut turns, &mut workers), ["s/t0 1", "s/t1 1"]);
    turns.may_fit(&id(1));
    assert!(!turns.has_next(&workers), "it is not the one that they are unfit for");
    turns.may_fit(&id(0));
    workers.free = vec![2, 0];
    assert_eq!(served(&mut turns, &mut workers), ["s/t2 1", "s/t3 1"]);
    assert_eq!(turns.waiting(), 996);
}

/// A Task with other Steps than before is tried with every worker again, and in its old place.
#[tokio::test(start_paused = true)]
async fn other_steps_may_fit_any_worker() {
    let (mut turns, mut workers) = (Turns::new(), workers_of_s(3));
    for task in 0..2 {
        for group in [2, 0] {
            turns.put_unfit(key("s", task), ready(1), &id(group), &workers);
        }
    }
    workers.free = vec![1, 0, 1];
    assert!(!turns.has_next(&workers));
    turns.put(key("s", 2), ready(1), &workers);
    turns.put(key("s", 1), ready(2), &workers);
    assert_eq!(served(&mut turns, &mut workers), ["s/t1 1", "s/t2 1"]);
    turns.put_unfit(key("s", 1), ready(0), &id(0), &workers);
    turns.remove(&key("s", 0));
    workers.free = vec![1, 1, 1];
    assert!(turns.is_empty() && turns.unfit.is_empty());
    assert!(!turns.has_next(&workers) && turns.lines.is_empty() && turns.entries.is_empty());
}

/// However many sets of workers are unfit for some Task, there are only so many lines, and no Task is lost.
#[tokio::test(start_paused = true)]
async fn there_are_only_so_many_lines() {
    let (mut turns, mut workers) = (Turns::new(), workers_of_s(10));
    for task in 0..1_000 {
        turns.put(key("s", task), ready(1), &workers);
        for group in (0..10).filter(|group| task & (1 << group) != 0) {
            turns.put_unfit(key("s", task), ready(1), &id(group), &workers);
        }
    }
    assert_eq!(turns.lines.len(), LINES_MAX + 1);
    let mut all = 0;
    for group in 0..10 {
        workers.free[group] = 1_000;
        workers.arrivals += 1;
        let names = served(&mut turns, &mut workers);
        workers.free[group] = 0;
        all += names.len();
        let left = (0..1_000).filter(|task| task % (2 << group) == (2 << group) - 1).count();
        assert_eq!((turns.waiting(), all), (left as u64, 1_000 - left));
    }
    assert!(turns.is_empty());
}

/// What is known of a Task in a simple model of the turns.
#[derive(Default, Clone)]
struct Expected {
    ready: usize,
    unfit: Vec<usize>,
}

impl Expected {
    fn is_served_by(&self, workers: &Workers) -> bool {
        let free = |group: &usize| workers.free[*group] > 0 && !self.unfit.contains(group);
        self.ready > 0 && (0..workers.free.len()).any(|group| free(&group))
    }
}

/// Whatever happens in whatever order: a Task is lent no more than it has and only of workers that fit, and it waits
/// no longer than until one is free.
#[tokio::test(start_paused = true)]
async fn nobody_is_lost_or_served_twice() {
    let mut counts = [0; 3];
    for seed in 1..=20_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % n as u64).unwrap()
        };
        let (mut turns, mut workers) = (Turns::new(), workers_of_s(3));
        let mut tasks = vec![Expected::default(); 12];
        for _ in 0..2_000 {
            let (task, group) = (random(12), random(3));
            match random(10) {
                0 | 1 => {
                    tasks[task] = Expected { ready: random(4), unfit: Vec::new() };
                    let priority = i32::try_from(random(2)).unwrap();
                    let has = Left { priority, ..ready(tasks[task].ready) };
                    turns.put(key("s", task), has, &workers);
                }
                2 | 3 | 4 | 8 | 9 if tasks[task].ready > 0 => {
                    if !tasks[task].unfit.contains(&group) {
                        tasks[task].unfit.push(group);
                    }
                    let has = ready(tasks[task].ready);
                    turns.put_unfit(key("s", task), has, &id(group), &workers);
                }
                5 => {
                    tasks.iter_mut().for_each(|task| task.unfit.retain(|other| *other != group));
                    turns.may_fit(&id(group));
                }
                6 => {
                    tasks[task] = Expected::default();
                    turns.remove(&key("s", task));
                }
                7 => workers.free[group] = random(3),
                _ => {}
            }
            let is_served = tasks.iter().any(|task| task.is_served_by(&workers));
            assert_eq!(turns.has_next(&workers), is_served, "seed {seed}");
            counts[usize::from(is_served)] += 1;
            counts[2] += usize::from(!is_served && workers.free.iter().any(|free| *free > 0));
            if random(3) == 0 {
                let before = workers.free.clone();
                let lent = turns.serve(&mut workers);
                assert_eq!(lent.is_some(), is_served, "seed {seed}");
                if let Some((of, _, given)) = lent {
                    let at = (0..12).find(|task| key("s", *task) == of).unwrap();
                    let task = &mut tasks[at];
                    assert!(given > 0 && given <= task.ready, "seed {seed}");
                    let mut used = (0..3).filter(|group| workers.free[*group] < before[*group]);
                    assert!(used.all(|group| !task.unfit.contains(&group)), "seed {seed}");
                    task.ready -= given;
                }
            }
            let waiting: usize = tasks.iter().map(|task| task.ready).sum();
            assert_eq!(turns.waiting(), waiting as u64, "seed {seed}");
        }
    }
    assert!(counts.iter().all(|count| *count > 500), "each case comes often: {counts:?}");
}

/// The workers of a pool, and how often somebody asked them for credits.
#[derive(Default)]
struct Asked {
    members: Members,
    asked: usize,
    /// How often somebody looked for a worker that fits.
    looks: Cell<usize>,
}

impl Asked {
    fn join(&mut self, group: usize, free: u64) -> Arc<Worker> {
        let (inbox, _) = unbounded();
        let (pool, hand, sessions) = ("p".parse().unwrap(), Arc::default(), WorkerSessions::ALL);
        let (id, origin, handlers) = (id(group), None, None);
        let worker = Arc::new(Worker { id, pool, origin, handlers, sessions, inbox, hand });
        self.members.join(Arc::clone(&worker)).unwrap();
        self.members.note(&worker, Credit { free, seen: 0, lost: 0, number: 1 });
        worker
    }

    /// What they were lent is not used.
    fn give_back(&mut self, lent: &[(Arc<Worker>, u64)]) {
        lent.iter().for_each(|(worker, credits)| self.members.give_back(worker, *credits));
    }
}

impl Supply for Asked {
    type Taken = Vec<(Arc<Worker>, u64)>;

    fn open(&self) -> GroupSet {
        self.members.open()
    }

    fn serving(&self, session: &SessionId) -> GroupSet {
        self.members.serving(session)
    }

    fn free_in(&self, groups: GroupSet) -> usize {
        self.members.free_in(groups)
    }

    fn arrivals(&self) -> u64 {
        Supply::arrivals(&self.members)
    }

    fn has_fit(&self, unfit: &[AgentId], groups: GroupSet, none_at: u64) -> bool {
        self.looks.set(self.looks.get() + 1);
        Supply::has_fit(&self.members, unfit, groups, none_at)
    }

    fn take(&mut self, wanted: usize, unfit: &[AgentId], groups: GroupSet) -> (usize, Self::Taken) {
        self.asked += 1;
        self.members.take(wanted, unfit, groups)
    }
}

/// DISP-14, DISP-20: thousands of Tasks that no worker of a pool can run are tried once with each worker. The Steps
/// of another Task are then given out as if these did not wait, also while workers come to have credits and have none.
#[tokio::test(start_paused = true)]
async fn tasks_that_nobody_can_run_cost_the_others_nothing() {
    let (mut turns, mut workers) = (Turns::new(), Asked::default());
    for group in 0..3 {
        workers.join(group, 1);
    }
    for task in 0..3_000 {
        turns.put(key("s", task), ready(2), &workers);
    }
    while let Some((key, _, lent)) = turns.serve(&mut workers) {
        turns.put_unfit(key, ready(2), &lent[0].0.id, &workers);
        workers.give_back(&lent);
    }
    let lines = &turns.lines;
    assert_eq!((workers.asked, lines.len(), turns.waiting()), (9_000, 1, 6_000));
    let [list, other] = [7, 8].map(|task| turns.unfit.get(&key("s", task)).unwrap());
    assert!(list.is_same(other) && list.all().is_sorted(), "one list for all");
    workers.asked = 0;
    for _ in 0..500 {
        turns.put(key("s", 9_999), ready(1), &workers);
        assert!(turns.has_next(&workers));
        let (of, _, lent) = turns.serve(&mut workers).unwrap();
        assert_eq!(of, key("s", 9_999));
        assert!(!turns.has_next(&workers) && turns.serve(&mut workers).is_none());
        workers.give_back(&lent);
        assert!(!turns.has_next(&workers));
    }
    assert_eq!(workers.asked, 500);
    workers.join(3, 4);
    let first = turns.serve(&mut workers).unwrap();
    assert_eq!((first.2[0].0.id.clone(), turns.has_next(&workers)), (id(3), true));
}

/// Mechanisms 15: while many Tasks wait, workers with ever new lists of sessions are refused most of the time, as each
/// such list has all Tasks put into other lines. Who comes with a list that is known is not.
#[tokio::test(start_paused = true)]
async fn new_lists_of_sessions_cost_little_time() {
    let pool = Pool::new("p".parse().unwrap());
    let worker = |sessions: &str| {
        let ((inbox, _), (id, origin, handlers)) = (unbounded(), (id(0), None, None));
        let (pool, hand) = ("p".parse().unwrap(), Arc::default());
        let sessions = WorkerSessions::read(sessions).unwrap();
        Arc::new(Worker { id, pool, origin, handlers, sessions, inbox, hand })
    };
    pool.join(worker("main")).unwrap();
    {
        let PoolState { members, turns, .. } = &mut *pool.state.lock();
        (0..10_000).for_each(|task| turns.put(key("main", task), ready(1), members));
    }
    let (begun, mut taken) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(1) {
        let stranger = worker(&format!("m*n,x{taken}"));
        match pool.join(Arc::clone(&stranger)) {
            Ok(()) => {
                taken += 1;
                pool.leave(&stranger);
            }
            Err(refused) => {
                let again = refused.details["retry_after_ms"].as_u64();
                assert_eq!((refused.code, again), (Code::Unavailable, Some(100)));
                tokio::time::advance(Duration::from_millis(10)).await;
            }
        }
        pool.join(worker("main")).unwrap();
    }
    assert!((9..=11).contains(&taken), "{taken}");
}

/// A worker that has left is in no list of workers that do not fit: workers that come and go make no new lines.
#[tokio::test(start_paused = true)]
async fn who_has_left_is_forgotten() {
    let pool = Pool::new("p".parse().unwrap());
    let [one, again, other] = [0, 0, 1].map(|group| Asked::default().join(group, 1));
    for worker in [&one, &again, &other] {
        pool.join(Arc::clone(worker)).unwrap();
    }
    let put_unfit = |worker: &Worker| {
        let PoolState { members, turns, .. } = &mut *pool.state.lock();
        turns.put_unfit(key("s", 0), ready(1), &worker.id, members);
    };
    put_unfit(&one);
    put_unfit(&other);
    let unfit = || pool.state.lock().turns.unfit.get(&key("s", 0)).map(|it| it.all().to_vec());
    pool.leave(&one);
    assert_eq!(unfit(), Some(vec![id(0), id(1)]), "it has another link");
    pool.leave(&again);
    assert_eq!(unfit(), Some(vec![id(1)]));
    pool.leave(&other);
    assert_eq!((unfit(), pool.sample(0).waiting), (None, 1));
    assert_eq!(pool.state.lock().turns.lines.len(), 1);
}

/// DISP-20, mechanisms 15: workers that come with ever new lists of sessions do not hold up a pool that knows many
/// sessions, or in which many Tasks wait.
#[test]
fn new_lists_are_matched_for_a_part_of_the_time() {
    let mut turns = Turns::new();
    let after = |turns: &Turns, sessions| turns.regroups_after(sessions, Instant::now());
    assert_eq!(after(&turns, 4_096), None, "the first is matched at once");
    turns.regroup(&Workers::default());
    assert_eq!(after(&turns, REGROUPED_AT_ANY_TIME), None);
    let wait = after(&turns, 4_096).unwrap();
    assert!(wait > Duration::from_millis(20) && wait <= REGROUPED_EACH * 4_096, "{wait:?}");
}
