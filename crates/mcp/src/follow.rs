//! Who has subscribed to a resource is told when its Task has changed, and reads it then.
//!
//! In 2026-07-28 a subscription is a request that stays open, with its caller. In older versions it belongs to the
//! session, and ends with it. Neither is more than a hint: a notification that gets lost costs its reader a later
//! reading.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use parking_lot::Mutex;
use rmcp::ErrorData;
use rmcp::model::{ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::{Peer, RoleServer, SubscriptionContext};
use tenure_ports::ClientPort;
use tenure_sdk::client::passes;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::McpCaller;
use crate::resource::TaskAddress;

/// The most addresses of one session, or of one request.
pub(crate) const FOLLOWED_MAX: usize = 64;

/// The pause before a scheduler that gave no answer is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// The subscriptions of a session of an older version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subscriptions(Arc<Mutex<HashMap<String, DropGuard>>>);

impl Subscriptions {
    /// Begins to follow an address. One that is followed already is followed once.
    ///
    /// # Errors
    /// It is of no Task of the caller's session, or there are too many.
    pub(crate) async fn add<P: ClientPort>(
        &self,
        caller: McpCaller<P>,
        uri: String,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let address = TaskAddress::read(&uri).filter(|it| it.session == *caller.session());
        let no_resource =
            || ErrorData::resource_not_found("there is no such resource to subscribe to", None);
        let address = address.ok_or_else(no_resource)?;
        let there = caller.client.port().log(&address.task, u64::MAX).await;
        there.map_err(|no| match passes(&no) {
            true => ErrorData::internal_error(no.to_string(), None), // It may well be there.
            false => no_resource(),
        })?;
        let stop = CancellationToken::new();
        {
            let mut all = self.0.lock();
            if all.contains_key(&uri) {
                return Ok(());
            }
            if all.len() >= FOLLOWED_MAX {
                let message = format!("a session has at most {FOLLOWED_MAX} subscriptions");
                return Err(ErrorData::invalid_params(message, None));
            }
            all.insert(uri.clone(), stop.clone().drop_guard());
        }
        let all = Arc::downgrade(&self.0); // The session's end drops them, and stops all that follows.
        tokio::spawn(async move {
            let mut changes = of_task(caller, &address, uri.clone());
            loop {
                let changed = tokio::select! {
                    () = stop.cancelled() => return,
                    next = changes.next() => next,
                };
                let Some(changed) = changed else { break };
                let about = ResourceUpdatedNotificationParam::new(changed);
                if peer.is_transport_closed() || peer.notify_resource_updated(about).await.is_err()
                {
                    break;
                }
            }
            // Whoever subscribes again is followed again.
            let Some(all) = all.upgrade() else { return };
            let mut all = all.lock();
            if !stop.is_cancelled() {
                all.remove(&uri);
            }
        });
        Ok(())
    }

    /// Stops following an address.
    pub(crate) fn remove(&self, uri: &str) {
        self.0.lock().remove(uri);
    }
}

/// The subset of a filter that is served: resources that are Tasks, so many at most.
pub(crate) fn accepted(requested: &SubscriptionFilter) -> SubscriptionFilter {
    let uris = requested.resource_subscriptions.iter().flatten();
    let uris = uris.filter(|uri| TaskAddress::read(uri).is_some()).take(FOLLOWED_MAX);
    SubscriptionFilter::builder().resource_subscriptions(uris.cloned()).build()
}

/// Tells the caller of a subscription of each change, until it goes away or the server ends.
pub(crate) async fn listen<P: ClientPort>(
    caller: McpCaller<P>,
    subscription: &SubscriptionContext,
    ending: &CancellationToken,
) {
    let mut all = SelectAll::new();
    for uri in subscription.accepted().resource_subscriptions.iter().flatten() {
        let address = TaskAddress::read(uri).filter(|it| it.session == *caller.session());
        if let Some(address) = address {
            all.push(of_task(caller.clone(), &address, uri.clone()));
        }
    }
    all.push(futures::stream::pending().boxed()); // Without any, it stays open all the same.
    loop {
        tokio::select! {
            () = subscription.cancelled() => return,
            () = ending.cancelled() => return,
            Some(uri) = all.next() => {
                if subscription.sink().notify_resource_updated(uri).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The address each time its Task has changed. While no scheduler answers, it is asked again.
pub(crate) fn of_task<P: ClientPort>(
    caller: McpCaller<P>,
    address: &TaskAddress,
    uri: String,
) -> BoxStream<'static, String> {
    let task = address.task.clone();
    let connected = futures::stream::unfold(false, move |was_connected| {
        let (port, task, uri) = (caller.client.port().clone(), task.clone(), uri.clone());
        async move {
            loop {
                match port.changes(Some(&task)).await {
                    Ok(changes) => {
                        // What was missed while nobody was connected may be a change.
                        let missed = was_connected.then(|| uri.clone());
                        let hints = changes.map(move |_| uri.clone());
                        return Some((futures::stream::iter(missed).chain(hints).boxed(), true));
                    }
                    Err(no) if passes(&no) && !port.is_over() => sleep(PAUSE).await,
                    Err(_) => return None,
                }
            }
        }
    });
    // A stream of hints that ends at once would be asked for in a circle.
    connected.then(|changes| async move { changes.chain(pause()) }).flatten().boxed()
}

/// Nothing, after a pause.
fn pause() -> BoxStream<'static, String> {
    futures::stream::once(sleep(PAUSE)).filter_map(|()| std::future::ready(None)).boxed()
}
