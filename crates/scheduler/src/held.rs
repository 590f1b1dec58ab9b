//! [`HeldReads`]: readers of logs whose answers are held until there is something to read.
//!
//! Whoever follows a Task gets each commit in answer to one request, as soon as it is durable. The commits come from
//! the Task's actor, so that nothing is read from the log for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tenure_core::id::AgentId;
use tenure_core::status::TaskStatus;
use tenure_core::{Commit, Task};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::request::ReadUntil;
use tokio::sync::oneshot;

/// How many answers a node holds at a time. Whoever comes then is answered at once.
const HELD_MAX: usize = 16_384;

/// How many of them one principal may have, so that nobody takes all of them.
const OF_ONE_MAX: usize = HELD_MAX / 8;

/// How many commits are gathered for an answer at most.
const GATHERED_MAX: usize = 64;

/// What has happened to a Task while an answer was held.
#[derive(Debug)]
pub(crate) struct LogNews {
    /// All commits since then, oldest first.
    pub(crate) commits: Vec<Arc<Commit>>,
    /// The version of the Task behind them.
    pub(crate) version: u64,
    /// Its native status there.
    pub(crate) status: TaskStatus,
}

impl LogNews {
    /// Whether these are all commits behind an event.
    pub(crate) fn is_all_behind(&self, after: u64) -> bool {
        let first = self.commits.first().map(|commit| commit.first_seq);
        let last = self.commits.last().map(|commit| commit.last_seq());
        first == Some(after + 1) && last == Some(self.version)
    }
}

/// Answers that are held.
#[derive(Debug, Default)]
pub(crate) struct HeldReads {
    all: Mutex<HeldTable>,
    ids: AtomicU64,
}

#[derive(Debug, Default)]
struct HeldTable {
    by_task: HashMap<TaskKey, Vec<HeldRead>>,
    /// How many answers each principal has here.
    by_principal: HashMap<AgentId, usize>,
    count: usize,
}

impl HeldTable {
    /// Notes that an answer is no longer held.
    fn forget(&mut self, who: &AgentId) {
        self.count -= 1;
        if let Some(count) = self.by_principal.get_mut(who) {
            *count -= 1;
            if *count == 0 {
                self.by_principal.remove(who);
            }
        }
    }
}

#[derive(Debug)]
struct HeldRead {
    id: u64,
    who: AgentId,
    until: ReadUntil,
    commits: Vec<Arc<Commit>>,
    to: oneshot::Sender<LogNews>,
}

impl HeldReads {
    /// Holds an answer for a principal: whatever is durable from now on is gathered for it. None if
    /// there is no capacity, or the principal has its share.
    pub(crate) fn hold(
        &self,
        who: &AgentId,
        key: &TaskKey,
        until: ReadUntil,
    ) -> Option<HeldAnswer<'_>> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (to, news) = oneshot::channel();
        let mut all = self.all.lock();
        if all.count >= HELD_MAX || all.by_principal.get(who).is_some_and(|n| *n >= OF_ONE_MAX) {
            return None;
        }
        all.count += 1;
        *all.by_principal.entry(who.clone()).or_default() += 1;
        let read = HeldRead { id, who: who.clone(), until, commits: Vec::new(), to };
        all.by_task.entry(key.clone()).or_default().push(read);
        drop(all);
        Some(HeldAnswer { reads: self, key: key.clone(), id, news })
    }

    /// Tells readers what is durable now; `task` is the state behind these commits.
    pub(crate) fn tell(&self, key: &TaskKey, task: &Task, commits: &[Arc<Commit>]) {
        let mut all = self.all.lock();
        let Some(reads) = all.by_task.get_mut(key) else { return };
        let settles = commits.iter().any(|commit| commit.settles());
        let due: Vec<HeldRead> = reads
            .extract_if(.., |read| {
                read.commits.extend(commits.iter().cloned());
                let is_enough = read.commits.len() >= GATHERED_MAX;
                read.until == ReadUntil::More || settles || is_enough
            })
            .collect();
        if reads.is_empty() {
            all.by_task.remove(key);
        }
        due.iter().for_each(|read| all.forget(&read.who));
        drop(all);
        let (version, status) = (task.version(), task.durable().status());
        for HeldRead { commits, to, .. } in due {
            let _ = to.send(LogNews { commits, version, status }); // The reader may just have gone.
        }
    }

    fn give_up(&self, key: &TaskKey, id: u64) {
        let mut all = self.all.lock();
        let Some(reads) = all.by_task.get_mut(key) else { return };
        let Some(at) = reads.iter().position(|read| read.id == id) else { return };
        let gone = reads.swap_remove(at);
        if reads.is_empty() {
            all.by_task.remove(key);
        }
        all.forget(&gone.who);
    }
}

