//! Answers lists of Tasks, in pages.
//!
//! `list_index` has what the index knows, in the order of ids; `task_list` is the agents' list,
//! with what each Task itself says.
//!
//! Where many Tasks have ended, a list reads the stream of its partition once. The node caches the
//! list for the pages that follow, as each page would read the stream again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::id::SessionId;
use tenure_core::view::{ListInput, TaskPage};
use tenure_core::{Limits, Rejection};
use tenure_ports::client::ClientPort as _;
use tenure_ports::journal::Entry as Found;
use tenure_wire::bus::request::{Entries, Entry, List};
use tokio::time::Instant;

use super::Gate;
use super::calls::{CallLink, READ_LOGS_MAX, first_of, is_long};

/// How many Tasks an answer has at most.
const ENTRIES_MAX: usize = 1_000;

/// How many live Tasks the index names at a time, the oldest first.
const OLDEST_MAX: usize = 1_000;

/// Lists with so few Tasks are not cached: they fit into one answer, however long the names are.
const KEPT_MIN: usize = 7;

/// How long a list is cached for its next pages.
const KEPT: Duration = Duration::from_secs(30);

/// How many Tasks all cached lists may have together.
const KEPT_MAX: usize = 1 << 20;

/// Cached lists whose next page may be asked for.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<VecDeque<CachedList>>);

/// A list with its ended Tasks, in the order of their ids.
#[derive(Debug)]
struct CachedList {
    session: SessionId,
    partition: u32,
    /// The epoch in which the partition was read.
    epoch: u64,
    read: Instant,
    found: Arc<Vec<Found>>,
}

impl Lists {
    fn get(&self, session: &SessionId, partition: u32, epoch: u64) -> Option<Arc<Vec<Found>>> {
        self.sweep();
        let all = self.0.lock();
        let is_it = |kept: &&CachedList| {
            (&kept.session, kept.partition, kept.epoch) == (session, partition, epoch)
        };
        all.iter().find(is_it).map(|kept| Arc::clone(&kept.found))
    }

    /// Caches a list. Drops the oldest lists if all together have too many Tasks.
    fn keep(&self, session: &SessionId, partition: u32, epoch: u64, found: &Arc<Vec<Found>>) {
        self.sweep();
        self.forget(session, partition);
        let mut all = self.0.lock();
        let (session, found, read) = (session.clone(), Arc::clone(found), Instant::now());
        all.push_back(CachedList { session, partition, epoch, read, found });
        let mut count: usize = all.iter().map(|kept| kept.found.len()).sum();
        while count > KEPT_MAX
            && let Some(oldest) = all.pop_front()
        {
            count -= oldest.found.len();
        }
    }

    fn forget(&self, session: &SessionId, partition: u32) {
        self.0.lock().retain(|kept| kept.session != *session || kept.partition != partition);
    }

    /// Drops lists that no caller has read to their end in time.
    pub(crate) fn sweep(&self) {
        self.0.lock().retain(|kept| kept.read.elapsed() < KEPT);
    }
}

impl Gate {
    /// A page of the Tasks of a session in one partition, in the order of their ids. Nothing else
    /// is read than the index and, for ended Tasks, the stream.
    pub(super) async fn list(
        &self,
        link: &CallLink,
        partition: u32,
        which: List,
    ) -> Result<Entries, Rejection> {
        link.may_list()?;
        if let Some(most) = which.oldest {
            let most = most.min(OLDEST_MAX);
            let behind = which.after_created_at.zip(which.after);
            let found = self.fence.journal.oldest_in(partition, link.session(), behind, most);
            let (found, more) = found.map_err(|error| tenure_scheduler::unreadable(&error))?;
            let count = found.len();
            let entries = first_of(found.into_iter().map(Entry::from), most);
            let more = more || entries.len() < count;
            return Ok(Entries { entries, more });
        }
        let found = match which.include_terminal {
            true => self.with_ended(link.session(), partition, which.after.is_some()).await?,
            false => {
                let mut live = link.list(false).await?.entries;
                live.retain(|entry| entry.key.partition(self.partitions) == partition);
                Arc::new(live)
            }
        };
        let is_before =
            |found: &Found| which.after.as_ref().is_some_and(|a| found.key.task_id <= *a);
        let rest = &found[found.partition_point(is_before)..];
        let entries = first_of(rest.iter().cloned().map(Entry::from), ENTRIES_MAX);
        let more = entries.len() < rest.len();
        if !more && which.include_terminal {
            self.lists.forget(link.session(), partition);
        }
        Ok(Entries { entries, more })
    }

