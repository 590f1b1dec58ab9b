//! [`LiveEvents`]: has the owner of a Task publish its events at once, and hears them.
//!
//! An owner gathers hints of changes for a tenth of a second, and only the end of a Task is hinted at once. What it
//! publishes for those who follow a Task comes without that delay, as long as somebody asks for it.

use futures::{Stream, StreamExt as _};
use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_ports::ClientPort;
use tenure_wire::bus::event::Published;
use tokio::time::Instant;

use super::super::patience::patiently;
use super::LOOK;
use crate::jitter::jittered;

/// Whoever asks for the events behind this one gets none, and has the owner publish those to come.
const NO_EVENTS: u64 = u64::MAX;

/// The published events of a Task.
pub(super) struct LiveEvents<S> {
    /// None: they ended, and hints alone are heard.
    published: Option<S>,
    /// When to ask the owner again.
    asks_at: Instant,
}

impl<S: Stream<Item = Published> + Unpin> LiveEvents<S> {
    /// Listens. Nothing comes before the owner is asked.
    pub(super) async fn of<P: ClientPort<Events = S>>(
        port: &P,
        task: &TaskId,
    ) -> Result<Self, Rejection> {
        let published = patiently(port, || port.published(task)).await?;
        Ok(Self { published: Some(published), asks_at: Instant::now() })
    }

    /// Asks the owner to publish for a while what is to come, if it is time to. Answers which version the Task then
    /// had: no later one is missed.
    pub(super) async fn ask<P: ClientPort<Events = S>>(
        &mut self,
        port: &P,
        task: &TaskId,
    ) -> Result<Option<u64>, Rejection> {
        if Instant::now() < self.asks_at {
            return Ok(None);
        }
        let page = patiently(port, || port.events(task, NO_EVENTS)).await?;
        // The Task is read every few seconds at least, and each time this may be due (FOLLOWED).
        self.asks_at = Instant::now() + jittered(LOOK);
        Ok(Some(page.version))
    }

    /// Waits until something is published that lies behind event `after`.
    pub(super) async fn news(&mut self, after: u64) {
        while let Some(published) = &mut self.published {
            match published.next().await {
                Some(told) if told.page.through > after => return,
                Some(_) => {}
                None => self.published = None,
            }
        }
        std::future::pending().await
    }
}
