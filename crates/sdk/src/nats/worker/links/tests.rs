use tenure_core::features::Features;
use tenure_core::id::AttemptId;
use tenure_ports::placement::PLACEMENT;
use tenure_wire::bus::V;
use uuid::Uuid;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn worker_links() -> (WorkerLinks, Moment) {
    let now = Moment::now();
    (WorkerLinks::new(now, false), now)
}

/// DISP-20: a worker that serves some sessions states no capacity to a node that does not say that it heeds them, so
/// that such a node gives it nothing; to a worker of all sessions it makes no difference.
#[test]
fn a_restricted_worker_takes_nothing_from_a_node_that_does_not_heed_sessions() {
    let now = Moment::now();
    let newer = || Alive { features: Features::of([SESSIONS]), ..alive("new", &[0]) };
    for (is_restricted, parts) in [(true, [8, 0]), (false, [4, 4])] {
        let mut links = WorkerLinks::new(now, is_restricted);
        links.note(credit(8, 1));
        links.take(now, batch("new", "l", 1, 0));
        links.take(now, batch("old", "m", 1, 0));
        if is_restricted {
            let unheard = [("new".into(), 0), ("old".into(), 0)];
            assert_eq!(said(links.capacities(now)), unheard, "neither has said what it can do");
        }
        assert!(!links.take_unheeding(&newer()));
        links.alive(now, newer());
        assert_eq!(links.take_unheeding(&alive("old", &[1])), is_restricted);
        links.alive(now, alive("old", &[1]));
        assert!(!links.take_unheeding(&alive("old", &[1])), "it is told once");
        let stated = |links: &mut WorkerLinks, node| links.capacity_for(now, node).unwrap().free;
        assert_eq!(["new", "old"].map(|node| stated(&mut links, node)), parts);
    }
}

/// A batch of `count` signals: they use no capacity.
fn batch(node: &str, link: &str, first: u64, count: usize) -> Deliveries {
    let lost = || Sent { lost: Some(AttemptId(Uuid::now_v7())), ..Sent::default() };
    let deliveries = (0..count).map(|_| lost()).collect();
    Deliveries { v: V, node: node.into(), link: link.into(), first, deliveries }
}

/// A batch of a grant of this Step, which was lost before.
fn lost(node: &str, first: u64, session: &str, step: &str) -> Deliveries {
    let id = Uuid::now_v7();
    let claim = serde_json::json!({
        "session_id": session, "task_id": "t", "run_id": id, "attempt_id": id, "ordinal": 2,
        "was_lost": true, "fencing_token": 3, "lease_expires_at": 0, "lease_ms": 1_000, "input_refs": [],
        "step": {"step_id": step, "title": "", "summary": "", "depends_on_step_ids": [], "required": true,
                 "worker_pool_id": "p", "handler": "h"},
    });
    let grant = Some(serde_json::from_value(claim).unwrap());
    Deliveries { deliveries: vec![Sent { grant, ..Sent::default() }], ..batch(node, "l", first, 0) }
}

fn alive(node: &str, owned: &[u32]) -> Alive {
    let (features, lacks) = Default::default();
    let (placement, owned) = (PLACEMENT, owned.to_vec());
    Alive { v: V, node: node.into(), partitions: 4, placement, owned, features, lacks }
}

fn credit(free: u64, number: u64) -> Credit {
    Credit { free, seen: 0, lost: 0, number }
}

fn said(capacities: Vec<(SmolStr, Capacity)>) -> Vec<(String, u64)> {
    capacities.into_iter().map(|(node, room)| (node.to_string(), room.free)).collect()
}

#[test]
fn room_is_shared_among_linked_nodes_and_said_once() {
    let (mut links, now) = worker_links();
    links.note(credit(9, 1));
    links.take(now, batch("a", "l", 1, 0));
    links.take(now, batch("b", "m", 1, 0));
    assert_eq!(said(links.capacities(now)), [("a".into(), 5), ("b".into(), 4)]);
    assert_eq!(said(links.capacities(now)), []);
    links.note(credit(7, 2));
    assert_eq!(said(links.capacities(now)), [("a".into(), 4), ("b".into(), 3)]);
}

