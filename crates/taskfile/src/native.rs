//! Reads a task file in Tenure's own format.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::action::json_bytes;
use super::context::{Expansion, ReadContext};
use super::draft::{Draft, too_many_steps};
use super::fields::{Fields, KnownFields, milliseconds};
use super::graph::{self, NAMES_COMPARED_MAX};
use super::limits::{
    LABEL_KEY_CHARS_MAX, LABEL_VALUE_CHARS_MAX, LABELS_MAX, METADATA_BYTES_MAX, STEPS_MAX,
};
use super::node::{MapEntry, SyntaxNode};
use super::path::Path;
use super::plan::{Deadline, Mode, Plan, PlanStep, WhenFailing};
use super::report::{FileFinding, FindingReport, did_you_mean, quoted};
use super::step::{self, StepDefaults};
use super::vars::Vars;

/// Fields of the file itself. Keys that begin with `x-` are for anchors and for other tools.
pub(super) const TASK: KnownFields = KnownFields {
    names: &[
        "$schema",
        "task_id",
        "id",
        "title",
        "name",
        "summary",
        "description",
        "dispatch",
        "completion",
        "claim_only_by",
        "priority",
        "deadline",
        "on_failure",
        "optional_wait",
        "labels",
        "output_from",
        "metadata",
        "vars",
        "defaults",
        "steps",
    ],
    meant: &[
        ("tasks", "the steps of a task stand under `steps`"),
        ("jobs", "the steps of a task stand under `steps`"),
        ("env", "write it under `defaults`, for all steps"),
        ("variables", "variables stand under `vars`"),
        ("retry", "write it under `defaults`, for all steps"),
        ("retries", "write it under `defaults`, for all steps"),
        ("pool", "write it under `defaults`, for all steps"),
        ("timeout", "write it under `defaults`, for all steps, or use `deadline`"),
    ],
    extensible: true,
};

/// Reads a task file in the format of this program.
pub(super) fn read<'a>(
    root: &SyntaxNode<'a>,
    given: &'a BTreeMap<String, String>,
    report: &FindingReport<'a>,
    file_stem: &str,
) -> Option<Plan> {
    let vars = Vars::read(declared(root, report), given, report);
    let expanded = Expansion::default();
    let cx = ReadContext { report, vars: &vars, repetition: None, expanded: &expanded };
    let task = Fields::of(&cx, root, Path::Root, &TASK)?;
    let completion = mode(&task, "completion");
    let defaults = StepDefaults::read(&task, completion);
    let draft = steps(&task, &defaults);
    let task_id = task.id(&["task_id", "id"]).map(|(id, _)| id);
    let title = task.text(&["title", "name"]).map(|(title, _)| title);
    let title = title.or_else(|| task_id.clone()).unwrap_or_else(|| file_stem.to_owned());
    let steps = graph::resolve(draft, report);
    let output_from = output_from(&task, &steps);
    Some(Plan {
        summary: task.text(&["summary", "description"]).map_or_else(|| title.clone(), |(s, _)| s),
        title,
        task_id,
        dispatch: mode(&task, "dispatch"),
        completion,
        pool: defaults.pool,
        claim_only_by: task.principal("claim_only_by"),
        priority: priority(&task),
        deadline: deadline(&task),
        on_failure: on_failure(&task),
        optional_wait_ms: task.duration("optional_wait", 0),
        retry: defaults.retry,
        labels: labels(&task),
        metadata: metadata(&task),
        output_from,
        steps,
    })
}

