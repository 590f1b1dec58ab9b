//! Tests of [`super`].

use futures::channel::mpsc::unbounded;

use super::*;

fn worker(id: &str) -> Arc<Worker> {
    serving(id, "*")
}

fn serving(id: &str, sessions: &str) -> Arc<Worker> {
    let (inbox, _) = unbounded();
    let (id, pool) = (AgentId::new(id).unwrap(), "p".parse().unwrap());
    let (hand, sessions) = (Arc::default(), sessions.parse().unwrap());
    Arc::new(Worker { id, pool, origin: None, handlers: None, sessions, inbox, hand })
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

/// After any change, the free credits are the sum of what each member has left.
fn check(members: &Members) {
    let sum: u128 = members.all.values().map(|member| u128::from(member.left())).sum();
    assert_eq!(members.free, sum);
    assert_eq!(members.groups.free_in(GroupSet::EVERY), sum);
    for (seat, member) in &members.all {
        let line = &members.groups.get(member.group).available;
        let places = line.iter().filter(|place| *place == seat).count();
        assert_eq!(places, usize::from(member.is_queued));
        assert!(member.is_queued || member.left() == 0);
    }
}

fn queued(members: &Members) -> usize {
    members.groups.of(GroupSet::EVERY).map(|group| members.groups.get(group).available.len()).sum()
}

/// DISP-20: only workers are taken that serve the session, those that serve all sessions last.
#[test]
fn credits_are_of_workers_that_serve_the_session() {
    let mut members = Members::default();
    let all = [serving("any", "*"), serving("ci", "ci-*"), serving("main", "main,ci-1")];
    for worker in &all {
        assert_eq!(members.join(Arc::clone(worker)), Ok(true));
        members.note(worker, says(2, 0, 1));
    }
    assert_eq!(members.sessions(), None, "one serves all");
    let of = |members: &Members, session: &str| members.serving(&session.parse().unwrap());
    let other = of(&members, "other");
    assert_eq!((members.free_in(other), members.free()), (2, 6));
    assert_eq!(taken(members.take(9, &[], other)), [("any".into(), 2)]);
    check(&members);
    assert!(!members.open().meets(other));
    let ci = of(&members, "ci-1");
    assert_eq!(taken(members.take(3, &[], ci)), [("ci".into(), 2), ("main".into(), 1)]);
    check(&members);
    members.give_back(&all[0], 1);
    let main = of(&members, "main");
    assert_eq!(taken(members.take(9, &[], main)), [("main".into(), 1), ("any".into(), 1)]);
    members.leave(&all[0]);
    assert_eq!(of(&members, "other").both(members.manned()), GroupSet::default());
    let named = members.sessions().unwrap();
    assert_eq!(named.iter().map(ToString::to_string).collect::<Vec<_>>(), ["ci-*", "ci-1", "main"]);
    check(&members);
}

#[test]
fn workers_with_room_take_turns() {
    let mut members = Members::default();
    let [a, b, c] = ["a", "b", "c"].map(worker);
    for worker in [&a, &b, &c] {
        members.join(Arc::clone(worker)).unwrap();
    }
    assert!(taken(members.take(5, &[], GroupSet::EVERY)).is_empty());
    members.note(&a, says(2, 0, 1));
    members.note(&b, says(2, 0, 1));
    check(&members);
    assert_eq!(taken(members.take(1, &[], GroupSet::EVERY)), [("b".into(), 1)]);
    assert_eq!(taken(members.take(1, &[], GroupSet::EVERY)), [("a".into(), 1)]);
    assert_eq!(taken(members.take(1, &[], GroupSet::EVERY)), [("b".into(), 1)]);
    assert_eq!(taken(members.take(9, &[], GroupSet::EVERY)), [("a".into(), 1)]);
    assert_eq!((members.free(), queued(&members)), (0, 0));
    members.give_back(&b, 1);
    check(&members);
    assert_eq!(taken(members.take(9, &[], GroupSet::EVERY)), [("b".into(), 1)]);
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
        members.join(Arc::clone(worker)).unwrap();
        members.note(worker, says(1, 0, 1));
    }
    assert_eq!(
        taken(members.take(2, std::slice::from_ref(&a.id), GroupSet::EVERY)),
        [("b".into(), 1)]
    );
    check(&members);
    assert_eq!(taken(members.take(2, &[], GroupSet::EVERY)), [("a".into(), 1)]);
}

/// LEASE-19: a worker that says it has a lost Step gets only what others have no capacity for.
#[test]
fn room_beside_a_step_that_was_lost_is_the_last() {
    let mut members = Members::default();
    let [a, b] = ["a", "b"].map(worker);
    for (worker, room) in [(&b, 2), (&a, 3)] {
        members.join(Arc::clone(worker)).unwrap();
        members.note(worker, says(room, 0, 1));
    }
    members.note(&a, Credit { lost: 1, ..says(3, 0, 2) });
    let one = |members: &mut Members| {
        members
            .take_best(usize::MAX, GroupSet::EVERY, |it| Some(it.hand.has_lost()))
            .map(|it| it.id.to_string())
    };
    assert_eq!(one(&mut members), Some("b".into()));
    assert_eq!(taken(members.take(2, &[], GroupSet::EVERY)), [("b".into(), 1), ("a".into(), 1)]);
    check(&members);
    assert_eq!(one(&mut members), Some("a".into()));
    check(&members);
}

/// Capacity stated on a link that has gone does not count on the next link, and credits that come
/// back late are not added to it.
#[test]
fn another_link_of_a_worker_is_another_member() {
    let mut members = Members::default();
    let (old, new) = (worker("a"), worker("a"));
    members.join(Arc::clone(&old)).unwrap();
    members.note(&old, says(3, 0, 7));
    assert_eq!(taken(members.take(1, &[], GroupSet::EVERY)), [("a".into(), 1)]);
    members.join(Arc::clone(&new)).unwrap();
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
    assert_eq!((members.free(), queued(&members)), (0, 0));
}

