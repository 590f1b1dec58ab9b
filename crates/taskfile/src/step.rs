//! Reads one Step with its defaults and its repetitions.

use super::action::{self, Action, ActionDefaults, ExecDefaults};
use super::context::ReadContext;
use super::draft::{Draft, DraftGroup, DraftStep, Need};
use super::fields::{Fields, KnownFields};
use super::ids;
use super::limits::{ID_CHARS_MAX, STEPS_MAX};
use super::node::{MapEntry, NodeKind, SyntaxNode};
use super::path::Path;
use super::plan::{Mode, PlanStep, RetryPlan};
use super::report::{FileFinding, quoted};
use super::retry;
use super::vars::Repetition;

/// Fields of one Step.
pub(super) const STEP: KnownFields = KnownFields {
    names: &[
        "id",
        "step_id",
        "title",
        "name",
        "summary",
        "description",
        "depends_on",
        "depends_on_step_ids",
        "needs",
        "inputs_from",
        "run",
        "command",
        "handler",
        "input",
        "sleep",
        "noop",
        "env",
        "cwd",
        "timeout",
        "retries",
        "retry",
        "required",
        "optional",
        "pool",
        "claim_only_by",
        "repeat",
    ],
    meant: &[
        ("output", "a step's output is written by the worker that completes it"),
        ("cmd", "a program with its arguments is `command`, a line for the shell is `run`"),
        ("script", "a line for the shell is `run`"),
        ("shell", "a line for the shell is `run`"),
        ("args", "a program and its arguments are one list, `command`"),
        ("with", "what a handler gets is its `input`"),
        ("params", "what a handler gets is its `input`"),
        ("uses", "the worker's handler that runs the step is its `handler`"),
        ("after", "did you mean `depends_on`?"),
        ("requires", "did you mean `depends_on`?"),
        ("dependencies", "did you mean `depends_on`?"),
        ("environment", "did you mean `env`?"),
        ("workdir", "did you mean `cwd`?"),
        ("working_dir", "did you mean `cwd`?"),
        ("max_attempts", "write `retries`, or `max_attempts` under `retry`"),
        ("worker_pool_id", "did you mean `pool`?"),
        ("count", "the same step many times is `repeat`"),
        ("for_each", "the same step many times is `repeat`"),
        ("foreach", "the same step many times is `repeat`"),
        ("matrix", "the same step many times is `repeat`"),
    ],
    extensible: false,
};

/// Fields of `defaults`.
pub(super) const DEFAULTS: KnownFields = KnownFields {
    names: &[
        "handler", "pool", "env", "cwd", "timeout", "retries", "retry", "required", "optional",
    ],
    meant: &[
        ("run", "an action belongs to a step; `handler` can have a default"),
        ("command", "an action belongs to a step; `handler` can have a default"),
    ],
    extensible: false,
};

/// Digits of the shortest suffix of a repeated Step, so that its Steps keep their names when their
/// number grows from 9 to 10 or from 999 to 1,000.
const SUFFIX_DIGITS_MIN: usize = 4;

/// Settings for Steps that do not have their own.
#[derive(Debug)]
pub(super) struct StepDefaults {
    pub(super) pool: Option<String>,
    pub(super) action: ActionDefaults,
    pub(super) required: bool,
    /// The Task's policy, if the file has one.
    pub(super) retry: Option<RetryPlan>,
    /// The policy that a Step's own settings change: the Task's, or else the scheduler's default.
    base_retry: RetryPlan,
}

impl StepDefaults {
    pub(super) fn read(task: &Fields<'_, '_>, completion: Mode) -> Self {
        let mut defaults = StepDefaults {
            pool: None,
            action: ActionDefaults::default(),
            required: true,
            retry: None,
            base_retry: RetryPlan::standard(completion),
        };
        let Some((name, node)) = task.node(&["defaults"]) else { return defaults };
        let path = task.path.key(name);
        if let Some(fields) = Fields::of(task.cx, node, path, &DEFAULTS) {
            defaults.fill(&fields);
        }
        defaults
    }

    fn fill(&mut self, fields: &Fields<'_, '_>) {
        let (retry, timeout) = retry::read(fields, &self.base_retry);
        self.retry = retry.clone();
        self.base_retry = retry.unwrap_or_else(|| self.base_retry.clone());
        self.action.handler = fields.id(&["handler"]).map(|(id, _)| id);
        self.pool = fields.id(&["pool"]).map(|(id, _)| id);
        self.action.exec = ExecDefaults {
            env: fields.values("env").unwrap_or_default(),
            cwd: fields.text(&["cwd"]).map(|(cwd, _)| cwd),
            timeout_ms: timeout,
        };
        self.required = required(fields).unwrap_or(true);
    }
}

/// Reads one Step, or all that its `repeat` produces, into `draft`. In the map form its id is the key
/// of `entry`. A Step with mistakes goes there too, so that dependencies on it do not count as unknown.
pub(super) fn read<'a>(
    cx: &ReadContext<'_, 'a>,
    node: &SyntaxNode<'a>,
    path: Path<'_>,
    entry: Option<&MapEntry<'a>>,
    defaults: &StepDefaults,
    draft: &mut Draft,
) {
    let empty =
        SyntaxNode { at: entry.map_or(node.at, |entry| entry.key_at), kind: NodeKind::Map(vec![]) };
    let node = if node.is_null() { &empty } else { node };
    let Some(fields) = Fields::of(cx, node, path, &STEP) else { return };
    let Some((id, at)) = step_id(&fields, entry) else { return };
    let reader = StepReader { fields: &fields, defaults, at };
    let count = repeat(&fields).filter(|count| suffix_fits(&fields, &id, at, *count));
    if !draft.has_room(count.unwrap_or(1), at, cx.report) {
        return;
    }
    match count {
        None => draft.steps.push(reader.one(&fields, id)),
        Some(count) => reader.many(id, count, draft),
    }
}

