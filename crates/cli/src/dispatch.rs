//! `tenure dispatch`: a licence for one worker to claim one Step.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt as _, stream};
use smol_str::SmolStr;
use tenure_core::Command;
use tenure_core::command::{Dispatch, RunTtl};
use tenure_core::eligibility::Obstacle;
use tenure_core::event::Bindings;
use tenure_core::id::{CommandId, PoolId, RunId, StepId};
use tenure_core::status::EndReason;
use tenure_core::view::WriteSummary;
use tenure_ports::journal::TaskKey;

use crate::answer::{Exit, Failure, Shape, human, output};
use crate::order::{CommandAnswer, CommandDone, Key, OnTask};
use crate::place::CallerSession;
use crate::runtime::StopSignals;

/// How long to ask whether the Steps wait, and for how many at a time.
const ASKED: (Duration, usize) = (Duration::from_secs(2), 8);

/// Dispatch a run.
#[derive(Debug, Args)]
pub(crate) struct DispatchArgs {
    #[command(flatten)]
    on: OnTask,

    /// Pool whose worker takes it [default: that of the steps it is for, else that of the task]
    #[arg(long, value_name = "NAME")]
    pool: Option<PoolId>,

    /// Step that it may see and claim, and no other (repeatable) [default: all of its pool]
    #[arg(long = "step", value_name = "STEP_ID", value_delimiter = ',')]
    steps: Vec<StepId>,

    /// What the worker should know
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,

    /// How long it waits for a worker, such as `5m`, or `unlimited` [default: the scheduler's `run_ttl_ms`]
    #[arg(long, value_name = "TIME", value_parser = ttl)]
    ttl: Option<RunTtl>,

    /// Conversation thread that the work belongs to
    #[arg(long, value_name = "ID")]
    thread: Option<SmolStr>,

    /// Environment to do the work in
    #[arg(long, value_name = "REF")]
    environment: Option<SmolStr>,

    /// Wait until the run has ended; exit code 1 if not as `completed` or `no_step_claimed`
    #[arg(long, short = 'w')]
    wait: bool,

    /// Give up waiting after so many seconds, with exit code 6; the run goes on
    #[arg(long, value_name = "SECONDS", requires = "wait")]
    timeout: Option<u64>,
}

/// Dispatches a Run.
pub(crate) fn run(args: &DispatchArgs) -> Result<Exit, Failure> {
    if args.wait && !args.on.of.look.at.is_cluster() {
        let message = "--wait needs a cluster: in a directory no worker is there to take the run";
        return Err(Failure::new(Exit::Usage, message));
    }
    args.on.at(async |session| {
        let command = Command::DispatchWorker(args.command(args.pool(session).await?));
        args.warn_of_waits(session).await;
        if args.wait {
            return args.wait_for_end(session, command).await;
        }
        let summary = session.command(args.on.context()?, command).await?;
        args.tell(session.key(), &summary)
    })
}

fn ttl(text: &str) -> Result<RunTtl, String> {
    if text == "unlimited" {
        return Ok(RunTtl::UNLIMITED);
    }
    let life = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write `5m`, or `unlimited`"))?;
    let ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
    if !RunTtl::MS.contains(&ms) {
        return Err("it goes from `1s` to `7d`, or is `unlimited`".to_owned());
    }
    Ok(RunTtl::Ms(ms))
}

impl DispatchArgs {
    fn command(&self, worker_pool_id: PoolId) -> Dispatch {
        let bindings =
            Bindings { thread_id: self.thread.clone(), environment_ref: self.environment.clone() };
        Dispatch {
            allowed_step_ids: (!self.steps.is_empty()).then(|| self.steps.clone()),
            bindings: (bindings != Bindings::default()).then_some(bindings),
            instructions: self.instructions.clone(),
            on_behalf: None,
            ttl_ms: self.ttl,
            wait: Some(self.wait),
            worker_pool_id,
        }
    }

    /// Warns of Steps that no Run can claim before something else happens. To dispatch a Run for them is allowed
    /// (DISP-08), and may be a mistake. If nobody soon says whether they wait, the command goes on.
    async fn warn_of_waits(&self, session: &CallerSession) {
        let (within, at_a_time) = ASKED;
        let asked = stream::iter(&self.steps).map(|step| session.explain(step));
        let warned = async {
            let mut answers = pin!(asked.buffered(at_a_time));
            while let Some(Ok(why)) = answers.next().await {
                if let Some(words) = no_claim(why.headline) {
                    output::warn(format_args!("{}: {words}", why.text));
                }
            }
        };
        let _ = tokio::time::timeout(within, warned).await; // The dispatch itself shows what is wrong.
    }

