//! Reads what a Step does: its handler, and the input of that handler.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::limits::INPUT_BYTES_MAX;
use super::path::Path;
use super::plan::{HANDLER_EXEC, HANDLER_NOOP, HANDLER_SLEEP};
use super::report::FileFinding;

/// The fields that say what a Step does; a Step has one of them.
const ACTIONS: [&str; 5] = ["run", "command", "handler", "sleep", "noop"];

/// A Step's handler with its input.
#[derive(Debug, Default)]
pub(super) struct Action {
    pub(super) handler: String,
    pub(super) input: Option<Value>,
}

/// Settings that an action takes from `defaults` if its Step has none.
#[derive(Debug, Default)]
pub(super) struct ActionDefaults {
    pub(super) handler: Option<String>,
    pub(super) exec: ExecDefaults,
}

/// Settings that processes take from `defaults` if their Step has none.
#[derive(Debug, Default)]
pub(super) struct ExecDefaults {
    /// Texts, and references to secrets.
    pub(super) env: BTreeMap<String, Value>,
    pub(super) cwd: Option<String>,
    pub(super) timeout_ms: Option<u64>,
}

/// Reads the action of a Step whose own `timeout` is `timeout_ms`.
pub(super) fn read(
    step: &Fields<'_, '_>,
    defaults: &ActionDefaults,
    timeout_ms: Option<u64>,
) -> Option<Action> {
    let action = chosen(step, defaults)?;
    refuse_strangers(step, action);
    let action = match action {
        "run" | "command" => exec(step, action, &defaults.exec, timeout_ms),
        "sleep" => {
            let ms = step.duration("sleep", 0)?;
            Some(Action { handler: HANDLER_SLEEP.into(), input: Some(json!({ "ms": ms })) })
        }
        "noop" => noop(step),
        _ => handler(step, defaults),
    }?;
    within_limit(step, &action).then_some(action)
}

/// The one field that says what the Step does.
fn chosen(step: &Fields<'_, '_>, defaults: &ActionDefaults) -> Option<&'static str> {
    let mut written = ACTIONS.into_iter().filter(|name| step.has(name));
    let Some(first) = written.next() else {
        if defaults.handler.is_none() && !step.has_unknown {
            step.cx.report.add(|| nothing_to_do(step.at, &step.path));
        }
        return defaults.handler.as_ref().map(|_| "handler");
    };
    if let Some(second) = written.next() {
        step.conflict(first, second, "a step does one thing; make a second step of the other");
        return None;
    }
    Some(first)
}

fn nothing_to_do(at: usize, path: &Path<'_>) -> FileFinding {
    FileFinding::at(at, "the step has nothing to do").field(path).hint(
        "add `run: SHELL LINE`, `command: [PROGRAM, ARGUMENT]`, `handler: NAME`, `sleep: 2s` or \
         `noop: true`",
    )
}

/// Reports fields that belong to other actions.
fn refuse_strangers(step: &Fields<'_, '_>, action: &str) {
    let process = matches!(action, "run" | "command");
    for name in ["env", "cwd"].into_iter().filter(|name| !process && step.has(name)) {
        step.conflict(action, name, "only `run` and `command` start a process that has one");
    }
    if action != "handler" && step.has("input") {
        step.conflict(action, "input", "`input` is for a `handler`; give a process `env`");
    }
}

fn exec(
    step: &Fields<'_, '_>,
    action: &'static str,
    defaults: &ExecDefaults,
    timeout_ms: Option<u64>,
) -> Option<Action> {
    // All fields are read before the first mistake counts.
    let program = program(step, action);
    let own_env = step.values("env").unwrap_or_default();
    let own_cwd = step.text(&["cwd"]).map(|(cwd, _)| cwd);
    let mut input = Map::new();
    input.insert(action.into(), program?);
    let mut env = defaults.env.clone();
    env.extend(own_env);
    if !env.is_empty() {
        input.insert("env".into(), json!(env));
    }
    if let Some(cwd) = own_cwd.or_else(|| defaults.cwd.clone()) {
        input.insert("cwd".into(), cwd.into());
    }
    if let Some(timeout_ms) = timeout_ms.or(defaults.timeout_ms) {
        input.insert("timeout_ms".into(), timeout_ms.into());
    }
    Some(Action { handler: HANDLER_EXEC.into(), input: Some(input.into()) })
}

/// A line for the shell, or a program with its arguments.
fn program(step: &Fields<'_, '_>, action: &'static str) -> Option<Value> {
    let (_, node) = step.node(&[action])?;
    let program = match action {
        "run" => Value::from(step.text(&[action])?.0),
        _ if node.as_text().is_some() => {
            let path = step.path.key(action);
            let expected = "a list such as `[program, argument]`; a shell line is `run`";
            return step.cx.wrong_type(node, &path, expected);
        }
        _ => step.words(action)?.into(),
    };
    let first = program.as_str().or_else(|| program.get(0)?.as_str()).unwrap_or_default();
    if first.trim().is_empty() {
        step.cx.report.add(|| {
            FileFinding::at(node.at(), format!("`{action}` is empty")).field(step.path.key(action))
        });
        return None;
    }
    Some(program)
}

fn noop(step: &Fields<'_, '_>) -> Option<Action> {
    if step.boolean("noop")? {
        return Some(Action { handler: HANDLER_NOOP.into(), input: None });
    }
    step.cx.report.add(|| nothing_to_do(step.at, &step.path));
    None
}

fn handler(step: &Fields<'_, '_>, defaults: &ActionDefaults) -> Option<Action> {
    let own = step.id(&["handler"]).map(|(id, _)| id);
    let handler = own.or_else(|| defaults.handler.clone())?;
    let input = match step.node(&["input"]) {
        None => None,
        Some((name, node)) => Some(step.cx.json(node, &step.path.key(name))?),
    };
    Some(Action { handler, input })
}

fn within_limit(step: &Fields<'_, '_>, action: &Action) -> bool {
    let bytes = action.input.as_ref().map_or(0, json_bytes);
    if bytes > INPUT_BYTES_MAX {
        step.cx.report.add(|| {
            let message = format!("the input of the step takes {bytes} bytes of JSON");
            FileFinding::at(step.at, message).field(step.path).hint(format!(
                "at most {INPUT_BYTES_MAX}; put large data into a file and give its name"
            ))
        });
    }
    // A repeated step multiplies its input.
    bytes <= INPUT_BYTES_MAX
        && (step.cx.repetition.is_none() || step.cx.charge(bytes, step.at, &step.path))
}

/// Bytes of the value as JSON text.
pub(super) fn json_bytes(value: &Value) -> usize {
    let mut counter = ByteCounter(0);
    // Writing JSON to a counter cannot fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
