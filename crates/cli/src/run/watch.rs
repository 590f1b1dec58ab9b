//! The watcher of a Task: a thread of its own that applies the commits to a replica of the Task and
//! shows it.
//!
//! The display may block (a pipe that nobody reads, a slow terminal), but the scheduler never waits
//! for it: the watcher falls behind and reads the log instead.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_core::status::StepStatus;
use tenure_core::{Commit, Task};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::follow::CommitFollower;
use crate::answer::{Exit, Failure};
use crate::show::{Show, show_all};

/// When so many commits come at a time, more follow at once, and to wake the watcher for each would
/// cost the scheduler too much.
const BUSY: usize = 4;
/// So the watcher lets them gather for so long, which nobody notices.
const GATHER: Duration = Duration::from_millis(5);

/// How far the Task has come, for the code that steers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progression {
    /// A Step runs, or will run by itself.
    Moving,
    /// No Step runs, and none will by itself, as of this version.
    Still {
        /// Version of the Task.
        version: u64,
    },
    /// No Step runs, and none will by itself, but a time limit of the Task or of a Step will end the wait.
    Waiting,
    /// It has ended.
    Ended,
}

impl Progression {
    /// Computes it from a Task's state. A Step that waits for its next try counts as moving.
    pub(super) fn of(task: &Task) -> Self {
        if task.is_terminal() {
            return Self::Ended;
        }
        let view = task.durable();
        let tally = view.tally();
        let moving = tally.of(StepStatus::Ready) + tally.held() + tally.retrying;
        if view.is_closing() || moving > 0 {
            return Self::Moving;
        }
        match task.next_due() {
            Some(_) => Self::Waiting,
            None => Self::Still { version: task.version() },
        }
    }
}

/// A message to the watcher.
#[derive(Debug)]
enum WatcherMessage {
    Say(String),
    Leave,
}

/// A running watcher.
#[derive(Debug)]
pub(super) struct Watcher {
    /// How far the Task has come.
    pub(super) stage: watch::Receiver<Progression>,
    words: mpsc::UnboundedSender<WatcherMessage>,
    thread: JoinHandle<Result<Option<Box<Task>>, Failure>>,
}

impl Watcher {
    /// Starts to watch. `replica` is the Task as of the commit before the follower's first; none
    /// if it is about to be made.
    pub(super) fn start(
        follower: CommitFollower,
        replica: Option<Box<Task>>,
        show: Box<dyn Show>,
    ) -> std::io::Result<Self> {
        let (stage_in, stage) =
            watch::channel(replica.as_deref().map_or(Progression::Moving, Progression::of));
        let (words, heard) = mpsc::unbounded_channel();
        let watching = Watching { follower, replica, show, stage: stage_in, heard };
        let runtime = Handle::current();
        let run = move || runtime.block_on(watching.run());
        let thread = std::thread::Builder::new().name("watch".into()).spawn(run)?;
        Ok(Self { stage, words, thread })
    }

    /// Shows a line to people, in order with the rest of the output.
    pub(super) fn say(&self, line: impl Into<String>) {
        let _ = self.words.send(WatcherMessage::Say(line.into())); // An ended watcher shows nothing more.
    }

    /// Waits until the watcher has shown everything, and takes its replica: none if the Task was
    /// never made.
    pub(super) async fn leave(self) -> Result<Option<Box<Task>>, Failure> {
        let _ = self.words.send(WatcherMessage::Leave); // It may have ended with the Task.
        let thread = self.thread;
        match tokio::task::spawn_blocking(move || thread.join()).await {
            Ok(Ok(result)) => result,
            _ => Err(Failure::new(Exit::Unavailable, "the display broke off")),
        }
    }
}

struct Watching {
    follower: CommitFollower,
    replica: Option<Box<Task>>,
    show: Box<dyn Show>,
    stage: watch::Sender<Progression>,
    heard: mpsc::UnboundedReceiver<WatcherMessage>,
}

impl Watching {
    async fn run(mut self) -> Result<Option<Box<Task>>, Failure> {
        let shown = self.watch().await;
        self.show.leave();
        shown.map(|()| self.replica)
    }

    async fn watch(&mut self) -> Result<(), Failure> {
        let mut ticks = self.show.every().map(|every| interval_at(Instant::now() + every, every));
        if let Some(ticks) = &mut ticks {
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut commits = Vec::new();
        loop {
            let tick = async {
                match &mut ticks {
                    Some(ticks) => ticks.tick().await,
                    None => std::future::pending::<Instant>().await,
                }
            };
            tokio::select! {
                next = self.follower.next(&mut commits) => {
                    next?;
                    let is_busy = commits.len() >= BUSY;
                    self.take(&mut commits)?;
                    if *self.stage.borrow() == Progression::Ended {
                        return Ok(());
                    }
                    if is_busy {
                        tokio::time::sleep(GATHER).await;
                    }
                }
                word = self.heard.recv() => match word {
                    Some(WatcherMessage::Say(line)) => self.show.say(&line),
                    Some(WatcherMessage::Leave) | None => {
                        self.follower.take_what_is_there(&mut commits);
                        return self.take(&mut commits);
                    }
                },
                _ = tick => {
                    if let Some(task) = &self.replica {
                        self.show.tick(&task.durable());
                    }
                }
            }
        }
    }

    fn take(&mut self, commits: &mut Vec<Arc<Commit>>) -> Result<(), Failure> {
        show_all(&mut self.replica, commits, &mut *self.show)?;
        commits.clear();
        if let Some(task) = &self.replica {
            self.stage.send_replace(Progression::of(task));
        }
        Ok(())
    }
}
