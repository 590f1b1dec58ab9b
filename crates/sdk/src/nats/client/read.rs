//! Hints and public events, as they come over NATS.

use std::pin::Pin;
use std::task::{Context, Poll};

use async_nats::{Message, Subscriber};
use futures::{Stream, StreamExt as _};
use tenure_core::id::TaskId;
use tenure_ports::client::Changed;
use tenure_wire::bus::decode;
use tenure_wire::bus::event::Published;
use tenure_wire::bus::request::Committed;

/// Hints of changes, as they come.
#[derive(Debug)]
pub struct NatsChanges(Subscriber);

impl NatsChanges {
    pub(super) fn new(events: Subscriber) -> Self {
        Self(events)
    }
}

impl Stream for NatsChanges {
    type Item = Changed;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Changed>> {
        loop {
            match self.0.poll_next_unpin(cx) {
                Poll::Ready(Some(message)) => {
                    // A hint that cannot be decoded counts as lost.
                    if let Some(changed) = changed(&message) {
                        return Poll::Ready(Some(changed));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn changed(message: &Message) -> Option<Changed> {
    let task_id = TaskId::new(message.subject.rsplit('.').next()?).ok()?;
    let Committed { version, ended, .. } = decode(&message.payload).ok()?;
    Some(Changed { task_id, version, ended })
}

/// Public events of a Task, as they come.
#[derive(Debug)]
pub struct NatsEvents(Subscriber);

impl NatsEvents {
    pub(super) fn new(events: Subscriber) -> Self {
        Self(events)
    }
}

impl Stream for NatsEvents {
    type Item = Published;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Published>> {
        loop {
            match self.0.poll_next_unpin(cx) {
                Poll::Ready(Some(message)) => {
                    // The reader notices a message that cannot be decoded as a gap, and reads the
                    // log.
                    if let Ok(published) = decode(&message.payload) {
                        return Poll::Ready(Some(published));
                    }
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
