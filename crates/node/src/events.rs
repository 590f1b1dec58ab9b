//! Publishes to watchers: hints that a Task has changed (mechanisms 11), and the public events of Tasks
//! that somebody follows (EVENT).
//!
//! Either may get lost, and says where to read what it was about. The node hints the end of a Task at
//! once; it gathers earlier changes, and hints those of a busy Task ten times a second. It sends public
//! events once for all followers: the first at once, and those that follow closely together, twenty
//! times a second. It also publishes how far a Task has come when a follower has asked, so that the
//! others need not ask then. It sends runtime events as they happen; they cannot be read anywhere.
//!
//! Step 7 of the walk in docs/architecture.md.

mod recent;

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::Commit;
use tenure_ports::client::{Changed, FOLLOWED};
use tenure_ports::journal::TaskKey;
use tenure_ports::map::IdMap;
use tenure_scheduler::{Appended, Follower};
use tenure_wire::bus::event::{Published, Runtime};
use tenure_wire::bus::request::Committed;
use tenure_wire::bus::subject::{event, public, runtime};
use tenure_wire::bus::{MESSAGE_MAX, V, encode};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval};

use self::recent::{Recent, gather};
use crate::bus::{say, send};
use crate::gate::Gate;
use crate::partitions::settle;

/// For how long the changes of a Task are gathered.
const GATHER: Duration = Duration::from_millis(100);

/// For how long public events of a Task are gathered that closely follow others. Each message costs the
/// node half of what a command costs, and costs the server as much for each follower.
const ON_HEELS: Duration = Duration::from_millis(50);

/// How many Tasks may be followed at a time. A follower of another Task reads its events every few
/// seconds. Of these one session has three times as many as are left to others, at most.
const FOLLOWED_MAX: usize = 4_096;

/// How many commits of a followed Task wait at most while its log is read.
const WAITING_MAX: usize = 1_024;

/// How many logs are read at a time for callers that ask for events.
pub(crate) const READ_AT_ONCE: usize = 4;

/// How many commits are taken in before what they say is sent.
const AT_ONCE: usize = 64;

/// Tasks that somebody follows.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    tasks: Mutex<IdMap<TaskKey, Watched>>,
    /// Tasks of which something is to be published that came while their logs were read.
    late: Mutex<Vec<TaskKey>>,
    /// A caller has asked for a Task, or there are such Tasks.
    woken: Notify,
}

#[derive(Debug)]
struct Watched {
    until: Instant,
    /// Whether a caller has asked since the last publication of how far the Task has come.
    is_news: bool,
    /// What came while the log was read, to be published before everything else.
    untold: Vec<Published>,
    what: FollowState,
}

#[derive(Debug)]
enum FollowState {
    /// The log is being read; the commits that come meanwhile.
    Waiting(Vec<Arc<Commit>>),
    /// The state from which its events are made.
    Known(Box<Follower>),
}

/// Whether one more Task may be followed, so that there is room for Tasks of other sessions.
fn has_capacity(followed: &IdMap<TaskKey, Watched>, key: &TaskKey) -> bool {
    let free = FOLLOWED_MAX.saturating_sub(followed.len());
    // Where few are taken, the session cannot have too many.
    followed.len() <= FOLLOWED_MAX / 2
        || followed.keys().filter(|one| one.session_id == key.session_id).count() < 3 * free
}

impl Followed {
    /// Follows a Task for a while. Answers whether its state is known.
    pub(crate) fn ask(&self, key: &TaskKey) -> bool {
        let until = Instant::now() + FOLLOWED;
        let mut followed = self.tasks.lock();
        let has_capacity = followed.contains_key(key) || has_capacity(&followed, key);
        match followed.entry(key.clone()) {
            Entry::Occupied(mut here) => {
                let watched = here.get_mut();
                (watched.until, watched.is_news) = (until, true);
                matches!(watched.what, FollowState::Known(_))
            }
            Entry::Vacant(here) if has_capacity => {
                // The entry is there before the woken loop can look: the lock is still held.
                self.woken.notify_one();
                let what = FollowState::Waiting(Vec::new());
                here.insert(Watched { until, is_news: true, untold: Vec::new(), what });
                false
            }
            Entry::Vacant(_) => true, // There is no capacity to hold its state.
        }
    }

