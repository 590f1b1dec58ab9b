//! What whoever watches is told: hints that a Task has changed (mechanisms 11), and the public events
//! of Tasks that somebody follows (EVENT).
//!
//! Either may get lost, and says where to read. The end of a Task is hinted at once; what happens
//! before is gathered: a Task that changes often is told of ten times a second. Public events are sent
//! as they happen, once for all who follow. So is it that somebody has asked for them: the others need
//! not ask then.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use parking_lot::Mutex;
use tenure_core::Commit;
use tenure_ports::client::{Changed, FOLLOWED};
use tenure_ports::journal::TaskKey;
use tenure_scheduler::{Appended, Follower};
use tenure_wire::bus::event::{EventPage, Published};
use tenure_wire::bus::request::Committed;
use tenure_wire::bus::subject::{event, public};
use tenure_wire::bus::{MESSAGE_MAX, V};
use tokio::sync::Notify;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::bus::say;
use crate::gate::Gate;

/// How long changes of a Task are gathered.
const GATHER: Duration = Duration::from_millis(100);

/// Tasks that are followed at a time. Who follows another reads its events every few seconds.
const FOLLOWED_MAX: usize = 4_096;

/// Commits that wait while the log of a Task is read for those who follow it.
const WAITING_MAX: usize = 1_024;

/// Logs that are read at a time for those who ask for events.
pub(crate) const READ_AT_ONCE: usize = 4;

/// Commits that are looked at before what they say is sent.
const AT_ONCE: usize = 64;

/// Tasks that somebody follows.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    tasks: Mutex<HashMap<TaskKey, Watched>>,
    /// Somebody has asked for one.
    asked: Notify,
}

#[derive(Debug)]
struct Watched {
    until: Instant,
    /// Whether somebody has asked, and the others were not told yet.
    is_news: bool,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Its log is being read: what comes meanwhile.
    Waiting(Vec<Arc<Commit>>),
    /// It can be told of.
    Known(Box<Follower>),
}

impl Followed {
    /// Follows a Task for a while; answers whether it is known.
    pub(crate) fn ask(&self, key: &TaskKey) -> bool {
        let until = Instant::now() + FOLLOWED;
        let mut followed = self.tasks.lock();
        let has_room = followed.len() < FOLLOWED_MAX;
        match followed.entry(key.clone()) {
            Entry::Occupied(mut here) => {
                let watched = here.get_mut();
                (watched.until, watched.is_news) = (until, true);
                matches!(watched.what, What::Known(_))
            }
            Entry::Vacant(here) if has_room => {
                self.asked.notify_one(); // It is there before whoever hears this may look.
                here.insert(Watched { until, is_news: true, what: What::Waiting(Vec::new()) });
                false
            }
            Entry::Vacant(_) => true, // Nobody could keep it.
        }
    }

    /// Its log was read: what came meanwhile is to be told.
    pub(crate) fn know(&self, key: &TaskKey, mut follower: Follower) -> Vec<Published> {
        let mut followed = self.tasks.lock();
        let Some(Watched { what, .. }) = followed.get_mut(key) else { return Vec::new() };
        let What::Waiting(commits) = what else { return Vec::new() };
        let told = commits.iter().filter_map(|commit| follower.publish(commit)).collect();
        *what = What::Known(Box::new(follower));
        told
    }

    /// What is to be told of a commit.
    fn commit(&self, key: &TaskKey, commit: &Arc<Commit>) -> Option<Published> {
        let mut followed = self.tasks.lock();
        let told = match &mut followed.get_mut(key)?.what {
            What::Waiting(commits) if commits.len() < WAITING_MAX => {
                commits.push(Arc::clone(commit));
                return None;
            }
            What::Waiting(_) => None,
            What::Known(follower) if commit.last_seq() <= follower.version() => return None,
            What::Known(follower) => follower.publish(commit),
        };
        let has_ended = told.as_ref().is_some_and(|told| told.page.status.is_terminal());
        if told.is_none() || has_ended {
            followed.remove(key); // Out of step: whoever asks next has it read again.
        }
        told
    }

