//! `tenure logs`: prints what the commands of a Task wrote.
//!
//! [`find`] knows in which files that is, [`printer`] prints them piece by piece, and [`follow`] goes on while
//! they grow. What another machine has, [`far`] reads through the worker there, and [`watch`] does so while it
//! grows.

mod far;
mod find;
mod follow;
mod printer;
mod watch;

use clap::{Args, ValueEnum};
use tenure_core::id::StepId;
use tenure_core::task::Attempt;
use tenure_core::view::{StepRef, View};
use tenure_core::{Code, Rejection};

use self::far::{FarLog, Shown, WorkerReader};
use self::find::AwayLog;
pub(crate) use self::find::LogFinder;
use self::printer::{LogPrinter, start};
use crate::answer::{Exit, Failure, human, output};
use crate::place::{LiveTask, Loaded, TaskReader};

/// Print what commands wrote.
#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    of: LiveTask,

    /// Step whose newest attempt to print as it was written, its standard error to standard error. Without a
    /// step, all steps are printed, each line behind the id of its step
    #[arg(value_name = "STEP_ID")]
    step: Option<String>,

    /// Another attempt of the step, by its number from 1
    #[arg(long, value_name = "N", requires = "step")]
    attempt: Option<u32>,

    /// Go on printing as commands write, also in further attempts, until the step or the task has ended
    #[arg(long, short)]
    follow: bool,

    /// Print only the last LINES lines of each stream
    #[arg(long, value_name = "LINES")]
    tail: Option<u64>,

    /// How to write them
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: LogsFormat,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum LogsFormat {
    /// The bytes as they are; without STEP_ID, lines behind the ids of their steps
    #[default]
    Text,
    /// A JSON object for each line
    Json,
    /// The same as json
    Jsonl,
}

impl LogsArgs {
    fn printer(&self) -> LogPrinter {
        LogPrinter { is_json: self.output != LogsFormat::Text, is_alone: self.step.is_some() }
    }
}

/// Whose logs are asked for.
#[derive(Debug)]
struct LogQuery {
    step: Option<StepId>,
    attempt: Option<u32>,
    tail: Option<u64>,
}

pub(crate) fn run(args: &LogsArgs) -> Result<Exit, Failure> {
    let found = if args.follow { args.of.here()? } else { Some(args.of.look()?) };
    let Some((data, log)) = found else { return watch::run(args) };
    let loaded = data.fold(log.clone())?;
    let (query, printer) = (LogQuery::new(args, &loaded)?, args.printer());
    match args.follow && !query.is_over(&loaded.task.durable()) {
        true => follow::run(&args.of, &data, &log, query, &printer),
        false => show(&data, &loaded, &query, &printer),
    }
}

impl LogQuery {
    fn new(args: &LogsArgs, loaded: &Loaded) -> Result<Self, Failure> {
        let view = loaded.task.durable();
        let unknown = |id: &str| loaded.unknown_step(id);
        let step = args.step.as_deref();
        let step = step.map(|id| StepId::new(id).map_err(|_| unknown(id))).transpose()?;
        if let Some(id) = &step {
            let of_step = view.step(id).ok_or_else(|| unknown(id.as_str()))?;
            let newest = view.attempts_of(of_step).next().map_or(0, |attempt| attempt.ordinal);
            if let Some(n) = args.attempt.filter(|n| !(1..=newest).contains(n)) {
                let key = &loaded.key;
                let message = format!("no attempt {n} of step `{id}` in task {key}");
                let help = match newest {
                    0 => format!("it has not run; `tenure task explain {key} {id}` says why"),
                    _ => format!(
                        "its newest attempt is {newest}; `tenure attempt list {key} --step {id}` shows them"
                    ),
                };
                return Err(Failure::new(Exit::NotFound, message).help(help));
            }
        }
        Ok(Self { step, attempt: args.attempt, tail: args.tail })
    }

    /// The Attempts that are asked for: the newest of each Step, in the order in which they began, or one.
    fn attempts<'a>(&self, view: &View<'a>) -> Vec<&'a Attempt> {
        let Some(id) = &self.step else {
            let mut newest: Vec<_> = view.steps().filter_map(|step| newest(view, step)).collect();
            newest.sort_by_key(|attempt| attempt.fencing_token);
            return newest;
        };
        let Some(step) = view.step(id) else { return Vec::new() };
        let chosen = match self.attempt {
            Some(n) => view.attempts_of(step).find(|attempt| attempt.ordinal == n),
            None => newest(view, step),
        };
        chosen.into_iter().collect()
    }

    /// The Attempts to begin with, or those that have begun since the Task had so many; and how many of the last
    /// lines of each are wanted.
    fn begun_since<'a>(
        &self,
        known: Option<usize>,
        view: &View<'a>,
    ) -> (Vec<&'a Attempt>, Option<u64>) {
        match known {
            None => (self.attempts(view), self.tail),
            Some(_) if self.attempt.is_some() => (Vec::new(), None),
            Some(known) => {
                let is_asked =
                    |attempt: &&Attempt| self.step.as_ref().is_none_or(|id| *id == attempt.step_id);
                (view.attempts().skip(known).filter(is_asked).collect(), None)
            }
        }
    }

    /// Whether nothing that is asked for can be written any more.
    fn is_over(&self, view: &View<'_>) -> bool {
        let is_open = |attempt: &&Attempt| attempt.ended_at.is_none();
        let step = self.step.as_ref().map(|id| view.step(id));
        view.is_terminal()
            || match (step, self.attempt) {
                (None, _) => false,
                (Some(_), Some(_)) => !self.attempts(view).iter().any(is_open),
                (Some(step), None) => step.is_none_or(|step| step.status().is_settled()),
            }
    }
}