    /// Sets the state of a Task, as its log was read. The publishing loop sends what came meanwhile.
    pub(crate) fn know(&self, key: &TaskKey, mut follower: Follower) {
        let mut followed = self.tasks.lock();
        let Some(Watched { what, untold, .. }) = followed.get_mut(key) else { return };
        let FollowState::Waiting(commits) = what else { return };
        untold.extend(commits.iter().filter_map(|commit| follower.publish(commit)));
        *what = FollowState::Known(Box::new(follower));
        if !untold.is_empty() {
            self.late.lock().push(key.clone());
            self.woken.notify_one();
        }
    }

    /// What came while logs were read, and was not published with a later commit.
    fn untold(&self) -> Vec<(TaskKey, Published)> {
        let late = std::mem::take(&mut *self.late.lock());
        let (mut followed, mut told) = (self.tasks.lock(), Vec::new());
        for key in late {
            let Some(watched) = followed.get_mut(&key) else { continue };
            told.extend(watched.untold.drain(..).map(|published| (key.clone(), published)));
        }
        told
    }

    /// What to publish when a commit comes.
    fn commit(&self, key: &TaskKey, commit: &Arc<Commit>) -> Vec<Published> {
        let mut followed = self.tasks.lock();
        let Some(watched) = followed.get_mut(key) else { return Vec::new() };
        let mut told = std::mem::take(&mut watched.untold);
        let next = match &mut watched.what {
            FollowState::Waiting(commits) if commits.len() < WAITING_MAX => {
                commits.push(Arc::clone(commit));
                return told;
            }
            FollowState::Waiting(_) => None,
            FollowState::Known(follower) if commit.last_seq() <= follower.version() => return told,
            FollowState::Known(follower) => follower.publish(commit),
        };
        if next.as_ref().is_none_or(|next| next.page.status.is_terminal()) {
            followed.remove(key); // Out of step, or over: the next request has the log read again.
        }
        told.extend(next);
        told
    }

    /// Drops Tasks that no caller has asked for lately. Answers what to publish without a commit: what
    /// came while a log was read, and how far those Tasks have come that callers asked for.
    fn sweep(&self) -> Vec<(TaskKey, Published)> {
        let (now, mut told) = (Instant::now(), self.untold());
        self.tasks.lock().retain(|key, watched| {
            if let (true, FollowState::Known(follower)) = (watched.is_news, &watched.what) {
                watched.is_news = false;
                told.push((key.clone(), follower.stands()));
            }
            watched.until > now
        });
        told
    }

    fn is_empty(&self) -> bool {
        self.tasks.lock().is_empty()
    }

    /// Drops all Tasks, as commits were missed.
    fn clear(&self) {
        self.tasks.lock().clear();
    }
}

/// Publishes what becomes durable, until the scheduler is gone. When everything that was sent here
/// before is published, it answers `asked` with how many commits were missed since the start; or with
/// none, if that failed.
pub(crate) async fn publish(
    gate: Arc<Gate>,
    mut asked: mpsc::Receiver<oneshot::Sender<Option<u64>>>,
) {
    let followed = &gate.followed;
    let mut commits = gate.scheduler.subscribe();
    let [mut ticks, mut on_heels] = [GATHER, ON_HEELS].map(|each| {
        let mut ticks = interval(each);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    });
    let mut news = Publication::of(&gate);
    loop {
        let was_quiet = news.recent.0.is_empty();
        let appended = tokio::select! {
            appended = commits.recv() => appended,
            _ = ticks.tick(), if !news.changed.is_empty() || !followed.is_empty() => {
                news.tell_changes().await;
                continue;
            }
            _ = on_heels.tick(), if !was_quiet => {
                news.tell_recent().await;
                continue;
            }
            () = followed.woken.notified() => { // From now on the ticks run.
                news.tell_untold().await;
                continue;
            }
            Some(reply) = asked.recv() => {
                let missed = news.tell_all(&mut commits).await;
                let _ = reply.send(missed); // The receiver may have gone.
                continue;
            }
        };
        if !news.tell(appended, &mut commits).await {
            return;
        }
        if was_quiet {
            on_heels.reset();
        }
    }
}

