//! `tenure wal verify`: checks that logs are as they were written.
//!
//! It checks four things of each log: every line by itself (checksum and form), that each line
//! follows the one before (sequence, commits, and the Task of the log), that the events replay, and
//! that the blobs that they name are there and whole (VALUE-01).
//! A torn tail, which a crash leaves, was never acknowledged, so it is reported and is no failure;
//! the next process that takes the directory cuts it off.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use tenure_core::id::{SessionId, TaskId, WalName};
use tenure_local::check_real_dir;
use tenure_ports::journal::TaskKey;

use super::failures::Failures;
use crate::answer::{Exit, Failure, Paint, Shape, Stream, Tone, human, output};
use crate::place::scan::{self, Broken, LogEnd, LogFault, LogFile, SUFFIX};
use crate::place::{Indexed, TaskReader, ViewArgs, is_default, nobody_answers};

/// Check logs.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Id of the task, or SESSION/ID [default: every log of every session; of a cluster, of one]
    #[arg(value_name = "TASK_ID")]
    task: Option<String>,

    /// Every log of every session, as without TASK_ID
    #[arg(long, conflicts_with = "task")]
    all: bool,

    #[command(flatten)]
    look: ViewArgs,
}

/// The answer: the verdicts on all logs.
#[derive(Default, Serialize)]
struct VerifyReport {
    /// Whether every log was read, and none is damaged or missing.
    ok: bool,
    checked: usize,
    events: u64,
    torn: usize,
    damaged: usize,
    missing: usize,
    /// Logs that the cluster did not send.
    #[serde(skip_serializing_if = "Failures::is_empty")]
    failed: Failures,
    /// Partitions of a cluster for which nobody answered: their logs were not checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
    /// In the order of their files.
    logs: Vec<LogVerdict>,
    /// Files in the place of logs that are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdicts {
    Sound,
    Torn,
    Damaged,
    Missing,
}

/// One log.
#[derive(Serialize)]
struct LogVerdict {
    session_id: SessionId,
    task_id: TaskId,
    file: String,
    verdict: Verdicts,
    /// Events in whole commits, up to the first fault.
    events: u64,
    commits: u64,
    /// Where the fault or the torn tail begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// How long the torn tail is.
    #[serde(skip_serializing_if = "Option::is_none")]
    torn_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

pub(super) fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    let data = TaskReader::open(&args.look.at)?;
    let mut report = VerifyReport::default();
    match &args.task {
        Some(task) => {
            let key = args.look.at.key(task)?;
            match missing(&data).into_iter().find(|log| log.key == key) {
                Some(log) => report.add(gone(&log)),
                None if data.cluster().is_some() => {
                    report.add(verdict_far(&data, &data.find_named(&key)?))
                }
                None => report.add(verdict(&data, &data.find_named(&key)?)),
            }
        }
        None if data.cluster().is_some() => {
            every_log_far(&data, &args.look.at.session, &mut report)?;
        }
        None => {
            refuse_unknown(&data, &args.look.at.session)?;
            every_log(&data, &mut report)?;
        }
    }
    let exit = report.exit();
    report.ok = exit == Exit::Ok;
    let shape = Shape::nameless();
    args.look.output.answer(&report, shape, || output::print(render(&report)))?;
    Ok(exit)
}

/// Every log that a cluster has of a session.
fn every_log_far(
    data: &TaskReader,
    session: &SessionId,
    report: &mut VerifyReport,
) -> Result<(), Failure> {
    let listing = data.listing(Some(session), true)?;
    report.missing_partitions = listing.missing_partitions;
    for entry in listing.entries {
        match data.find_named(&entry.key) {
            Ok(log) => {
                report.add(verdict_far(data, &log));
                // It was fetched only for this check.
                let removed = std::fs::remove_file(&log.path);
                let name = log.path.display();
                removed.map_err(Failure::cannot(format_args!("remove {name}")))?;
            }
            Err(failure) => report.failed.add(&entry.key, failure),
        }
    }
    Ok(())
}

/// The verdict on a fetched log, under the path that it would have in a directory.
fn verdict_far(data: &TaskReader, log: &LogFile) -> LogVerdict {
    let file = format!("tasks/{}/{}{SUFFIX}", log.key.session_id, log.wal_name);
    LogVerdict { file, ..verdict(data, log) }
}

