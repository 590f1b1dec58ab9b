//! Ends links on whose inbox nobody listens.

use tenure_ports::observer::LinkEnd;
use tokio::time::Instant;

use super::{All, Links};

impl Links {
    /// The subject on which the server answers that nobody listens on a worker's inbox.
    pub(crate) fn gone(&self) -> String {
        format!("_INBOX.gone.{}", self.node)
    }

    /// Ends a link on whose inbox nobody listens, as the server says: the worker has gone, or has lost its
    /// connection and will say hello (mechanisms 7).
    pub(crate) fn note_gone(&self, id: &str) {
        let gone = {
            let All { links, leaving, by_id, .. } = &mut *self.all.lock();
            let gone = by_id.remove(id).and_then(|name| links.remove_entry(&name));
            if let Some((name, link)) = &gone
                && let Some(leave) = link.state.lock().leave
            {
                leaving.insert(name.clone(), (Instant::now(), leave)); // The worker may come again.
            }
            gone
        };
        if let Some((name, link)) = gone {
            tracing::info!(worker = %name, pool = %name.pool, "a worker is not there");
            self.part(&link, LinkEnd::Gone);
        }
    }
}
