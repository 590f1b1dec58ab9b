//! The tools under a Run, made of what the catalog knows of a worker's operations.

use std::sync::{Arc, LazyLock};

use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value as Json, json};
use tenure_wire::bus::catalog::{Catalog, catalog};

use crate::result::{BYTES_DEFAULT, BYTES_MAX, BYTES_MIN};
use crate::schema;
use crate::tools::{MAX_BYTES, TASK_ID};

/// A tool under a Run.
#[derive(Debug)]
pub(super) struct RunTool {
    /// Its name.
    pub(super) name: &'static str,
    /// The worker's operation that it is.
    pub(super) operation: &'static str,
    /// Whether it changes something.
    pub(super) writes: bool,
    /// As a client sees it.
    pub(super) tool: Tool,
}

/// A line of the table: its name, the operation, a title for people, and what models read.
type RunToolLine = (&'static str, &'static str, &'static str, &'static str);

/// The tools of a worker (PERM-06), in the order in which they are listed.
const RUN_TOOLS: [RunToolLine; 6] = [
    (
        "task_get",
        "task_get",
        "Read the task",
        "Reads the task as far as this run may see it: its status, the run, the steps in its scope, and what the steps \
         before them have handed on.",
    ),
    (
        "task_list",
        "task_list",
        "List the task",
        "Lists the task of this run in short. There is no other for it.",
    ),
    (
        "task_query_steps",
        "task_query_steps",
        "Read steps",
        "Reads the steps in the scope of this run in pages. Filter by statuses; include_terminal_steps also reads \
         finished ones. Go on with offset = next_offset.",
    ),
    (
        "board",
        BOARD,
        "The task in short",
        "Summarises the steps in the scope of this run in few lines of text.",
    ),
    (
        "task_claim_step",
        "task_claim_step",
        "Claim a step",
        "Claims a ready step in the scope of this run. A run claims one step in its life: if it has one, the answer is \
         step_already_claimed_by_run, so work on that step. step_already_claimed and step_not_ready: somebody else was \
         faster, so claim another.",
    ),
    (
        "task_update_step",
        "task_update_step",
        "Report on your step",
        "Reports on the step in your hands. With status running, or none: progress, artifacts, checkpoint_refs and \
         output_refs, recorded at once. With status completed (and output), failed (and reason), blocked (and reason \
         and wait_kind input) or cancelled: your last word, which is recorded when your process ends; no other counts \
         after it. The answer says with cancel_requested that you are to stop.",
    ),
];

/// The operation whose answer is lines of text.
pub(super) const BOARD: &str = "task_board_summary";

/// What a report says of its Attempt by itself, and what only orchestrators give (PERM-02).
const NOT_SAID: [&str; 5] =
    ["attempt_id", "content_fields", "fencing_token", "input_refs", "input_seen"];

/// The names of all tools.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    RUN_TOOLS.iter().map(|(name, ..)| *name)
}

/// All tools.
pub(super) static MADE_FOR_RUN: LazyLock<Vec<RunTool>> = LazyLock::new(|| {
    let catalog = catalog();
    RUN_TOOLS.iter().map(|line| made(line, &catalog)).collect()
});

fn made(&(name, operation, title, about): &RunToolLine, catalog: &Catalog) -> RunTool {
    let known = catalog.worker_operations.iter().find(|it| it.name == operation);
    let mut input = match known {
        Some(known) => schema::input(known.input.as_value(), &catalog.inputs),
        None => claim_input(),
    };
    // The board is put together on its way.
    let output = known.filter(|_| operation != BOARD);
    let output = output.map(|known| schema::answer(known.output.as_value(), &catalog.outputs));
    let writes = matches!(operation, "task_claim_step" | "task_update_step");
    if let Some(Json::Object(fields)) = input.get_mut("properties") {
        fields.retain(|field, _| !NOT_SAID.contains(&field.as_str()));
        let task = "The task; left out: that of this run, and there is no other for it.";
        fields.insert(TASK_ID.into(), json!({ "type": "string", "description": task }));
        let bytes = format!("The longest answer, in bytes; {BYTES_DEFAULT} by default.");
        let bytes = json!({ "type": "integer", "minimum": BYTES_MIN, "maximum": BYTES_MAX, "description": bytes });
        fields.insert(MAX_BYTES.into(), bytes);
    }
    if operation == "task_update_step" {
        input.remove("required"); // A report that names no Step is about the Step in hand.
    }
    input.insert("additionalProperties".into(), false.into());
    let annotations = ToolAnnotations::with_title(title)
        .read_only(!writes)
        .destructive(false)
        .idempotent(!writes)
        .open_world(false);
    let tool = Tool::new(name, about, Arc::new(input)).with_title(title);
    let tool = match output.filter(|_| !writes) {
        Some(output) => tool.with_raw_output_schema(Arc::new(output)),
        None => tool,
    };
    RunTool { name, operation, writes, tool: tool.with_annotations(annotations) }
}

/// The input of a claim, which is no request with an operation.
fn claim_input() -> Map<String, Json> {
    let step = json!({ "type": "string", "description": "The step." });
    let fields = json!({ "step_id": step });
    Map::from_iter([
        ("type".to_owned(), "object".into()),
        ("properties".to_owned(), fields),
        ("required".to_owned(), json!(["step_id"])),
    ])
}

#[cfg(test)]
mod tests {
    use tenure_core::status::Role;

    use super::*;

    /// PERM-06: what a worker has, and nothing of an orchestrator; PERM-02: nothing that says who reports.
    #[test]
    fn the_tools_under_a_run_are_those_of_a_worker() {
        let listed: Vec<&str> = MADE_FOR_RUN.iter().map(|it| it.name).collect();
        assert_eq!(listed, names().collect::<Vec<_>>());
        for RunTool { name, operation, tool, writes } in MADE_FOR_RUN.iter() {
            let operator = tenure_core::command::Operator::from_name(operation).unwrap();
            assert!(operator.is_open_to(Role::Worker), "{name}");
            let fields = tool.input_schema["properties"].as_object().unwrap();
            assert!(NOT_SAID.iter().all(|field| !fields.contains_key(*field)), "{name}");
            assert_eq!(tool.input_schema["type"], "object", "{name}");
            let has_answer = tool.output_schema.is_some();
            assert_eq!(has_answer, !*writes && *operation != BOARD, "{name}");
        }
        for (name, field) in [
            ("task_query_steps", "statuses"),
            ("task_list", "include_terminal"),
            ("board", "token_budget"),
            ("task_claim_step", "step_id"),
            ("task_update_step", "progress"),
            ("task_update_step", "output"),
        ] {
            let tool = &MADE_FOR_RUN.iter().find(|it| it.name == name).unwrap().tool;
            assert!(tool.input_schema["properties"].get(field).is_some(), "{name}: {field}");
        }
    }
}
