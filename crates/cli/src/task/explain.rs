//! `tenure task explain`: why Steps are not running, and what would change it.
//!
//! The scheduler's own code decides the reasons (`tenure_core::view::explain`), so they are those
//! for which a claim would be refused. Whoever runs the Task decides them, because it knows the
//! workers: its owner in a cluster, or the process at work on its directory. If nobody does, this
//! command reads the log and runs the same code. Steps with
//! the same reason form a group, with one of them in full as an example, so that very many Steps
//! stay readable.

use std::fmt::Write as _;

use clap::Args;
use tenure_core::eligibility::Obstacle;
use tenure_core::id::{AgentId, RunId, StepId};
use tenure_core::view::explain::{Evidence, ExplainedReason, ForWhom, Group, Remedy};
use tenure_core::view::{
    ExplainInput, ExplainTaskInput, Explanation, TaskExplanation, explain, explain_task,
};
use tenure_core::{Code, Rejection};
use tenure_ports::ClientPort as _;
use tenure_ports::erased::ErasedClient;
use tenure_ports::journal::TaskKey;
use tenure_sdk::client::Client;

use crate::answer::{Exit, Failure, Paint, Shape, Stream, Tone, human, output, status};
use crate::place::{Host, TaskReader, ViewArgs};

/// How many Steps of a group to name on one line.
const LINE_MAX: usize = 8;

/// Say why a task is not running.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Id of the task, or SESSION/ID
    #[arg(value_name = "TASK_ID")]
    task: String,

    /// Id of the step [default: all that are not settled]
    #[arg(value_name = "STEP_ID")]
    step: Option<String>,

    /// Whether this run could claim
    #[arg(long, value_name = "RUN_ID")]
    run: Option<RunId>,

    /// Whether this worker could claim
    #[arg(long, value_name = "NAME")]
    worker: Option<AgentId>,

    #[command(flatten)]
    look: ViewArgs,
}

pub(super) fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let data = TaskReader::open(&args.look.at)?;
    let key = args.look.at.key(&args.task)?;
    let (key, told) = match data.owner_of(&key)? {
        Some((client, key)) => asked(args, &data, &client, key)?,
        None => folded(args, &data, &key)?,
    };
    let said = Said { key: &key, data: &data };
    let format = args.look.output;
    match told {
        ExplainAnswer::Step(step) => {
            format.answer(&step, Shape::one("step_id"), || output::print(said.render_step(&step)))
        }
        ExplainAnswer::Task(task) => {
            format.answer(&task, Shape::one("task_id"), || output::print(said.render_task(&task)))
        }
    }
}

/// Why one Step is not running, or why all Steps of a Task are not.
enum ExplainAnswer {
    Step(Box<Explanation>),
    Task(Box<TaskExplanation>),
}

/// Asks whoever runs a Task.
fn asked(
    args: &ExplainArgs,
    data: &TaskReader,
    client: &Client<ErasedClient>,
    key: TaskKey,
) -> Result<(TaskKey, ExplainAnswer), Failure> {
    let (run_id, worker_id) = (args.run, args.worker.clone());
    let told = data.runtime.block_on(async {
        let (port, task) = (client.port(), &key.task_id);
        match args.step.as_deref().map(StepId::new) {
            None => {
                let whom = ExplainTaskInput { run_id, worker_id };
                port.ask(task, whom).await.map(|told| ExplainAnswer::Task(Box::new(told)))
            }
            Some(Ok(step_id)) => {
                let input = ExplainInput { run_id, step_id, worker_id };
                port.ask(task, input).await.map(|told| ExplainAnswer::Step(Box::new(told)))
            }
            Some(Err(bad)) => Err(Rejection::new(Code::StepNotFound, bad.to_string())),
        }
    });
    match told {
        Ok(told) => Ok((key, told)),
        Err(refused) if refused.code == Code::StepNotFound => {
            Err(data.load(&key)?.unknown_step(args.step.as_deref().unwrap_or_default()))
        }
        // A node of the release before does not know this query: decide from the log instead.
        Err(unknown) if is_of_operation(&unknown) => folded(args, data, &key),
        Err(refused) => Err(refused.into()),
    }
}

fn is_of_operation(refused: &Rejection) -> bool {
    refused.code == Code::ValidationError && refused.names_field("operation")
}

