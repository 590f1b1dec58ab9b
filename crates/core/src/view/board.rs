//! `task_board_summary`: Tasks in few words, for the context of a model (PROMPT).
//!
//! The owner of each Task writes the lines about it ([`task_lines`]), and the client puts the lines
//! of all Tasks together within a budget ([`compose`]).

use alloc::collections::BinaryHeap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::normal::Facts;
use super::scope::Scope;
use crate::command::{Caller, Operator};
use crate::eligibility::is_assigned_elsewhere;
use crate::id::{Millis, TaskId};
use crate::limits::Limits;
use crate::operation::{Query, Reads, TaskQuery};
use crate::read::{StepRef, View};
use crate::reject::{Code, Rejection};
use crate::status::{Role, StepStatus};

/// Bytes that count as one token, for every model.
const TOKEN_BYTES: usize = 4;

/// The most lines about Steps of one kind, or about changes, of one Task.
const LINES_MAX: usize = 50;

/// The most characters of a title or message.
const TEXT_CHARS: usize = 120;

/// The input of `task_board_summary`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BoardInput {
    /// The longest summary, in tokens; at most the configured budget, which is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_budget: Option<usize>,
}

impl Query for BoardInput {
    const NAME: &'static str = "task_board_summary";
    const TOOL: Operator = Operator::TaskBoardSummary;
    type Output = TaskLines;
}

impl TaskQuery for BoardInput {
    fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        self.budget(limits).map(drop)
    }

    fn read(
        &self,
        task: &View<'_>,
        caller: &Caller,
        known: &Known<'_>,
        limits: &Limits,
    ) -> Result<TaskLines, Rejection> {
        let tokens = self.budget(limits)?;
        task_lines(task, caller, known).map(|lines| lines.within(tokens))
    }
}

/// `task_template`: how to write a Task (CTRL-10).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateInput {}

impl Query for TemplateInput {
    const NAME: &'static str = "task_template";
    const TOOL: Operator = Operator::TaskTemplate;
    const READS: Reads = Reads::Nothing;
    type Output = Board;
}

impl BoardInput {
    /// PROMPT-03: the budget in tokens.
    ///
    /// # Errors
    /// `validation_error` for a budget too small for any line, or above the configured one.
    pub fn budget(self, limits: &Limits) -> Result<usize, Rejection> {
        let most = limits.board_tokens;
        match self.token_budget {
            None => Ok(most),
            Some(tokens) if (TOKENS_MIN..=most).contains(&tokens) => Ok(tokens),
            Some(tokens) => {
                let message = format!("token_budget is {TOKENS_MIN} to {most}, not {tokens}");
                Err(Rejection::new(Code::ValidationError, message).with("field", "token_budget"))
            }
        }
    }

    /// The budget of Tasks together, in tokens: the smallest that their owners name, as these know
    /// the configured one.
    pub fn budget_of(self, tasks: &[TaskLines]) -> usize {
        let said = tasks.iter().filter_map(|task| task.token_budget).chain(self.token_budget);
        said.min().unwrap_or(Limits::default().board_tokens)
    }
}

/// How much a line matters: over budget, the lines of the first ranks stay (PROMPT-04).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Rank {
    /// A Step that the caller holds.
    Own,
    /// A blocked Step, which waits for somebody.
    Blocked,
    /// A Step that another worker holds.
    Running,
    /// A ready Step that the caller may take.
    Open,
    /// A ready Step.
    Ready,
    /// A Step that has changed.
    Changed,
}

impl Rank {
    const fn heading(self) -> &'static str {
        match self {
            Self::Own => "yours",
            Self::Blocked => "blocked",
            Self::Running => "at work",
            Self::Open => "ready, for you to claim",
            Self::Ready => "ready",
            Self::Changed => "lately",
        }
    }
}

/// A Task as lines of text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskLines {
    /// The Task.
    pub task_id: TaskId,
    /// What it is, and its state.
    pub head: String,
    /// Its Steps, the most important first.
    pub lines: Vec<(Rank, String)>,
    /// How many lines its owner left out already.
    pub left_out: usize,
    /// The budget of the answer, in tokens: that of the request, else the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_budget: Option<usize>,
    /// The version that was read.
    pub version: u64,
    /// `wal_seq` of the event by which orchestrators last changed what the Task is to do (OCC-07); absent for
    /// workers.
    #[serde(default, skip_serializing_if = "super::is_unknown")]
    pub spec_version: u64,
}

