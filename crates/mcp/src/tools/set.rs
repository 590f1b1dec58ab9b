//! The tools as clients see them, made once of the table and the catalog.

use std::sync::{Arc, LazyLock};

use rmcp::model::{Tool, ToolAnnotations};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value as Json, json};
use tenure_core::Reads;
use tenure_core::status::Role;
use tenure_wire::bus::catalog::{Catalog, OperationEntry, catalog};

use super::answer::AnswerInput;
use super::board::BoardToolInput;
use super::inbox::{InboxAnswer, InboxInput};
use super::table::{TOOLS, ToolEntry, ToolWork};
use super::wait::{WaitAnswer, WaitInput};
use crate::result::{BYTES_DEFAULT, BYTES_MAX, BYTES_MIN};
use crate::schema;

/// The argument that every tool has: how long its answer may be.
pub(crate) const MAX_BYTES: &str = "max_bytes";

/// Arguments around the input of every operation on a Task.
pub(crate) const TASK_ID: &str = "task_id";

/// Those of every operation that changes one.
pub(crate) const OF_WRITES: [&str; 3] = ["command_id", "expected_version", "expected_spec_version"];

/// Which of the tools a server has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolFilter {
    /// All that the caller's role has.
    #[default]
    All,
    /// Those that change nothing.
    ReadOnly,
    /// Those of these names.
    Only(Vec<String>),
}

/// A tool with what the catalog knows of it.
#[derive(Debug)]
pub(crate) struct MadeTool {
    /// Its line in the table.
    pub(crate) entry: &'static ToolEntry,
    /// As a client sees it.
    pub(crate) tool: Tool,
    /// Whether it changes something.
    pub(crate) writes: bool,
    /// Whether the operation is on a Task that `task_id` names.
    pub(crate) is_on_task: bool,
    roles: Vec<Role>,
}

impl MadeTool {
    /// Whether a caller of this role has it, on a server with this filter.
    pub(crate) fn is_open_to(&self, role: Role, filter: &ToolFilter) -> bool {
        let is_let_through = match filter {
            ToolFilter::All => true,
            ToolFilter::ReadOnly => !self.writes,
            ToolFilter::Only(names) => names.iter().any(|name| name == self.entry.name),
        };
        is_let_through && self.roles.contains(&role)
    }
}

/// All tools. Making them takes milliseconds.
pub(crate) static MADE: LazyLock<Vec<MadeTool>> = LazyLock::new(|| {
    let catalog = catalog();
    TOOLS.iter().filter_map(|entry| made(entry, &catalog)).collect()
});

/// The tool of this name.
pub(crate) fn find(name: &str) -> Option<&'static MadeTool> {
    MADE.iter().find(|it| it.entry.name == name)
}

fn made(entry: &'static ToolEntry, catalog: &Catalog) -> Option<MadeTool> {
    let operation = catalog.operations.iter().find(|it| it.name == entry.operation)?;
    let writes = operation.writes;
    let is_on_task = operation.on == Reads::Task && entry.name != "task_create";
    let (mut input, output) = match entry.does {
        ToolWork::Operation => of_operation(operation, catalog),
        ToolWork::Explain => of_explain(operation, catalog)?,
        ToolWork::Answer => (of_type::<AnswerInput>(), answer_of(&operation.output, catalog)),
        ToolWork::Inbox => (of_type::<InboxInput>(), answer_of_type::<InboxAnswer>()),
        ToolWork::Board => (of_type::<BoardToolInput>(), board_answer(catalog)?),
        ToolWork::Wait => (of_type::<WaitInput>(), answer_of_type::<WaitAnswer>()),
    };
    let is_for_task = is_on_task && entry.does != ToolWork::Board;
    add_common(&mut input, catalog, is_for_task, writes);
    let annotations = ToolAnnotations::with_title(entry.title)
        .read_only(!writes)
        .destructive(writes && entry.is_destructive)
        .idempotent(!writes || entry.is_idempotent)
        .open_world(entry.name == "dispatch_worker");
    let tool = Tool::new(entry.name, entry.about, Arc::new(input))
        .with_title(entry.title)
        .with_raw_output_schema(Arc::new(output))
        .with_annotations(annotations);
    Some(MadeTool { entry, tool, writes, is_on_task, roles: operation.roles.clone() })
}

