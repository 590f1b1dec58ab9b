//! The table of operations: each with a method and a path. Everything else about them is in the catalog.

use std::sync::LazyLock;

use axum::http::Method;
use serde_json::Value as Json;
use tenure_wire::bus::MESSAGE_MAX;
use tenure_wire::bus::call::CALL_MAX;
use tenure_wire::bus::catalog::{Catalog, OperationEntry, catalog};

use super::query::InputSchema;

/// The longest body of a request in JSON: that of a message on the bus.
pub(crate) const BODY_MAX: usize = MESSAGE_MAX;

/// The longest body of a request that makes a Task, which comes whole here.
pub(crate) const CREATE_BODY_MAX: usize = CALL_MAX;

/// Below this path is everything of a session.
pub(crate) const SESSION: &str = "/v1/sessions/{session}";

/// The Tasks of the session, and one of them.
macro_rules! below_task {
    ($rest:literal) => {
        concat!("/tasks/{task_id}", $rest)
    };
}

/// An operation of the catalog as a route. Parameters of the path, other than session and Task, are fields
/// of its input.
#[derive(Debug)]
pub(crate) struct OperationRoute {
    /// Its name in the catalog.
    pub(crate) operation: &'static str,
    /// The method.
    pub(crate) method: Method,
    /// The path below that of the session.
    pub(crate) path: &'static str,
    /// What it does, for people.
    pub(crate) summary: &'static str,
}

const fn get(operation: &'static str, path: &'static str, summary: &'static str) -> OperationRoute {
    OperationRoute { operation, method: Method::GET, path, summary }
}

const fn post(
    operation: &'static str,
    path: &'static str,
    summary: &'static str,
) -> OperationRoute {
    OperationRoute { operation, method: Method::POST, path, summary }
}

const fn patch(
    operation: &'static str,
    path: &'static str,
    summary: &'static str,
) -> OperationRoute {
    OperationRoute { operation, method: Method::PATCH, path, summary }
}

const fn delete(
    operation: &'static str,
    path: &'static str,
    summary: &'static str,
) -> OperationRoute {
    OperationRoute { operation, method: Method::DELETE, path, summary }
}

/// All operations that this table serves.
pub(crate) static ROUTES: [OperationRoute; 31] = [
    post("task_create", "/tasks", "Makes a Task."),
    get("task_list", "/tasks", "Lists Tasks of the session."),
    get("task_views", "/views", "Reads views of the Tasks of the session."),
    get("task_template", "/template", "Reads the guide to writing a Task."),
    get("task_get", below_task!(""), "Reads a Task."),
    patch("update_task", below_task!(""), "Changes fields of a Task."),
    post("task_update", below_task!("/patch"), "Changes a Task: all operations, or none."),
    post("submit_task", below_task!("/submit"), "Lets a draft begin."),
    post("pause_task", below_task!("/pause"), "Gives out no more Steps of a Task."),
    post("resume_task", below_task!("/resume"), "Goes on with a paused Task."),
    post("block_task", below_task!("/block"), "Notes that a Task waits for something."),
    post("reopen_task", below_task!("/reopen"), "Goes on with a blocked Task."),
    post("task_cancel", below_task!("/cancel"), "Cancels a Task."),
    post("task_complete", below_task!("/complete"), "Completes a Task."),
    post("task_fail", below_task!("/fail"), "Fails a Task."),
    post("archive_task", below_task!("/archive"), "Archives an ended Task."),
    post("retry_task", below_task!("/retry"), "Runs failed Steps, or an ended Task, again."),
    post("dispatch_worker", below_task!("/dispatch"), "Gives out a Run."),
    post("append_task_progress", below_task!("/progress"), "Notes progress, inputs or evidence."),
    post("task_fact", below_task!("/facts"), "Keeps a fact of a gateway with a Task."),
    get("task_facts", below_task!("/facts"), "Lists the facts that gateways keep with a Task."),
    post("link_tasks", below_task!("/links"), "Relates a Task to another."),
    delete("unlink_tasks", below_task!("/links/{edge_id}"), "Removes a relation."),
    get("task_query_steps", below_task!("/steps"), "Lists Steps of a Task."),
    post(
        "task_update_step",
        below_task!("/steps/{step_id}"),
        "Settles a Step in place of a worker.",
    ),
    get("explain", below_task!("/steps/{step_id}/explain"), "Explains why a Step does not run."),
    get("explain_task", below_task!("/explain"), "Explains why the Steps of a Task do not run."),
    get("task_board_summary", below_task!("/board"), "Reads a Task in lines for a model."),
    get("inspect_task", below_task!("/history"), "Reads events of the log of a Task."),
    get("replay_task", below_task!("/replay"), "Reads a Task as it was."),
    post("cancel_run", below_task!("/runs/{run_id}/cancel"), "Asks a Run to stop."),
];

