use std::sync::Arc;

use tenure_core::id::Ref;
use tenure_wire::bus::worker::LateInput;

use super::super::CONCURRENCY_MAX;
use super::super::double::{LEASE_MS, claim, lost_claim, offer};
use super::*;

const MS: Duration = Duration::from_millis(1);

/// The account of a worker that runs so many Steps at a time, whose client waits for deliveries.
fn waiting(concurrency: usize) -> LinkAccount {
    let mut account = LinkAccount::new(concurrency, Instant::now());
    account.begin_fetch(None, Instant::now()).unwrap();
    account
}

fn grant(account: &mut LinkAccount, claim: &ClaimResult) -> Arrival {
    account.arrive(Delivery::Grant(Box::new(claim.clone())), Instant::now())
}

/// The statement that is due: what is free, what was seen, how many lost Steps are in hand.
fn stated(account: &mut LinkAccount) -> Option<(u64, u64, u64)> {
    account.credit(Instant::now()).map(|it| (it.free, it.seen, it.lost))
}

/// How many deliveries a request with this number gets.
fn fetched(account: &mut LinkAccount, turn: u64) -> usize {
    match account.fetch(turn) {
        FetchAnswer::Page(page) | FetchAnswer::Nothing(page) => page.deliveries.len(),
    }
}

fn surplus(of: &[ClaimResult]) -> Vec<ReturnedStep> {
    let how = GiveBack::because(ReleaseReason::Surplus);
    of.iter().map(|it| ReturnedStep { holding: Holding::of(it), how }).collect()
}

#[tokio::test(start_paused = true)]
async fn capacity_is_what_runs_at_a_time_less_what_is_in_hand() {
    let mut account = LinkAccount::new(2, Instant::now());
    assert_eq!(stated(&mut account), None, "nobody asks for deliveries yet");
    let turn = account.begin_fetch(None, Instant::now()).unwrap();
    assert_eq!(stated(&mut account), Some((2, 0, 0)));
    let (one, other) = (claim("a"), claim("b"));
    assert_eq!(grant(&mut account, &one), Arrival::Waits);
    assert_eq!(stated(&mut account), None, "what came has used what was stated");
    assert_eq!(grant(&mut account, &other), Arrival::Waits);
    assert_eq!(fetched(&mut account, turn), 2);
    account.hand.begin_final(one.attempt_id);
    assert_eq!(stated(&mut account), Some((1, 2, 0)));
    account.concurrency = 1;
    assert_eq!(stated(&mut account), Some((0, 2, 0)));
    let restated = account.restate(Instant::now());
    assert_eq!((restated.free, restated.number), (0, 4), "each statement has its number");
}

