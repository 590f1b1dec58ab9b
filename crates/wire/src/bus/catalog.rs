//! The catalog: all operations and messages, with their roles, fields and answers, for authors of
//! clients and workers in other languages. `tenure schema operations` prints it.
//!
//! All of it comes from the types that nodes read and write, and from the list of [queries](crate::queries).

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value};
use tenure_core::command::create::CreateTask;
use tenure_core::command::{Operator, RetryEnded};
use tenure_core::patch::TaskFields;
use tenure_core::status::Role;
use tenure_core::view::{
    ClaimResult, Look, Looked, StepPage, TaskLines, TaskPage, WorkerTask, WriteSummary,
};
use tenure_core::{Code, Command, Query, Reads};

use super::blob::{BlobAnswer, BlobAsk, BlobPart, BlobTaken, HeldBlob};
use super::request::UPDATE_TASK;
use super::{VERSION, event, node, operate, output, request, worker};

/// All operations and messages of the bus. Schemas refer to `inputs` for what nodes read, and to
/// `outputs` for what nodes write.
#[derive(Debug, Clone, Serialize)]
pub struct Catalog {
    /// The version of the protocol.
    pub v: u16,
    /// The fields around an operation, without its `input`.
    pub request: Schema,
    /// Operations that orchestrators and observers ask of the owner of a partition.
    pub operations: Vec<OperationEntry>,
    /// Operations by which a worker reads the Task of its Run, and reports.
    pub worker_operations: Vec<OperationEntry>,
    /// Every other message.
    pub messages: Vec<Message>,
    /// Every code of a refusal.
    pub errors: Vec<ErrorCode>,
    /// Schemas of what nodes read.
    pub inputs: Map<String, Value>,
    /// Schemas of what nodes write.
    pub outputs: Map<String, Value>,
}

/// An operation.
#[derive(Debug, Clone, Serialize)]
pub struct OperationEntry {
    /// Its own name.
    pub name: String,
    /// Its other names: those of agents' tools, and those of the control plane.
    pub names: Vec<&'static str>,
    /// The last part of its subject, before the partition.
    pub subject: &'static str,
    /// Whether it changes a Task; if so, a request of it (`cmd`) takes a `command_id`.
    pub writes: bool,
    /// What it reads or changes.
    pub on: Reads,
    /// The roles that may ask for it.
    pub roles: Vec<Role>,
    /// Its input.
    pub input: Schema,
    /// Its answer.
    pub output: Schema,
    /// The codes with which it may be refused, beside those that are `common`.
    pub refusals: Vec<Code>,
}

/// A message by its subject.
#[derive(Debug, Clone, Serialize)]
pub struct Message {
    /// The subject in the cluster `TENURE`, with the names of its tokens in angle brackets. In another cluster it
    /// begins with the name of that.
    pub subject: &'static str,
    /// The message.
    pub message: Schema,
    /// The answer to it, as `ok`; absent: there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<Schema>,
}

/// A code of a refusal.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorCode {
    /// The code.
    pub code: Code,
    /// Whether the caller may repeat the same request.
    pub retryable: bool,
    /// Whether every operation may be refused with it.
    pub common: bool,
}

/// Makes the catalog.
pub fn catalog() -> Catalog {
    let mut made = Schemas::new();
    let request = made.input::<request::RequestHead>();
    let operations = made.operations();
    let worker_operations = made.worker_operations();
    let messages = made.messages();
    let errors = Code::ALL.iter().map(|&code| ErrorCode {
        code,
        retryable: code.is_retryable(),
        common: Code::COMMON.contains(&code),
    });
    Catalog {
        v: VERSION,
        request,
        operations,
        worker_operations,
        messages,
        errors: errors.collect(),
        inputs: made.inputs.take_definitions(true),
        outputs: made.outputs.take_definitions(true),
    }
}

