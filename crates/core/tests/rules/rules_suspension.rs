//! DISP-19: workers that fail what others complete.

use tenure_core::id::{AgentId, HandlerName, Millis};
use tenure_core::suspension::{
    AttemptRecords, COMPLETED_MIN, FAILED_MIN, PAUSE_MAX_MS, PAUSE_MS, Went, WorkerVerdict,
    can_replace,
};

fn agent(name: &str) -> AgentId {
    AgentId::new(name).unwrap()
}

fn handler(name: &str) -> HandlerName {
    name.parse().unwrap()
}

/// Workers of a pool that are all there.
#[derive(Default)]
struct Fleet {
    records: AttemptRecords,
    now: Millis,
}

impl Fleet {
    fn note(&mut self, worker: &str, with: &str, went: Went) -> Option<WorkerVerdict> {
        self.records.note(&agent(worker), &handler(with), went, self.now, |_| true)
    }

    fn fails(&mut self, worker: &str, times: u32) -> Option<WorkerVerdict> {
        (0..times).filter_map(|_| self.note(worker, "h", Went::Badly)).last()
    }

    fn completes(&mut self, worker: &str, times: usize) -> Option<WorkerVerdict> {
        (0..times).filter_map(|_| self.note(worker, "h", Went::Well)).last()
    }

    /// For how long the worker is suspended.
    fn pause(&self, worker: &str) -> Option<u64> {
        self.records.suspension(&agent(worker)).map(|it| it.pause_ms)
    }
}

/// DISP-19: at ten failures, and not before, where another completed three in a row meanwhile.
#[test]
fn who_fails_what_others_complete_is_suspended() {
    let mut fleet = Fleet::default();
    assert_eq!(fleet.fails("bad", FAILED_MIN - 1), None);
    fleet.completes("good", COMPLETED_MIN);
    let Some(WorkerVerdict::Suspend(it)) = fleet.fails("bad", 1) else { panic!("not suspended") };
    assert_eq!((it.handler.as_str(), it.pause_ms, it.until), ("h", PAUSE_MS, 30_000));
    assert_eq!(fleet.pause("bad"), Some(PAUSE_MS));
    assert_eq!(fleet.pause("good"), None);
}

/// DISP-19: what the other completed before the first failure, too little, not in a row, or with another
/// handler shows nothing.
#[test]
fn what_fails_for_all_suspends_nobody() {
    let mut before = Fleet::default();
    before.fails("other", 1);
    before.completes("good", 9);
    assert_eq!(before.fails("bad", 3 * FAILED_MIN), None);

    let mut few = Fleet::default();
    few.fails("bad", 1);
    few.completes("good", COMPLETED_MIN - 1);
    assert_eq!(few.fails("bad", 3 * FAILED_MIN), None);
    few.completes("good", 1);
    assert!(few.fails("bad", 1).is_some());

    let mut at_times = Fleet::default();
    for _ in 0..3 * FAILED_MIN {
        at_times.completes("good", COMPLETED_MIN - 1);
        at_times.fails("good", 1);
        assert_eq!(at_times.fails("bad", 1), None);
    }

    let mut elsewhere = Fleet::default();
    elsewhere.fails("bad", 1);
    (0..9).for_each(|_| drop(elsewhere.note("good", "g", Went::Well)));
    assert_eq!(elsewhere.fails("bad", 3 * FAILED_MIN), None);

    let mut by_itself = Fleet::default();
    by_itself.fails("bad", 1);
    by_itself.completes("bad", 9);
    assert_eq!(by_itself.fails("bad", 3 * FAILED_MIN), None);
}

/// DISP-19: whoever completes many goes on showing it, however long others have failed before.
#[test]
fn a_second_worker_that_fails_is_suspended_too() {
    let mut fleet = Fleet::default();
    fleet.fails("other", 1);
    fleet.completes("good", 9);
    assert_eq!(fleet.fails("bad", FAILED_MIN - 1), None);
    fleet.completes("good", COMPLETED_MIN - 1);
    assert_eq!(fleet.fails("bad", 1), None);
    fleet.completes("good", 1);
    assert!(fleet.fails("bad", 1).is_some());
}

/// DISP-19: the other must be there.
#[test]
fn who_has_gone_shows_nothing() {
    let mut fleet = Fleet::default();
    fleet.fails("bad", FAILED_MIN - 1);
    fleet.completes("good", 9);
    let (bad, with) = (agent("bad"), handler("h"));
    let gone = |worker: &AgentId| worker.as_str() != "good";
    assert_eq!(fleet.records.note(&bad, &with, Went::Badly, 0, gone), None);
    assert!(fleet.records.note(&bad, &with, Went::Badly, 0, |_| true).is_some());
}