#[test]
fn an_operator_may_send_the_worker_away() {
    let (mut links, now) = worker_links();
    let drain = Sent { drain: true, ..Sent::default() };
    let batch = Deliveries { deliveries: vec![drain], ..batch("a", "l", 1, 0) };
    assert!(matches!(links.take(now, batch.clone())[..], [Delivery::Drain(None)]));
    assert!(links.take(now, batch).is_empty(), "what comes twice is taken once");
}

#[test]
fn an_older_word_on_room_says_nothing() {
    let (mut links, now) = worker_links();
    links.take(now, batch("a", "l", 1, 0));
    links.note(credit(3, 2));
    links.note(credit(9, 1));
    assert_eq!(said(links.capacities(now)), [("a".into(), 3)]);
}

#[test]
fn room_moves_to_the_hungry_node_and_back() {
    let (mut links, now) = worker_links();
    links.note(credit(8, 1));
    links.take(now, batch("a", "l", 1, 0));
    links.take(now, batch("b", "m", 1, 0));
    links.capacities(now);
    links.hungry(now, "b");
    assert_eq!(said(links.capacities(now)), [("a".into(), 1), ("b".into(), 7)]);
    assert_eq!(said(links.capacities(now + SECOND)), [("a".into(), 4), ("b".into(), 4)]);
}

#[test]
fn room_is_restated_before_a_node_drops_the_worker() {
    let (mut links, now) = worker_links();
    links.take(now, batch("a", "l", 1, 0));
    links.capacities(now);
    assert_eq!(said(links.capacities(now + SECOND)), []);
    assert_eq!(said(links.capacities(now + RESTATED)), [("a".into(), 0)]);
}

#[test]
fn a_batch_that_was_handed_over_is_not_room_any_more() {
    let (mut links, now) = worker_links();
    links.note(credit(4, 1));
    links.take(now, batch("a", "l", 1, 0));
    links.handed = 3;
    assert_eq!(
        said(links.capacities(now)),
        [("a".into(), 1)],
        "the pool has seen none of the three"
    );
    links.note(Credit { free: 1, seen: 3, lost: 0, number: 2 });
    assert_eq!(said(links.capacities(now)), [], "it has taken them by now: the same room");
}

#[test]
fn a_gap_is_answered_and_a_repeat_is_passed_over() {
    let (mut links, now) = worker_links();
    assert_eq!(links.take(now, batch("a", "l", 1, 2)).len(), 2);
    assert_eq!(links.capacities(now)[0].1.got, 2);
    assert!(links.take(now, batch("a", "l", 4, 1)).is_empty());
    assert_eq!(links.capacities(now)[0].1.got, 2, "said at once");
    assert_eq!(links.take(now, batch("a", "l", 2, 3)).len(), 2);
    assert_eq!(links.capacities(now)[0].1.got, 4);
}

#[test]
fn another_link_begins_anew_and_the_old_one_is_over() {
    let (mut links, now) = worker_links();
    links.take(now, batch("a", "l", 1, 3));
    assert_eq!(links.take(now, batch("a", "m", 1, 1)).len(), 1);
    let room = links.capacities(now).remove(0).1;
    assert_eq!((room.link.as_str(), room.number, room.got), ("m", 1, 1));
    assert!(links.take(now, batch("a", "l", 4, 1)).is_empty(), "it was sent before");
    assert_eq!(said(links.capacities(now)), []);
}

#[test]
fn the_owner_of_a_partition_hears_of_room_with_reports() {
    let (mut links, now) = worker_links();
    links.note(credit(5, 1));
    links.alive(now, alive("a", &[0, 2]));
    assert!(links.capacity_for_owner(now, 0).is_none(), "there is no link");
    links.take(now, batch("a", "l", 1, 0));
    assert_eq!(links.capacity_for_owner(now, 2).unwrap().free, 5);
    assert!(links.capacity_for_owner(now, 1).is_none(), "nobody owns it");
    assert_eq!(said(links.capacities(now)), [], "it went with the reports");
    links.alive(now, alive("b", &[2]));
    assert!(links.capacity_for_owner(now, 2).is_none(), "another has it now");
    links.alive(now, alive("a", &[2]));
    assert!(links.capacity_for_owner(now, 0).is_none(), "it was given up");
}

