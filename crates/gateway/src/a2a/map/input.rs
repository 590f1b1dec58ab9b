//! A message that begins a task, as a Task (A2A-03, A2A-05).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sha2::{Digest as _, Sha256};
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{StepId, TaskId};
use tenure_core::patch::StepInput;
use tenure_core::record::{Labels, Value, ValueBody};
use tenure_core::status::Policy;

use super::BlobBytes;
use super::weights::read_json;
use crate::a2a::agents::Agent;
use crate::a2a::wire::{A2aMessage, A2aMetadata, A2aTask};

/// The label that names the agent of a Task.
pub(crate) const AGENT: &str = "a2a-agent";
/// The label that names the context of a Task, by which all Tasks of a context are found.
pub(crate) const CONTEXT: &str = "a2a-context";
/// The label that names the caller who began a Task.
pub(crate) const CALLER: &str = "a2a-caller";

/// The only Step of a Task that a handler runs.
const STEP: &str = "answer";

/// What is noted beside the Step that gets the message.
const TAKES_MESSAGE: &str = "a2a_message";

/// How many characters of a message make the title of its Task.
const TITLE_CHARS: usize = 80;

/// What the Step that takes a message finds as its input, as JSON. The names are those of A2A 1.0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AgentInput {
    /// The message.
    pub(super) message: A2aMessage,
    /// Media types that the caller takes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    accepted_output_modes: Vec<String>,
    /// What the request has beside the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<A2aMetadata>,
    /// The tasks that the message refers to, with what they have made (A2A-12).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    referenced_tasks: Vec<A2aTask>,
}

/// A message that begins a task.
#[derive(Debug)]
pub(crate) struct NewTask<'a> {
    /// To whom it goes.
    pub(crate) agent: &'a Agent,
    /// From whom it comes.
    pub(crate) caller: &'a str,
    /// The message, with its context.
    pub(crate) message: A2aMessage,
    /// Media types that the caller takes.
    pub(crate) accepted_output_modes: Vec<String>,
    /// What the request has beside the message.
    pub(crate) metadata: Option<A2aMetadata>,
    /// The tasks that the message refers to.
    pub(crate) referenced_tasks: Vec<A2aTask>,
    /// The id of the new Task.
    pub(crate) task_id: TaskId,
    /// The key from which that id was made, if it was.
    pub(crate) idempotency_key: Option<SmolStr>,
}

impl NewTask<'_> {
    /// The Task. It is a draft if the message refers to others, so that its relations are there when it
    /// begins.
    ///
    /// # Errors
    /// A name cannot be made, or the input has no form in JSON.
    pub(crate) fn into_create(self) -> Result<CreateTask, Rejection> {
        let labels = self.labels();
        let title = title_of(&self.message);
        let is_draft = !self.referenced_tasks.is_empty();
        let (agent, task_id, key) =
            (self.agent, self.task_id.clone(), self.idempotency_key.clone());
        let input = self.input()?;
        let give = |step| taking(step, input.clone());
        let mut task = agent.work.task(StepId::new(STEP)?, give);
        if task.title.is_empty() {
            task.title = title;
        }
        task.labels.extend(labels);
        task.native_protocol = Some("a2a".into());
        (task.dispatch, task.completion) = (Some(Policy::Auto), Some(Policy::Auto));
        task.draft = is_draft.then_some(true);
        (task.task_id, task.idempotency_key) = (Some(task_id), key);
        Ok(task)
    }

    fn labels(&self) -> Labels {
        let context = self.message.context().unwrap_or_default();
        let all = [(AGENT, &*self.agent.name), (CONTEXT, context), (CALLER, self.caller)];
        all.map(|(key, value)| (key.into(), value.into())).into()
    }

    fn input(self) -> Result<Value, Rejection> {
        let mut message = self.message;
        message.task_id = Some(self.task_id.to_string());
        let input = AgentInput {
            message,
            accepted_output_modes: self.accepted_output_modes,
            metadata: self.metadata,
            referenced_tasks: self.referenced_tasks,
        };
        let json = serde_json::to_vec(&input);
        json.map(Value::json).map_err(|error| Rejection::invalid("message", error.to_string()))
    }
}

/// A Step that takes the message.
fn taking(step: StepInput, input: Value) -> StepInput {
    let mut ext: Map<String, Json> = step.ext.unwrap_or_default();
    ext.insert(TAKES_MESSAGE.into(), true.into());
    StepInput { input: Some(input), ext: Some(ext), ..step }
}

/// The first line of a message, cut.
fn title_of(message: &A2aMessage) -> SmolStr {
    let text = message.text();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.unwrap_or(&message.message_id);
    line.chars().filter(|it| !it.is_control()).take(TITLE_CHARS).collect()
}

/// Whether a Step takes the message, by what is noted beside it.
pub(super) fn input_of_step<'a>(
    ext: Option<&Map<String, Json>>,
    input: Option<&'a Value>,
) -> Option<&'a Value> {
    input.filter(|_| ext.is_some_and(|ext| ext.contains_key(TAKES_MESSAGE)))
}

