//! `tenure task explain`: why Steps are not running, and what would change it.
//!
//! The judgement is the scheduler's own (`eligibility`): what is said here is what a claim would be
//! told. A Task with very many Steps is told in groups: one reason, its Steps, and one of them in
//! full as an example.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use tenure_core::eligibility::{Asker, Obstacle, obstacles};
use tenure_core::id::{AgentId, RunId, StepId};
use tenure_core::record::Reason;
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::explain::{Evidence, ForWhom, Remedy, Why};
use tenure_core::view::summary::Counts;
use tenure_core::view::{Explanation, Known, Normal, StepRef, TaskSummary, View, explain};

use super::super::args::{Format, Place, Shape};
use super::super::data::{Data, Loaded};
use super::super::host::Host;
use super::super::human;
use super::super::status;
use super::frontier::{Frontier, Root};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output::{self, Paint, Stream, Tone};

/// Steps of a group that are named.
const NAMED_MAX: usize = 20;
/// Of those, as many as one line takes.
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
    place: Place,
}

pub(super) fn run(args: &ExplainArgs) -> Result<Exit, Failure> {
    let data = Data::open(&args.place)?;
    let loaded = data.load(&args.place.key(&args.task)?)?;
    let whom = ForWhom {
        run_id: args.run,
        worker: args.worker.as_ref(),
        pool: data.host.pool().filter(|_| args.run.is_none() && !loaded.task.is_terminal()),
    };
    data.look(&loaded, |view, known| {
        let question = Question { loaded: &loaded, view, whom, known, data: &data };
        match &args.step {
            Some(step) => question.about_step(step, args.place.output),
            None => question.about_task(args.place.output),
        }
    })?;
    Ok(Exit::Ok)
}

/// What is asked, and what is known of it.
struct Question<'v, 'a> {
    loaded: &'v Loaded,
    view: &'v View<'a>,
    whom: ForWhom<'v>,
    known: &'v Known<'v>,
    data: &'v Data,
}

/// Why a Task's Steps are not running, in groups of one reason.
#[derive(Serialize)]
struct TaskExplanation {
    task_id: String,
    session_id: String,
    status: Normal,
    native_status: TaskStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_reason: Option<Reason>,
    version: u64,
    counts: Counts,
    /// Most decisive reason first.
    groups: Vec<Group>,
}

/// Steps that one reason keeps from running.
#[derive(Serialize)]
struct Group {
    headline: Obstacle,
    count: usize,
    step_ids: Vec<StepId>,
    /// Steps that are not named in `step_ids`.
    more: usize,
    /// The first of them, in full.
    example: Explanation,
    /// What their waiting comes down to, for Steps that wait for others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    roots: Vec<Root>,
    /// Causes that are not named in `roots`.
    more_roots: usize,
}

impl<'a> Question<'_, 'a> {
    fn about_step(&self, step: &str, format: Format) -> Result<(), Failure> {
        let id = StepId::new(step).ok().filter(|id| self.view.step(id).is_some());
        let id = id.ok_or_else(|| self.loaded.unknown_step(step))?;
        let explanation = explain(self.view, &id, self.whom, self.known)?;
        format.answer(&explanation, Shape::one("step_id"), || {
            output::print(self.render_step(&explanation))
        })
    }

    fn about_task(&self, format: Format) -> Result<(), Failure> {
        let summary = TaskSummary::of(self.view, self.known);
        let explanation = TaskExplanation {
            task_id: summary.task_id.to_string(),
            session_id: summary.session_id.to_string(),
            status: summary.status,
            native_status: summary.native_status,
            status_reason: summary.status_reason,
            version: summary.version,
            counts: summary.counts,
            groups: self.groups()?,
        };
        format.answer(&explanation, Shape::one("task_id"), || {
            output::print(self.render_task(&explanation))
        })
    }

    /// The Steps that somebody may ask about, by reason. In a live Task failed ones are among
    /// them: they wait for a decision.
    fn groups(&self) -> Result<Vec<Group>, Failure> {
        let is_live = !self.view.status().is_terminal();
        let asked = |step: &StepRef<'_>| {
            step.status().is_unfinished() || (is_live && step.status() == StepStatus::Failed)
        };
        let mut found: BTreeMap<Obstacle, (usize, Vec<StepId>)> = BTreeMap::new();
        for step in self.view.steps().filter(asked) {
            let (count, named) = found.entry(self.headline(step)).or_default();
            *count += 1;
            if named.len() < NAMED_MAX {
                named.push(step.id().clone());
            }
        }
        let frontier = Frontier::of(self.view);
        let group = |(headline, (count, named))| self.group(headline, count, named, &frontier);
        found.into_iter().map(group).collect()
    }

    fn group(
        &self,
        headline: Obstacle,
        count: usize,
        step_ids: Vec<StepId>,
        frontier: &Frontier<'a>,
    ) -> Result<Group, Failure> {
        let (roots, more_roots) = match headline {
            Obstacle::DependencyPending => frontier.moving(),
            Obstacle::DependencyUnsatisfiable => frontier.dead(),
            _ => (Vec::new(), 0),
        };
        let first = &step_ids[0]; // Of a group that a Step has made.
        let example = explain(self.view, first, self.whom, self.known)?;
        let more = count - step_ids.len();
        Ok(Group { headline, count, step_ids, more, example, roots, more_roots })
    }

    /// The reason that [`explain`] would give first, without its evidence: that may cost the whole
    /// Task for each Step.
    fn headline(&self, step: StepRef<'_>) -> Obstacle {
        let run = self.whom.run_id.and_then(|id| self.view.run(id));
        let worker = self.whom.worker.or(run.and_then(|run| run.worker_id.as_ref()));
        let asker = Asker { run, worker, pool: self.whom.pool };
        let found = obstacles(self.view.head(), step.spec, step.state, asker);
        let expires_at = run.and_then(|run| run.expires_at);
        match found.headline() {
            Obstacle::RunnableNow if expires_at.is_some_and(|at| at <= self.known.now) => {
                Obstacle::ScopeExcludes
            }
            headline => headline,
        }
    }
}