#[test]
fn hellos_go_until_there_is_a_link_and_not_too_often() {
    let (mut links, now) = worker_links();
    assert!(links.take_hello(now));
    assert!(!links.take_hello(now + SECOND), "nobody is there");
    links.alive(now + SECOND, alive("a", &[]));
    assert!(links.take_hello(now + SECOND));
    links.alive(now + SECOND, alive("b", &[]));
    assert!(!links.take_hello(now + SECOND), "one has just gone");
    assert!(links.take_hello(now + 2 * SECOND));
    links.take(now + 2 * SECOND, batch("a", "l", 1, 0));
    assert!(links.take_hello(now + 3 * SECOND), "the link may have been opened by another word");
    links.take(now + 3 * SECOND, batch("a", "l", 1, 0));
    links.alive(now + 4 * SECOND, alive("a", &[]));
    assert!(!links.take_hello(now + 9 * SECOND));
}

/// A node that was paused has forgotten the worker, and opens a link for its next message: on that
/// link it sends no work before it receives a hello.
#[test]
fn a_link_of_another_name_is_answered_with_a_hello() {
    let (mut links, now) = worker_links();
    links.take(now, batch("a", "l", 1, 0));
    assert!(links.take_hello(now));
    links.take(now, batch("a", "l", 1, 0));
    assert!(!links.take_hello(now + SECOND));
    links.take(now + SECOND, batch("a", "m", 1, 0));
    assert!(links.take_hello(now + SECOND));
    links.take(now + SECOND, batch("a", "n", 1, 0));
    assert!(links.take_hello(now + 2 * SECOND), "the link of the hello has another name");
    links.take(now + 2 * SECOND, batch("a", "n", 1, 0));
    assert!(!links.take_hello(now + 9 * SECOND), "and keeps it");
}

#[test]
fn a_silent_node_has_no_part_until_it_goes_on_where_it_was() {
    let (mut links, now) = worker_links();
    links.note(credit(4, 1));
    links.take(now, batch("a", "l", 1, 3));
    let mut then = now;
    while then.since(&now) < SILENT {
        links.capacities(then);
        then = then + SECOND;
        links.sweep(then);
    }
    assert_eq!(said(links.capacities(then)), []);
    assert_eq!(links.take(then, batch("a", "l", 4, 1)).len(), 1, "the same link, no gap");
    assert_eq!(links.capacities(then)[0].1.got, 4);
}

#[test]
fn a_worker_that_was_stopped_asks_for_links_again() {
    let (mut links, now) = worker_links();
    links.take_hello(now);
    links.take(now, batch("a", "l", 1, 0));
    links.capacities(now);
    let later = now + MUTE;
    links.sweep(later);
    assert_eq!(said(links.capacities(later)), []);
    assert!(links.take_hello(later));
}

#[test]
fn who_has_left_says_and_takes_nothing() {
    let (mut links, now) = worker_links();
    links.take(now, batch("a", "l", 1, 0));
    links.leave();
    assert!(links.take(now, batch("a", "l", 1, 1)).is_empty());
    assert!(!links.take_hello(now + 60 * SECOND));
    assert_eq!(said(links.capacities(now + 60 * SECOND)), []);
}

/// A worker that no node receives must not look like one without work, and must log that only once.
#[test]
fn that_nobody_has_answered_is_news_once() {
    let (mut links, now) = worker_links();
    assert!(!links.take_unanswered(now + SECOND));
    assert!(links.take_unanswered(now + 2 * SECOND));
    assert!(!links.take_unanswered(now + 3 * SECOND));
    let (mut links, now) = worker_links();
    links.take(now, batch("a", "l", 1, 0));
    assert!(!links.take_unanswered(now + 9 * SECOND), "a node has");
    let (mut links, now) = worker_links();
    links.leave();
    assert!(!links.take_unanswered(now + 9 * SECOND), "it waits no longer");
}

