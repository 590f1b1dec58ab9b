//! A call of an offered tool, as a Task.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{AgentId, SessionId, StepId, TaskId};
use tenure_core::patch::StepInput;
use tenure_core::record::{Labels, Value};
use tenure_core::status::Policy;
use uuid::Uuid;

use super::tool::OfferedTool;

/// The label that names the tool of a Task.
pub(super) const TOOL: &str = "mcp-tool";
/// The label that names the caller who began a Task.
pub(super) const CALLER: &str = "mcp-caller";

/// The only Step of a Task that a handler runs.
const STEP: &str = "call";

/// The most characters of a label's value (LABEL-01).
const LABEL_CHARS: usize = 128;

/// A call that begins a Task.
#[derive(Debug)]
pub(super) struct NewCall<'a> {
    /// What is called.
    pub(super) tool: &'a OfferedTool,
    /// By whom.
    pub(super) caller: &'a AgentId,
    /// In which session.
    pub(super) session: &'a SessionId,
    /// With what.
    pub(super) arguments: Map<String, Json>,
    /// What makes a repetition of the call the same call, if its caller says it.
    pub(super) command_id: Option<&'a str>,
}

impl NewCall<'_> {
    /// The arguments, as the input of a Step.
    ///
    /// # Errors
    /// They have no form in JSON.
    pub(super) fn input(&self) -> Result<Vec<u8>, Rejection> {
        let input = serde_json::to_vec(&self.arguments);
        input.map_err(|error| Rejection::invalid("arguments", error.to_string()))
    }

    /// The Task. Nobody can guess its id, unless its caller has named the call.
    ///
    /// # Errors
    /// A name cannot be made, or the arguments have no form in JSON.
    pub(super) fn into_create(self) -> Result<CreateTask, Rejection> {
        let key = self.command_id.map(|named| key_of(&self.tool.name, self.caller, named));
        let task_id = match &key {
            Some(key) => TaskId::of_key(self.session, key),
            None => TaskId::new(format!("mcp-{}", Uuid::new_v4().simple()))?,
        };
        let input = Value::json(self.input()?);
        let give = |step| StepInput { input: Some(input.clone()), ..step };
        let mut task = self.tool.work.task(StepId::new(STEP)?, give);
        if task.title.is_empty() {
            task.title = self.tool.title().into();
        }
        task.labels.extend(self.tool.labels.clone());
        task.labels.extend(Labels::from([
            (TOOL.into(), self.tool.name.as_str().into()),
            (CALLER.into(), caller_label(self.caller)),
        ]));
        task.native_protocol = Some("mcp".into());
        (task.dispatch, task.completion) = (Some(Policy::Auto), Some(Policy::Auto));
        (task.task_id, task.idempotency_key) = (Some(task_id), key);
        Ok(task)
    }
}

/// What names a caller in a label: its name, or what that becomes if it is longer than a label.
pub(super) fn caller_label(caller: &AgentId) -> SmolStr {
    let name = caller.as_str();
    match name.chars().count() <= LABEL_CHARS {
        true => name.into(),
        false => hash_of(&[name]).into(),
    }
}

/// The key of the Task that a call begins, so that its repetition begins no second one.
fn key_of(tool: &str, caller: &AgentId, command_id: &str) -> SmolStr {
    format!("mcp-{}", hash_of(&[tool, caller.as_str(), command_id])).into()
}

/// The SHA-256 of texts that are told apart, in hexadecimal.
pub(super) fn hash_of(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}"); // Into a string it always goes.
        hex
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use tenure_core::retry_policy::Limit;

    use super::super::tool::OfferTable;
    use super::*;
    use crate::file::AgentsFile;

    fn made(more: &str, command_id: Option<&str>, caller: &str) -> CreateTask {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.toml");
        let tool = "[[tools]]\nname = \"resize\"\ndescription = \"Resizes.\"\n";
        std::fs::write(&path, format!("{tool}{more}")).unwrap();
        let steps = json!([
            {"step_id": "plan", "title": "Plan", "handler": "p"},
            {"step_id": "book", "title": "Book", "depends_on_step_ids": ["plan"]},
        ]);
        let template = |_: &Path| -> Result<CreateTask, String> {
            let steps = serde_json::from_value(steps.clone()).unwrap();
            let labels = Labels::from([("team".into(), "a".into())]);
            Ok(CreateTask { title: "Trip".into(), labels, steps, ..CreateTask::default() })
        };
        let table = OfferTable::read(&AgentsFile::read(&path).unwrap(), &template).unwrap();
        let new = NewCall {
            tool: table.find("resize").unwrap(),
            caller: &AgentId::new(caller).unwrap(),
            session: &"main".parse().unwrap(),
            arguments: Map::from_iter([("width".into(), 3.into())]),
            command_id,
        };
        new.into_create().unwrap()
    }

    /// A call becomes one Step with the arguments as its input, which runs and ends by itself.
    #[test]
    fn a_call_becomes_a_task_of_one_step() {
        let more = "handler = \"go\"\npool = \"far\"\nattempts = 2\ntimeout = \"5s\"\n\
                    labels = {team = \"b\"}\n";
        let task = made(more, None, "ann");
        let [step] = &task.steps[..] else { panic!("{task:?}") };
        assert_eq!(step.handler.as_ref().unwrap().as_str(), "go");
        assert_eq!(step.input.as_ref().unwrap().data().unwrap(), br#"{"width":3}"#);
        assert_eq!(task.default_worker_pool_id.as_ref().unwrap().as_str(), "far");
        let policy = task.retry_policy.as_ref().unwrap();
        assert_eq!(policy.max_attempts, Some(Limit::Of(2)));
        assert_eq!(policy.start_to_close_ms, Some(Limit::Of(5_000)));
        assert_eq!((task.dispatch, task.completion), (Some(Policy::Auto), Some(Policy::Auto)));
        let labels = json!({"mcp-tool": "resize", "mcp-caller": "ann", "team": "b"});
        assert_eq!((json!(task.labels), &*task.title), (labels, "resize"));
    }

    /// A template keeps what it says, and one of its Steps gets the arguments.
    #[test]
    fn a_call_becomes_a_copy_of_a_template() {
        let task = made("template = \"trip.yaml\"\n", None, "ann");
        assert_eq!((&*task.title, &*task.labels["team"]), ("Trip", "a"));
        let inputs: Vec<bool> = task.steps.iter().map(|step| step.input.is_some()).collect();
        assert_eq!(inputs, [true, false]);
    }

    /// IDEM-03: a call that its caller has named has the same Task when it is repeated, and nobody else's.
    #[test]
    fn a_named_call_is_one_task() {
        let id = |named, caller: &str| made("", named, caller).task_id.unwrap();
        assert_ne!(id(None, "ann"), id(None, "ann"));
        assert_eq!(id(Some("1"), "ann"), id(Some("1"), "ann"));
        assert_ne!(id(Some("1"), "ann"), id(Some("1"), "bob"));
        assert_ne!(id(Some("1"), "ann"), id(Some("2"), "ann"));
        assert_eq!(id(None, "ann").as_str().len(), 36);
    }

    /// LABEL-01: the name of a caller may be longer than a label.
    #[test]
    fn a_long_name_fits_into_its_label() {
        let long = "a".repeat(129);
        let task = made("", None, &long);
        assert_eq!(task.labels[CALLER].len(), 64);
        assert_ne!(task.labels[CALLER], made("", None, &"a".repeat(130)).labels[CALLER]);
    }
}
