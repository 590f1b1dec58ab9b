//! `tenure wal import`: writes Tasks of a data directory into a cluster.
//!
//! The owner of a Task's partition writes its log only when the whole log has come and replays. A
//! live Task goes on in the cluster at once, so nobody may go on with it in the directory. If a
//! Task cannot be imported, the command goes on with the others.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tenure_core::command::blobs::blob_lost;
use tenure_core::id::SessionId;
use tenure_core::record::Blob;
use tenure_core::{Code, Rejection};
use tenure_local::{FileBlobs, read_regular};
use tenure_ports::blobs::{BlobStore as _, SESSION_QUOTA};
use tenure_ports::erased::ErasedClient;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::{Client, put_blob};

use super::failures::Failures;
use crate::answer::{Exit, Failure, Format, Shape, human, output};
use crate::place::scan::{self, LogEnd, LogFile};
use crate::place::{Cluster, Host, PlaceArgs, TaskReader, ViewArgs, fetch};

/// Bring tasks of a data directory into a cluster.
#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The data directory
    #[arg(value_name = "DIR")]
    from: PathBuf,

    /// Ids of tasks, or SESSION/ID
    #[arg(value_name = "TASK_ID", required_unless_present = "all")]
    tasks: Vec<String>,

    /// Every task of the session, ended ones too
    #[arg(long, conflicts_with = "tasks")]
    all: bool,

    #[command(flatten)]
    look: ViewArgs,
}

/// The answer: the Tasks that were imported.
#[derive(Serialize)]
struct ImportReport {
    events: u64,
    tasks: Vec<Brought>,
    /// Tasks that were not imported.
    #[serde(skip_serializing_if = "Failures::is_empty")]
    failed: Failures,
}

/// A Task that is in the cluster now.
#[derive(Serialize)]
struct Brought {
    session_id: SessionId,
    task_id: String,
    version: u64,
    events: u64,
    /// Whether it was there already, with this history.
    unchanged: bool,
}

pub(super) fn run(args: &ImportArgs) -> Result<Exit, Failure> {
    if args.look.at.data.is_some() && !args.look.at.is_cluster() {
        let message = "the first argument is the directory to import, not --data or TENURE_DATA";
        return Err(
            Failure::new(Exit::Usage, message).help("leave that out: tenure wal import DIR --all")
        );
    }
    if let Host::AtWork(_) = Host::of(&args.from) {
        let message = format!("a process is at work on {}", args.from.display());
        let help = "wait until it has ended: a task must not go on in two places";
        return Err(Failure::new(Exit::Unavailable, message).help(help));
    }
    let here =
        TaskReader::open(&PlaceArgs { data: Some(args.from.clone()), ..args.look.at.clone() })?;
    let logs: Vec<(TaskKey, Result<LogFile, Failure>)> = match args.all {
        true => {
            let entries = here.entries(Some(&args.look.at.session))?;
            entries.iter().map(|entry| (entry.key.clone(), Ok(here.log(entry)))).collect()
        }
        false => {
            let keys = args.tasks.iter().map(|task| args.look.at.key(task));
            let keys = keys.collect::<Result<Vec<_>, Failure>>()?;
            keys.into_iter().map(|key| (key.clone(), here.find_named(&key))).collect()
        }
    };
    let there = TaskReader::far(&args.look.at)?;
    let Some(cluster) = there.cluster() else { unreachable!("it was opened as one") };
    let mut report = ImportReport { events: 0, tasks: Vec::new(), failed: Failures::default() };
    let is_empty = logs.is_empty();
    for (key, log) in logs {
        match log.and_then(|log| there.runtime.block_on(bring(cluster, &args.from, &log))) {
            Ok(brought) => report.add(brought, args.look.output)?,
            Err(failure) => report.failed.add(&key, failure),
        }
    }
    args.look.output.answer(&report, Shape::many("tasks", "task_id"), || {
        if is_empty {
            output::say(format_args!("no task in session {}", args.look.at.session));
        }
        Ok::<_, Failure>(())
    })?;
    Ok(report.failed.exit())
}