/// Refuses a session that was named and has no Task in the directory.
fn refuse_unknown(data: &TaskReader, session: &SessionId) -> Result<(), Failure> {
    let is_there = data.session_dir(session).exists()
        || data.indexed().iter().any(|row| row.session_id == *session);
    match is_there || is_default(session) {
        true => Ok(()),
        false => Err(data.no_session(session)),
    }
}

fn every_log(data: &TaskReader, report: &mut VerifyReport) -> Result<(), Failure> {
    let mut gone_ones = missing(data);
    let tasks = data.path().join("tasks");
    for name in names(&tasks)? {
        match SessionId::new(&name) {
            Ok(session) => every_log_of(data, &session, report)?,
            Err(_) => report.ignored.push(tasks.join(name).display().to_string()),
        }
    }
    gone_ones.sort_by(|a, b| a.path.cmp(&b.path));
    gone_ones.iter().for_each(|log| report.add(gone(log)));
    Ok(())
}

fn every_log_of(
    data: &TaskReader,
    session: &SessionId,
    report: &mut VerifyReport,
) -> Result<(), Failure> {
    let dir = data.session_dir(session);
    let entries = data.entries(Some(session))?;
    for name in names(&dir)? {
        let wal_name = name.strip_suffix(SUFFIX).and_then(|name| WalName::new(name).ok());
        let Some(wal_name) = wal_name else {
            report.ignored.push(dir.join(name).display().to_string());
            continue;
        };
        let log = match entries.iter().find(|entry| entry.wal_name == wal_name) {
            Some(entry) => data.log(entry),
            None => unborn(data, session, wal_name)?,
        };
        report.add(verdict(data, &log));
    }
    Ok(())
}

/// A log without a whole commit names no Task, so this takes the name of its file.
fn unborn(data: &TaskReader, session: &SessionId, wal_name: WalName) -> Result<LogFile, Failure> {
    let bad = |error| Failure::caused(Exit::Unavailable, &error);
    let task_id = TaskId::new(wal_name.as_str()).map_err(bad)?;
    let key = TaskKey { session_id: session.clone(), task_id };
    Ok(LogFile { path: data.wal(session, &wal_name), key, wal_name })
}