/// The operations of the catalog that are served by code of their own, as their answers are no JSON, or are
/// made of several of them; of `list_index` the list of Tasks shows more.
#[cfg(test)]
const ELSEWHERE: [&str; 7] =
    ["read_log", "read_events", "list_index", "list_leases", "blob_get", "blob_put", "read_output"];

/// The catalog. It is made once, as it takes milliseconds.
pub(crate) static CATALOG: LazyLock<Catalog> = LazyLock::new(catalog);

/// Schemas of operations by the place of their route in [`ROUTES`].
static ENTRIES: LazyLock<Vec<Option<(&'static OperationEntry, Json)>>> = LazyLock::new(|| {
    let entry = |route: &OperationRoute| {
        let found = CATALOG.operations.iter().find(|entry| entry.name == route.operation)?;
        Some((found, found.input.clone().to_value()))
    };
    ROUTES.iter().map(entry).collect()
});

/// Makes the catalog, if nothing has made it yet.
pub(super) fn make_catalog() {
    LazyLock::force(&ENTRIES);
}

impl OperationRoute {
    /// The whole path.
    pub(crate) fn whole_path(&self) -> String {
        format!("{SESSION}{}", self.path)
    }

    /// Whether the input comes in the query string, and not in the body.
    pub(crate) fn has_input_in_query(&self) -> bool {
        matches!(self.method, Method::GET | Method::DELETE)
    }

    /// The longest body of a request.
    pub(crate) fn body_max(&self) -> usize {
        match self.operation {
            "task_create" => CREATE_BODY_MAX,
            _ => BODY_MAX,
        }
    }

    /// What the catalog knows of the operation, with the schema of its input.
    pub(crate) fn entry(&self) -> Option<&'static (&'static OperationEntry, Json)> {
        let place = ROUTES.iter().position(|it| it.operation == self.operation)?;
        ENTRIES.get(place)?.as_ref()
    }

    /// The schema of its input.
    pub(crate) fn input(&self) -> InputSchema<'static> {
        let input = self.entry().map_or(&Json::Null, |(_, input)| input);
        InputSchema { input, all: &CATALOG.inputs }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_of_the_catalog_is_served() {
        let catalog: BTreeSet<&str> =
            CATALOG.operations.iter().map(|it| it.name.as_str()).collect();
        let routes: Vec<&str> = ROUTES.iter().map(|it| it.operation).chain(ELSEWHERE).collect();
        assert_eq!(routes.len(), catalog.len(), "each once");
        assert_eq!(routes.into_iter().collect::<BTreeSet<_>>(), catalog);
    }

    #[test]
    fn parameters_of_paths_are_fields_of_inputs() {
        for route in &ROUTES {
            let input = route.input();
            let names = route.path.split('/').filter_map(|it| it.strip_prefix('{'));
            for name in names.map(|it| it.trim_end_matches('}')).filter(|it| *it != "task_id") {
                assert!(input.requires(name), "{name} of {}", route.operation);
            }
        }
    }

    #[test]
    fn what_reads_has_get_and_what_writes_has_not() {
        for route in &ROUTES {
            let (entry, _) = route.entry().expect(route.operation);
            assert_eq!(route.method == Method::GET, !entry.writes, "{}", route.operation);
        }
    }
}