/// LEASE-19: how many lost Steps are in hand is stated as soon as it changes.
#[tokio::test(start_paused = true)]
async fn lost_steps_in_hand_are_stated() {
    let mut account = waiting(2);
    stated(&mut account);
    let lost = lost_claim("a");
    grant(&mut account, &lost);
    assert_eq!(stated(&mut account), Some((1, 1, 1)));
    account.hand.begin_final(lost.attempt_id);
    assert_eq!(stated(&mut account), Some((2, 1, 0)));
    let crossed = lost_claim("b");
    let came = account.arrive(Delivery::Crossed(Box::new(crossed.clone())), Instant::now());
    assert_eq!(came, Arrival::Returned(surplus(&[crossed]).remove(0)));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_twice_is_handed_out_once() {
    let mut account = waiting(2);
    let it = claim("a");
    assert_eq!(grant(&mut account, &it), Arrival::Waits);
    assert_eq!(grant(&mut account, &it), Arrival::Dropped);
    assert_eq!((fetched(&mut account, 1), account.seen), (1, 2));
    account.hand.end(it.attempt_id);
    assert_eq!(grant(&mut account, &it), Arrival::Dropped, "it is over");
    assert_eq!(account.restate(Instant::now()).free, 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_asking_gets_no_work() {
    let mut account = waiting(2);
    stated(&mut account);
    let (sent, unsent) = (claim("a"), claim("b"));
    grant(&mut account, &sent);
    fetched(&mut account, 1);
    account.end_fetch(1, Instant::now());
    grant(&mut account, &unsent);
    assert_eq!(account.due(Instant::now()), Some(Instant::now() + FETCH_GAP));
    tokio::time::advance(FETCH_GAP - MS).await;
    assert_eq!((account.settle(Instant::now()), stated(&mut account)), (vec![], None));
    tokio::time::advance(MS).await;
    assert_eq!(account.settle(Instant::now()), surplus(&[unsent]));
    assert_eq!(stated(&mut account), None, "no slot is offered for it");
    let turn = account.begin_fetch(None, Instant::now()).unwrap();
    assert_eq!(stated(&mut account), Some((1, 2, 0)), "it asks again");
    assert_eq!(fetched(&mut account, turn), 1, "what was sent may be in its hands");
}

#[tokio::test(start_paused = true)]
async fn the_capacity_of_a_client_that_stops_asking_is_taken_back() {
    let mut account = waiting(2);
    assert_eq!(stated(&mut account), Some((2, 0, 0)));
    account.end_fetch(1, Instant::now());
    assert_eq!(stated(&mut account), None, "it has the time to ask again");
    tokio::time::advance(FETCH_GAP).await;
    assert_eq!(stated(&mut account), Some((0, 0, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_client_is_silent_after_a_lease() {
    let mut account = waiting(1);
    tokio::time::advance(10 * SILENCE).await;
    let now = Instant::now();
    assert!(account.due(now).is_none() && !account.is_silent(now), "it waits for deliveries");
    account.end_fetch(1, now);
    tokio::time::advance(SILENCE - MS).await;
    assert!(!account.is_silent(Instant::now()));
    account.touch(Instant::now());
    tokio::time::advance(SILENCE - MS).await;
    assert!(!account.is_silent(Instant::now()));
    assert_eq!(account.due(Instant::now()), Some(Instant::now() + MS));
    tokio::time::advance(MS).await;
    assert!(account.is_silent(Instant::now()));
}

/// A client that heartbeats each third of a long lease is not silent between two heartbeats.
#[tokio::test(start_paused = true)]
async fn a_long_lease_in_hand_makes_for_long_patience() {
    let mut account = waiting(1);
    let lease_ms = 10 * LEASE_MS;
    grant(&mut account, &ClaimResult { lease_ms, ..claim("a") });
    account.end_fetch(1, Instant::now());
    tokio::time::advance(Duration::from_millis(lease_ms) - MS).await;
    assert!(!account.is_silent(Instant::now()));
    tokio::time::advance(MS).await;
    assert!(account.is_silent(Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_later_request_takes_the_place_of_an_earlier_one() {
    let mut account = waiting(1);
    let second = account.begin_fetch(None, Instant::now()).unwrap();
    grant(&mut account, &claim("a"));
    assert!(matches!(account.fetch(1), FetchAnswer::Page(page) if page.deliveries.is_empty()));
    assert_eq!(fetched(&mut account, second), 1);
    account.end_fetch(1, Instant::now());
    assert!(account.due(Instant::now()).is_none(), "the second one still waits");
}

/// LEASE-18: after a drain the worker gets nothing more; a grant that crosses it goes back.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_to_leave_gets_nothing_more() {
    let mut account = waiting(2);
    stated(&mut account);
    grant(&mut account, &claim("a"));
    assert_eq!(account.arrive(Delivery::Drain(Some(5)), Instant::now()), Arrival::Waits);
    assert!(account.is_draining());
    assert_eq!(stated(&mut account), Some((0, 1, 0)));
    let late = claim("b");
    let how = GiveBack::because(ReleaseReason::Draining);
    let returned = ReturnedStep { holding: Holding::of(&late), how };
    assert_eq!(grant(&mut account, &late), Arrival::Returned(returned));
    assert_eq!(grant(&mut account, &late), Arrival::Dropped, "it goes back once");
    assert_eq!(account.arrive(Delivery::Run(Box::new(offer())), Instant::now()), Arrival::Dropped);
    assert_eq!(fetched(&mut account, 1), 2, "the first grant and the drain");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_lost_frees_its_slot() {
    let mut account = waiting(3);
    let (unsent, sent) = (claim("a"), claim("b"));
    grant(&mut account, &unsent);
    let lost = |it: &ClaimResult| Delivery::Lost(it.attempt_id);
    assert_eq!(account.arrive(lost(&unsent), Instant::now()), Arrival::Dropped);
    grant(&mut account, &sent);
    assert_eq!(fetched(&mut account, 1), 1);
    assert_eq!(account.arrive(lost(&sent), Instant::now()), Arrival::Waits);
    assert_eq!(account.arrive(lost(&sent), Instant::now()), Arrival::Dropped, "said once");
    let cancelled = Delivery::CancelRequested(sent.attempt_id, None);
    assert_eq!(account.arrive(cancelled, Instant::now()), Arrival::Dropped);
    assert_eq!(account.hand.slots(), 0);
    let turn = account.begin_fetch(None, Instant::now()).unwrap();
    assert_eq!(fetched(&mut account, turn), 1, "the loss comes again, and the grant does not");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_loses_an_attempt_gets_nothing_until_it_asks() {
    let mut account = waiting(2);
    let it = claim("a");
    grant(&mut account, &it);
    fetched(&mut account, 1);
    account.end_fetch(1, Instant::now());
    assert_eq!(stated(&mut account), Some((1, 1, 0)));
    account.arrive(Delivery::Lost(it.attempt_id), Instant::now());
    assert_eq!(stated(&mut account), Some((0, 1, 0)));
    account.begin_fetch(None, Instant::now()).unwrap();
    assert_eq!(stated(&mut account), Some((2, 1, 0)));
}

/// The scheduler may say that an Attempt is over before it answers the report that ended it.
#[tokio::test(start_paused = true)]
async fn a_client_that_ends_an_attempt_does_not_lose_it() {
    let mut account = waiting(2);
    let it = claim("a");
    grant(&mut account, &it);
    fetched(&mut account, 1);
    account.end_fetch(1, Instant::now());
    account.hand.begin_final(it.attempt_id);
    let lost = Delivery::Lost(it.attempt_id);
    assert_eq!(account.arrive(lost, Instant::now()), Arrival::Dropped);
    assert_eq!(stated(&mut account), Some((2, 1, 0)), "it is there, and gets work");
}

#[tokio::test(start_paused = true)]
async fn a_claim_takes_the_slot_of_its_offer() {
    let mut account = waiting(1);
    let run = offer();
    assert_eq!(
        account.arrive(Delivery::Run(Box::new(run.clone())), Instant::now()),
        Arrival::Waits
    );
    assert_eq!(account.hand.slots(), 1);
    let claimed = ClaimResult { run_id: run.run_id, ..claim("a") };
    account.hand.claimed(&claimed, Instant::now());
    account.hand.claimed(&claimed, Instant::now());
    assert_eq!(account.hand.slots(), 1, "the answer may be asked for twice");
    account.hand.end(claimed.attempt_id);
    account.hand.claimed(&claimed, Instant::now());
    assert_eq!(account.hand.slots(), 0);
}

#[tokio::test(start_paused = true)]
async fn little_waits_for_a_client_whatever_its_concurrency() {
    let mut account = waiting(CONCURRENCY_MAX);
    assert_eq!(stated(&mut account), Some((UNACKNOWLEDGED_MAX as u64, 0, 0)));
    for number in 0..UNACKNOWLEDGED_MAX {
        grant(&mut account, &claim(&format!("a{number}")));
    }
    assert_eq!(account.restate(Instant::now()).free, 0);
    let turn = account.begin_fetch(None, Instant::now()).unwrap();
    let FetchAnswer::Page(page) = account.fetch(turn) else { panic!("there is work") };
    account.begin_fetch(Some(page.last), Instant::now()).unwrap();
    assert_eq!(account.restate(Instant::now()).free, UNACKNOWLEDGED_MAX as u64);
}

/// CLAIM-14: a claim may have a megabyte, so that few of them are as much as a link may hold.
#[tokio::test(start_paused = true)]
async fn long_steps_wait_up_to_so_many_bytes() {
    let mut account = waiting(CONCURRENCY_MAX);
    let input_refs: Arc<[Ref]> = vec![Ref::new("x".repeat(4_096)).unwrap(); 255].into();
    let long = |number: usize| ClaimResult {
        input_refs: Arc::clone(&input_refs),
        ..claim(&format!("a{number}"))
    };
    let waits = (0..).take_while(|it| grant(&mut account, &long(*it)) == Arrival::Waits).count();
    assert_eq!(waits, 17, "the last one has made it too much");
    assert_eq!(account.restate(Instant::now()).free, 0, "no more are asked for");
    let late = long(100);
    assert_eq!(grant(&mut account, &late), Arrival::Returned(surplus(&[late]).remove(0)));
    let late = account.arrive(Delivery::Run(Box::new(offer())), Instant::now());
    assert_eq!(late, Arrival::Dropped);
    let turn = account.begin_fetch(None, Instant::now()).unwrap();
    let FetchAnswer::Page(page) = account.fetch(turn) else { panic!("there is work") };
    account.begin_fetch(Some(page.last), Instant::now()).unwrap();
    assert!(account.restate(Instant::now()).free > 0, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn what_the_client_never_got_goes_back_when_it_leaves() {
    let (first, second, third) = (claim("a"), claim("b"), claim("c"));
    let closed = |after: Option<u64>| {
        let mut account = waiting(3);
        for it in [&first, &second] {
            grant(&mut account, it);
        }
        fetched(&mut account, 1);
        grant(&mut account, &third);
        let returned = account.close(after);
        assert!(account.is_over() && account.restate(Instant::now()).free == 0);
        returned
    };
    assert_eq!(
        closed(None),
        surplus(std::slice::from_ref(&third)),
        "the client may have the others"
    );
    assert_eq!(closed(Some(1)), surplus(&[second.clone(), third.clone()]));
    assert_eq!(closed(Some(0)), surplus(&[first.clone(), second.clone(), third.clone()]));
}

/// CTRL-12: what finds no place is dropped, and counts for nothing; a heartbeat has it repeated.
#[tokio::test(start_paused = true)]
async fn late_input_waits_for_the_client() {
    let mut account = waiting(1);
    let it = claim("a");
    grant(&mut account, &it);
    let input = LateInput { attempt_id: it.attempt_id, after: 0, input_refs: vec![] };
    assert_eq!(account.arrive(Delivery::Input(Box::new(input)), Instant::now()), Arrival::Waits);
    assert_eq!(fetched(&mut account, 1), 2);
}

fn room(free: u64, seen: u64, number: u64) -> Credit {
    Credit { free, seen, lost: 0, number }
}

/// Mechanisms 8: what a worker says that counts by itself is absolute. What waits for it, and what it was sent,
/// uses it, and an older statement that comes late changes nothing.
#[tokio::test(start_paused = true)]
async fn a_worker_that_counts_by_itself_gets_what_it_asks_for() {
    let mut account = waiting(0);
    assert_eq!(stated(&mut account), None, "it has said nothing yet");
    account.take_room(room(2, 0, 2));
    account.take_room(room(9, 0, 1));
    assert_eq!(stated(&mut account), Some((2, 0, 0)));
    let (one, other) = (claim("a"), claim("b"));
    assert_eq!(grant(&mut account, &one), Arrival::Waits);
    assert_eq!(grant(&mut account, &one), Arrival::Dropped);
    assert_eq!(stated(&mut account), Some((1, 2, 0)), "what came twice has used capacity once");
    account.hand.begin_final(one.attempt_id);
    assert_eq!(stated(&mut account), None, "the worker itself says when a slot is free");
    assert_eq!(grant(&mut account, &other), Arrival::Waits);
    let turn = account.begin_fetch(Some(1), Instant::now()).unwrap();
    assert_eq!((fetched(&mut account, turn), account.restate(Instant::now()).free), (1, 0));
    account.take_room(room(2, 1, 3));
    assert_eq!(stated(&mut account), Some((1, 3, 0)), "it has not counted the second one yet");
    account.take_room(room(0, 2, 4));
    assert_eq!(stated(&mut account), Some((0, 3, 0)));
}

/// A worker that joins again may be another process under the same boot: what the former one said counts no more.
#[tokio::test(start_paused = true)]
async fn a_worker_that_joins_again_says_its_capacity_anew() {
    let mut account = waiting(0);
    account.take_room(room(2, 0, 9));
    assert_eq!(stated(&mut account), Some((2, 0, 0)));
    account.join_again(0);
    assert_eq!(stated(&mut account), Some((0, 0, 0)));
    account.take_room(room(1, 0, 1));
    assert_eq!(stated(&mut account), Some((1, 0, 0)), "its numbers may begin again, too");
    account.join_again(3);
    assert_eq!(stated(&mut account), Some((3, 0, 0)), "it does not count by itself any more");
}

/// LEASE-19: the worker knows of lost Steps that came over its former links.
#[tokio::test(start_paused = true)]
async fn a_worker_that_counts_by_itself_says_which_lost_steps_it_has() {
    let mut account = waiting(0);
    account.take_room(Credit { lost: 1, ..room(2, 0, 1) });
    assert_eq!(stated(&mut account), Some((2, 0, 1)));
    grant(&mut account, &lost_claim("a"));
    account.take_room(room(2, 0, 2));
    let Credit { free, seen, lost, .. } = account.restate(Instant::now());
    assert_eq!((free, seen, lost), (1, 1, 1), "one waits for it");
}

/// DISP-16: a Run that a worker has let go is offered again, perhaps to the same worker.
#[tokio::test(start_paused = true)]
async fn a_run_comes_again_to_a_worker_that_counts_by_itself() {
    let mut account = waiting(0);
    account.take_room(room(2, 0, 1));
    let run = offer();
    let offered = || Delivery::Run(Box::new(run.clone()));
    assert_eq!(account.arrive(offered(), Instant::now()), Arrival::Waits);
    assert_eq!(account.arrive(offered(), Instant::now()), Arrival::Waits, "it may have let it go");
    let mut counted = waiting(2);
    assert_eq!(counted.arrive(offered(), Instant::now()), Arrival::Waits);
    assert_eq!(counted.arrive(offered(), Instant::now()), Arrival::Dropped, "it is in hand");
}
