use std::sync::Arc;

use futures::channel::mpsc::{UnboundedSender, unbounded};
use serde_json::Value as Json;
use tenure_core::Code;
use tenure_core::event::ReleaseReason;
use tenure_wire::bus::output::OutputStream;
use tokio::time::sleep;

use super::super::FETCH_GAP;
use super::super::account::SILENCE;
use super::super::double::{DoubleCall, PortDouble, RECORDED, claim, offer};
use super::*;

const SOON: Duration = Duration::from_secs(1);

fn link(concurrency: usize) -> (Arc<HttpLink<PortDouble>>, UnboundedSender<Delivery>) {
    let owner = LinkOwner {
        principal: Token::new("ant").unwrap(),
        role: Role::Worker,
        pool: PoolId::new("default").unwrap(),
        boot: Token::new("b1").unwrap(),
    };
    let port = PortDouble::default();
    let link = Arc::new(HttpLink::new(owner, Abilities::default(), port, concurrency));
    let (sender, deliveries) = unbounded();
    let tending = Arc::clone(&link);
    tokio::spawn(async move { tending.tend(deliveries).await });
    (link, sender)
}

fn grant(claim: &ClaimResult) -> Delivery {
    Delivery::Grant(Box::new(claim.clone()))
}

fn numbers(page: &DeliveryPage) -> Vec<u64> {
    let read = |json: &str| serde_json::from_str::<Json>(json).unwrap();
    page.deliveries.iter().map(|it| read(it.get())["number"].as_u64().unwrap()).collect()
}