    /// `task_list` over one partition.
    pub(super) async fn tasks(
        &self,
        link: &CallLink,
        partition: u32,
        input: ListInput,
    ) -> Result<TaskPage, Rejection> {
        link.may_list()?;
        let _turn = match input.include_terminal {
            true => Some(self.turn_to_read_log().await?),
            false => None,
        };
        let limits = Limits::default(); // The largest page is not configurable.
        let most = input.limit(&limits)?.saturating_add(input.offset).saturating_add(1);
        let unreadable = |error| tenure_scheduler::unreadable(&error);
        let mut oldest = None;
        let is_plain = !input.include_terminal && input.labels.is_empty();
        if is_plain && input.is_settled_by_index(false) && most <= OLDEST_MAX {
            let found = self.fence.journal.oldest_in(partition, link.session(), None, most);
            let (found, more) = found.map_err(unreadable)?;
            let page = link.tasks_page(found, &input, READ_LOGS_MAX).await?;
            // Not if some of them have ended since or cannot be read, and others take their places.
            oldest = Some(page).filter(|page| page.truncated || !more);
        }
        let mut page = match oldest {
            Some(page) => page,
            None => {
                let found = match input.include_terminal {
                    true => {
                        let is_next = input.offset > 0;
                        let found = self.with_ended(link.session(), partition, is_next).await?;
                        Arc::unwrap_or_clone(found)
                    }
                    false => {
                        let known = self.fence.journal.overview_in(partition, link.session());
                        known.map_err(unreadable)?.live
                    }
                };
                link.tasks_page(found, &input, READ_LOGS_MAX).await?
            }
        };
        while is_long(&page) && page.halve(input.offset) {}
        Ok(page)
    }

    /// All Tasks of a session in one partition: from the cache if this is the next page of a list.
    async fn with_ended(
        &self,
        session: &SessionId,
        partition: u32,
        is_next: bool,
    ) -> Result<Arc<Vec<Found>>, Rejection> {
        let epoch = self.fence.journal.owned().epoch(partition).unwrap_or_default();
        if is_next && let Some(kept) = self.lists.get(session, partition, epoch) {
            return Ok(kept);
        }
        let found = self.fence.journal.entries_in(partition, session).await;
        let mut found = found.map_err(|error| tenure_scheduler::unreadable(&error))?;
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let found = Arc::new(found);
        if found.len() > KEPT_MIN {
            self.lists.keep(session, partition, epoch, &found);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::record::Labels;
    use tenure_ports::journal::TaskKey;

    use super::*;

    fn list(count: usize) -> Arc<Vec<Found>> {
        let key = TaskKey { session_id: "s".parse().unwrap(), task_id: "t".parse().unwrap() };
        let found = Found {
            key,
            wal_name: "t".parse().unwrap(),
            title: String::new(),
            labels: Labels::new(),
            created_at: 0,
            updated_at: 0,
            ended: None,
            archived: false,
            damaged: false,
        };
        Arc::new(vec![found; count])
    }

    /// Lists with too many Tasks together push out the oldest; a list of the same partition
    /// replaces the other.
    #[test]
    fn lists_of_so_many_tasks_are_kept() {
        let (lists, session) = (Lists::default(), SessionId::new("s").unwrap());
        lists.keep(&session, 0, 7, &list(KEPT_MAX / 2));
        lists.keep(&session, 1, 7, &list(KEPT_MAX / 2));
        lists.keep(&session, 1, 8, &list(KEPT_MAX / 2));
        assert!(lists.get(&session, 0, 7).is_some() && lists.get(&session, 1, 8).is_some());
        assert!(lists.get(&session, 1, 7).is_none(), "of another owner");
        assert!(lists.get(&SessionId::new("another").unwrap(), 1, 8).is_none());
        lists.keep(&session, 2, 7, &list(1));
        assert!(lists.get(&session, 0, 7).is_none() && lists.get(&session, 2, 7).is_some());
        lists.forget(&session, 2);
        assert!(lists.get(&session, 2, 7).is_none());
    }

    /// A list is dropped however often it is asked for.
    #[tokio::test]
    async fn a_list_is_kept_for_a_time() {
        let (lists, session) = (Lists::default(), SessionId::new("s").unwrap());
        lists.keep(&session, 0, 7, &list(1));
        assert!(lists.get(&session, 0, 7).is_some());
        lists.0.lock()[0].read -= KEPT;
        lists.sweep();
        assert!(lists.0.lock().is_empty());
    }
}