/// DISP-19: this holds whatever a suspended worker does, on any of its links.
#[test]
fn a_suspended_worker_is_given_nothing_then_one() {
    let mut members = Members::default();
    let [a, b] = ["a", "b"].map(worker);
    for worker in [&a, &b] {
        members.join(Arc::clone(worker)).unwrap();
        members.note(worker, says(5, 0, 1));
    }
    members.give(&a.id, Allowance::Nothing);
    check(&members);
    assert_eq!((members.left(&a), members.free()), (0, 5));
    assert!(members.try_one(&a.id));
    check(&members);
    assert_eq!(members.left(&a), 1);
    assert_eq!(
        members
            .take_best(usize::MAX, GroupSet::EVERY, |it| (it.id == a.id).then_some(()))
            .map(|it| it.id.to_string()),
        Some("a".into())
    );
    check(&members);
    members.note(&a, says(9, 1, 2));
    check(&members);
    assert_eq!(members.left(&a), 0, "it has that one");
    members.give_back(&a, 1);
    check(&members);
    assert_eq!(
        taken(members.take(9, std::slice::from_ref(&b.id), GroupSet::EVERY)),
        [("a".into(), 1)]
    );
    check(&members);
    let again = worker("a");
    members.leave(&a);
    members.join(Arc::clone(&again)).unwrap();
    members.note(&again, says(3, 0, 1));
    check(&members);
    assert_eq!(members.left(&again), 0, "another link is not another trial");
    members.give_back(&a, 1);
    check(&members);
    assert_eq!(members.left(&again), 1, "what comes back on the older link was no trial");
    let other = worker("a");
    members.join(Arc::clone(&other)).unwrap();
    members.note(&other, says(3, 0, 1));
    assert_eq!(
        taken(members.take(9, std::slice::from_ref(&b.id), GroupSet::EVERY)).len(),
        1,
        "one on all links"
    );
    check(&members);
    members.leave(&other);
    members.try_again(&a.id);
    check(&members);
    assert_eq!(members.left(&again), 1);
    members.give(&a.id, Allowance::All);
    check(&members);
    assert_eq!((members.left(&again), members.bounds_some()), (3, false));
    members.leave(&again);
    members.give(&a.id, Allowance::Nothing);
    assert!(!members.try_one(&a.id), "it has gone");
    check(&members);
}

#[test]
fn more_than_a_count_holds_is_no_overflow() {
    let mut members = Members::default();
    for id in ["a", "b"] {
        let worker = worker(id);
        members.join(Arc::clone(&worker)).unwrap();
        members.note(&worker, says(u64::MAX, u64::MAX, 1));
    }
    check(&members);
    assert_eq!(members.free(), usize::MAX);
    assert_eq!(members.take(usize::MAX, &[], GroupSet::EVERY).0, usize::MAX);
    check(&members);
}

/// A worker that says that it has seen what nobody sent it gets what it has free slots for, and no more.
#[test]
fn a_worker_that_lies_about_what_it_has_seen_gets_no_more() {
    let mut members = Members::default();
    let liar = worker("liar");
    members.join(Arc::clone(&liar)).unwrap();
    members.note(&liar, says(2, u64::MAX, 1));
    check(&members);
    assert_eq!(members.left(&liar), 2);
    assert_eq!(taken(members.take(9, &[], GroupSet::EVERY)), [("liar".into(), 2)]);
    assert!(taken(members.take(9, &[], GroupSet::EVERY)).is_empty());
    members.note(&liar, says(1, 1 << 40, 2));
    assert_eq!(taken(members.take(9, &[], GroupSet::EVERY)), [("liar".into(), 1)]);
    check(&members);
}

/// Whether a worker fits is found out from those that came to have capacity since nobody did, or from all.
#[test]
fn who_fits_is_seen_at_once() {
    let mut members = Members::default();
    let all: Vec<_> = (0..4).map(|n| worker(&format!("w{n}"))).collect();
    for worker in &all {
        members.join(Arc::clone(worker)).unwrap();
    }
    let unfit = [all[0].id.clone(), all[1].id.clone()];
    let every = GroupSet::EVERY;
    assert!(!members.has_fit(&unfit, every, 0), "nobody has capacity");
    members.note(&all[1], says(1, 0, 1));
    members.note(&all[0], says(1, 0, 1));
    let then = members.arrivals;
    assert_eq!(then, 2);
    assert!(!members.has_fit(&unfit, every, 0) && !members.has_fit(&unfit, every, then));
    assert!(members.has_fit(&unfit[..1], every, 0) && members.has_fit(&[], every, 0));
    members.note(&all[1], says(2, 0, 2));
    assert_eq!(members.arrivals, then, "it had capacity");
    members.note(&all[3], says(1, 0, 1));
    assert!(members.has_fit(&unfit, every, 0) && members.has_fit(&unfit, every, then));
    assert!(!members.has_fit(&unfit, GroupSet::default(), then), "it does not serve the session");
    members.take(1, &unfit, every);
    assert!(!members.has_fit(&unfit, every, 0) && !members.has_fit(&unfit, every, then));
    members.give_back(&all[3], 1);
    for _ in 0..ARRIVED_MAX {
        assert!(members.has_fit(&unfit, every, then));
        members.note(&all[0], says(0, 0, members.arrivals + 9));
        members.take(9, &[], every);
        members.give_back(&all[3], 1);
    }
    members.leave(&all[3]);
    assert!(!members.has_fit(&unfit, every, then) && !members.has_fit(&unfit, every, 0));
    check(&members);
}