/// DISP-19: a Step that it completes, with whatever handler, and its failures count anew.
#[test]
fn who_completes_any_step_is_not_suspended() {
    let mut fleet = Fleet::default();
    fleet.fails("bad", FAILED_MIN - 1);
    fleet.completes("good", 9);
    fleet.note("bad", "g", Went::Well);
    fleet.completes("good", 9);
    assert_eq!(fleet.fails("bad", FAILED_MIN - 1), None);
    assert_eq!(fleet.fails("bad", 1), None, "the other completed nothing since the first failure");
    fleet.completes("good", COMPLETED_MIN);
    assert!(fleet.fails("bad", 1).is_some());
}

/// DISP-19: when its pause is over it is tried; what it fails then suspends it for twice as long each time, and
/// what it had in hand when it was suspended does not.
#[test]
fn each_trial_that_fails_doubles_the_pause() {
    let mut fleet = Fleet::default();
    fleet.fails("bad", FAILED_MIN - 1);
    fleet.completes("good", COMPLETED_MIN);
    fleet.fails("bad", 1);
    let mut expected = PAUSE_MS;
    for _ in 0..8 {
        fleet.now += Millis::try_from(expected).unwrap() - 1;
        assert_eq!(fleet.fails("bad", 3), None, "in hand");
        fleet.now += 1;
        assert!(matches!(fleet.fails("bad", 1), Some(WorkerVerdict::Suspend(_))));
        expected = (2 * expected).min(PAUSE_MAX_MS);
        assert_eq!(fleet.pause("bad"), Some(expected));
    }
    assert_eq!(expected, PAUSE_MAX_MS);
    assert_eq!(fleet.completes("bad", 1), Some(WorkerVerdict::Trust));
    assert_eq!((fleet.pause("bad"), fleet.records.is_empty()), (None, true));
    assert_eq!(fleet.fails("bad", FAILED_MIN - 1), None, "they count anew");
}

/// DISP-19: a trial that fails with a handler of which nothing is noted, as there are many, is one too.
#[test]
fn a_trial_that_fails_with_any_handler_doubles_the_pause() {
    let mut fleet = Fleet::default();
    fleet.fails("bad", FAILED_MIN - 1);
    fleet.completes("good", COMPLETED_MIN);
    fleet.fails("bad", 1);
    for n in 0..100 {
        fleet.note("other", &format!("h{n}"), Went::Badly);
    }
    fleet.records.note_left(&agent("bad"));
    assert_eq!(fleet.pause("bad"), Some(PAUSE_MS), "it is suspended still");
    fleet.now += 30_000;
    fleet.note("bad", "h99", Went::Badly);
    assert_eq!(fleet.pause("bad"), Some(2 * PAUSE_MS));
}

/// Nothing is kept while no worker fails, nor of workers that have gone, and of handlers some at most.
#[test]
fn little_is_remembered() {
    let mut fleet = Fleet::default();
    for n in 0..100 {
        fleet.completes(&format!("w.{n}"), 9);
    }
    assert!(fleet.records.is_empty());
    for n in 0..100 {
        fleet.fails(&format!("w.{n}"), 1);
    }
    assert_eq!(fleet.records.len(), 100);
    for n in 0..100 {
        fleet.records.note_left(&agent(&format!("w.{n}")));
    }
    assert!(fleet.records.is_empty());
    for n in 0..1_000 {
        fleet.note("w.7", &format!("h{n}"), Went::Badly);
        fleet.note("w.8", &format!("h{n}"), Went::Well);
    }
    assert_eq!(fleet.records.len(), 64 + 64, "of 64 handlers");
    fleet.completes("w.7", 1);
    assert!(fleet.records.is_empty());
}

/// DISP-19: what a worker can run others must be able to run, all of it.
#[test]
fn who_is_needed_cannot_be_replaced() {
    let (h, g) = (handler("h"), handler("g"));
    let (both, one) = ([h.clone(), g.clone()], [h]);
    let can = |mine: Option<&[HandlerName]>, others: &[Option<&[HandlerName]>]| {
        can_replace(mine, others.iter().copied())
    };
    assert!(!can(None, &[]) && !can(Some(&one), &[]));
    assert!(!can(None, &[Some(&both)]) && can(None, &[Some(&one), None]));
    assert!(!can(Some(&both), &[Some(&one)]) && can(Some(&one), &[Some(&both)]));
    assert!(can(Some(&both), &[Some(&one), Some(&[g])]) && can(Some(&both), &[None]));
}