/// The message in the input of a Step.
pub(super) fn message_in(input: &Value, blobs: &BlobBytes) -> Option<A2aMessage> {
    let bytes = match &input.body {
        ValueBody::Data(data) => &**data,
        ValueBody::Blob(blob) => &**blobs.get(&blob.hash)?,
        ValueBody::Ref(_) => return None,
    };
    read_json::<AgentInput>(bytes).map(|input| input.message)
}

/// The key of the task that a message begins, so that its repetition begins no second one: from the caller,
/// the context that the caller has named, and the id of the message.
pub(crate) fn key_of(agent: &str, caller: &str, context: &str, message_id: &str) -> SmolStr {
    let mut hash = Sha256::new();
    for text in [agent, caller, context, message_id] {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("a2a-{hex}").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::retry_policy::Limit;
    use tenure_mcp::file::AgentsFile;

    use super::*;
    use crate::a2a::agents::Agents;

    fn agents(text: &str) -> Agents {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.toml");
        std::fs::write(&path, text).unwrap();
        let steps = json!([
            {"step_id": "plan", "title": "Plan", "ext": {"own": 1}, "handler": "p"},
            {"step_id": "book", "title": "Book", "depends_on_step_ids": ["plan"]},
        ]);
        let template = |_: &std::path::Path| -> Result<CreateTask, String> {
            let task =
                json!({"task_id": "x", "title": "Trip", "steps": steps, "labels": {"team": "a"}});
            let task: CreateTask = serde_json::from_value(task).unwrap();
            Ok(CreateTask { task_id: None, ..task })
        };
        Agents::read(&AgentsFile::read(&path).unwrap(), &template).unwrap()
    }

    fn made(agents: &Agents, referenced_tasks: Vec<A2aTask>) -> CreateTask {
        let message = json!({
            "messageId": "m", "contextId": "c", "role": "ROLE_USER",
            "parts": [{"text": "\n  A trip to Helsinki\nplease"}],
        });
        let new = NewTask {
            agent: agents.find("trips").unwrap(),
            caller: "ann",
            message: serde_json::from_value(message).unwrap(),
            accepted_output_modes: vec!["text/plain".into()],
            metadata: None,
            referenced_tasks,
            task_id: "t".parse().unwrap(),
            idempotency_key: None,
        };
        new.into_create().unwrap()
    }

    const TRIPS: &str = "[[agents]]\nname = \"trips\"\ndescription = \"Trips.\"\n";

    /// A2A-03, A2A-05: a message becomes the input of the one Step of a new Task, which its context and its
    /// caller find again.
    #[test]
    fn a_message_becomes_a_task_of_one_step() {
        let agents = agents(&format!("{TRIPS}handler = \"go\"\npool = \"far\"\nattempts = 2\n"));
        let task = made(&agents, Vec::new());
        let [step] = &task.steps[..] else { panic!("{task:?}") };
        assert_eq!(step.handler.as_ref().unwrap().as_str(), "go");
        assert_eq!(task.default_worker_pool_id.as_ref().unwrap().as_str(), "far");
        assert_eq!(task.retry_policy.as_ref().unwrap().max_attempts, Some(Limit::Of(2)));
        assert_eq!((&*task.title, task.draft), ("A trip to Helsinki", None));
        assert_eq!((task.dispatch, task.completion), (Some(Policy::Auto), Some(Policy::Auto)));
        let labels = json!({"a2a-agent": "trips", "a2a-context": "c", "a2a-caller": "ann"});
        assert_eq!(json!(task.labels), labels);
        let input: Json =
            serde_json::from_slice(step.input.as_ref().unwrap().data().unwrap()).unwrap();
        assert_eq!(input["message"]["taskId"], "t");
        assert_eq!(input["acceptedOutputModes"], json!(["text/plain"]));
        let input = input_of_step(step.ext.as_ref(), step.input.as_ref()).unwrap();
        assert_eq!(message_in(input, &BlobBytes::new()).unwrap().message_id, "m");
    }

    /// A template keeps what it says, and one of its Steps gets the message.
    #[test]
    fn a_message_becomes_a_copy_of_a_template() {
        let agents = agents(&format!("{TRIPS}template = \"trip.yaml\"\n"));
        let task = made(&agents, Vec::new());
        assert_eq!((&*task.title, task.labels.len(), task.steps.len()), ("Trip", 4, 2));
        let takes: Vec<_> = task
            .steps
            .iter()
            .map(|step| input_of_step(step.ext.as_ref(), step.input.as_ref()).is_some())
            .collect();
        assert_eq!(takes, [true, false]);
        assert_eq!(task.steps[0].ext.as_ref().unwrap()["own"], 1);
        assert_eq!(task.steps[0].handler.as_ref().unwrap().as_str(), "p");
    }

    /// A key tells apart what its parts tell apart.
    #[test]
    fn every_part_of_a_key_counts() {
        let key = key_of("a", "b", "c", "d");
        assert_eq!(key, key_of("a", "b", "c", "d"));
        for other in
            [key_of("ab", "", "c", "d"), key_of("a", "b", "cd", ""), key_of("", "ab", "c", "d")]
        {
            assert_ne!(key, other);
        }
        assert!(key.len() < 100);
    }
}
