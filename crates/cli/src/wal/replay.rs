//! `tenure wal replay`: shows a Task as it was (VIEW-12).

use clap::Args;
use tenure_core::id::AttemptId;
use tenure_core::view::{Known, LeaseFact};

use crate::answer::{Exit, Failure, Format};
use crate::place::{Loaded, OfTask, TaskReader};
use crate::task::{TaskNotes, print_task};

/// Show a task as it was.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    of: OfTask,

    /// After this event, with all others of its commit [default: the last one]
    #[arg(long, value_name = "SEQ", value_parser = clap::value_parser!(u64).range(1..))]
    until: Option<u64>,
}

pub(super) fn run(args: &ReplayArgs) -> Result<Exit, Failure> {
    let data = TaskReader::open(&args.of.look.at)?;
    let log = data.find(&args.of.key()?)?;
    let until = args.until.unwrap_or(u64::MAX);
    let loaded = data.fold_until(log, until)?;
    let version = loaded.task.version();
    if args.until.is_some_and(|until| until > version) {
        let message = format!("task {} has no event {until}: the last is {version}", loaded.key);
        return Err(Failure::new(Exit::NotFound, message));
    }
    print_as_it_was(&loaded, until, args.of.look.output)
}

/// Prints a Task as of its last event, with leases as the log has them.
fn print_as_it_was(loaded: &Loaded, until: u64, format: Format) -> Result<Exit, Failure> {
    let view = loaded.task.durable();
    let then = view.updated_at();
    let lease = |id: AttemptId| {
        let expires_at = loaded.task.attempt(id)?.lease_expires_at;
        Some(LeaseFact { expires_at, valid: expires_at > then })
    };
    let known = Known { wal_path: loaded.wal_path.as_deref(), ..Known::new(then, &lease) };
    let version = view.version();
    let note = match until {
        u64::MAX => String::new(),
        until if until < version => format!(", the end of the commit that event {until} is of"),
        _ => ", as it was then".to_owned(),
    };
    print_task(&view, &known, &TaskNotes { host: None, resume: None, note: Some(note) }, format)
}