/// Schemas of what nodes read, in which fields with a default are optional, and of what nodes write.
struct Schemas {
    inputs: SchemaGenerator,
    outputs: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let at = |settings: SchemaSettings, path: &str| {
            settings.with(|it| it.definitions_path = path.to_owned().into()).into_generator()
        };
        let settings = SchemaSettings::draft2020_12;
        Self {
            inputs: at(settings().for_deserialize(), "/inputs"),
            outputs: at(settings().for_serialize(), "/outputs"),
        }
    }

    fn input<T: JsonSchema>(&mut self) -> Schema {
        self.inputs.subschema_for::<T>()
    }

    fn output<T: JsonSchema>(&mut self) -> Schema {
        self.outputs.subschema_for::<T>()
    }

    fn operations(&mut self) -> Vec<OperationEntry> {
        let input = self.input::<CreateTask>();
        let mut all = vec![self.command(Operator::TaskCreate, input)];
        for (name, input) in variants(Command::json_schema(&mut self.inputs)) {
            let Some(operator) = Operator::from_name(&name) else { continue };
            if !operator.is_open_to(Role::Orchestrator) {
                continue;
            }
            let input = match operator {
                Operator::RetryTask => {
                    json_schema!({ "anyOf": [input, self.input::<RetryEnded>()] })
                }
                _ => input,
            };
            all.push(self.command(operator, input));
        }
        let input = self.input::<TaskFields>();
        let update = self.command(Operator::TaskUpdate, input);
        all.push(OperationEntry { name: UPDATE_TASK.to_owned(), names: Vec::new(), ..update });
        macro_rules! queries {
            ($($group:ident { $($ask:ident($query:ty))* })*) => {
                $($(all.push(self.query::<$query>());)*)*
            };
        }
        crate::queries!(queries);
        all.retain(|operation| !operation.roles.is_empty());
        all
    }

    fn command(&mut self, operator: Operator, input: Schema) -> OperationEntry {
        OperationEntry {
            name: operator.to_string(),
            names: others(operator).filter(|name| *name != UPDATE_TASK).collect(),
            subject: "cmd",
            writes: true,
            on: Reads::Task,
            roles: roles(operator),
            input,
            output: self.output::<WriteSummary>(),
            refusals: operator.refusals().collect(),
        }
    }

    fn query<Q: Query>(&mut self) -> OperationEntry {
        OperationEntry {
            name: Q::NAME.to_owned(),
            names: Operator::from_name(Q::NAME).map_or_else(Vec::new, |it| others(it).collect()),
            subject: "cmd",
            writes: false,
            on: Q::READS,
            roles: roles(Q::TOOL),
            input: self.input::<Q>(),
            output: self.output::<Q::Output>(),
            refusals: Q::REFUSALS.to_vec(),
        }
    }

    fn worker_operations(&mut self) -> Vec<OperationEntry> {
        let words = variants(worker::Word::json_schema(&mut self.inputs));
        let looks = variants(Look::json_schema(&mut self.inputs));
        let blobs = variants(BlobAsk::json_schema(&mut self.inputs));
        let mut all = Vec::new();
        for ((name, input), subject) in words
            .into_iter()
            .map(|word| (word, "report"))
            .chain(looks.into_iter().map(|look| (look, "look")))
            .chain(blobs.into_iter().map(|ask| (ask, "blob")))
        {
            let Some(operator) = Operator::from_name(&name) else { continue };
            let output = match operator {
                _ if subject == "report" => self.output::<worker::ReportResult>(),
                Operator::TaskGet => self.output::<WorkerTask>(),
                Operator::TaskList => self.output::<TaskPage<WorkerTask>>(),
                Operator::TaskQuerySteps => self.output::<StepPage>(),
                Operator::BlobGet => self.output::<BlobPart>(),
                Operator::BlobPut => self.output::<BlobTaken>(),
                _ => self.output::<TaskLines>(),
            };
            let writes = subject == "report";
            all.push(OperationEntry {
                name,
                names: others(operator).collect(),
                subject,
                writes,
                on: Reads::Task,
                roles: vec![Role::Worker],
                input,
                output,
                refusals: match subject {
                    "look" => Vec::new(),
                    _ => operator.own_refusals().to_vec(),
                },
            });
        }
        all
    }

    /// All messages except requests with an operation, in the order of docs/protocol.md.
    fn messages(&mut self) -> Vec<Message> {
        let mut all = Vec::new();
        // What workers and clients send, with the answers of nodes.
        macro_rules! taken {
            ($($subject:literal $message:ty $(=> $answer:ty)?;)*) => {$(
                #[allow(unused_mut, unused_assignments, reason = "not every message is answered")]
                let mut answer = None;
                $(answer = Some(self.output::<$answer>());)?
                let message = self.input::<$message>();
                all.push(Message { subject: $subject, message, answer });
            )*};
        }
        // What nodes send without being asked.
        macro_rules! sent {
            ($($subject:literal $message:ty;)*) => {$(
                let message = self.output::<$message>();
                all.push(Message { subject: $subject, message, answer: None });
            )*};
        }
        taken! {
            "tenure.v1.worker.<pool>.<principal>.<boot>.hello" worker::Hello;
            "tenure.v1.worker.<pool>.<principal>.<boot>.bye" worker::Bye;
            "tenure.v1.worker.<pool>.<principal>.<boot>.hb" worker::Heartbeat => worker::Pulses;
            "tenure.v1.worker.<pool>.<principal>.<boot>.node.<node>" worker::Capacity;
            "tenure.v1.worker.<pool>.<principal>.<boot>.output.<node>" output::OutputAnswer;
            "tenure.v1.worker.<pool>.<principal>.<boot>.report.<partition>" worker::Reports => worker::Reported;
            "tenure.v1.worker.<pool>.<principal>.<boot>.query.<partition>" worker::QuerySteps => StepPage;
            "tenure.v1.worker.<pool>.<principal>.<boot>.claim.<partition>" worker::Claim => ClaimResult;
            "tenure.v1.worker.<pool>.<principal>.<boot>.look.<partition>" worker::Looking => Looked;
            "tenure.v1.worker.<pool>.<principal>.<boot>.blob.<partition>" HeldBlob => BlobAnswer;
        }
        sent! { "_INBOX.worker.<principal>.<boot>.d.<node>" worker::Deliveries; }
        taken! {
            "tenure.v1.<role>.<session>.<principal>.hello" request::Hello => request::Welcome;
            "tenure.v1.<role>.<session>.<principal>.nodes" operate::Nodes => operate::NodeFacts;
            "tenure.v1.orchestrator.<session>.<principal>.drain" operate::Drain => operate::Drained;
            "tenure.v1.orchestrator.<session>.<principal>.import.<partition>" operate::ImportLog => operate::Imported;
        }
        sent! {
            "tenure.v1.event.<session>.<task>" request::Committed;
            "tenure.v1.event.<session>.<task>.public" event::Published;
            "tenure.v1.event.<session>.<task>.runtime" event::Runtime;
            "tenure.v1.node.<node>.alive" node::Alive;
            "tenure.v1.node.<node>.hungry" node::Hungry;
        }
        all
    }
}

/// The other names of an operation.
fn others(operator: Operator) -> impl Iterator<Item = &'static str> {
    let all = Operator::TOOLS.iter().chain(&Operator::CONTROL_PLANE);
    all.filter(move |(_, it)| *it == operator).map(|(name, _)| *name)
}

/// The roles that may send a request with this operation. Workers ask for operations in messages of
/// their own.
fn roles(operator: Operator) -> Vec<Role> {
    let all = [Role::Orchestrator, Role::Observer];
    all.into_iter().filter(|role| operator.is_open_to(*role)).collect()
}

/// The variants of an enum with `operation` and `input`: each name with the schema of its input.
fn variants(schema: Schema) -> Vec<(String, Schema)> {
    let all = schema.get("oneOf").and_then(Value::as_array).cloned().unwrap_or_default();
    let variant = |of: Value| {
        let fields = of.get("properties")?;
        let name = fields.get("operation")?.get("const")?.as_str()?.to_owned();
        let input = fields.get("input").cloned().unwrap_or_else(|| serde_json::json!({}));
        Some((name, Schema::try_from(input).ok()?))
    };
    all.into_iter().filter_map(variant).collect()
}