    /// Forgets those that nobody has asked for lately; of those that somebody has, how far they were
    /// told.
    fn sweep(&self) -> Vec<(TaskKey, Published)> {
        let (now, mut asked) = (Instant::now(), Vec::new());
        self.tasks.lock().retain(|key, watched| {
            if let (true, What::Known(follower)) = (watched.is_news, &watched.what) {
                watched.is_news = false;
                asked.push((key.clone(), follower.stands()));
            }
            watched.until > now
        });
        asked
    }

    fn is_empty(&self) -> bool {
        self.tasks.lock().is_empty()
    }

    /// Forgets all: commits were missed.
    fn clear(&self) {
        self.tasks.lock().clear();
    }
}

/// Publishes what becomes durable, until the scheduler is gone.
pub(crate) async fn publish(gate: Arc<Gate>) {
    let (client, followed) = (&gate.intake, &gate.followed);
    let mut commits = gate.scheduler.subscribe();
    let mut ticks = interval(GATHER);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changed: HashMap<TaskKey, u64> = HashMap::new();
    let mut told: HashMap<TaskKey, Published> = HashMap::new();
    loop {
        let mut appended = tokio::select! {
            appended = commits.recv() => appended,
            _ = ticks.tick(), if !changed.is_empty() || !followed.is_empty() => {
                for (task, version) in std::mem::take(&mut changed) {
                    let task_id = task.task_id.clone();
                    hint(client, &task, Changed { task_id, version, ended: None }).await;
                }
                for (task, stands) in followed.sweep() {
                    tell(client, &task, stands).await;
                }
                continue;
            }
            () = followed.asked.notified() => continue, // From now on there are ticks.
        };
        let mut left = AT_ONCE;
        loop {
            match appended {
                Ok(Appended { task, commit }) => {
                    if let Some(published) = followed.commit(&task, &commit) {
                        gather(&mut told, &task, published);
                    }
                    let change = Changed::of(&task.task_id, &commit);
                    if change.ended.is_some() {
                        changed.remove(&task);
                        hint(client, &task, change).await;
                    } else {
                        changed.insert(task, change.version);
                    }
                }
                Err(RecvError::Lagged(missed)) => {
                    tracing::debug!(missed, "watchers are told of fewer changes");
                    followed.clear();
                }
                Err(RecvError::Closed) => return,
            }
            left -= 1;
            if left == 0 {
                break;
            }
            appended = match commits.try_recv() {
                Ok(next) => Ok(next),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
        }
        for (task, published) in told.drain() {
            tell(client, &task, published).await;
        }
    }
}

/// Several commits of a Task that come at once are told in one message.
fn gather(told: &mut HashMap<TaskKey, Published>, task: &TaskKey, mut next: Published) {
    match told.get_mut(task) {
        Some(before) if before.page.through == next.after => {
            let mut events = std::mem::take(&mut before.page.events);
            events.append(&mut next.page.events);
            before.page = EventPage { events, ..next.page };
        }
        _ => {
            told.insert(task.clone(), next);
        }
    }
}

/// Public events, as many as a message holds: those who follow read the rest.
pub(crate) async fn tell(client: &Client, task: &TaskKey, published: Published) {
    const MOST: usize = MESSAGE_MAX - 1_024;
    let Published { v, after, page } = published;
    let Ok(page) = page.within(MOST) else { return };
    let subject = public(&task.session_id, &task.task_id);
    say(client, &subject, &Published { v, after, page }).await;
}

async fn hint(client: &Client, task: &TaskKey, change: Changed) {
    let subject = event(&task.session_id, &task.task_id);
    let Changed { version, ended, .. } = change;
    say(client, &subject, &Committed { v: V, version, ended }).await;
}