type InputAndAnswer = (Map<String, Json>, Map<String, Json>);

fn of_operation(operation: &OperationEntry, catalog: &Catalog) -> InputAndAnswer {
    let input = schema::input(operation.input.as_value(), &catalog.inputs);
    (input, answer_of(&operation.output, catalog))
}

fn answer_of(output: &Schema, catalog: &Catalog) -> Map<String, Json> {
    schema::answer(output.as_value(), &catalog.outputs)
}

/// Of a Step or of a whole Task: what both may be asked with, and what both may answer.
fn of_explain(step: &OperationEntry, catalog: &Catalog) -> Option<InputAndAnswer> {
    let whole = catalog.operations.iter().find(|it| it.name == "explain_task")?;
    let mut input = schema::input(step.input.as_value(), &catalog.inputs);
    input.remove("required");
    let mut output = answer_of(&whole.output, catalog);
    let of_step = answer_of(&step.output, catalog);
    if let (Some(Json::Object(fields)), Some(Json::Object(more))) =
        (output.get_mut("properties"), of_step.get("properties"))
    {
        fields.extend(more.clone());
    }
    Some((input, output))
}

fn board_answer(catalog: &Catalog) -> Option<Map<String, Json>> {
    let template = catalog.operations.iter().find(|it| it.name == "task_template")?;
    Some(answer_of(&template.output, catalog))
}

fn of_type<T: JsonSchema>() -> Map<String, Json> {
    let (schema, definitions) = schema_of::<T>(SchemaSettings::draft2020_12().for_deserialize());
    schema::input(&schema, &definitions)
}

fn answer_of_type<T: JsonSchema>() -> Map<String, Json> {
    let (schema, definitions) = schema_of::<T>(SchemaSettings::draft2020_12().for_serialize());
    schema::answer(&schema, &definitions)
}

fn schema_of<T: JsonSchema>(settings: SchemaSettings) -> (Json, schema::Definitions) {
    let mut generator = settings.into_generator();
    let schema = generator.subschema_for::<T>().to_value();
    (schema, generator.take_definitions(true))
}

/// Adds the arguments around the input.
fn add_common(input: &mut Map<String, Json>, catalog: &Catalog, is_for_task: bool, writes: bool) {
    let around = schema::input(catalog.request.as_value(), &catalog.inputs);
    let around = around.get("properties").and_then(Json::as_object);
    let mut added = Map::new();
    let mut take = |name: &str| {
        if let Some(field) = around.and_then(|all| all.get(name)) {
            added.insert(name.to_owned(), field.clone());
        }
    };
    if is_for_task {
        take(TASK_ID);
    }
    if writes {
        let names = OF_WRITES.iter().filter(|name| is_for_task || !name.starts_with("expected"));
        names.for_each(|name| take(name));
    }
    let about = format!("The longest answer, in bytes; {BYTES_DEFAULT} by default.");
    let bytes = json!({ "type": "integer", "minimum": BYTES_MIN, "maximum": BYTES_MAX, "description": about });
    added.insert(MAX_BYTES.into(), bytes);
    if let Some(Json::Object(fields)) = input.get_mut("properties") {
        fields.extend(added);
    }
    if is_for_task {
        let required = input.entry("required").or_insert_with(|| json!([]));
        if let Json::Array(names) = required
            && !names.contains(&TASK_ID.into())
        {
            names.insert(0, TASK_ID.into());
        }
    }
    input.insert("additionalProperties".into(), false.into());
}