struct StepReader<'r, 'a> {
    fields: &'r Fields<'r, 'a>,
    defaults: &'r StepDefaults,
    at: usize,
}

impl StepReader<'_, '_> {
    fn one(&self, fields: &Fields<'_, '_>, id: String) -> DraftStep {
        let (retry, timeout) = retry::read(fields, &self.defaults.base_retry);
        let Action { handler, input } =
            action::read(fields, &self.defaults.action, timeout).unwrap_or_default();
        let text = |names| fields.text(names).map_or_else(|| id.clone(), |(text, _)| text);
        let (title, summary) = (text(&["title", "name"]), text(&["summary", "description"]));
        let required = required(fields).unwrap_or(self.defaults.required);
        let pool = fields.id(&["pool"]).map(|(pool, _)| pool);
        let claim_only_by = fields.principal("claim_only_by");
        let needs = fields.texts(&["depends_on", "needs", "depends_on_step_ids"]);
        let named = |names: Vec<_>| names.into_iter().map(|(name, at)| Need { name, at }).collect();
        let inputs = fields.texts(&["inputs_from"]).map(named);
        let step = PlanStep {
            id,
            title,
            summary,
            depends_on: Vec::new(),
            inputs_from: None,
            handler,
            input,
            required,
            pool,
            claim_only_by,
            retry,
        };
        DraftStep { step, at: self.at, needs: needs.map(named).unwrap_or_default(), inputs }
    }

    /// Reads the Step once for each index, since its texts may name the index. If the first has
    /// mistakes, all have them, so the others are not read.
    fn many(&self, id: String, count: usize, draft: &mut Draft) {
        let cx = self.fields.cx;
        let (first, problems) = (draft.steps.len(), cx.report.count());
        for index in 0..count {
            let suffix = format!("{index:0width$}", width = suffix_digits(count));
            let repetition = Some(Repetition { index, suffix: &suffix });
            let cx = ReadContext { repetition, ..*cx };
            let step = self.one(&self.fields.again(&cx), format!("{id}-{suffix}"));
            let named = step.needs.iter().chain(step.inputs.iter().flatten());
            let names: usize = named.map(|need| need.name.len()).sum();
            let texts = step.step.title.len() + step.step.summary.len();
            cx.charge(texts + names, self.at, &self.fields.path);
            draft.steps.push(step);
            if cx.report.count() > problems {
                break;
            }
        }
        draft.groups.push(DraftGroup { id, at: self.at, steps: first..draft.steps.len() });
    }
}

/// The id as written, if it has the form of an id; otherwise reports it.
fn step_id(fields: &Fields<'_, '_>, entry: Option<&MapEntry<'_>>) -> Option<(String, usize)> {
    let Some(entry) = entry else {
        let Some((name, node)) = fields.node(&["id", "step_id"]) else {
            fields.cx.report.add(|| no_id(fields));
            return None;
        };
        let path = fields.path.key(name);
        let id = fields.cx.text(node, &path)?.into_owned();
        ids::check(fields.cx, &id, node.at(), &path);
        return Some((id, node.at()));
    };
    let at = entry.at();
    for name in ["id", "step_id"].into_iter().filter(|name| fields.has(name)) {
        fields.cx.report.add(|| {
            let at = fields.entry(name).map_or(at, MapEntry::at);
            FileFinding::at(at, format!("in a map of steps the key is the id, not `{name}`"))
                .field(fields.path.key(name))
                .hint("leave it out, or write `steps` as a list")
        });
    }
    ids::check(fields.cx, &entry.key, at, &fields.path);
    Some((entry.key.to_string(), at))
}

fn no_id(fields: &Fields<'_, '_>) -> FileFinding {
    FileFinding::at(fields.at, "the step has no id")
        .field(fields.path.key("id"))
        .hint("add `id: NAME`; other steps name it in `depends_on`")
}

fn required(fields: &Fields<'_, '_>) -> Option<bool> {
    let (required, optional) = (fields.boolean("required"), fields.boolean("optional"));
    if required.is_some() && optional.is_some() {
        fields.conflict("required", "optional", "keep one; each is the opposite of the other");
    }
    required.or(optional.map(|optional| !optional))
}

fn repeat(fields: &Fields<'_, '_>) -> Option<usize> {
    let count = fields.whole("repeat", 1..=STEPS_MAX as u64)?;
    usize::try_from(count).ok()
}

fn suffix_digits(count: usize) -> usize {
    (count - 1).to_string().len().max(SUFFIX_DIGITS_MIN)
}

fn suffix_fits(fields: &Fields<'_, '_>, id: &str, at: usize, count: usize) -> bool {
    let longest = ID_CHARS_MAX - 1 - suffix_digits(count);
    let fits = id.len() <= longest;
    if !fits {
        fields.cx.report.add(|| {
            FileFinding::at(at, format!("the id {} is too long to be repeated", quoted(id)))
                .field(fields.path.key("repeat"))
                .hint(format!("the number is added to it; at most {longest} characters"))
        });
    }
    fits
}
