//! [`tend`]: ends sessions whose time is over, and carries out what a gateway that died has left.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream as Items;
use futures::{StreamExt as _, stream};
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort as _;
use tenure_ports::client::Changed;
use tokio::time::{Instant, sleep_until};

use super::now_ms;
use super::serve::ServedSessions;
use super::status::{MacpFault, MacpResult};
use crate::{Backend, Gateway};

/// How often a gateway looks for sessions that others have left.
const LOOK: Duration = Duration::from_secs(60);

/// How long it waits after a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// Looks after all sessions for as long as it is polled. Any number of gateways may do so.
pub(crate) async fn tend<B: Backend>(gateway: Arc<Gateway<B>>) {
    let Some(settings) = gateway.settings.macp.clone() else {
        return std::future::pending().await;
    };
    let settings = Arc::new(settings);
    let mut look_at = Instant::now();
    loop {
        let opened = ServedSessions::open(Arc::clone(&gateway), Arc::clone(&settings)).await;
        let Err(fault) = match opened {
            Ok(sessions) => sessions.tend_all(&mut look_at).await,
            Err(fault) => Err(fault),
        };
        tracing::debug!(?fault, "sessions of MACP are looked after a little later");
        tokio::time::sleep(PAUSE).await;
    }
}

impl<B: Backend> ServedSessions<B> {
    /// Looks after all sessions until something goes wrong.
    async fn tend_all(&self, look_at: &mut Instant) -> MacpResult<Infallible> {
        // Only where pools take part does anybody but a gateway change the Tasks.
        let mut changes = match self.settings.policies.now().pools().is_empty() {
            true => stream::pending().boxed(),
            false => self.client.port().changes(None).await?.boxed(),
        };
        loop {
            self.tend_until(look_at, &mut changes).await?;
        }
    }

    /// Looks after what is due, and waits for what is next.
    async fn tend_until(
        &self,
        look_at: &mut Instant,
        changes: &mut Items<'static, Changed>,
    ) -> MacpResult<()> {
        for id in self.gateway.macp.take_due(now_ms()) {
            self.tend_one(&id).await;
        }
        if *look_at <= Instant::now() {
            // What is due does not wait for a partition that does not answer.
            *look_at = Instant::now() + LOOK;
            let listed = std::time::Instant::now();
            let mut ids = self.ids(false).await?;
            // Those that are not listed have ended, perhaps at another gateway.
            ids.extend(self.gateway.macp.shares.open_at(listed));
            for id in ids {
                self.tend_one(&id).await;
            }
        }
        let next = self.gateway.macp.next_due().map(|at| {
            let left = u64::try_from(at.saturating_sub(now_ms())).unwrap_or(0);
            Instant::now() + Duration::from_millis(left)
        });
        tokio::select! {
            () = sleep_until(next.unwrap_or(*look_at).min(*look_at)) => {}
            () = self.gateway.macp.sooner.notified() => {}
            changed = changes.next() => {
                let gone = || Rejection::new(Code::Unavailable, "nothing is heard of the sessions any more");
                let changed = changed.ok_or_else(gone)?;
                if let Some(id) = self.gateway.macp.pooled(&changed.task_id) {
                    self.tend_one(&id).await;
                }
            }
        }
        Ok(())
    }

    /// Looks after one session. What is wrong with it concerns no other.
    async fn tend_one(&self, id: &str) {
        match self.look_after(id).await {
            Ok(()) => {}
            Err(MacpFault::Refused(refusal)) => {
                tracing::debug!(session = id, %refusal, "a session cannot be looked after");
            }
            Err(MacpFault::Trouble(refused)) => {
                tracing::debug!(session = id, %refused, "a session is looked after a little later");
                let pause_ms = i64::try_from(PAUSE.as_millis()).unwrap_or(i64::MAX);
                self.gateway.macp.look_at(now_ms().saturating_add(pause_ms), id);
            }
        }
    }
}
