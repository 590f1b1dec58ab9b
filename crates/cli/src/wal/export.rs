//! `tenure wal export`: writes logs of a cluster as the files of a data directory.
//!
//! It writes a log whole under a temporary name, makes it durable, and only then gives it its name,
//! so every file there has a log that was fetched to its end. A log only grows, so an existing file
//! is replaced only by a longer log that begins with it. If a Task cannot be fetched, the command
//! goes on with the others. The blobs that a log names are written before it (VALUE-01).

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use tenure_core::Rejection;
use tenure_core::id::SessionId;
use tenure_core::status::TaskStatus;
use tenure_local::{FileBlobs, read_regular};
use tenure_ports::BlobStore as _;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::get_blob;

use super::failures::Failures;
use crate::answer::{Exit, Failure, Shape, human, output};
use crate::place::{
    Fetched, Host, TaskReader, ViewArgs, fetch, file_of, nobody_answers, unwritten,
};

/// Write logs of a cluster into a data directory.
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Ids of tasks, or SESSION/ID
    #[arg(value_name = "TASK_ID", required_unless_present = "all")]
    tasks: Vec<String>,

    /// Every task of the session, ended ones too
    #[arg(long, conflicts_with = "tasks")]
    all: bool,

    /// The data directory; made if it is not there
    #[arg(long = "to", value_name = "DIR")]
    to: PathBuf,

    #[command(flatten)]
    look: ViewArgs,
}

/// The answer: the logs that were written.
#[derive(Serialize)]
struct ExportReport {
    data: PathBuf,
    events: u64,
    bytes: u64,
    logs: Vec<ExportedLog>,
    /// Logs that were not written.
    #[serde(skip_serializing_if = "Failures::is_empty")]
    failed: Failures,
}

/// A log that was written.
#[derive(Serialize)]
struct ExportedLog {
    session_id: SessionId,
    task_id: String,
    file: PathBuf,
    native_status: TaskStatus,
    events: u64,
    bytes: u64,
    /// Whether it was there already, as it is in the cluster.
    unchanged: bool,
}

pub(super) fn run(args: &ExportArgs) -> Result<Exit, Failure> {
    if args.look.at.data.is_some() && !args.look.at.is_cluster() {
        let message = "logs of a cluster are exported, and --data or TENURE_DATA names a directory";
        return Err(
            Failure::new(Exit::Usage, message).help("leave it out; --to DIR says where to write")
        );
    }
    refuse_where_somebody_works(&args.to)?;
    let data = TaskReader::far(&args.look.at)?;
    let keys = match args.all {
        true => every_key(&data, &args.look.at.session)?,
        false => args.tasks.iter().map(|task| args.look.at.key(task)).collect::<Result<_, _>>()?,
    };
    let bar = Bar::of(keys.len());
    let (logs, failed) = (Vec::new(), Failures::default());
    let mut report = ExportReport { data: args.to.clone(), events: 0, bytes: 0, logs, failed };
    for key in &keys {
        match export(&data, key, &args.to, &bar) {
            Ok(written) => report.add(written),
            Err(failure) => bar.aside(|| report.failed.add(key, failure)),
        }
        bar.next();
    }
    bar.end();
    let shape = Shape::many("logs", "task_id");
    args.look.output.answer(&report, shape, || output::print(render(&report)))?;
    Ok(report.failed.exit())
}

/// The Tasks of a session, if all partitions answer.
fn every_key(data: &TaskReader, session: &SessionId) -> Result<Vec<TaskKey>, Failure> {
    let listing = data.listing(Some(session), true)?;
    match &listing.missing_partitions[..] {
        [] => Ok(listing.entries.into_iter().map(|entry| entry.key).collect()),
        missing => Err(Failure::new(Exit::Unavailable, nobody_answers(missing))
            .help("try again: nothing was written")),
    }
}

impl ExportReport {
    fn add(&mut self, written: ExportedLog) {
        self.events += written.events;
        self.bytes += written.bytes;
        self.logs.push(written);
    }
}

fn render(report: &ExportReport) -> String {
    let unchanged = report.logs.iter().filter(|log| log.unchanged).count();
    let unchanged = match unchanged {
        0 => String::new(),
        some => format!(", {some} of them as they were"),
    };
    let failed = match report.failed.all.len() {
        0 => String::new(),
        some => format!("; {some} could not be written"),
    };
    format!(
        "{} in {}: {} events, {}{unchanged}{failed}\n",
        human::plural(report.logs.len(), "log"),
        report.data.display(),
        human::count(report.events),
        human::bytes(report.bytes),
    )
}