impl ImportReport {
    fn add(&mut self, brought: Brought, format: Format) -> Result<(), Failure> {
        if format == Format::Table {
            let how = if brought.unchanged { "was there already" } else { "is there now" };
            let (session, task) = (&brought.session_id, &brought.task_id);
            let events = human::count(brought.events);
            output::print(format_args!("{session}/{task}  {how}, {events} events\n"))?;
        }
        self.events += brought.events;
        self.tasks.push(brought);
        Ok(())
    }
}

async fn bring(cluster: &Cluster, from: &Path, log: &LogFile) -> Result<Brought, Failure> {
    let WholeLog { lines, commits, blobs } = whole(log)?;
    let events = commits.last().map_or(0, |(last, _)| *last);
    let client = cluster.nats(&log.key.session_id).await?;
    let any = Client::new(client.clone()).erased();
    bring_blobs(any.port(), &log.key, from, &blobs).await?;
    let (version, unchanged) = match client.import(&log.key.task_id, &lines).await {
        Ok(version) => (version, false),
        // The answer to an earlier import may have been lost: the same history is no conflict.
        Err(refused) if refused.code == Code::TaskIdConflict => {
            match there_already(cluster, &any, &log.key, &commits).await? {
                Some(version) => (version, true),
                None => {
                    let message = format!("task {} is there, with another history", log.key);
                    return Err(Failure::new(Exit::Conflict, message)
                        .help("`tenure wal export` writes that one down"));
                }
            }
        }
        Err(refused) => return Err(refused.into()),
    };
    let (session_id, task_id) = (log.key.session_id.clone(), log.key.task_id.to_string());
    Ok(Brought { session_id, task_id, version, events, unchanged })
}

/// Commits in a form to compare: the last event of each, and its id.
type Commits = Vec<(u64, String)>;

/// Puts the blobs that a log names, before the owner gets the log (VALUE-01).
async fn bring_blobs(
    port: &ErasedClient,
    key: &TaskKey,
    from: &Path,
    blobs: &BTreeSet<Blob>,
) -> Result<(), Failure> {
    let store = FileBlobs::open(from, SESSION_QUOTA);
    for &blob in blobs {
        let bytes = store.get(key, blob.hash).await.map_err(Rejection::from)?;
        let bytes = bytes.ok_or_else(|| blob_lost(blob.hash))?;
        match put_blob(port, &key.task_id, &bytes).await {
            // It is there and has ended: an earlier import has brought them.
            Err(refused) if refused.code == Code::TaskTerminal => return Ok(()),
            put => put.map(drop)?,
        }
    }
    Ok(())
}

/// A log up to its last whole commit.
struct WholeLog {
    lines: Vec<u8>,
    commits: Commits,
    blobs: BTreeSet<Blob>,
}

fn whole(log: &LogFile) -> Result<WholeLog, Failure> {
    let (mut commits, mut blobs) = (Vec::new(), BTreeSet::new());
    let mut task = None;
    let ended = scan::walk(log, |placed| {
        placed.replay_onto(&mut task)?;
        commits.push((placed.commit.last_seq(), placed.commit.commit_id.to_string()));
        blobs.extend(placed.commit.events.iter().flat_map(|event| event.body.blobs()));
        Ok(ControlFlow::Continue(()))
    })?;
    let mut lines = Vec::new();
    let most = match ended {
        LogEnd::Torn { at, .. } => at.offset, // The rest was never acknowledged.
        LogEnd::Whole | LogEnd::Left => u64::MAX,
    };
    let read = read_regular(&log.path).and_then(|file| file.take(most).read_to_end(&mut lines));
    read.map_err(Failure::cannot(format_args!("read {}", log.path.display())))?;
    match task {
        Some(_) => Ok(WholeLog { lines, commits, blobs }),
        None => Err(log.empty().into()),
    }
}

/// The version of a Task of the cluster whose history begins with these commits.
async fn there_already(
    cluster: &Cluster,
    client: &Client<ErasedClient>,
    key: &TaskKey,
    commits: &Commits,
) -> Result<Option<u64>, Failure> {
    let fetched = fetch(client, key, cluster.dir(), |_, _| ()).await?;
    let version = fetched.events;
    let (path, wal_name) = fetched.keep(key, cluster.dir())?;
    let theirs = whole(&LogFile { path, key: key.clone(), wal_name })?.commits;
    Ok(theirs.starts_with(commits).then_some(version))
}