    /// The pool of `--pool`; without one that of the Run's Steps, if they agree; otherwise the
    /// Task's. The Run's Steps are those of `--step`, or all that have not settled.
    async fn pool(&self, session: &CallerSession) -> Result<PoolId, Failure> {
        if let Some(pool) = &self.pool {
            return Ok(pool.clone());
        }
        let is_any = self.steps.is_empty();
        if is_any && self.on.command_id.is_some() {
            // The unsettled Steps change, so a repetition would be another command.
            let message =
                "--command-id goes with --pool or --step: else another time it may be another pool";
            return Err(Failure::new(Exit::Usage, message));
        }
        let steps = session.steps(!is_any).await?;
        let mut pools: BTreeMap<&PoolId, Vec<&str>> = BTreeMap::new();
        for step in steps.iter().map(|step| &step.spec) {
            if is_any || self.steps.contains(&step.step_id) {
                pools.entry(&step.worker_pool_id).or_default().push(step.step_id.as_str());
            }
        }
        let mut each = pools.iter();
        match (each.next(), each.next()) {
            (Some((&pool, _)), None) => Ok(pool.clone()),
            (_, Some(_)) if !is_any => {
                let each = pools.iter().map(|(pool, ids)| format!("{} of {pool}", ids.join(", ")));
                let each: Vec<String> = each.collect();
                let message = format!("the steps are of different pools: {}", each.join("; "));
                let help = "name the steps of one pool, or the pool with --pool";
                Err(Failure::new(Exit::Usage, message).help(help))
            }
            _ => Ok(session.view().await?.default_worker_pool_id),
        }
    }

    /// Prints the id of the Run as soon as it is known, and how the Run ended once it has.
    async fn wait_for_end(
        &self,
        session: &CallerSession,
        command: Command,
    ) -> Result<Exit, Failure> {
        let mut stop = StopSignals::listen()?;
        let context = self.on.context()?;
        let after = match self.on.command_id {
            Some(_) => 0, // An earlier call may have made it.
            None => session.version().await?,
        };
        let command_id = context.command_id.clone();
        let run = Cell::new(None);
        let told = async {
            run.set(session.run_made_by(&command_id, after).await);
            if let Some(run) = run.get() {
                output::say(format_args!("run {run} is dispatched, and waited for"));
            }
            std::future::pending::<()>().await;
        };
        let most = self.timeout.map_or(Duration::MAX, Duration::from_secs);
        tokio::select! {
            answer = session.answer(context, command) => self.tell(session.key(), &answer?),
            () = told => Ok(Exit::Ok), // It never ends.
            () = tokio::time::sleep(most) => {
                Err(has_not_ended(session.key(), run.get(), most, &command_id))
            },
            () = stop.asked() => {
                output::say(stopped(session.key(), run.get(), &command_id));
                Ok(Exit::Interrupted)
            }
        }
    }

    fn tell(&self, key: &TaskKey, summary: &WriteSummary) -> Result<Exit, Failure> {
        let done = CommandDone::of(summary);
        let run = done.run_id.map_or_else(String::new, |run| run.to_string());
        let end = done.run_end.map_or_else(String::new, |end| format!("  {}", end.end_reason));
        let result = done.run_end.and_then(|end| end.result.as_deref()).unwrap_or_default();
        let result = human::indented(result, "  ");
        let told = CommandAnswer { key: Key::of(key), done };
        self.on.of.look.output.answer(&told, Shape::one("run_id"), || {
            output::print(format_args!("{key}  run {run}{end}\n{result}"))
        })?;
        Ok(match told.done.run_end.map(|end| end.end_reason) {
            None | Some(EndReason::Completed | EndReason::NoStepClaimed) => Exit::Ok,
            Some(_) => Exit::TaskFailed,
        })
    }
}

/// What to say of a Step that no Run can claim before something else happens.
const fn no_claim(why: Obstacle) -> Option<&'static str> {
    match why {
        Obstacle::DependencyPending | Obstacle::NotBefore | Obstacle::StepBlocked => {
            Some("no worker can claim it yet")
        }
        Obstacle::DependencyUnsatisfiable | Obstacle::StepFailed | Obstacle::StepTerminal => {
            Some("no worker can claim it")
        }
        _ => None,
    }
}

/// The message when the wait is stopped. Before the Run is in the log, it is unknown whether there
/// is one.
fn stopped(key: &TaskKey, run: Option<RunId>, command: &CommandId) -> String {
    match run {
        Some(run) => format!(
            "stopped; run {run} of task {key} goes on without this command; to go on waiting, give the same \
             command with --command-id {command}"
        ),
        None => format!(
            "stopped before it was known whether a run of task {key} is dispatched; {}",
            dispatched_once(command)
        ),
    }
}

/// What to do if it is unknown whether there is a Run.
fn dispatched_once(command: &CommandId) -> String {
    format!(
        "the same command with --command-id {command} dispatches it once, and waits for its end"
    )
}

fn has_not_ended(
    key: &TaskKey,
    run: Option<RunId>,
    within: Duration,
    command: &CommandId,
) -> Failure {
    let waited = human::limit(within);
    let Some(run) = run else {
        let message =
            format!("nobody said within {waited} whether a run of task {key} is dispatched");
        return Failure::new(Exit::Unavailable, message).help(dispatched_once(command));
    };
    let message = format!("run {run} of task {key} has not ended within {waited}");
    Failure::new(Exit::Unavailable, message).help(format!(
        "it goes on: `tenure runs get {key} {run}` shows it, `tenure runs cancel {key} {run}` takes it back; \
         the same command with --command-id {command} goes on waiting"
    ))
}