/// Decides the reasons from the log alone.
fn folded(
    args: &ExplainArgs,
    data: &TaskReader,
    key: &TaskKey,
) -> Result<(TaskKey, ExplainAnswer), Failure> {
    let loaded = data.load(key)?;
    let whom = ForWhom { run_id: args.run, worker: args.worker.as_ref() };
    let told = data.look(&loaded, |view, known| match &args.step {
        Some(step) => {
            let id = StepId::new(step).ok().filter(|id| view.step(id).is_some());
            let id = id.ok_or_else(|| loaded.unknown_step(step))?;
            Ok(ExplainAnswer::Step(Box::new(explain(view, &id, whom, known)?)))
        }
        None => Ok::<_, Failure>(ExplainAnswer::Task(Box::new(explain_task(view, whom, known)?))),
    })?;
    Ok((loaded.key, told))
}

/// An answer for people.
struct Said<'a> {
    key: &'a TaskKey,
    data: &'a TaskReader,
}

impl Said<'_> {
    fn render_task(&self, task: &TaskExplanation) -> String {
        let paint = Paint::of(Stream::Stdout);
        let mut out = format!(
            "{}  {}",
            paint.text(Tone::Strong, self.key),
            paint.text(status::tone(task.status), task.status),
        );
        let reason = task.status_reason.as_ref().map(human::said).unwrap_or_default();
        if !reason.is_empty() && reason != task.status.as_str() {
            let _ = write!(out, ": {}", human::one_line(reason)); // Writing to a String never fails.
        }
        out.push('\n');
        for hindrance in &task.hindrances {
            let code = paint.text(Tone::Caution, hindrance.code);
            let _ = writeln!(out, "\n{code}\n  {}", human::one_line(&hindrance.text));
            render_ways(&mut out, hindrance.remedies.iter().take(LINE_MAX).map(describe));
        }
        if task.groups.is_empty() {
            render_failures(&mut out, task);
            for unread in task.unread_input_refs.iter().take(LINE_MAX) {
                let _ = writeln!(
                    out,
                    "no completed step has read the input {}",
                    human::one_line(unread.as_str())
                );
            }
            out.push_str("every step is settled: nothing is left to run\n");
            return out;
        }
        if !task.native_status.is_terminal() {
            let _ = writeln!(out, "{}", self.data.host.describe());
        }
        for group in &task.groups {
            self.render_group(&mut out, group);
        }
        out
    }

    fn render_group(&self, out: &mut String, group: &Group) {
        let paint = Paint::of(Stream::Stdout);
        let headline = paint.text(tone(group.headline), group.headline);
        let _ = writeln!(out, "\n{headline}: {}", human::plural(group.count, "step"));
        if group.count > 1 {
            let _ = writeln!(out, "  {}", names(group));
        }
        for root in group.roots.iter().filter(|_| group.count > 1) {
            let code = root.code.as_ref().map(|code| format!(": {code}")).unwrap_or_default();
            let steps = human::plural(root.waiting, "step");
            let verb = if root.waiting == 1 { "waits" } else { "wait" };
            let _ = writeln!(out, "  {steps} {verb} for {} ({}{code})", root.step_id, root.status);
        }
        if group.more_roots > 0 {
            let _ = writeln!(out, "  … and others for {}", human::plural(group.more_roots, "step"));
        }
        if let Some(why) = group.example.reasons.first() {
            let example = if group.count > 1 { "for example: " } else { "" };
            let _ = writeln!(out, "  {example}{}", human::one_line(&why.text));
            self.render_evidence(out, why);
            self.render_remedies(out, why);
        }
    }

    fn render_step(&self, step: &Explanation) -> String {
        let paint = Paint::of(Stream::Stdout);
        let normal = step.normalized_status;
        let mut out = status::heading(&step.step_id, step.status, normal, self.key);
        for why in &step.reasons {
            let code = paint.text(tone(why.code), why.code);
            let _ = writeln!(out, "\n{code}\n  {}", human::one_line(&why.text));
            self.render_evidence(&mut out, why);
            self.render_remedies(&mut out, why);
        }
        out
    }

    /// Adds the evidence that the text of a reason leaves out.
    fn render_evidence(&self, out: &mut String, why: &ExplainedReason) {
        let ago = |at| human::local_and_ago(at, self.data.now);
        let _ = match &why.evidence {
            Evidence::Held { holder, since } => {
                let attempt = holder.current_attempt_id;
                writeln!(out, "  since {}, attempt {attempt}", ago(*since))
            }
            Evidence::Until { not_before, .. } => writeln!(out, "  at {}", ago(*not_before)),
            Evidence::Closing { deadline_at, .. } => {
                writeln!(out, "  its runs have until {}", ago(*deadline_at))
            }
            Evidence::Run { run_pool_id, step_pool_id, .. } if run_pool_id != step_pool_id => {
                writeln!(out, "  the run is for pool {run_pool_id}, the step for {step_pool_id}")
            }
            Evidence::Run { attempt_id: Some(attempt), .. } => {
                writeln!(out, "  the run has spent its one claim on attempt {attempt}")
            }
            Evidence::Run { allowed_step_ids: Some(ids), .. } => {
                let named: Vec<&str> = ids.iter().take(LINE_MAX).map(StepId::as_str).collect();
                let more = if ids.len() > LINE_MAX { ", …" } else { "" };
                writeln!(out, "  the run is restricted to {}{more}", named.join(", "))
            }
            _ => Ok(()),
        };
    }

    fn render_remedies(&self, out: &mut String, why: &ExplainedReason) {
        let mut shown: Vec<String> = why.remedies.iter().take(LINE_MAX).map(describe).collect();
        let needs_a_host = matches!(why.code, Obstacle::NoWorkerInPool | Obstacle::Held);
        if needs_a_host && self.data.host == Host::Nobody {
            shown.insert(0, self.data.resume(self.key));
        }
        render_ways(out, shown.into_iter());
    }
}

