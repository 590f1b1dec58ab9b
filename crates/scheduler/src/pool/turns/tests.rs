//! Tests of [`super`].

use tenure_core::sessions::WorkerSessions;

use super::super::groups::Groups;
use super::*;

/// Groups of workers, with so many free credits each.
#[derive(Default)]
struct Workers {
    groups: Groups,
    free: Vec<usize>,
    /// How often somebody asked for credits.
    asked: usize,
}

impl Workers {
    fn of(groups: &[(&str, usize)]) -> Self {
        let mut workers = Self::default();
        groups.iter().for_each(|(sessions, free)| workers.join(sessions, *free));
        workers
    }

    fn join(&mut self, sessions: &str, free: usize) {
        let (group, _) = self.groups.join(&WorkerSessions::read(sessions).unwrap()).unwrap();
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

    fn take(&mut self, wanted: usize, _: &[AgentId], groups: GroupSet) -> (usize, usize) {
        self.asked += 1;
        let mut left = wanted;
        for group in self.groups.of(groups) {
            let given = self.free[group].min(left);
            self.free[group] -= given;
            left -= given;
        }
        (wanted - left, wanted - left)
    }
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
    assert!(turns.has_next(workers.open()));
    assert_eq!(served(&mut turns, &mut workers), ["ci-1/t0 1", "ci-2/t0 1"]);
    assert_eq!(workers.asked, 2, "only who gets something is looked at");
    assert!(!turns.has_next(workers.open()));
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