fn declared<'n, 'a>(root: &'n SyntaxNode<'a>, report: &FindingReport<'_>) -> &'n [MapEntry<'a>] {
    let Some(vars) = root.get("vars").filter(|vars| !vars.is_null()) else { return &[] };
    vars.as_map().unwrap_or_else(|| {
        report.add(|| {
            let message = format!("expected a map of names to defaults, found {}", vars.describe());
            FileFinding::at(vars.at(), message).field("vars")
        });
        &[]
    })
}

fn mode(task: &Fields<'_, '_>, name: &'static str) -> Mode {
    let Some((text, at)) = task.text(&[name]) else { return Mode::Auto };
    match text.as_str() {
        "auto" => Mode::Auto,
        "manual" => Mode::Manual,
        _ => {
            let message = format!("expected `auto` or `manual`, found {}", quoted(&text));
            task.cx.report.add(|| FileFinding::at(at, message).field(task.path.key(name)));
            Mode::Auto
        }
    }
}

fn on_failure(task: &Fields<'_, '_>) -> Option<WhenFailing> {
    let (text, at) = task.text(&["on_failure"])?;
    let known = match text.as_str() {
        "stop" => Some(WhenFailing::Stop),
        "drain" => Some(WhenFailing::Drain),
        "finish" => Some(WhenFailing::Finish),
        _ => None,
    };
    if known.is_none() {
        let message = format!("expected `stop`, `drain` or `finish`, found {}", quoted(&text));
        task.cx.report.add(|| FileFinding::at(at, message).field(task.path.key("on_failure")));
    }
    known
}

fn priority(task: &Fields<'_, '_>) -> Option<i32> {
    let expected = || "a whole number, higher is sooner".to_owned();
    task.number("priority", expected, |number| i32::try_from(number.as_i64()?).ok())
}

/// A duration from the Task's creation, or a time with its offset.
fn deadline(task: &Fields<'_, '_>) -> Option<Deadline> {
    let (name, node) = task.node(&["deadline"])?;
    let path = task.path.key(name);
    let value = task.cx.value(node, &path)?;
    if let Some(time) = value.as_text().and_then(|text| text.parse::<jiff::Timestamp>().ok()) {
        return Some(Deadline::AtMs(time.as_millisecond()));
    }
    match milliseconds(&value) {
        Ok(_) => task.duration(name, 1).map(Deadline::AfterMs),
        Err(no) => {
            task.cx.report.add(|| {
                no.at(node.at()).field(path).hint(
                    "write a duration from creation, as in `2h`, or a time with its offset, as \
                     in `2026-05-01T12:00:00Z`",
                )
            });
            None
        }
    }
}

fn labels(task: &Fields<'_, '_>) -> BTreeMap<String, String> {
    let labels = task.text_map("labels").unwrap_or_default();
    let at = task.entry("labels").map_or(task.at, MapEntry::at);
    let refuse = |message: String, hint: String| {
        task.cx.report.add(|| FileFinding::at(at, message).field("labels").hint(hint));
    };
    if labels.len() > LABELS_MAX {
        refuse(format!("there are {} labels", labels.len()), format!("at most {LABELS_MAX}"));
    }
    for (key, value) in &labels {
        if !(1..=LABEL_KEY_CHARS_MAX).contains(&key.chars().count()) || key.contains('=') {
            let form = format!("a key has 1 to {LABEL_KEY_CHARS_MAX} characters and no `=`");
            refuse(format!("{} is not the key of a label", quoted(key)), form);
        }
        let length = value.chars().count();
        if length > LABEL_VALUE_CHARS_MAX {
            let message = format!("the value of label {} has {length} characters", quoted(key));
            refuse(message, format!("at most {LABEL_VALUE_CHARS_MAX}"));
        }
    }
    labels
}

/// The id of a step of the file, unless the steps have mistakes of their own.
fn output_from(task: &Fields<'_, '_>, steps: &[PlanStep]) -> Option<String> {
    let (id, at) = task.id(&["output_from"])?;
    if !steps.is_empty() && !steps.iter().any(|step| step.id == id) {
        let ids = steps.iter().map(|step| step.id.as_str()).take(NAMES_COMPARED_MAX);
        let hint = did_you_mean(&id, ids).unwrap_or_else(|| "name one step by its whole id".into());
        task.cx.report.add(|| {
            FileFinding::at(at, format!("{} is no step", quoted(&id)))
                .field(task.path.key("output_from"))
                .hint(hint)
        });
    }
    Some(id)
}

fn metadata(task: &Fields<'_, '_>) -> Map<String, Value> {
    let Some((name, node)) = task.node(&["metadata"]) else { return Map::new() };
    let path = task.path.key(name);
    match task.cx.json(node, &path) {
        Some(Value::Object(map)) => within_limit(task, node.at(), map),
        None => Map::new(),
        Some(_) => task.cx.wrong_type(node, &path, "a map").unwrap_or_default(),
    }
}

fn within_limit(
    task: &Fields<'_, '_>,
    at: usize,
    metadata: Map<String, Value>,
) -> Map<String, Value> {
    let value = Value::Object(metadata);
    let bytes = json_bytes(&value);
    if bytes > METADATA_BYTES_MAX {
        task.cx.report.add(|| {
            FileFinding::at(at, format!("the metadata takes {bytes} bytes of JSON"))
                .field("metadata")
                .hint(format!("at most {METADATA_BYTES_MAX}"))
        });
    }
    match value {
        Value::Object(metadata) => metadata,
        _ => Map::new(),
    }
}

/// The steps, from a list with ids or a map of ids.
fn steps(task: &Fields<'_, '_>, defaults: &StepDefaults) -> Draft {
    let mut draft = Draft::default();
    let Some((name, node)) = task.node(&["steps"]) else {
        let at = task.entry("steps").map_or(task.at, MapEntry::at);
        if !task.has_unknown {
            task.cx.report.add(|| no_steps(at));
        }
        return draft;
    };
    let path = task.path.key(name);
    match (node.as_list(), node.as_map()) {
        (Some(&[]), _) | (_, Some(&[])) => task.cx.report.add(|| no_steps(node.at())),
        (Some(items), _) if items.len() > STEPS_MAX => {
            task.cx.report.add(|| too_many_steps(items[STEPS_MAX].at()));
        }
        (_, Some(entries)) if entries.len() > STEPS_MAX => {
            task.cx.report.add(|| too_many_steps(entries[STEPS_MAX].at()));
        }
        (Some(items), _) => {
            for (n, item) in items.iter().enumerate() {
                step::read(task.cx, item, path.item(n), None, defaults, &mut draft);
            }
        }
        (_, Some(entries)) => {
            for entry in entries {
                let (value, path) = (&entry.value, path.key(&entry.key));
                step::read(task.cx, value, path, Some(entry), defaults, &mut draft);
            }
        }
        _ => {
            let expected = "a list of steps or a map of ids to steps";
            let _: Option<()> = task.cx.wrong_type(node, &path, expected);
        }
    }
    draft
}

fn no_steps(at: usize) -> FileFinding {
    FileFinding::at(at, "the task has no steps")
        .field("steps")
        .hint("a task needs at least one, as in `steps: [{id: hello, run: echo hello}]`")
}