/// The names of the files in a directory, which is no link. A missing directory counts as empty.
fn names(dir: &Path) -> Result<Vec<String>, Failure> {
    let unread = || Failure::cannot(format!("read the directory {}", dir.display()));
    let entries = match check_real_dir(dir).and_then(|()| std::fs::read_dir(dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(unread())?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(unread())?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Logs that are in the index and whose files are missing (STORE-15).
fn missing(data: &TaskReader) -> Vec<LogFile> {
    let log = |row: Indexed| LogFile {
        path: data.wal(&row.session_id, &row.wal_name),
        key: TaskKey { session_id: row.session_id, task_id: row.task_id },
        wal_name: row.wal_name,
    };
    data.indexed().into_iter().map(log).filter(|log| !log.path.exists()).collect()
}

fn gone(log: &LogFile) -> LogVerdict {
    let message = Some("the file is not there, but the index knows the task".to_owned());
    LogVerdict { message, ..LogVerdict::of(log, Verdicts::Missing) }
}

/// Reads a log from its start, and replays it; then reads the blobs that it names.
fn verdict(data: &TaskReader, log: &LogFile) -> LogVerdict {
    let (mut task, mut blobs) = (None, BTreeSet::new());
    let (mut events, mut commits) = (0, 0);
    let ended = scan::walk(log, |placed| {
        placed.replay_onto(&mut task)?;
        events += placed.commit.events.len() as u64;
        commits += 1;
        blobs.extend(placed.commit.events.iter().flat_map(|event| event.body.blobs()));
        Ok(ControlFlow::Continue(()))
    });
    let at = |verdict, LogFault { line, offset, message }| LogVerdict {
        line: Some(line),
        offset: Some(offset),
        message: Some(message),
        ..LogVerdict::of(log, verdict)
    };
    let found = match ended {
        Ok(LogEnd::Whole | LogEnd::Left) => LogVerdict::of(log, Verdicts::Sound),
        Ok(LogEnd::Torn { at: fault, bytes }) => {
            LogVerdict { torn_bytes: Some(bytes), ..at(Verdicts::Torn, fault) }
        }
        Err(Broken::Damaged(_, fault)) => at(Verdicts::Damaged, fault),
        Err(Broken::Unreadable(_, error) | Broken::Refused(error)) => LogVerdict {
            message: Some(error.to_string()),
            ..LogVerdict::of(log, Verdicts::Damaged)
        },
    };
    let found = LogVerdict { events, commits, ..found };
    let lost = blobs.iter().find_map(|blob| data.blob(&log.key, blob.hash).err());
    match lost.filter(|_| found.verdict != Verdicts::Damaged) {
        Some(lost) => {
            LogVerdict { verdict: Verdicts::Damaged, message: Some(lost.message), ..found }
        }
        None => found,
    }
}

impl LogVerdict {
    fn of(log: &LogFile, verdict: Verdicts) -> Self {
        Self {
            session_id: log.key.session_id.clone(),
            task_id: log.key.task_id.clone(),
            file: log.path.display().to_string(),
            verdict,
            events: 0,
            commits: 0,
            line: None,
            offset: None,
            torn_bytes: None,
            message: None,
        }
    }

    /// `file:line (byte offset): what is wrong`.
    fn place(&self) -> String {
        let place = match (self.line, self.offset) {
            (Some(line), Some(offset)) => format!(":{line} (byte {offset})"),
            _ => String::new(),
        };
        format!("{}{place}: {}", self.file, self.message.as_deref().unwrap_or_default())
    }
}

impl VerifyReport {
    /// The highest exit code of the logs.
    fn exit(&self) -> Exit {
        let bad = if self.damaged + self.missing > 0 { Exit::TaskFailed } else { Exit::Ok };
        let unheard = if self.missing_partitions.is_empty() { Exit::Ok } else { Exit::Unavailable };
        bad.max(unheard).max(self.failed.exit())
    }

    fn add(&mut self, verdict: LogVerdict) {
        self.checked += 1;
        self.events += verdict.events;
        match verdict.verdict {
            Verdicts::Sound => {}
            Verdicts::Torn => self.torn += 1,
            Verdicts::Damaged => self.damaged += 1,
            Verdicts::Missing => self.missing += 1,
        }
        self.logs.push(verdict);
    }
}

/// A line per log that is not sound, and one for all.
fn render(report: &VerifyReport) -> String {
    let paint = Paint::of(Stream::Stdout);
    let mut out = String::new();
    for log in report.logs.iter().filter(|log| log.verdict != Verdicts::Sound) {
        let word = match log.verdict {
            Verdicts::Torn => paint.text(Tone::Caution, "torn"),
            Verdicts::Missing => paint.text(Tone::Bad, "missing"),
            Verdicts::Sound | Verdicts::Damaged => paint.text(Tone::Bad, "damaged"),
        };
        let torn = log.torn_bytes.map(|n| format!(", {} that nobody was told of", human::bytes(n)));
        out.push_str(&format!("{word}  {}{}\n", log.place(), torn.unwrap_or_default()));
    }
    for file in &report.ignored {
        out.push_str(&format!("{}  {file}: no log\n", paint.text(Tone::Caution, "ignored")));
    }
    out.push_str(&conclusion(report));
    out
}

fn conclusion(report: &VerifyReport) -> String {
    let checked = format!(
        "{} checked, {}",
        human::plural(report.checked, "log"),
        human::plural(usize::try_from(report.events).unwrap_or(usize::MAX), "event")
    );
    let mut bad = Vec::new();
    match report.damaged + report.missing {
        0 => {}
        some => bad.push(format!("{some} damaged or missing")),
    }
    match report.failed.all.len() {
        0 => {}
        some => bad.push(format!("{some} could not be read")),
    }
    match &report.missing_partitions[..] {
        [] => {}
        some => bad.push(nobody_answers(some)),
    }
    match (bad.is_empty(), report.torn) {
        (true, 0) => format!("{checked}: sound\n"),
        (true, torn) => format!("{checked}: sound but for {}\n", human::plural(torn, "torn tail")),
        (false, _) => format!("{checked}: {}\n", bad.join(", ")),
    }
}
