//! Reads a task file in Tenure's own format.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::action::json_bytes;
use super::context::{Expansion, ReadContext};
use super::draft::{Draft, too_many_steps};
use super::fields::{Fields, KnownFields, milliseconds};
use super::graph;
use super::limits::{INPUT_BYTES_MAX, STEPS_MAX};
use super::node::{MapEntry, SyntaxNode};
use super::path::Path;
use super::plan::{Deadline, Mode, Plan};
use super::report::{FileFinding, FindingReport, quoted};
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
        "priority",
        "deadline",
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
    Some(Plan {
        summary: task.text(&["summary", "description"]).map_or_else(|| title.clone(), |(s, _)| s),
        title,
        task_id,
        dispatch: mode(&task, "dispatch"),
        completion,
        pool: defaults.pool,
        priority: priority(&task),
        deadline: deadline(&task),
        retry: defaults.retry,
        metadata: metadata(&task),
        steps: graph::resolve(draft, report),
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
    if bytes > INPUT_BYTES_MAX {
        task.cx.report.add(|| {
            FileFinding::at(at, format!("the metadata takes {bytes} bytes of JSON"))
                .field("metadata")
                .hint(format!("at most {INPUT_BYTES_MAX}"))
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
