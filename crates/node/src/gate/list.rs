//! Answers lists of Tasks, in pages.
//!
//! `list_index` has what the index knows, in the order of ids; `task_list` is the agents' list,
//! with what each Task itself says.
//!
//! Where many Tasks have ended, a list reads the stream of its partition once, for all who ask meanwhile. The node
//! caches the list for the pages that follow, and for those who ask just afterwards, as each would read the stream
//! again. The reading ends if nobody waits for it any more.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::id::SessionId;
use tenure_core::view::{ListInput, TaskPage};
use tenure_core::{Limits, Rejection};
use tenure_ports::client::ClientPort as _;
use tenure_ports::journal::Entry as Found;
use tenure_wire::bus::request::{Entries, Entry, List};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep};

use super::Gate;
use super::calls::{CallLink, READ_LOGS_MAX, first_of, is_long, lane_of};

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

/// For how long a list that was read is the beginning of others, with what the index alone knows since. As a rule the
/// index has all Tasks that ended in that time.
const FRESH: Duration = Duration::from_secs(2);

/// How many streams are read for lists at a time.
const READINGS_MAX: usize = 2;

/// How long a stream is read on for which nobody waits: a caller whose patience is over asks again.
const LINGERS: Duration = Duration::from_secs(10);

/// How often to look whether anybody waits.
const LOOK: Duration = Duration::from_millis(500);

/// Cached lists whose next page may be asked for, and lists that are being read.
#[derive(Debug)]
pub(crate) struct Lists {
    kept: Mutex<VecDeque<CachedList>>,
    readings: Mutex<HashMap<ListKey, ListReading>>,
    permits: Arc<Semaphore>,
}

/// Session, partition and the epoch in which the partition is read.
type ListKey = (SessionId, u32, u64);

/// The result of a reading, once it is there.
type ReadList = Option<Result<Arc<Vec<Found>>, Rejection>>;

/// A list that is being read.
#[derive(Debug, Clone)]
struct ListReading {
    found: watch::Receiver<ReadList>,
    /// When somebody last asked. Whoever waits holds it.
    asked: Arc<Mutex<Instant>>,
}

impl Default for Lists {
    fn default() -> Self {
        let permits = Arc::new(Semaphore::new(READINGS_MAX));
        Self { kept: Mutex::default(), readings: Mutex::default(), permits }
    }
}

impl ListReading {
    /// Returns when nobody has waited for the list for a while.
    async fn unwanted(asked: Arc<Mutex<Instant>>) {
        loop {
            sleep(LOOK).await;
            let waits = Arc::strong_count(&asked) > 2; // The reading and the table each hold one reference.
            if !waits && asked.lock().elapsed() >= LINGERS {
                return;
            }
        }
    }

    /// The list, when it has been read.
    async fn found(mut self) -> Result<Arc<Vec<Found>>, Rejection> {
        let found = self.found.wait_for(Option::is_some).await;
        let found = found.ok().and_then(|found| found.clone());
        *self.asked.lock() = Instant::now();
        found.unwrap_or_else(|| Err(tenure_scheduler::overloaded()))
    }
}

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
    /// A cached list that is no older than `most`.
    fn get(
        &self,
        (session, partition, epoch): &ListKey,
        most: Duration,
    ) -> Option<Arc<Vec<Found>>> {
        self.sweep();
        let all = self.kept.lock();
        let is_it = |kept: &&CachedList| {
            (&kept.session, &kept.partition, &kept.epoch) == (session, partition, epoch)
                && kept.read.elapsed() < most
        };
        all.iter().find(is_it).map(|kept| Arc::clone(&kept.found))
    }

    /// The reading of a list. If none is under way, `start` begins one, and gets the place in which to put the list.
    fn reading(
        &self,
        key: &ListKey,
        start: impl FnOnce(watch::Sender<ReadList>, Arc<Mutex<Instant>>),
    ) -> ListReading {
        let mut all = self.readings.lock();
        if let Some(reading) = all.get(key) {
            *reading.asked.lock() = Instant::now();
            return reading.clone();
        }
        let (to, found) = watch::channel(None);
        let asked = Arc::new(Mutex::new(Instant::now()));
        let reading = ListReading { found, asked: Arc::clone(&asked) };
        all.insert(key.clone(), reading.clone());
        drop(all);
        start(to, asked);
        reading
    }

    fn end_reading(&self, key: &ListKey) {
        self.readings.lock().remove(key);
    }

    /// Caches a list. Drops the oldest lists if all together have too many Tasks.
    fn keep(&self, (session, partition, epoch): &ListKey, read: Instant, found: &Arc<Vec<Found>>) {
        self.sweep();
        let (partition, epoch) = (*partition, *epoch);
        self.forget(session, partition);
        let mut all = self.kept.lock();
        let (session, found) = (session.clone(), Arc::clone(found));
        all.push_back(CachedList { session, partition, epoch, read, found });
        let mut count: usize = all.iter().map(|kept| kept.found.len()).sum();
        while count > KEPT_MAX
            && let Some(oldest) = all.pop_front()
        {
            count -= oldest.found.len();
        }
    }

    fn forget(&self, session: &SessionId, partition: u32) {
        self.kept.lock().retain(|kept| kept.session != *session || kept.partition != partition);
    }

    /// Drops lists that no caller has read to their end in time.
    pub(crate) fn sweep(&self) {
        self.kept.lock().retain(|kept| kept.read.elapsed() < KEPT);
    }
}

