//! Sends the heartbeats of a worker to its gateway, which asks all nodes.

use futures::future::join_all;
use hyper::Method;
use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::id::{AttemptId, RunId, SessionId, TaskId};
use tenure_ports::bus::{Holding, Pulse};
use tenure_wire::bus::worker::Pulses;

use super::HttpWorkerShared;
use super::link::{json, read};
use crate::roll::{HOLDINGS_MAX, Roll, patience};

/// The gateway waits for all nodes as long as a worker on the bus does. The worker gives it twice that
/// time, so that a node that is late spoils no other node's answer.
const TIMES_LONGER: u32 = 2;

/// A heartbeat as the gateway reads it.
#[derive(Serialize)]
struct HeartbeatMessage<'a> {
    holdings: Vec<SaidHolding<'a>>,
}

/// An open Attempt. Its gateway may know nothing of it yet.
#[derive(Serialize)]
struct SaidHolding<'a> {
    session_id: &'a SessionId,
    task_id: &'a TaskId,
    run_id: RunId,
    attempt_id: AttemptId,
    fencing_token: u64,
    lease_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_seen: Option<u64>,
}

impl<'a> From<&'a Holding> for SaidHolding<'a> {
    fn from(held: &'a Holding) -> Self {
        Self {
            session_id: &held.task.session_id,
            task_id: &held.task.task_id,
            run_id: held.run_id,
            attempt_id: held.attempt_id,
            fencing_token: held.fencing_token,
            lease_ms: held.lease_ms,
            input_seen: held.input_seen,
        }
    }
}

/// Renews leases. An Attempt that the answer does not mention is neither renewed nor lost.
pub(super) async fn heartbeat(shared: &HttpWorkerShared, holdings: &[Holding]) -> Vec<Pulse> {
    let parts = holdings.chunks(HOLDINGS_MAX).map(|part| beat(shared, part));
    join_all(parts).await.concat()
}

async fn beat(shared: &HttpWorkerShared, holdings: &[Holding]) -> Vec<Pulse> {
    let mut roll = Roll::of(holdings);
    match ask(shared, holdings).await {
        Ok(Pulses { pulses }) => pulses.into_iter().for_each(|said| roll.take(said)),
        Err(refused) => {
            tracing::debug!(%refused, "a heartbeat renews nothing");
            shared.unanswered.notify_one();
        }
    }
    roll.into_pulses()
}

async fn ask(shared: &HttpWorkerShared, holdings: &[Holding]) -> Result<Pulses, Rejection> {
    let message = HeartbeatMessage { holdings: holdings.iter().map(Into::into).collect() };
    let request = json(Method::POST, "/heartbeat".into(), &message)?;
    read(&shared.send(&request, TIMES_LONGER * patience(holdings)).await?)
}