/// LEASE-19: which lost Steps go back because another node gave one too, of which this node may not
/// know. Each goes back once, and a Step of the same name in another session is another.
#[test]
fn what_was_lost_goes_back_where_another_node_gave_such_a_step_just_now() {
    let (mut links, now) = worker_links();
    let mut next = BTreeMap::<&str, u64>::new();
    let mut gives =
        |links: &mut WorkerLinks, after_ms: u64, node: &'static str, session: &str, step: &str| {
            let first = next.entry(node).or_insert(1);
            let batch = lost(node, *first, session, step);
            *first += 1;
            let [came] = &links.take(now + Duration::from_millis(after_ms), batch)[..] else {
                panic!("one comes")
            };
            matches!(came, Delivery::Crossed(_))
        };
    assert!(!gives(&mut links, 0, "n1", "s", "a"), "it is the first");
    assert!(!gives(&mut links, 1, "n1", "s", "b"), "the same node knows");
    assert!(gives(&mut links, 499, "n2", "s", "c"));
    assert!(!gives(&mut links, 500, "n2", "s", "c"), "it comes again");
    assert!(gives(&mut links, 501, "n1", "s", "d"), "the last that was kept is of another node");
    assert!(gives(&mut links, 502, "n1", "other", "d"));
    assert!(!gives(&mut links, 503, "n1", "s", "d"));
    assert!(gives(&mut links, 504, "n2", "s", "c"), "it was kept meanwhile");
    assert!(!gives(&mut links, 1_500, "n3", "s", "e"), "all have heard of the others");
    assert_eq!(links.capacities(now)[0].1.lost, 9, "what goes back counts until it has gone");

    let seen = links.handed;
    links.note(Credit { free: 1, seen, lost: 0, number: 1 });
    assert!(!gives(&mut links, 1_501, "n1", "s", "f"), "what n3 gave is over");
}

/// LEASE-19: a Step that was lost is counted once: by the links until the pool counts it.
#[test]
fn a_step_that_was_lost_is_stated_once_while_others_are_handed_over() {
    let (mut links, now) = worker_links();
    links.take(now, lost("n1", 1, "s", "a"));
    links.take(now, lost("n1", 2, "s", "b"));
    assert_eq!(links.capacities(now)[0].1.lost, 2);
    links.note(Credit { free: 1, seen: 1, lost: 1, number: 1 });
    assert_eq!(links.lost(), 2, "the pool has seen the first of them");
    links.note(Credit { free: 1, seen: 2, lost: 2, number: 2 });
    assert_eq!(links.lost(), 2, "and now both");
}

/// LEASE-19: the new owner of a partition repeats Attempts that the worker has, and those that it
/// gave back.
#[test]
fn an_attempt_that_another_node_repeats_is_judged_as_it_was() {
    let (mut links, now) = worker_links();
    let from = |node: &str, batch: &Deliveries| Deliveries { node: node.into(), ..batch.clone() };
    let (kept, back) = (lost("n1", 1, "s", "a"), lost("n2", 1, "s", "b"));
    assert!(matches!(links.take(now, kept.clone())[..], [Delivery::Grant(_)]));
    assert!(matches!(links.take(now, back.clone())[..], [Delivery::Crossed(_)]));
    assert!(matches!(links.take(now, from("n3", &kept))[..], [Delivery::Grant(_)]));
    assert!(matches!(links.take(now, from("n4", &back))[..], [Delivery::Crossed(_)]));
    let again = lost("n4", 2, "s", "b");
    assert!(matches!(links.take(now, again)[..], [Delivery::Grant(_)]), "another Attempt stays");
}

/// The worker remembers only so many Steps that it gave back.
#[test]
fn steps_that_went_back_long_ago_are_forgotten() {
    let (mut links, now) = worker_links();
    links.take(now, lost("n1", 1, "s", "a"));
    for (first, step) in (1..).zip((0..=JUDGED_KEPT).map(|step| format!("s{step}"))) {
        assert!(matches!(
            links.take(now, lost("n2", first, "s", &step))[..],
            [Delivery::Crossed(_)]
        ));
    }
    assert_eq!(links.judged.len(), JUDGED_KEPT);
    assert!(links.judged.iter().all(|it| it.step.2.as_str() != "s0"));
}

/// LEASE-19: however many lost Steps stay meanwhile, one that went back is known when it comes again.
#[test]
fn a_step_that_went_back_is_known_behind_many_that_stayed() {
    let (mut links, now) = worker_links();
    links.take(now, lost("n1", 1, "s", "a"));
    assert!(matches!(links.take(now, lost("n2", 1, "s", "b"))[..], [Delivery::Crossed(_)]));
    for (first, step) in (2..).zip((0..=JUDGED_KEPT).map(|step| format!("s{step}"))) {
        let came = links.take(now, lost("n1", first, "s", &step));
        assert!(matches!(came[..], [Delivery::Grant(_)]), "the same node knows of them");
    }
    assert!(matches!(links.take(now, lost("n2", 2, "s", "b"))[..], [Delivery::Grant(_)]));
}