/// What is to be published.
struct Publication<'a> {
    gate: &'a Gate,
    changed: IdMap<TaskKey, u64>,
    /// Public events that are to be sent now.
    told: IdMap<TaskKey, Option<Published>>,
    recent: Recent,
    /// How many commits were missed since the start.
    missed: u64,
}

impl<'a> Publication<'a> {
    fn of(gate: &'a Gate) -> Self {
        let (changed, told, recent) = Default::default();
        Self { gate, changed, told, recent, missed: 0 }
    }

    /// Publishes a commit, and some that have come behind it. Answers whether there may be more.
    async fn tell(
        &mut self,
        first: Result<Appended, RecvError>,
        commits: &mut Receiver<Appended>,
    ) -> bool {
        let mut appended = first;
        let mut left = AT_ONCE;
        loop {
            match appended {
                Ok(Appended { task, commit }) => self.note(task, &commit).await,
                Err(RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "watchers are told of fewer changes");
                    self.gate.followed.clear();
                    self.missed += missed;
                }
                Err(RecvError::Closed) => return false,
            }
            left -= 1;
            if left == 0 {
                break;
            }
            let Some(next) = next(commits) else { break };
            appended = next;
        }
        self.tell_of_followed().await;
        true
    }

    /// Sends the events of Tasks that were quiet. Gathers those of others, unless it is the Task's end,
    /// or many.
    async fn tell_of_followed(&mut self) {
        for (task, next) in self.told.drain() {
            let Some(next) = next else { continue };
            for due in self.recent.take(&task, next).into_iter().flatten() {
                tell(self.gate, &task, due).await;
            }
        }
    }

    /// Sends the events that were gathered.
    async fn tell_recent(&mut self) {
        for (task, due) in self.recent.due() {
            tell(self.gate, &task, due).await;
        }
    }

    /// Sends what came while logs were read.
    async fn tell_untold(&mut self) {
        for (task, published) in self.gate.followed.untold() {
            self.gather(&task, published).await;
        }
        self.tell_of_followed().await;
    }

    /// Adds to what is to be sent now.
    async fn gather(&mut self, task: &TaskKey, published: Published) {
        let told = self.told.entry(task.clone()).or_default();
        if let Some(before) = gather(told, published) {
            tell(self.gate, task, before).await;
        }
    }

    async fn note(&mut self, task: TaskKey, commit: &Arc<Commit>) {
        for published in self.gate.followed.commit(&task, commit) {
            self.gather(&task, published).await;
        }
        let change = Changed::of(&task.task_id, commit);
        if change.ended.is_some() {
            self.changed.remove(&task);
            hint(self.gate, &task, change).await;
        } else {
            self.changed.insert(task, change.version);
        }
    }

    /// Sends the hints and events that were gathered.
    async fn tell_changes(&mut self) {
        for (task, version) in std::mem::take(&mut self.changed) {
            let task_id = task.task_id.clone();
            hint(self.gate, &task, Changed { task_id, version, ended: None }).await;
        }
        self.tell_recent().await;
        for (task, published) in self.gate.followed.sweep() {
            tell(self.gate, &task, published).await;
        }
    }

    /// Publishes everything that there is now. Answers how many commits were missed since the start;
    /// none if the server does not have it all.
    async fn tell_all(&mut self, commits: &mut Receiver<Appended>) -> Option<u64> {
        for _ in 0..=commits.len() / AT_ONCE {
            let Some(first) = next(commits) else { break };
            self.tell(first, commits).await;
        }
        self.tell_changes().await;
        settle(&self.gate.intake).await.then_some(self.missed)
    }
}

/// The next commit, if one is here.
fn next(commits: &mut Receiver<Appended>) -> Option<Result<Appended, RecvError>> {
    match commits.try_recv() {
        Ok(next) => Some(Ok(next)),
        Err(TryRecvError::Lagged(missed)) => Some(Err(RecvError::Lagged(missed))),
        Err(TryRecvError::Empty | TryRecvError::Closed) => None,
    }
}