fn render_ways(out: &mut String, ways: impl Iterator<Item = String>) {
    let arrow = Paint::of(Stream::Stdout).text(Tone::Faint, "→");
    for way in ways {
        let _ = writeln!(out, "  {arrow} {way}");
    }
}

/// For an ended Task: the Steps that failed by themselves, not because the Task ended.
fn render_failures(out: &mut String, task: &TaskExplanation) {
    for step in task.failed.iter().take(LINE_MAX) {
        let reason = step.reason.as_ref().map(human::said).unwrap_or_default();
        let mark = Paint::of(Stream::Stdout).text(Tone::Bad, status::mark(step.status));
        let _ = writeln!(out, "{mark} {}: {}", step.step_id, human::one_line(reason));
    }
}

fn names(group: &Group) -> String {
    let named: Vec<&str> = group.step_ids.iter().take(LINE_MAX).map(StepId::as_str).collect();
    match group.count - named.len() {
        0 => named.join(", "),
        rest => format!("{} and {} more", named.join(", "), human::len(rest)),
    }
}

/// An operation as it would be given: on its own, or as part of a patch.
pub(crate) fn describe(remedy: &Remedy) -> String {
    let mut out = remedy.operation.to_string();
    if let Some(step) = &remedy.step_id {
        let _ = write!(out, " {step}"); // Writing to a String never fails.
    }
    if let Some(run) = &remedy.run_id {
        let _ = write!(out, " {run}");
    }
    if let Some(artifact) = &remedy.artifact_id {
        let _ = write!(out, " {artifact}");
    }
    if let Some(dependency) = &remedy.depends_on_step_id {
        let _ = write!(out, " on {dependency}");
    }
    if is_patch(&remedy.operation) {
        out += " (agent.task_update)";
    }
    if remedy.ends_task {
        out += ", which ends the task";
    }
    out
}

fn is_patch(operation: &str) -> bool {
    matches!(
        operation,
        "reopen_step"
            | "update_step"
            | "add_step"
            | "delete_step"
            | "remove_dependency"
            | "update_task"
            | "reopen_task"
    )
}

fn tone(obstacle: Obstacle) -> Tone {
    use Obstacle as O;
    match obstacle {
        O::StepFailed
        | O::TaskFailing
        | O::DependencyUnsatisfiable
        | O::LogUnavailable
        | O::LeasesUnavailable
        | O::NoWorkerInPool
        | O::NoWorkerServesSession
        | O::NoWorkerWithHandler => Tone::Bad,
        O::Held | O::RunnableNow => Tone::Active,
        O::DependencyPending | O::StepTerminal | O::TaskTerminal => Tone::Faint,
        O::TaskCancelling
        | O::TaskDraft
        | O::TaskBlocked
        | O::TaskPaused
        | O::StepBlocked
        | O::AssignedElsewhere
        | O::NotBefore
        | O::NeedsDispatch
        | O::ScopeExcludes
        | O::PoolSaturated => Tone::Caution,
    }
}