/// Refuses a directory on which a process is at work, as that process would not know of the new
/// files.
fn refuse_where_somebody_works(to: &Path) -> Result<(), Failure> {
    match Host::of(to) {
        Host::AtWork(_) => {
            let message = format!("a process is at work on {}", to.display());
            Err(Failure::new(Exit::Unavailable, message).help("name another directory with --to"))
        }
        _ => Ok(()),
    }
}

fn export(data: &TaskReader, key: &TaskKey, to: &Path, bar: &Bar) -> Result<ExportedLog, Failure> {
    let Some(cluster) = data.cluster() else { unreachable!("it was opened as one") };
    let fetched = data.runtime.block_on(async {
        let client = cluster.client(&key.session_id).await?;
        let fetched = fetch(&client, key, to, |done, all| bar.at(key, done, all)).await?;
        // Before the log has its name: a log that is there has its blobs.
        let blobs = FileBlobs::open(to, u64::MAX);
        for &blob in &fetched.blobs {
            if blobs.stat(key, blob.hash).await.map_err(Rejection::from)? != Some(blob.size_bytes) {
                let bytes = get_blob(client.port(), &key.task_id, blob.hash).await?;
                blobs.put(key, blob, bytes).await.map_err(Rejection::from)?;
            }
        }
        Ok::<_, Failure>(fetched)
    });
    let fetched = match fetched {
        Err(failure) if failure.exit == Exit::NotFound => return Err(data.unknown(key)),
        fetched => fetched?,
    };
    let (events, bytes, native_status) = (fetched.events, fetched.bytes, fetched.status);
    let dir = to.join("tasks").join(key.session_id.as_str());
    let file = file_of(to, key);
    let unchanged = match read_regular(&file) {
        Ok(there) => goes_on(there, &fetched, &file)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(unread(&file)(error)),
    };
    if !unchanged {
        fetched.file.as_file().sync_all().map_err(unwritten(&file))?;
        fetched.keep(key, to)?;
        File::open(&dir).and_then(|dir| dir.sync_all()).map_err(unwritten(&dir))?;
    }
    let (session_id, task_id) = (key.session_id.clone(), key.task_id.to_string());
    Ok(ExportedLog { session_id, task_id, file, native_status, events, bytes, unchanged })
}

/// Whether the existing file equals the fetched log. It must at least be the beginning of it.
fn goes_on(there: File, fetched: &Fetched, path: &Path) -> Result<bool, Failure> {
    let len = there.metadata().map_err(unread(path))?.len();
    let fetched_file = fetched.file.reopen().map_err(unread(fetched.file.path()))?;
    let (mut old, mut new) = (BufReader::new(there), BufReader::new(fetched_file));
    if len > fetched.bytes || !begins_with(&mut new, &mut old).map_err(unread(path))? {
        let message = format!("{} has another history than the cluster", path.display());
        let help = "name an empty directory with --to, or move the file away";
        return Err(Failure::new(Exit::Conflict, message).help(help));
    }
    Ok(len == fetched.bytes)
}

fn unread(path: &Path) -> impl FnOnce(io::Error) -> Failure {
    Failure::cannot(format!("read {}", path.display()))
}

fn begins_with(long: &mut impl Read, short: &mut impl Read) -> io::Result<bool> {
    let (mut a, mut b) = ([0; 8 << 10], [0; 8 << 10]);
    loop {
        let n = short.read(&mut b)?;
        if n == 0 {
            return Ok(true);
        }
        match long.read_exact(&mut a[..n]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            read => read?,
        }
        if a[..n] != b[..n] {
            return Ok(false);
        }
    }
}

/// The progress, on a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn of(logs: usize) -> Self {
        let bar = ProgressBar::new(logs as u64); // Not drawn if stderr is no terminal.
        let style = ProgressStyle::with_template("{pos} of {len} logs {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    fn at(&self, key: &TaskKey, done: u64, all: u64) {
        let (done, all) = (human::count(done), human::count(all));
        self.0.set_message(format!("{key}: {done} of {all} events"));
    }

    fn next(&self) {
        self.0.inc(1);
    }

    /// Runs a function that prints to the terminal, with the bar hidden meanwhile.
    fn aside(&self, says: impl FnOnce()) {
        self.0.suspend(says);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}