/// Publishes what happens around Runs and changes no Task, until the scheduler is gone (EVENT-07).
pub(crate) async fn publish_runtime(gate: Arc<Gate>) {
    let mut events = gate.scheduler.runtime_events();
    loop {
        match events.recv().await {
            Ok(event) => {
                let subject = runtime(&gate.cluster, &event.session_id, Some(&event.task_id));
                say(&gate.intake, &subject, &Runtime { v: V, event }).await;
            }
            Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "runtime events are lost"),
            Err(RecvError::Closed) => return,
        }
    }
}

/// Sends public events, as many as a message holds; followers read the rest.
pub(crate) async fn tell(gate: &Gate, task: &TaskKey, published: Published) {
    const MOST: usize = MESSAGE_MAX - 1_024;
    let subject = public(&gate.cluster, &task.session_id, &task.task_id);
    if let Ok(whole) = encode(&published) {
        return send(&gate.intake, &subject, whole.into()).await;
    }
    let Published { v, after, page } = published;
    let Ok(page) = page.within(MOST) else { return };
    say(&gate.intake, &subject, &Published { v, after, page }).await;
}

pub(crate) async fn hint(gate: &Gate, task: &TaskKey, change: Changed) {
    let subject = event(&gate.cluster, &task.session_id, Some(&task.task_id));
    let Changed { version, ended, .. } = change;
    say(&gate.intake, &subject, &Committed { v: V, version, ended }).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use tenure_testkit::conformance::History;

    use super::recent::tests::spans;
    use super::*;

    /// A follower gets every commit once and in order, also those that came while the log was read, and
    /// only then how far the Task has come.
    #[tokio::test]
    async fn what_came_while_a_log_was_read_is_told_first() {
        let mut history = History::of("s", "t");
        let (created, second, third) = (history.create(), history.work(1), history.work(2));
        let key = history.key.clone();
        for tells_at_a_commit in [false, true] {
            let followed = Followed::default();
            assert!(!followed.ask(&key), "its log is to be read");
            assert!(followed.commit(&key, &second).is_empty());
            let mut follower = Follower::default();
            follower.take(&created).unwrap();
            assert!(followed.sweep().is_empty(), "it is not known how far it goes");
            followed.know(&key, follower);
            let late = followed.late.lock().clone();
            assert_eq!(late, std::slice::from_ref(&key), "it is told without a further commit");
            let waited = (created.last_seq(), second.last_seq());
            let next = (second.last_seq(), third.last_seq());
            if tells_at_a_commit {
                assert_eq!(spans(followed.commit(&key, &third)), [waited, next]);
                let stands = spans(followed.sweep().into_iter().map(|(_, told)| told));
                assert_eq!(stands, [(next.1, next.1)]);
            } else {
                let told = spans(followed.sweep().into_iter().map(|(_, told)| told));
                assert_eq!(told, [waited, (waited.1, waited.1)]);
                assert_eq!(spans(followed.commit(&key, &third)), [next]);
            }
            assert!(followed.sweep().is_empty(), "once");
            assert_eq!(spans(followed.commit(&key, &history.complete())).len(), 1);
            assert!(followed.is_empty(), "it is over");
            history.commits.pop();
        }
    }

    /// Mechanisms 15: who follows all Tasks of one session leaves room to followers of others.
    #[test]
    fn one_session_leaves_room_to_others() {
        let followed = Followed::default();
        let key = |session: &str, task: usize| {
            let task_id = format!("t{task}").parse().unwrap();
            TaskKey { session_id: session.parse().unwrap(), task_id }
        };
        let follow = |session: &str, tasks: usize| {
            for task in 0..tasks {
                followed.ask(&key(session, task));
            }
            let all = followed.tasks.lock();
            all.keys().filter(|one| one.session_id.as_str() == session).count()
        };
        assert_eq!(follow("eve", FOLLOWED_MAX), FOLLOWED_MAX * 3 / 4);
        assert_eq!(follow("bob", 300), 300);
        assert!(followed.ask(&key("eve", FOLLOWED_MAX)), "it is told nothing of this one");
        for session in 0..100 {
            follow(&format!("s{session}"), FOLLOWED_MAX);
        }
        assert!(followed.tasks.lock().len() <= FOLLOWED_MAX);
        assert!(!followed.ask(&key("bob", 7)), "what is followed goes on");
    }
}
