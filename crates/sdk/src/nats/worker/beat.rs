//! Sends the heartbeats of a worker: one message for all Attempts, and an answer from every node
//! that owns some of their Tasks.

use std::pin::pin;

use futures::future::join_all;
use tenure_core::Rejection;
use tenure_ports::bus::{Holding, Pulse};
use tenure_wire::bus::worker::{Heartbeat, Pulses};
use tenure_wire::bus::{V, encode};

use super::Inner;
use crate::roll::{HOLDINGS_MAX, Roll, patience};

/// Renews leases. An Attempt that no answer mentions is neither renewed nor lost.
pub(super) async fn heartbeat(inner: &Inner, holdings: &[Holding]) -> Vec<Pulse> {
    let parts = holdings.chunks(HOLDINGS_MAX).map(|part| beat(inner, part));
    join_all(parts).await.concat()
}

async fn beat(inner: &Inner, holdings: &[Holding]) -> Vec<Pulse> {
    let mut roll = Roll::of(holdings);
    if let Err(refused) = ask_all(inner, holdings, &mut roll).await {
        tracing::debug!(%refused, "a heartbeat was not sent");
    }
    roll.into_pulses()
}

async fn ask_all(inner: &Inner, holdings: &[Holding], roll: &mut Roll) -> Result<(), Rejection> {
    let message = Heartbeat { v: V, holdings: holdings.iter().map(Into::into).collect() };
    let body = encode(&message)?.into();
    let subject = format!("{}.hb", inner.root);
    let mut asked = inner.connection.ask_all(subject, body, patience(holdings)).await?;
    let mut replaced = pin!(inner.connection.replaced());
    while !roll.is_whole() {
        let said = tokio::select! {
            said = asked.next::<Pulses>() => said,
            // No more answers come over the old connection, so the next heartbeat need not wait for
            // them.
            () = &mut replaced => break,
        };
        match said {
            Some(Ok(pulses)) => pulses.pulses.into_iter().for_each(|said| roll.take(said)),
            Some(Err(refused)) => tracing::debug!(%refused, "a node renews nothing"),
            None => break,
        }
    }
    Ok(())
}