impl Question<'_, '_> {
    fn render_task(&self, task: &TaskExplanation) -> String {
        let paint = Paint::of(Stream::Stdout);
        let mut out = format!(
            "{}  {}",
            paint.text(Tone::Strong, &self.loaded.key),
            paint.text(status::tone(task.status), task.status),
        );
        let reason = task.status_reason.as_ref().map(said).unwrap_or_default();
        if !reason.is_empty() && reason != task.status.as_str() {
            let _ = write!(out, ": {}", human::one_line(reason)); // Strings take all.
        }
        out.push('\n');
        if task.groups.is_empty() {
            self.render_failures(&mut out);
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

    /// Of a Task that has ended: the Steps that failed by themselves, and not with it.
    fn render_failures(&self, out: &mut String) {
        let tried = |step: &StepRef<'_>| step.state.last_attempt.is_some();
        for step in self.view.failed().filter(tried).take(LINE_MAX) {
            let reason = step.facts().status_reason.as_ref().map(said).unwrap_or_default();
            let mark = Paint::of(Stream::Stdout).text(Tone::Bad, status::mark(step.status()));
            let _ = writeln!(out, "{mark} {}: {}", step.id(), human::one_line(reason));
        }
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
        let mut out = format!(
            "{} {}  {}  of {}\n",
            paint.text(status::step_tone(step.status), status::mark(step.status)),
            paint.text(Tone::Strong, &step.step_id),
            paint.text(status::tone(step.normalized_status), step.normalized_status),
            self.loaded.key,
        );
        for why in &step.reasons {
            let code = paint.text(tone(why.code), why.code);
            let _ = writeln!(out, "\n{code}\n  {}", human::one_line(&why.text));
            self.render_evidence(&mut out, why);
            self.render_remedies(&mut out, why);
        }
        out
    }

    /// What the words of a reason leave out.
    fn render_evidence(&self, out: &mut String, why: &Why) {
        let ago = |at| human::local_and_ago(at, self.known.now);
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
                let ids: Vec<&str> = ids.iter().take(LINE_MAX).map(StepId::as_str).collect();
                writeln!(out, "  the run is restricted to {}", ids.join(", "))
            }
            _ => Ok(()),
        };
    }

    fn render_remedies(&self, out: &mut String, why: &Why) {
        let mut shown: Vec<String> = why.remedies.iter().take(LINE_MAX).map(describe).collect();
        let needs_a_host = matches!(why.code, Obstacle::NoWorkerInPool | Obstacle::Held);
        if needs_a_host && self.data.host == Host::Nobody {
            shown.insert(0, self.data.resume(&self.loaded.key));
        }
        let arrow = Paint::of(Stream::Stdout).text(Tone::Faint, "→");
        for remedy in shown {
            let _ = writeln!(out, "  {arrow} {remedy}");
        }
    }
}

fn said(reason: &Reason) -> &str {
    if reason.message.is_empty() { &reason.code } else { &reason.message }
}

fn names(group: &Group) -> String {
    let named: Vec<&str> = group.step_ids.iter().take(LINE_MAX).map(StepId::as_str).collect();
    match group.count - named.len() {
        0 => named.join(", "),
        rest => format!("{} and {} more", named.join(", "), human::len(rest)),
    }
}

/// An operation as it would be given: on its own, or as part of a patch.
fn describe(remedy: &Remedy) -> String {
    let mut out = remedy.operation.to_string();
    if let Some(step) = &remedy.step_id {
        let _ = write!(out, " {step}"); // Strings take all.
    }
    if let Some(run) = &remedy.run_id {
        let _ = write!(out, " {run}");
    }
    if let Some(dependency) = &remedy.depends_on_step_id {
        let _ = write!(out, " on {dependency}");
    }
    match is_patch(&remedy.operation) {
        true => out + " (agent.task_update)",
        false => out,
    }
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
        O::StepFailed | O::DependencyUnsatisfiable => Tone::Bad,
        O::Held | O::RunnableNow => Tone::Active,
        O::DependencyPending | O::StepTerminal | O::TaskTerminal => Tone::Faint,
        O::TaskCancelling
        | O::TaskDraft
        | O::TaskBlocked
        | O::TaskPaused
        | O::StepBlocked
        | O::AssignedElsewhere
        | O::NotBefore
        | O::NoWorkerInPool
        | O::ScopeExcludes
        | O::PoolSaturated => Tone::Caution,
    }
}
