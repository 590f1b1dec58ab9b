//! `tenure task patch`: changes a Task while it runs, or shows what a change would do.
//!
//! A plan is decided in this process: it folds the log and runs the scheduler's own code, with the
//! limits of the Task's owner; in a directory, with the default limits.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tenure::taskfile;
use tenure_core::id::{AttemptId, CommitId, RunId, StepId};
use tenure_core::patch::Operation;
use tenure_core::status::StepStatus;
use tenure_core::view::{Graph, Known, View, graph};
use tenure_core::{Command, Cx, Stamp};
use uuid::Uuid;

use super::graph::print as print_graph;
use crate::cli::answer::{Exit, Failure, Paint, Shape, Stream, Tone, output};
use crate::cli::order::OnTask;
use crate::cli::place::me;

/// How many Steps of each kind to name.
const NAMED_MAX: usize = 20;

/// Change a task.
#[derive(Debug, Args)]
pub(crate) struct PatchArgs {
    #[command(flatten)]
    on: OnTask,

    /// Operations in YAML, TOML or JSON: a list, or a map with `operations`; `-` reads stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Change nothing: show the steps as they would be, and what would become ready
    #[arg(long)]
    plan: bool,
}

/// A patch file that is a map with the list in it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    operations: Vec<Json>,
}

/// What a patch would do.
#[derive(Debug, Serialize)]
struct PatchPlan {
    /// The version of the Task that it starts from.
    version: u64,
    /// The version at which orchestrators had last changed the Task (OCC-07).
    spec_version: u64,
    added: Vec<StepId>,
    removed: Vec<StepId>,
    /// Steps whose status would change, except those that become ready.
    changed: Vec<(StepId, StepStatus)>,
    /// Steps that would become ready.
    ready: Vec<StepId>,
    /// The DAG as it would be.
    graph: Graph,
}

/// Changes a Task, or shows what the patch would do.
pub(crate) fn run(args: &PatchArgs) -> Result<Exit, Failure> {
    let operations = read(&args.file)?;
    if args.plan {
        return show_plan(args, operations);
    }
    args.on.order(Command::TaskUpdate { operations }, false)
}

fn read(file: &Path) -> Result<Vec<Operation>, Failure> {
    let name = file.display().to_string();
    let mut bytes = Vec::new();
    let most = taskfile::limits::FILE_BYTES_MAX + 1;
    let read = match file == Path::new("-") {
        true => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|f| f.take(most).read_to_end(&mut bytes)),
    };
    let unreadable = |error| Failure::new(Exit::Usage, format!("{name}: {error}"));
    read.map_err(unreadable)?;
    let value = taskfile::value(&bytes, &name)?;
    let wrong = |why: String| {
        let help = "docs/orchestrate.md has the operations of a patch";
        Failure::new(Exit::Usage, format!("{name}: {why}")).help(help)
    };
    let patch = match value {
        Json::Array(operations) => Patch { operations },
        map => serde_json::from_value(map).map_err(|error| wrong(error.to_string()))?,
    };
    // One after another, so that the first wrong one can be named.
    let each = patch.operations.into_iter().enumerate().map(|(at, one)| {
        serde_json::from_value(one).map_err(|error| wrong(format!("operations[{at}]: {error}")))
    });
    each.collect()
}

fn show_plan(args: &PatchArgs, operations: Vec<Operation>) -> Result<Exit, Failure> {
    let look = &args.on.of.look;
    let (data, mut loaded) = args.on.of.load()?;
    let before = loaded.task.clone();
    let caller = me(&loaded.key.session_id)?;
    let nobody = Uuid::nil();
    let cx = Cx {
        caller: &caller,
        stamp: Stamp {
            now: data.now,
            steady: data.now,
            commit_id: CommitId(nobody),
            run_id: RunId(nobody),
            attempt_id: AttemptId(nobody),
            random: 0,
        },
        command_id: None,
        digest: None,
        expected_version: args.on.expected_version,
        expected_spec_version: args.on.expected_spec_version,
        trace: None,
        epoch: 0,
        limits: &data.limits(&loaded.key),
    };
    loaded.task.decide(&cx, &Command::TaskUpdate { operations })?;
    loaded.task.settle(); // As after the append: this is a copy.
    let plan = data
        .look(&loaded, |_, known| PatchPlan::of(&before.durable(), &loaded.task.durable(), known));
    look.output.answer(&plan, Shape::nameless(), || plan.print())
}

impl PatchPlan {
    fn of(before: &View<'_>, after: &View<'_>, known: &Known<'_>) -> Self {
        let (mut added, mut changed, mut ready) = (Vec::new(), Vec::new(), Vec::new());
        for step in after.steps() {
            let (id, status) = (step.id().clone(), step.status());
            let was = before.step(&id).map(|step| step.status());
            if was.is_none() {
                added.push(id.clone());
            }
            match status {
                _ if was == Some(status) => {}
                StepStatus::Ready => ready.push(id),
                _ if was.is_some() => changed.push((id, status)),
                _ => {}
            }
        }
        let removed = before.steps().filter(|step| after.step(step.id()).is_none());
        let removed = removed.map(|step| step.id().clone()).collect();
        let (version, spec_version) = (before.version(), before.spec_version());
        let graph = graph(after, known);
        Self { version, spec_version, added, removed, changed, ready, graph }
    }

    fn print(&self) -> Result<(), Failure> {
        print_graph(&self.graph, false)?;
        let paint = Paint::of(Stream::Stdout);
        let line = |what: &str, tone: Tone, steps: Vec<String>| -> Result<(), Failure> {
            if steps.is_empty() {
                return Ok(());
            }
            let more = steps.len().saturating_sub(NAMED_MAX);
            let named: Vec<String> = steps.into_iter().take(NAMED_MAX).collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let what = paint.text(tone, what);
            output::print(format_args!("{what}: {}{more}\n", named.join(", ")))
        };
        let ids = |steps: &[StepId]| steps.iter().map(ToString::to_string).collect();
        output::print("\n")?;
        line("would be added", Tone::Active, ids(&self.added))?;
        line("would be removed", Tone::Bad, ids(&self.removed))?;
        let changed = self.changed.iter().map(|(step, status)| format!("{step} ({status})"));
        line("would change", Tone::Caution, changed.collect())?;
        line("would become ready", Tone::Good, ids(&self.ready))?;
        output::say(format_args!(
            "nothing was changed; the same without --plan, with --expected-spec-version {}, does it",
            self.spec_version
        ));
        Ok(())
    }
}