impl TaskLines {
    /// Keeps as many lines as fit into a budget in tokens, the most important ones.
    #[must_use]
    pub fn within(mut self, tokens: usize) -> Self {
        let mut left = tokens.saturating_mul(TOKEN_BYTES);
        let mut fits = |(rank, text): &(Rank, String)| {
            let cost = text.len() + LINE_BYTES + rank.heading().len();
            let fits = cost <= left;
            left = left.saturating_sub(cost);
            fits
        };
        let kept = self.lines.iter().take_while(|line| fits(line)).count();
        self.left_out += self.lines.len() - kept;
        self.lines.truncate(kept);
        self.token_budget = Some(tokens);
        self
    }
}

/// The summary of all Tasks in the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Board {
    /// The role of the message for the model: `user`.
    pub role: SmolStr,
    /// PROMPT-01: no person wrote it, and users do not see it.
    pub synthetic: bool,
    /// The message.
    pub text: String,
    /// Whether something did not fit.
    pub truncated: bool,
}

/// PROMPT-02, PROMPT-06: a Task as lines, as far as the caller may see it.
///
/// # Errors
/// As [`Scope::of`].
pub fn task_lines(
    view: &View<'_>,
    caller: &Caller,
    known: &Known<'_>,
) -> Result<TaskLines, Rejection> {
    let scope = Scope::of(view, caller, Operator::TaskBoardSummary)?;
    let mut out = Lines::default();
    let sees = |s: &StepRef<'_>| scope.sees(view, *s);
    let is_own = |s: &StepRef<'_>| view.current(*s).is_some_and(|a| a.worker_id == caller.agent);

    out.add(Rank::Own, view.held().filter(sees).filter(is_own), |s| held(view, s));
    out.add(Rank::Blocked, view.blocked().filter(sees), blocked);
    out.add(Rank::Running, view.held().filter(sees).filter(|s| !is_own(s)), |s| held(view, s));
    match scope {
        Scope::Run { run, .. } => {
            let ready = view.ready_in_pool(&run.worker_pool_id).filter(sees);
            let open = ready.filter(|s| !is_assigned_elsewhere(view.head(), s.spec, &caller.agent));
            out.add(Rank::Open, open, titled);
        }
        Scope::Whole => {
            let ready = view.steps().filter(|s| s.status() == StepStatus::Ready);
            out.add(Rank::Ready, ready, titled);
        }
    }
    out.add(Rank::Changed, lately(view, sees).into_iter(), |s| changed(s, known.now));
    let Lines { lines, left_out } = out;
    let (task_id, version) = (view.task_id().clone(), view.version());
    let spec_version = match scope {
        Scope::Whole => view.spec_version(),
        Scope::Run { .. } => 0,
    };
    let head = head(view, caller, known);
    Ok(TaskLines { head, task_id, lines, left_out, token_budget: None, version, spec_version })
}

/// PROMPT-03, PROMPT-04: the summary within a budget in tokens, the most important lines first.
pub fn compose(tasks: &[TaskLines], tokens: usize) -> Board {
    let mut left = tokens.saturating_mul(TOKEN_BYTES).saturating_sub(MORE_BYTES);
    let mut pay = |text: &str, more: usize| {
        let cost = text.len() + more;
        let fits = cost <= left;
        left -= if fits { cost } else { 0 };
        fits
    };
    let heads: Vec<bool> = tasks.iter().map(|task| pay(&task.head, 1)).collect();
    let mut ranked: Vec<(Rank, usize, usize)> = Vec::new();
    for (at, task) in tasks.iter().enumerate().filter(|(at, _)| heads[*at]) {
        ranked.extend(task.lines.iter().enumerate().map(|(n, (rank, _))| (*rank, at, n)));
    }
    ranked.sort_unstable();
    let fits = |&(rank, at, n): &(Rank, usize, usize)| {
        pay(&tasks[at].lines[n].1, LINE_BYTES + rank.heading().len())
    };
    let kept = ranked.iter().map(fits).take_while(|fits| *fits).count();
    ranked.truncate(kept);
    let lines: usize = tasks.iter().map(|task| task.lines.len() + task.left_out).sum();
    let missing = lines - ranked.len() + heads.iter().filter(|fits| !**fits).count();

    ranked.sort_unstable_by_key(|&(rank, at, n)| (at, rank, n));
    let mut text = String::new();
    for (at, task) in tasks.iter().enumerate().filter(|(at, _)| heads[*at]) {
        let _ = writeln!(text, "{}", task.head); // A text takes everything.
        for &(rank, _, n) in ranked.iter().filter(|(_, of, _)| *of == at) {
            let _ = writeln!(text, "- {}: {}", rank.heading(), task.lines[n].1);
        }
    }
    if missing > 0 {
        let _ = writeln!(text, "{missing} lines more, see agent.task_get");
    }
    Board { role: SmolStr::new_static("user"), synthetic: true, text, truncated: missing > 0 }
}