impl Gate {
    /// A page of the Tasks of a session in one partition, in the order of their ids. Nothing else
    /// is read than the index and, for ended Tasks, the stream.
    pub(super) async fn list(
        self: &Arc<Self>,
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
            true => self.with_ended(link, partition, which.after.is_some()).await?,
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
        Ok(Entries { entries, more })
    }

    /// `task_list` over one partition.
    pub(super) async fn tasks(
        self: &Arc<Self>,
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
                        let found = self.with_ended(link, partition, is_next).await?;
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
        self: &Arc<Self>,
        link: &CallLink,
        partition: u32,
        is_next: bool,
    ) -> Result<Arc<Vec<Found>>, Rejection> {
        let (journal, session) = (&self.fence.journal, link.session());
        let epoch = journal.owned().epoch(partition).unwrap_or_default();
        let key = (session.clone(), partition, epoch);
        if is_next && let Some(kept) = self.lists.get(&key, KEPT) {
            return Ok(kept);
        }
        let unreadable = |error| tenure_scheduler::unreadable(&error);
        if let Some(kept) = self.lists.get(&key, FRESH) {
            let known = journal.known_in(partition, session).map_err(unreadable)?;
            return Ok(Arc::new(with_newer(&kept, known)));
        }
        let start = |to: watch::Sender<ReadList>, asked: Arc<Mutex<Instant>>| {
            let (gate, key, who) = (Arc::clone(self), key.clone(), lane_of(link));
            self.read_threads.spawn(async move {
                tokio::select! {
                    () = ListReading::unwanted(asked) => {}
                    found = gate.budgets.metered(&who, gate.read_list(&key)) => {
                        to.send_replace(Some(found));
                    }
                }
                gate.lists.end_reading(&key);
            });
        };
        self.lists.reading(&key, start).found().await
    }

    /// Reads all Tasks of a session in one partition, when it is the turn of this list.
    async fn read_list(&self, key: &ListKey) -> Result<Arc<Vec<Found>>, Rejection> {
        let permit = Arc::clone(&self.lists.permits).acquire_owned().await;
        let _permit = permit.map_err(|_| tenure_scheduler::overloaded())?;
        let begun = Instant::now();
        let found = self.fence.journal.entries_in(key.1, &key.0).await;
        let mut found = found.map_err(|error| tenure_scheduler::unreadable(&error))?;
        found.sort_by(|a, b| a.key.cmp(&b.key));
        let found = Arc::new(found);
        if found.len() > KEPT_MIN {
            self.lists.keep(key, begun, &found);
        }
        Ok(found)
    }
}

