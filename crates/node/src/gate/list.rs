//! Lists of Tasks, in pages.
//!
//! Where many Tasks have ended, a list reads the stream of its partition once. It is kept for the
//! pages that follow: each would read the stream again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::Rejection;
use tenure_core::id::{SessionId, TaskId};
use tenure_ports::client::ClientPort as _;
use tenure_ports::journal::{Entry as Found, TaskKey};
use tenure_wire::bus::request::{Entries, Entry, List};
use tokio::time::Instant;

use super::Gate;
use super::calls::Link;

/// Tasks in an answer.
const ENTRIES_MAX: usize = 1_000;

/// How long a list is kept for its next page, and how many are.
const KEPT: (Duration, usize) = (Duration::from_secs(30), 8);

/// Lists whose next page may be asked for.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<VecDeque<Kept>>);

/// A list with its ended Tasks, in the order of their ids.
#[derive(Debug)]
struct Kept {
    session: SessionId,
    partition: u32,
    used: Instant,
    found: Arc<Vec<Found>>,
}

impl Lists {
    fn get(&self, session: &SessionId, partition: u32) -> Option<Arc<Vec<Found>>> {
        let mut all = self.0.lock();
        all.retain(|kept| kept.used.elapsed() < KEPT.0);
        let kept = all.iter_mut().find(|k| k.session == *session && k.partition == partition)?;
        kept.used = Instant::now();
        Some(Arc::clone(&kept.found))
    }

    fn keep(&self, session: &SessionId, partition: u32, found: &Arc<Vec<Found>>) {
        let mut all = self.0.lock();
        all.retain(|kept| kept.session != *session || kept.partition != partition);
        if all.len() == KEPT.1 {
            all.pop_front();
        }
        let (session, found) = (session.clone(), Arc::clone(found));
        all.push_back(Kept { session, partition, used: Instant::now(), found });
    }
}

impl Gate {
    /// A page of the Tasks of a session in one partition, in the order of their ids.
    pub(super) async fn list(
        &self,
        link: &Link,
        partition: u32,
        which: List,
    ) -> Result<Entries, Rejection> {
        link.may_list()?;
        let found = match which.include_terminal {
            true => self.with_ended(link.session(), partition, which.after.as_ref()).await?,
            false => {
                let mut live = link.list(false).await?.entries;
                live.retain(|entry| entry.key.partition(self.partitions) == partition);
                Arc::new(live)
            }
        };
        let is_before =
            |found: &Found| which.after.as_ref().is_some_and(|a| found.key.task_id <= *a);
        let rest = &found[found.partition_point(is_before)..];
        let page = &rest[..rest.len().min(ENTRIES_MAX)];
        let entries = page.iter().cloned().map(entry).collect();
        Ok(Entries { entries, more: page.len() < rest.len() })
    }

    async fn with_ended(
        &self,
        session: &SessionId,
        partition: u32,
        after: Option<&TaskId>,
    ) -> Result<Arc<Vec<Found>>, Rejection> {
        if after.is_some()
            && let Some(kept) = self.lists.get(session, partition)
        {
            return Ok(kept);
        }
        let found = self.fence.journal.entries_in(partition, session).await;
        let mut found = found.map_err(|error| tenure_scheduler::unreadable(&error))?;
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let found = Arc::new(found);
        if found.len() > ENTRIES_MAX {
            self.lists.keep(session, partition, &found);
        }
        Ok(found)
    }
}

fn entry(found: Found) -> Entry {
    let TaskKey { session_id, task_id } = found.key;
    Entry {
        session_id,
        task_id,
        wal_name: found.wal_name,
        title: found.title,
        created_at: found.created_at,
        updated_at: found.updated_at,
        ended: found.ended,
        archived: found.archived,
        damaged: found.damaged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Arc<Vec<Found>> {
        Arc::new(Vec::new())
    }

    /// The oldest goes where there are too many; one of the same partition takes the other's place.
    #[test]
    fn so_many_lists_are_kept() {
        let (lists, session) = (Lists::default(), SessionId::new("s").unwrap());
        let most = u32::try_from(KEPT.1).unwrap();
        for partition in 0..most {
            lists.keep(&session, partition, &list());
        }
        lists.keep(&session, 1, &list());
        assert!((0..most).all(|partition| lists.get(&session, partition).is_some()));
        lists.keep(&session, most, &list());
        assert_eq!(lists.0.lock().len(), KEPT.1);
        assert!(lists.get(&session, 0).is_none() && lists.get(&session, most).is_some());
        assert!(lists.get(&SessionId::new("another").unwrap(), 1).is_none());
    }

    #[tokio::test]
    async fn a_list_that_nobody_reads_on_is_dropped() {
        let (lists, session) = (Lists::default(), SessionId::new("s").unwrap());
        lists.keep(&session, 0, &list());
        lists.0.lock()[0].used -= KEPT.0;
        assert!(lists.get(&session, 0).is_none());
        assert!(lists.0.lock().is_empty());
    }
}