/// An answer that is held for as long as this is there.
#[derive(Debug)]
pub(crate) struct HeldAnswer<'a> {
    reads: &'a HeldReads,
    key: TaskKey,
    id: u64,
    news: oneshot::Receiver<LogNews>,
}

impl HeldAnswer<'_> {
    /// Waits until there is what its reader waits for.
    pub(crate) async fn news(&mut self) -> Option<LogNews> {
        (&mut self.news).await.ok()
    }
}

impl Drop for HeldAnswer<'_> {
    fn drop(&mut self) {
        self.reads.give_up(&self.key, self.id);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use tenure_testkit::conformance::History;

    use super::*;

    fn told(reads: &HeldReads, history: &History, task: &mut Option<Task>, commit: &Arc<Commit>) {
        match task.as_mut() {
            Some(task) => task.replay(commit).unwrap(),
            None => *task = Some(Task::restore(commit).unwrap()),
        }
        reads.tell(&history.key, task.as_ref().unwrap(), std::slice::from_ref(commit));
    }

    /// A reader that waits for more gets the next commit, and one that waits for the end all commits up to that.
    #[tokio::test]
    async fn readers_get_what_they_wait_for() {
        let (mut history, mut task, reads) = (History::of("s", "t"), None, HeldReads::default());
        let key = history.key.clone();
        let who = AgentId::new("reader").unwrap();
        let mut end = reads.hold(&who, &key, ReadUntil::Settled).unwrap();
        let mut more = reads.hold(&who, &key, ReadUntil::More).unwrap();
        let first = history.create();
        told(&reads, &history, &mut task, &first);
        let news = more.news().await.unwrap();
        assert!(news.is_all_behind(0) && !news.is_all_behind(1));
        assert_eq!((news.version, news.status.is_terminal()), (first.last_seq(), false));
        let mut next = reads.hold(&who, &key, ReadUntil::More).unwrap();
        let (second, last) = (history.work(1), history.complete());
        told(&reads, &history, &mut task, &second);
        told(&reads, &history, &mut task, &last);
        assert!(next.news().await.unwrap().is_all_behind(first.last_seq()));
        let news = end.news().await.unwrap();
        assert_eq!((news.commits.len(), news.version), (3, last.last_seq()));
        assert!(news.is_all_behind(0) && news.status.is_terminal());
        assert!(reads.all.lock().by_task.is_empty());
    }

    /// Readers that have gone leave nothing behind. Of those that stay, each principal may have so many, and all
    /// together so many.
    #[test]
    fn what_is_held_is_bounded() {
        let (history, reads) = (History::of("s", "t"), HeldReads::default());
        let who = |n: usize| AgentId::new(format!("reader-{n}")).unwrap();
        let hold = |n: usize| reads.hold(&who(n), &history.key, ReadUntil::More);
        let mut held: Vec<HeldAnswer<'_>> = Vec::new();
        held.extend((0..HELD_MAX).map_while(|_| hold(0)));
        assert_eq!(held.len(), OF_ONE_MAX, "one principal has its share");
        assert!(hold(0).is_none() && hold(1).is_some(), "others have theirs");
        held.extend((0..HELD_MAX).map_while(|n| hold(1 + n / OF_ONE_MAX)));
        assert_eq!(held.len(), HELD_MAX);
        assert!(hold(HELD_MAX).is_none());
        held.truncate(1);
        assert!(hold(0).is_some());
        held.clear();
        let all = reads.all.lock();
        assert!(all.by_task.is_empty() && all.by_principal.is_empty() && all.count == 0);
    }
}