/// The newest Attempt of a Step that may have written something: not one that was given back before it
/// began, unless there is no other.
fn newest<'a>(view: &View<'a>, step: StepRef<'a>) -> Option<&'a Attempt> {
    let may_have = |attempt: &&Attempt| !attempt.was_released() || attempt.begun_at.is_some();
    view.attempts_of(step).find(may_have).or_else(|| view.attempts_of(step).next())
}

/// Prints what is there.
fn show(
    data: &TaskReader,
    loaded: &Loaded,
    query: &LogQuery,
    printer: &LogPrinter,
) -> Result<Exit, Failure> {
    let view = loaded.task.durable();
    let finder = LogFinder::new(data, &loaded.key, &view);
    let attempts = query.attempts(&view);
    let (mut has_printed, mut away) = (false, Vec::new());
    let reader = data.cluster().map(|cluster| {
        let client = data.runtime.block_on(cluster.client(&loaded.key.session_id))?;
        Ok::<_, Failure>(WorkerReader::new(client, loaded.key.task_id.clone()))
    });
    let reader = reader.transpose()?;
    for &attempt in &attempts {
        let found = finder.find(&view, attempt);
        for log in found.here.iter().filter(|log| log.size() > Some(0)) {
            has_printed = true;
            if printer.print(attempt, log, start(log, query.tail)?, true)?.is_none() {
                return Ok(Exit::Ok); // The reader has closed the pipe.
            }
        }
        let mut missing = MissingLogs::default();
        for log in found.away {
            let Some(reader) = &reader else {
                missing.add(&log, None);
                continue;
            };
            let mut far = FarLog::new(log, query.tail);
            match data.runtime.block_on(far.print(reader, printer, attempt, true))? {
                Shown::Printed(is_more) => has_printed |= is_more,
                Shown::Absent if !far.away.is_recorded => {}
                Shown::Absent => missing.add(&far.away, None),
                Shown::Away(why) => missing.add(&far.away, Some(why)),
                Shown::Left => return Ok(Exit::Ok),
            }
        }
        if !missing.places.is_empty() {
            away.push((attempt, missing));
        }
    }
    if let Some((attempt, missing)) = away.first() {
        return Err(missing.failure(attempt, away.len() - 1));
    }
    if !has_printed {
        output::say(why_nothing(loaded, query, attempts.first().copied()));
    }
    Ok(Exit::Ok)
}

/// Logs of an Attempt that cannot be printed.
#[derive(Debug, Default)]
struct MissingLogs {
    /// Their places, as far as they are known.
    places: Vec<String>,
    /// Why their worker does not show them, if it was asked.
    why: Option<Rejection>,
}

impl MissingLogs {
    fn add(&mut self, log: &AwayLog, why: Option<Rejection>) {
        let path = human::one_line(&log.log.path.display().to_string());
        self.places.push(match log.is_recorded {
            true => path,
            false => format!("{path} below the directory of its --files"),
        });
        self.why = self.why.take().or(why);
    }

    /// The failure for logs that another machine has, or nobody any more.
    fn failure(&self, attempt: &Attempt, others: usize) -> Failure {
        let (n, step) = (attempt.ordinal, &attempt.step_id);
        let more = match others {
            0 => String::new(),
            others => format!(", nor those of {} more", human::plural(others, "attempt")),
        };
        // An older node says that there is no such operation, which says nothing of the logs.
        let why = self.why.as_ref().filter(|why| why.code != Code::ValidationError);
        let why = why.map(|why| format!(": {}", human::one_line(&why.message))).unwrap_or_default();
        let message =
            format!("this machine does not have all logs of attempt {n} of step {step}{more}{why}");
        let leaves = if attempt.ended_at.is_none() { "keeps" } else { "left" };
        let host = attempt.origin.as_ref().and_then(|origin| origin.worker_host.as_deref());
        let host = host.map(|host| format!(" on {}", human::one_line(host))).unwrap_or_default();
        let worker = human::one_line(attempt.worker_id.as_str());
        let places = self.places.join(" and ");
        let help =
            format!("worker {worker}{host} {leaves} them in {places}, unless they were removed");
        Failure::new(Exit::NotFound, message).help(help)
    }
}

/// Says why nothing was printed.
fn why_nothing(loaded: &Loaded, query: &LogQuery, attempt: Option<&Attempt>) -> String {
    let (view, key) = (loaded.task.durable(), &loaded.key);
    let Some(id) = &query.step else {
        return format!("no step of task {key} has written anything");
    };
    if let Some(attempt) = attempt {
        let so_far = if attempt.ended_at.is_none() { " so far" } else { "" };
        return format!("attempt {} of step {id} has written nothing{so_far}", attempt.ordinal);
    }
    let origin = view.step(id).and_then(|step| step.facts().taken_over_from.as_ref());
    match origin {
        Some(origin) => {
            let from = format!("{}/{}", key.session_id, origin.task_id);
            format!("step {id} was taken over from task {from}: `tenure logs {from} {id}`")
        }
        None => format!("step {id} has not run; `tenure task explain {key} {id}` says why"),
    }
}
