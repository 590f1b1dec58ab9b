//! `tenure run`: a task file, from its first Step to its end, in this process.
//!
//! The file is read and checked before anything is touched ([`RunnablePlan`]). Then scheduler and
//! workers start on the data directory ([`host`]), the Task is made or found again ([`job`]), a
//! thread of its own shows what happens ([`watch`], [`show_as`]), and [`steer`] waits for the end,
//! or handles a signal or a fault of the log that comes before it. [`stuck`] says why a Task
//! does not go on. [`door`] lets other commands reach the Task meanwhile.

mod args;
mod door;
mod follow;
mod hint;
mod host;
mod job;
mod steer;
mod stuck;
mod watch;

use std::path::Path;
use std::time::Instant;

use tenure_core::Task;
use tenure_core::id::{Millis, SessionId};
use tenure_core::status::{Policy, StepStatus};
use tenure_telemetry::Telemetry;

pub(crate) use self::args::{RunArgs, concurrency};
use self::door::RunDoor;
use self::host::RunHost;
use self::job::{Job, TakesOver};
use self::steer::{Steer, SteerEnd};
use self::watch::{Progression, Watcher};
use crate::answer::{Exit, Failure, output};
use crate::request::{RunnablePlan, STDIN, handlers};
use crate::runtime::{StopSignals, one_thread};
use crate::show::{OutputFormat, exit_of, print_end, show_as, steps};

/// Runs a task file.
///
/// It uses a runtime of one thread: Steps are other processes or wait, the journal's threads write
/// the logs, and the rest of the work would gain nothing from more threads.
pub(crate) fn run(args: RunArgs, telemetry: Option<&Telemetry>) -> Result<Exit, Failure> {
    let begun = Instant::now();
    let session_id = SessionId::new(&args.session).map_err(|bad| {
        Failure::new(Exit::Usage, bad.to_string()).help("name a session with --session")
    })?;
    let servers = args.tools.servers()?;
    let handlers = handlers(servers.is_some());
    let request = args
        .file
        .as_deref()
        .map(|file| RunnablePlan::open_to_run(file, &args.vars, args.time_scale, handlers))
        .transpose()?;
    let runtime = one_thread()?;
    runtime.block_on(async {
        let mut stop = StopSignals::listen()?;
        let mut host =
            RunHost::open(&args.data.path, (servers, args.tools.secrets()), telemetry).await?;
        let door = RunDoor::open(&host);
        let job = match &args.resume {
            None => {
                let Some(request) = request else { return Err(no_file()) };
                Job::create(&mut host, session_id, request, &args).await?
            }
            Some(_) => Job::find(&host, session_id, request.as_ref(), &args).await?,
        };
        let (ended, task) = carry_out(&mut host, job, &args, &mut stop).await?;
        let now = host.scheduler().now();
        let exit = conclude(&args, ended, &task, now, begun);
        door.close().await;
        host.close().await;
        exit
    })
}

fn no_file() -> Failure {
    Failure::new(Exit::Usage, "there is no file to run")
}

/// Runs a Task to its end, or until this process is stopped. Returns its last state.
async fn carry_out(
    host: &mut RunHost,
    mut job: Job,
    args: &RunArgs,
    stop: &mut StopSignals,
) -> Result<(SteerEnd, Box<Task>), Failure> {
    let mark = host.scheduler().journal().published(&job.key);
    let mut show = show_as(args.output, mark);
    if args.output == OutputFormat::Jsonl && job.replica.is_some() {
        job.publish_missed(host, &mut *show).await?;
    }
    if job.has_ended() {
        let ended = job.replica.ok_or_else(no_file)?;
        return Ok((SteerEnd::Task, ended));
    }
    greet(&job, args);
    if let Err(refused) = job.wake(host, args).await {
        return match job.replica {
            Some(task) if refused.exit == Exit::Conflict => Ok((SteerEnd::Refused(refused), task)),
            _ => Err(refused),
        };
    }
    let Job { key, follower, replica, is_manual, deadline, .. } = job;
    let watcher =
        Watcher::start(follower, replica, show).map_err(Failure::cannot("start a thread"))?;
    let steer = Steer { host, args, key: &key, watcher: &watcher, is_manual, deadline };
    let ended = steer.run_to_end(stop).await;
    let replica = watcher.leave().await;
    let ended = ended?;
    let task = replica?.ok_or_else(|| Failure::new(Exit::Unavailable, "the task was not seen"))?;
    // The last Steps may have ended the Task while they were asked to stop.
    let ended = if task.is_terminal() { SteerEnd::Task } else { ended };
    Ok((ended, task))
}

/// Prints which Task runs, for formats that people read.
fn greet(job: &Job, args: &RunArgs) {
    if args.output != OutputFormat::Table {
        return;
    }
    let id = &job.key.task_id;
    match &job.replica {
        None => match &job.takes_over {
            None => output::say(format_args!("task {id}")),
            Some(TakesOver { from, steps: taken }) => {
                let taken = steps(*taken as u64);
                output::say(format_args!("task {id} takes over {taken} from {from}"));
            }
        },
        Some(task) => {
            let view = task.durable();
            let (done, all) = (view.tally().of(StepStatus::Completed), view.tally().steps());
            output::say(format_args!("task {id} goes on: {done} of {} completed", steps(all)));
        }
    }
}

/// Whether `tenure run --resume` would bring a live Task further.
pub(crate) fn goes_on(task: &Task) -> bool {
    let is_manual = task.head().spec.completion == Policy::Manual;
    let moves = !matches!(Progression::of(task), Progression::Still { .. } | Progression::Ended);
    job::check_runnable(task, handlers(true)).is_ok() && (moves || is_manual)
}

/// Prints the result, and returns the exit code.
fn conclude(
    args: &RunArgs,
    ended: SteerEnd,
    task: &Task,
    now: Millis,
    begun: Instant,
) -> Result<Exit, Failure> {
    print_end(args.output, task, begun)?;
    match ended {
        SteerEnd::Stopped => {
            let resume = hint::resume_task(args, &task.head().spec.task_id);
            output::say(format_args!("stopped; go on with: {resume}"));
            Ok(Exit::Interrupted)
        }
        SteerEnd::Stuck => Err(stuck::failure(args, task, now)),
        SteerEnd::Refused(why) => Err(stuck::with_ways(why, args, task, now)),
        SteerEnd::Task => {
            let exit = exit_of(task);
            let from_file = args.file.as_deref().is_some_and(|file| file != Path::new(STDIN));
            let is_told =
                args.output == OutputFormat::Table && from_file && args.resumed_id().is_none();
            if exit == Exit::TaskFailed && is_told {
                let again = hint::retry_failed(args);
                output::say(format_args!("what is not done runs again with: {again}"));
            }
            Ok(exit)
        }
    }
}