/// Bytes reserved for the line that says how many lines are missing.
const MORE_BYTES: usize = 56;

/// The smallest budget: room for that line alone.
const TOKENS_MIN: usize = MORE_BYTES / TOKEN_BYTES;

/// Bytes of a line beside its text and heading.
const LINE_BYTES: usize = "- : \n".len();

#[derive(Default)]
struct Lines {
    lines: Vec<(Rank, String)>,
    left_out: usize,
}

impl Lines {
    fn add<'a>(
        &mut self,
        rank: Rank,
        mut steps: impl Iterator<Item = StepRef<'a>>,
        say: impl Fn(StepRef<'a>) -> String,
    ) {
        let lines = steps.by_ref().take(LINES_MAX).map(|step| (rank, say(step)));
        self.lines.extend(lines);
        self.left_out += steps.count();
    }
}

fn head(view: &View<'_>, caller: &Caller, known: &Known<'_>) -> String {
    let status = Facts::of(view, known).status();
    let title = short(&view.head().spec.title);
    let mut head = format!("Task {} [{status}] {title}", view.task_id());
    if caller.role != Role::Worker {
        let counts = StepStatus::ALL.iter().filter_map(|&status| {
            let count = view.tally().of(status);
            (count > 0).then(|| format!("{count} {status}"))
        });
        let _ = write!(head, " ({})", counts.collect::<Vec<_>>().join(", "));
    }
    head
}

fn titled(step: StepRef<'_>) -> String {
    format!("{} ({})", step.id(), short(&step.spec.title))
}

fn held(view: &View<'_>, step: StepRef<'_>) -> String {
    let mut text = titled(step);
    if let Some(attempt) = view.current(step) {
        let _ = write!(text, ", {}, attempt {}", attempt.worker_id, attempt.ordinal);
    }
    let progress = step.facts().progress.as_ref();
    if let Some(percent) = progress.and_then(|progress| progress.percent) {
        let _ = write!(text, ", {percent:.0} %");
    }
    text
}

fn blocked(step: StepRef<'_>) -> String {
    let mut text = titled(step);
    if let Some(wait) = step.state.wait_kind {
        let _ = write!(text, ", waits for {wait}");
    }
    if let Some(reason) = &step.facts().status_reason {
        let _ = write!(text, ": {}", short(&reason.message));
    }
    text
}

fn changed(step: StepRef<'_>, now: Millis) -> String {
    let seconds = now.saturating_sub(step.state.updated_at) / 1000;
    let mut text = format!("{} {} {seconds} s ago", step.id(), step.status());
    let facts = step.facts();
    let reason = facts.status_reason.as_ref().map(|reason| reason.message.as_str());
    if let Some(why) = facts.result_summary.as_deref().or(reason).filter(|why| !why.is_empty()) {
        let _ = write!(text, ": {}", short(why));
    }
    text
}

/// The Steps that changed last, newest first, without those that have a line already.
fn lately<'a>(view: &View<'a>, sees: impl Fn(&StepRef<'a>) -> bool) -> Vec<StepRef<'a>> {
    let mut newest = BinaryHeap::new();
    for step in view.steps().filter(|s| s.status().is_settled()).filter(sees) {
        newest.push(Reverse((step.state.updated_at, step.pos)));
        if newest.len() > RECENT_MAX {
            newest.pop();
        }
    }
    let newest = newest.into_sorted_vec().into_iter();
    newest.filter_map(|Reverse((_, pos))| view.step_at(pos)).collect()
}

/// How many changes of a Task the summary names.
const RECENT_MAX: usize = 10;

/// The text as one line, cut to a limit.
fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_string(),
    }
}

/// CTRL-10: the built-in guide to writing a DAG, as a message of the role `user`.
pub fn template() -> Board {
    let (role, text) = (SmolStr::new_static("user"), String::from(include_str!("template.md")));
    Board { role, synthetic: true, text, truncated: false }
}