/// A list that was read a moment ago, with what the index knows now. Both in the order of ids.
fn with_newer(kept: &[Found], mut known: Vec<Found>) -> Vec<Found> {
    known.sort_by(|a, b| a.key.cmp(&b.key));
    let mut all = Vec::with_capacity(kept.len() + known.len());
    let (mut kept, mut known) = (kept.iter().peekable(), known.into_iter().peekable());
    while let Some(old) = kept.peek() {
        while let Some(new) = known.next_if(|new| new.key < old.key) {
            all.push(new);
        }
        match known.next_if(|new| new.key == old.key) {
            Some(new) => all.push(new),
            None => all.push((*old).clone()),
        }
        kept.next();
    }
    all.extend(known);
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use tenure_core::record::Labels;
    use tenure_ports::journal::TaskKey;

    use super::*;

    fn found(task: &str, title: &str) -> Found {
        let key = TaskKey { session_id: "s".parse().unwrap(), task_id: task.parse().unwrap() };
        Found {
            key,
            wal_name: "t".parse().unwrap(),
            title: title.into(),
            labels: Labels::new(),
            created_at: 0,
            updated_at: 0,
            ended: None,
            archived: false,
            damaged: false,
        }
    }

    fn list(count: usize) -> Arc<Vec<Found>> {
        Arc::new(vec![found("t", ""); count])
    }

    fn key(partition: u32, epoch: u64) -> ListKey {
        (SessionId::new("s").unwrap(), partition, epoch)
    }

    fn has(lists: &Lists, partition: u32, epoch: u64) -> bool {
        lists.get(&key(partition, epoch), KEPT).is_some()
    }

    /// Lists with too many Tasks together push out the oldest; a list of the same partition
    /// replaces the other.
    #[tokio::test]
    async fn lists_of_so_many_tasks_are_kept() {
        let (lists, now) = (Lists::default(), Instant::now());
        lists.keep(&key(0, 7), now, &list(KEPT_MAX / 2));
        lists.keep(&key(1, 7), now, &list(KEPT_MAX / 2));
        lists.keep(&key(1, 8), now, &list(KEPT_MAX / 2));
        assert!(has(&lists, 0, 7) && has(&lists, 1, 8));
        assert!(!has(&lists, 1, 7), "of another owner");
        assert!(lists.get(&(SessionId::new("another").unwrap(), 1, 8), KEPT).is_none());
        lists.keep(&key(2, 7), now, &list(1));
        assert!(!has(&lists, 0, 7) && has(&lists, 2, 7));
        lists.forget(&key(2, 7).0, 2);
        assert!(!has(&lists, 2, 7));
    }

    /// A list is dropped however often it is asked for, and begins others for a moment only.
    #[tokio::test(start_paused = true)]
    async fn a_list_is_kept_for_a_time() {
        let lists = Lists::default();
        lists.keep(&key(0, 7), Instant::now(), &list(1));
        assert!(has(&lists, 0, 7) && lists.get(&key(0, 7), FRESH).is_some());
        sleep(FRESH).await;
        assert!(has(&lists, 0, 7) && lists.get(&key(0, 7), FRESH).is_none());
        sleep(KEPT).await;
        lists.sweep();
        assert!(lists.kept.lock().is_empty());
    }

    /// What the index knows stands in the place of what was read before, and beside it.
    #[test]
    fn what_is_newer_counts() {
        let kept = [found("b", "old"), found("d", "old"), found("e", "old")];
        let known = vec![found("f", "new"), found("d", "new"), found("a", "new")];
        let all = with_newer(&kept, known);
        let all: Vec<_> = all.iter().map(|it| (it.key.task_id.as_str(), &*it.title)).collect();
        let right = [("a", "new"), ("b", "old"), ("d", "new"), ("e", "old"), ("f", "new")];
        assert_eq!(all, right);
    }

    /// Mechanisms 16: forty who ask for a list meanwhile wait for one reading, which goes on for a while after they
    /// have gone, as they ask again, and then ends.
    #[tokio::test(start_paused = true)]
    async fn one_reading_serves_all_who_ask() {
        let lists = Lists::default();
        let (mut begun, key) = (Vec::new(), key(0, 7));
        let mut readings = Vec::new();
        for _ in 0..40 {
            readings.push(lists.reading(&key, |to, asked| begun.push((to, asked))));
        }
        assert_eq!(begun.len(), 1);
        let (to, asked) = begun.pop().unwrap();
        let mut unwanted = Box::pin(ListReading::unwanted(asked));
        let patient = tokio::time::timeout(LINGERS * 3, &mut unwanted).await;
        assert!(patient.is_err(), "somebody waits");
        readings.truncate(1);
        let one = readings.pop().unwrap();
        to.send_replace(Some(Ok(list(3))));
        assert_eq!(one.found().await.unwrap().len(), 3);
        let since = Instant::now();
        unwanted.await;
        assert!(since.elapsed() >= LINGERS, "whoever has lost patience may ask again");
        lists.end_reading(&key);
        let mut again = 0;
        let given_up = lists.reading(&key, |_, _| again += 1);
        assert_eq!(again, 1);
        let refused = given_up.found().await.unwrap_err();
        assert!(refused.code.is_retryable(), "a reading that was given up says nothing of Tasks");
    }
}
