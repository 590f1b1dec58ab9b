//! What goes on as long as a worker is there: it fetches deliveries, joins again when its link is over, and
//! says its capacity when that has changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use hyper::Method;
use serde::{Deserialize, Serialize};
use tenure_core::{Code, Rejection};
use tenure_ports::bus::Delivery;
use tenure_wire::bus::worker::Delivery as Sent;
use tokio::time::sleep;

use super::link::{FetchedPage, LinkedGateway, SaidCapacity, json};
use super::{ANSWER, FAREWELL, HttpWorkerShared, JoinState};
use crate::pauses::Pauses;

/// First and longest pause before the worker tries again to join.
const PAUSES: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(2));

/// The pause before a request for deliveries that has failed at a gateway which still has the link.
const AGAIN: Duration = Duration::from_millis(100);

/// Fetches deliveries for the pool, at one gateway after another, until no gateway lets the worker in.
pub(super) async fn keep(
    shared: Arc<HttpWorkerShared>,
    mut linked: Arc<LinkedGateway>,
    to_pool: UnboundedSender<Delivery>,
) {
    loop {
        let why = fetch(&shared, &linked, &to_pool).await;
        tracing::warn!(gateway = linked.shown(), %why, "the link of this worker is over; it joins again");
        if !shared.turn_to(JoinState::Joining) {
            return; // It has left.
        }
        if why.code != Code::WorkerGone {
            shared.join.gateways.move_on(linked.place);
        }
        linked = match join_again(&shared, &linked).await {
            Ok(next) => next,
            Err(refused) => {
                tracing::error!(%refused, "no gateway lets this worker in any more");
                shared.turn_to(JoinState::Over(refused));
                return;
            }
        };
        tracing::info!(gateway = linked.shown(), "this worker has joined again");
        if !shared.turn_to(JoinState::Linked(Arc::clone(&linked))) {
            let _ = linked.leave(FAREWELL).await; // A link that nobody uses ends by itself, too.
            return;
        }
        shared.room_changed.notify_one();
    }
}

/// Joins again at any of the gateways, for as long as it takes. What the worker has in hand it goes on
/// with: its next heartbeat and its reports name it.
///
/// # Errors
/// The refusal of a gateway, when none of the others has let the worker in either.
async fn join_again(
    shared: &HttpWorkerShared,
    before: &LinkedGateway,
) -> Result<Arc<LinkedGateway>, Rejection> {
    let gateways = &shared.join.gateways;
    let mut pauses = Pauses::between(PAUSES.0, PAUSES.1);
    loop {
        let mut denied = None;
        for _ in 0..gateways.count() {
            let (at, _) = gateways.current();
            match shared.join.once().await {
                Ok(answer) => return shared.link_of(answer, Some(before)),
                Err(refused) if refused.code.is_retryable() => {
                    tracing::debug!(%refused, "this worker cannot join yet");
                    sleep(pauses.after(&refused)).await;
                }
                Err(last) => {
                    tracing::warn!(refused = %last, "a gateway does not let this worker in");
                    gateways.move_on(at);
                    denied = Some(last);
                }
            }
        }
        if let Some(denied) = denied {
            return Err(denied);
        }
    }
}

/// Fetches deliveries until the link is over, and answers why it is.
async fn fetch(
    shared: &HttpWorkerShared,
    linked: &LinkedGateway,
    to_pool: &UnboundedSender<Delivery>,
) -> Rejection {
    loop {
        let page = tokio::select! {
            page = linked.fetch() => page,
            gone = gone_while_unanswered(shared, linked) => return gone,
        };
        match page {
            Ok(page) => hand_over(shared, linked, page, to_pool),
            Err(refused) if refused.code.is_retryable() => {
                // A single lost answer ends nothing: the deliveries come again.
                if let Err(gone) = linked.look().await {
                    return gone;
                }
                sleep(AGAIN).await;
            }
            Err(last) => return last,
        }
    }
}

/// Looks at the gateway whenever it has not answered a heartbeat, and answers why the link is over once it is.
async fn gone_while_unanswered(shared: &HttpWorkerShared, linked: &LinkedGateway) -> Rejection {
    loop {
        shared.unanswered.notified().await;
        if let Err(gone) = linked.look().await {
            return gone;
        }
    }
}

/// The number of a delivery, which stands beside what is delivered.
#[derive(Deserialize)]
struct GivenNumber {
    number: u64,
}

/// Gives the pool what it has not had yet.
fn hand_over(
    shared: &HttpWorkerShared,
    linked: &LinkedGateway,
    page: FetchedPage,
    to_pool: &UnboundedSender<Delivery>,
) {
    for json in &page.deliveries {
        match serde_json::from_str::<GivenNumber>(json.get()) {
            Ok(GivenNumber { number }) if number <= linked.after() => continue,
            _ => {}
        }
        let Ok(sent) = serde_json::from_str::<Sent>(json.get()) else {
            tracing::warn!("a delivery cannot be read; its step goes to another worker later");
            continue;
        };
        let uses_capacity = sent.uses_capacity();
        let Some(delivery) = Delivery::of(sent) else { continue };
        if uses_capacity {
            shared.came.fetch_add(1, Ordering::AcqRel);
        }
        let _ = to_pool.unbounded_send(delivery); // The pool may have gone.
    }
    linked.note_came(page.last);
}

/// A change of a worker: its capacity.
#[derive(Serialize)]
struct CapacityMessage {
    room: SaidCapacity,
}

/// Says the worker's capacity whenever it has changed and no report has said it, until the worker is over.
pub(super) async fn say_room(shared: Arc<HttpWorkerShared>) {
    let mut pauses = Pauses::between(PAUSES.0, PAUSES.1);
    loop {
        shared.room_changed.notified().await;
        match say_room_once(&shared).await {
            Ok(()) => pauses = Pauses::between(PAUSES.0, PAUSES.1),
            Err(refused) if refused.code.is_retryable() => {
                sleep(pauses.after(&refused)).await;
                shared.room_changed.notify_one();
            }
            Err(refused) if shared.state.borrow().is_over() => {
                tracing::debug!(%refused, "this worker says its capacity to nobody any more");
                return;
            }
            Err(refused) => {
                tracing::warn!(%refused, "the gateway does not take this worker's capacity")
            }
        }
    }
}

async fn say_room_once(shared: &HttpWorkerShared) -> Result<(), Rejection> {
    let linked = shared.linked(ANSWER).await?;
    let Some(room) = shared.room_on(&linked) else { return Ok(()) };
    if !linked.has_room(room.number) {
        let request = json(Method::PATCH, String::new(), &CapacityMessage { room })?;
        shared.send_on(&linked, &request, ANSWER).await?;
        linked.note_room(room.number);
    }
    Ok(())
}
