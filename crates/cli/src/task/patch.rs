//! `tenure task patch`: changes a Task while it runs, or shows what a change would do.
//!
//! A plan is decided in this process: it folds the log and runs the scheduler's own code, with the
//! limits of the Task's owner; in a directory, with the default limits.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use serde_json::Value as Json;
use tenure_core::Command;
use tenure_core::id::StepId;
use tenure_core::patch::Operation;
use tenure_core::view::{PatchPlan, Premises, plan_patch};

use super::graph::print as print_graph;
use crate::answer::{Exit, Failure, Paint, Shape, Stream, Tone, output};
use crate::order::OnTask;
use crate::place::me;

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
    let most = tenure_taskfile::limits::FILE_BYTES_MAX + 1;
    let read = match file == Path::new("-") {
        true => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|f| f.take(most).read_to_end(&mut bytes)),
    };
    let unreadable = |error| Failure::new(Exit::Usage, format!("{name}: {error}"));
    read.map_err(unreadable)?;
    let value = tenure_taskfile::value(&bytes, &name)?;
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
    let (data, loaded) = args.on.of.load()?;
    let (caller, limits) = (me(&loaded.key.session_id)?, data.limits(&loaded.key));
    let plan = data.look(&loaded, |_, known| {
        let premises = Premises {
            caller: &caller,
            expected_version: args.on.expected_version,
            expected_spec_version: args.on.expected_spec_version,
            limits: &limits,
            known,
        };
        plan_patch(&loaded.task, operations, &premises)
    })?;
    look.output.answer(&plan, Shape::nameless(), || print(&plan))
}

fn print(plan: &PatchPlan) -> Result<(), Failure> {
    print_graph(&plan.graph, false)?;
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
    line("would be added", Tone::Active, ids(&plan.added))?;
    line("would be removed", Tone::Bad, ids(&plan.removed))?;
    let changed = plan.changed.iter().map(|(step, status)| format!("{step} ({status})"));
    line("would change", Tone::Caution, changed.collect())?;
    line("would become ready", Tone::Good, ids(&plan.ready))?;
    output::say(format_args!(
        "nothing was changed; the same without --plan, with --expected-spec-version {}, does it",
        plan.spec_version
    ));
    Ok(())
}
