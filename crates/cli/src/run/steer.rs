//! Waits for the end of the Task: handles signals and a log that cannot be written, and ends Tasks
//! that do not end by themselves.

use std::time::Duration;

use tenure_core::id::Millis;
use tenure_core::patch::{Change, Operation, TaskFields};
use tenure_core::status::Policy;
use tenure_core::{Code, Command, Rejection};
use tenure_ports::journal::TaskKey;

use super::args::RunArgs;
use super::hint;
use super::host::RunHost;
use super::watch::{Progression, Watcher};
use crate::answer::{Exit, Failure, output};
use crate::runtime::StopSignals;
use crate::show::WaitReason;
use crate::show::steps;

/// How often to read the clock while waiting for a deadline, as the clock may be set meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// How the wait ended.
#[derive(Debug)]
pub(super) enum SteerEnd {
    /// The Task has ended.
    Task,
    /// A signal asked this process to stop; the Task has not ended.
    Stopped,
    /// Nothing of the Task can run by itself, and it has not ended.
    Stuck,
    /// This command cannot run the Task, for this reason.
    Refused(Failure),
}

/// The Task that `tenure run` steers, with its scheduler and workers.
#[derive(Debug)]
pub(super) struct Steer<'a> {
    pub(super) host: &'a RunHost,
    pub(super) args: &'a RunArgs,
    pub(super) key: &'a TaskKey,
    pub(super) watcher: &'a Watcher,
    /// This command has to end the Task.
    pub(super) is_manual: bool,
    pub(super) deadline: Option<Millis>,
}

impl Steer<'_> {
    /// Returns when the Task has ended, or when this process is to end before it.
    pub(super) async fn run_to_end(mut self, stop: &mut StopSignals) -> Result<SteerEnd, Failure> {
        let mut stage = self.watcher.stage.clone();
        let mut trouble = self.host.scheduler().trouble();
        trouble.mark_changed(); // There may have been trouble since the Task was made.
        let mut left_to_itself_at = None;
        let mut says_it_waits = true;
        loop {
            let progression = *stage.borrow_and_update();
            match progression {
                Progression::Ended => return Ok(SteerEnd::Task),
                Progression::Still { .. } | Progression::Waiting if self.is_manual => {
                    left_to_itself_at = Some(self.leave_to_itself().await?);
                }
                Progression::Still { version }
                    if left_to_itself_at.is_none_or(|at| version >= at) =>
                {
                    return Ok(SteerEnd::Stuck);
                }
                Progression::Waiting if says_it_waits => {
                    says_it_waits = false;
                    self.say_what_it_waits_for().await?;
                }
                Progression::Moving => says_it_waits = true,
                Progression::Still { .. } | Progression::Waiting => {}
            }
            tokio::select! {
                changed = stage.changed() => if changed.is_err() {
                    return Ok(SteerEnd::Task); // The watcher has ended, and reports why.
                },
                () = stop.asked() => return self.interrupt(stop).await,
                () = self.until(self.deadline.filter(|_| self.is_manual)) => {
                    left_to_itself_at = Some(self.leave_to_itself().await?);
                }
                Ok(()) = trouble.changed() => {
                    let why = trouble.borrow_and_update().clone();
                    if let Some(why) = why {
                        return Err(self.cannot_write(&why));
                    }
                }
            }
        }
    }

    async fn say_what_it_waits_for(&self) -> Result<(), Failure> {
        let now = self.host.scheduler().now();
        let read = self.host.scheduler().read(self.key, move |task| WaitReason::of(task, now));
        if let Some(reason) = read.await? {
            self.watcher.say(format!("{}; only a time limit ends this wait", reason.text));
        }
        Ok(())
    }

    /// Ends a Task with manual completion by the rules of automatic completion: it completes if its
    /// required Steps have, and otherwise fails with the same reason.
    async fn leave_to_itself(&mut self) -> Result<u64, Failure> {
        self.is_manual = false;
        let fields = TaskFields { completion: Change::Set(Policy::Auto), ..TaskFields::default() };
        change(self.host, self.key, fields).await
    }

    /// Waits for a moment of the scheduler's clock; for ever if there is none.
    async fn until(&self, at: Option<Millis>) {
        let Some(at) = at else { return std::future::pending().await };
        while let Ok(wait @ 1..) = u64::try_from(at.saturating_sub(self.host.scheduler().now())) {
            tokio::time::sleep(Duration::from_millis(wait).min(LOOK)).await;
        }
    }

    async fn interrupt(self, stop: &mut StopSignals) -> Result<SteerEnd, Failure> {
        let running = self.host.in_hand();
        if running > 0 {
            self.watcher.say(format!(
                "stopping: {} asked to end; Ctrl-C again leaves at once",
                match running {
                    1 => "1 step is".to_owned(),
                    n => format!("{} are", steps(n as u64)),
                }
            ));
        }
        tokio::select! {
            () = self.host.interrupt() => Ok(SteerEnd::Stopped),
            () = stop.asked() => self.leave_at_once(),
        }
    }

    /// Ends this process at once: its guards then end what runs.
    fn leave_at_once(&self) -> ! {
        let resume = hint::resume_task(self.args, &self.key.task_id);
        output::say(format_args!("left at once; go on with: {resume}"));
        std::process::exit(i32::from(Exit::Interrupted as u8))
    }

    fn cannot_write(&self, why: &str) -> Failure {
        let id = &self.key.task_id;
        let resume = hint::resume_task(self.args, id);
        let message = format!("the log of task `{id}` cannot be written: {why}");
        Failure::new(Exit::Unavailable, message).help(format!(
            "all that was recorded is safe; once the directory can be written again go on with: {resume}"
        ))
    }
}

/// Changes the Task, and returns its version after that. A Task that has ended meanwhile needs no
/// change.
pub(super) async fn change(
    host: &RunHost,
    key: &TaskKey,
    fields: TaskFields,
) -> Result<u64, Failure> {
    let envelope = host.tenure.envelope(&key.session_id)?;
    let operations = vec![Operation::UpdateTask(Box::new(fields))];
    let changed = host.scheduler().command(key, envelope, Command::TaskUpdate { operations }).await;
    match changed {
        Ok(answer) => Ok(answer.reply.version),
        Err(Rejection { code: Code::TaskTerminal | Code::TaskCancelling, .. }) => Ok(u64::MAX),
        Err(rejection) => Err(rejection.into()),
    }
}