fn completes(claim: &ClaimResult) -> StepReport {
    StepReport { status: Some(StepStatus::Completed), ..StepReport::on(claim.step.step_id.clone()) }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_what_comes() {
    let (link, scheduler) = link(1);
    let since = Instant::now();
    let empty = link.fetch(None, SOON).await.unwrap();
    assert_eq!((numbers(&empty), since.elapsed()), (vec![], SOON));
    let granted = async {
        sleep(SOON).await;
        scheduler.unbounded_send(grant(&claim("a"))).unwrap();
    };
    let (page, ()) = tokio::join!(link.fetch(Some(0), 10 * SOON), granted);
    let page = page.unwrap();
    assert_eq!((numbers(&page), page.last, since.elapsed()), (vec![1], 1, 2 * SOON));
    let again = link.fetch(Some(0), SOON).await.unwrap();
    assert_eq!(numbers(&again), [1], "the answer got lost, and the client asks again");
    assert!(numbers(&link.fetch(Some(1), SOON).await.unwrap()).is_empty());
    let refused = link.fetch(Some(2), SOON).await.unwrap_err();
    assert_eq!(refused.code, Code::ValidationError);
    assert_eq!(*link.port.credits.lock(), [(1, 0)], "the grant has used what was stated");
}

#[tokio::test(start_paused = true)]
async fn a_second_request_ends_the_first() {
    let (link, scheduler) = link(1);
    let second = async {
        sleep(SOON).await;
        let late = async {
            sleep(SOON).await;
            scheduler.unbounded_send(grant(&claim("a"))).unwrap();
        };
        tokio::join!(link.fetch(None, 10 * SOON), late).0
    };
    let since = Instant::now();
    let first = async { (link.fetch(None, 10 * SOON).await.unwrap(), since.elapsed()) };
    let ((first, took), second) = tokio::join!(first, second);
    assert_eq!((numbers(&first), took), (vec![], SOON));
    assert_eq!(numbers(&second.unwrap()), [1]);
}

/// A worker that has joined at another gateway gets nothing here: what it was never sent goes back.
#[tokio::test(start_paused = true)]
async fn a_link_ends_when_its_worker_works_elsewhere() {
    let (link, scheduler) = link(2);
    let unsent = claim("b");
    scheduler.unbounded_send(grant(&claim("a"))).unwrap();
    link.fetch(None, SOON).await.unwrap();
    scheduler.unbounded_send(grant(&unsent)).unwrap();
    sleep(SOON).await;
    assert!(!link.is_over() && link.port.asked().is_empty(), "its client may ask again");
    link.port.elsewhere.notify_one();
    sleep(SOON).await;
    let returned = DoubleCall::Release(unsent.attempt_id, ReleaseReason::Surplus);
    assert_eq!((link.is_over(), link.port.asked()), (true, vec![returned]));
    assert_eq!(link.fetch(None, SOON).await.unwrap_err().code, Code::WorkerGone);
}

#[tokio::test(start_paused = true)]
async fn a_final_report_carries_the_capacity_that_it_frees() {
    let (link, scheduler) = link(1);
    let it = claim("a");
    scheduler.unbounded_send(grant(&it)).unwrap();
    link.fetch(None, SOON).await.unwrap();
    let held = Holding::of(&it);
    let recorded = link.report(&held, completes(&it)).await.unwrap();
    assert_eq!(recorded, RECORDED);
    let [DoubleCall::Report(attempt, Some(room))] = link.port.asked()[..] else {
        panic!("one report")
    };
    assert_eq!((attempt, room.free, room.seen), (it.attempt_id, 1, 1));
    assert_eq!(link.report(&held, completes(&it)).await.unwrap(), RECORDED, "it is said again");
    assert_eq!(link.port.asked().len(), 1, "the scheduler answers the repetition");
}

/// LEASE-13: a report with another token than the claim's does not even reach the scheduler.
#[tokio::test(start_paused = true)]
async fn a_report_needs_the_token_of_its_claim() {
    let (link, scheduler) = link(1);
    let it = claim("a");
    scheduler.unbounded_send(grant(&it)).unwrap();
    link.fetch(None, SOON).await.unwrap();
    let forged = Holding { fencing_token: it.fencing_token + 1, ..Holding::of(&it) };
    let refused = link.report(&forged, completes(&it)).await.unwrap_err();
    assert_eq!((refused.code, link.port.asked()), (Code::StaleAttempt, vec![]));
    let refused = link.release(&forged, GiveBack::default()).await.unwrap_err();
    assert_eq!((refused.code, link.port.asked()), (Code::StaleAttempt, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_refused_report_takes_its_slot_again() {
    let (link, scheduler) = link(1);
    let it = claim("a");
    scheduler.unbounded_send(grant(&it)).unwrap();
    link.fetch(None, SOON).await.unwrap();
    *link.port.refusal.lock() = Some(Rejection::invalid("output", "too long"));
    link.report(&Holding::of(&it), completes(&it)).await.unwrap_err();
    assert_eq!(link.port.credits.lock().last(), Some(&(0, 1)));
    *link.port.refusal.lock() = None;
    link.end_run(&Holding::of(&it), RunOutcome::Error, None).await.unwrap();
    assert_eq!(link.port.credits.lock().last(), Some(&(1, 1)));
}

/// A client that goes before its last word is answered may not have been heard: its slot is not given to another
/// Step until it has said the word again.
#[tokio::test(start_paused = true)]
async fn a_final_report_whose_client_has_gone_frees_nothing() {
    let (link, scheduler) = link(1);
    let it = claim("a");
    scheduler.unbounded_send(grant(&it)).unwrap();
    link.fetch(None, SOON).await.unwrap();
    *link.port.is_mute.lock() = true;
    let gone = timeout(SOON, link.report(&Holding::of(&it), completes(&it))).await;
    assert!(gone.is_err(), "nobody answers");
    assert_eq!(link.port.credits.lock().last(), Some(&(0, 1)));
    assert_eq!(link.account.lock().hand.slots(), 1);
    *link.port.is_mute.lock() = false;
    link.report(&Holding::of(&it), completes(&it)).await.unwrap();
    assert_eq!(link.port.credits.lock().last(), Some(&(1, 1)));
}

/// Leases are renewed when the client asks for it, and at no other time.
#[tokio::test(start_paused = true)]
async fn only_the_client_renews_leases() {
    let (link, scheduler) = link(2);
    let it = claim("a");
    scheduler.unbounded_send(grant(&it)).unwrap();
    link.fetch(None, 100 * SOON).await.unwrap();
    sleep(20 * SOON).await;
    assert_eq!(link.port.asked(), []);
    let pulses = link.heartbeat(vec![(Holding::of(&it), false)]).await.unwrap().pulses;
    assert_eq!(link.port.asked(), [DoubleCall::Heartbeat(1)]);
    assert_eq!((pulses[0].attempt_id, pulses[0].lease_ms), (it.attempt_id, Some(it.lease_ms)));
    *link.port.pulse.lock() = Pulse::Unknown;
    let pulses = link.heartbeat(vec![(Holding::of(&it), false)]).await.unwrap().pulses;
    assert_eq!(pulses, [], "neither renewed nor lost");
}

#[tokio::test(start_paused = true)]
async fn what_an_absent_client_was_never_sent_goes_to_another() {
    let (link, scheduler) = link(1);
    link.fetch(None, SOON).await.unwrap();
    let it = claim("a");
    scheduler.unbounded_send(grant(&it)).unwrap();
    sleep(FETCH_GAP - SOON).await;
    assert_eq!(link.port.asked(), []);
    sleep(2 * SOON).await;
    assert_eq!(link.port.asked(), [DoubleCall::Release(it.attempt_id, ReleaseReason::Surplus)]);
    let page = link.fetch(Some(0), SOON).await.unwrap();
    assert!(page.deliveries.is_empty());
    assert_eq!(link.port.credits.lock().last(), Some(&(1, 1)), "it is there again");
}

#[tokio::test(start_paused = true)]
async fn the_link_of_a_silent_client_ends() {
    let (link, scheduler) = link(1);
    link.fetch(None, SOON).await.unwrap();
    sleep(SILENCE - SOON).await;
    link.touch();
    sleep(SILENCE - SOON).await;
    assert!(!link.account.lock().is_over());
    sleep(2 * SOON).await;
    assert!(link.account.lock().is_over() && scheduler.is_closed());
    assert_eq!(link.port.credits.lock().last(), Some(&(0, 0)));
    assert_eq!(link.fetch(Some(0), SOON).await.unwrap_err().code, Code::WorkerGone);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_ends_answers_who_waits() {
    let (link, scheduler) = link(2);
    let (sent, unsent) = (claim("a"), claim("b"));
    scheduler.unbounded_send(grant(&sent)).unwrap();
    link.fetch(None, SOON).await.unwrap();
    let waits = link.fetch(Some(1), 10 * SOON);
    let leaves = async {
        sleep(SOON).await;
        scheduler.unbounded_send(grant(&unsent)).unwrap();
        link.close(Some(1)).await;
    };
    let (waited, ()) = tokio::join!(waits, leaves);
    assert_eq!(waited.unwrap_err().code, Code::WorkerGone);
    sleep(SOON).await;
    assert_eq!(
        link.port.asked(),
        [DoubleCall::Release(unsent.attempt_id, ReleaseReason::Draining)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_is_claimed_under_declined_or_let_go() {
    let (link, scheduler) = link(1);
    let [first, second, third] = [offer(), offer(), offer()];
    let offered = async |run: &RunOffer| {
        scheduler.unbounded_send(Delivery::Run(Box::new(run.clone()))).unwrap();
        sleep(SOON).await;
        assert_eq!(link.account.lock().hand.slots(), 1);
    };
    link.fetch(None, SOON).await.unwrap();
    offered(&first).await;
    let command = CommandId::new("c").unwrap();
    let claimed = link.claim(&first, &StepId::new("a").unwrap(), &command).await.unwrap();
    link.release(&Holding::of(&claimed), GiveBack::default()).await.unwrap();
    offered(&second).await;
    *link.port.refusal.lock() = Some(Rejection::new(Code::Unavailable, ""));
    link.leave(&second, None).await.unwrap_err();
    assert_eq!(link.account.lock().hand.slots(), 1, "it is said again");
    *link.port.refusal.lock() = None;
    link.leave(&second, None).await.unwrap();
    offered(&third).await;
    link.let_go(third.run_id);
    assert_eq!(link.account.lock().hand.slots(), 0);
    let left = DoubleCall::Leave(second.run_id, false);
    let released = DoubleCall::Release(claimed.attempt_id, ReleaseReason::Unfit);
    assert_eq!(link.port.asked(), [released, left.clone(), left]);
}

/// ART-09: the gateway does not have what a worker's commands wrote, and says so at once.
#[tokio::test(start_paused = true)]
async fn there_is_no_output_to_show() {
    let (link, scheduler) = link(1);
    let it = claim("a");
    let asked = OutputRequest {
        request: 5,
        node: "n1".into(),
        session_id: it.session_id.clone(),
        task_id: it.task_id.clone(),
        step_id: it.step.step_id.clone(),
        ordinal: 1,
        stream: OutputStream::Stdout,
        from: 0,
    };
    scheduler.unbounded_send(Delivery::ReadOutput(Box::new(asked))).unwrap();
    sleep(SOON).await;
    assert_eq!(link.port.asked(), [DoubleCall::Output(5)]);
}

#[tokio::test(start_paused = true)]
async fn nobody_learns_the_name_of_a_link_from_a_log() {
    let (link, _scheduler) = link(1);
    assert!(!format!("{link:?}").contains(&link.id));
}
