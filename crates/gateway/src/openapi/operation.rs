//! An operation of the catalog, for the document.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use serde_json::{Map, Value as Json, json};
use tenure_core::Code;
use tenure_wire::bus::catalog::OperationEntry;

use super::resource::{ALWAYS, path_parameters, problem_responses};
use super::schemas::Components;
use crate::api::routes::OperationRoute;
use crate::api::{PAGE_MAX, ParameterKind, position_in};
use crate::described::{Parameter, ParameterForm};
use crate::problem::status_of;

/// The operations that make a Task and answer 201.
const MAKE: [&str; 1] = ["task_create"];

/// What `Idempotency-Key` may be: ASCII that can be seen, with spaces within.
const KEY: ParameterForm = ParameterForm::Pattern("^[!-~]([ -~]{0,254}[!-~])?$");

/// What `If-Match` may be: the tag of a Task, or any.
const TAG: ParameterForm = ParameterForm::Pattern("^(\\*|\"[0-9]{1,19}-[0-9]{1,19}\")$");

/// The operation object of a route.
pub(super) fn of(route: &OperationRoute, components: &mut Components<'_>) -> Json {
    let Some((entry, _)) = route.entry() else { return json!({}) };
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.summary,
        "description": roles(entry),
        "tags": [if entry.writes { "commands" } else { "queries" }],
        "parameters": parameters(route, entry, components),
        "responses": responses(route, entry, components),
    });
    if !route.has_input_in_query() {
        operation["requestBody"] = body(route, components);
    }
    operation
}

fn roles(entry: &OperationEntry) -> String {
    let roles: Vec<&str> = entry.roles.iter().map(|role| role.as_str()).collect();
    format!("The operation `{}` of the bus. For: {}.", entry.name, roles.join(", "))
}

fn parameters(
    route: &OperationRoute,
    entry: &OperationEntry,
    components: &mut Components<'_>,
) -> Vec<Json> {
    let mut all = path_parameters(&route.whole_path());
    if route.has_input_in_query() {
        all.extend(fields(route, components));
    }
    all.push(query(
        "max_bytes",
        ParameterForm::NUMBER,
        "The longest answer that is wanted, in bytes (CTRL-06).",
    ));
    let trace = "A W3C traceparent: the command becomes a part of that trace.";
    all.push(header("traceparent", ParameterForm::Text, trace));
    if entry.writes {
        all.extend(of_writes());
    }
    if position_in(&route.input()).is_some() {
        let token = "The `next_page_token` of the page before.";
        all.push(query("page_token", ParameterForm::Text, token));
    }
    match route.operation {
        "task_get" => all.extend(of_task()),
        "task_update" => {
            all.push(query(
                "plan",
                ParameterForm::Boolean,
                "Change nothing, and say what the patch would do.",
            ));
        }
        _ => {}
    }
    all
}

/// The fields of an input, as parameters of the query string.
fn fields(route: &OperationRoute, components: &mut Components<'_>) -> Vec<Json> {
    let input = route.input();
    let Some(properties) = input.properties() else { return Vec::new() };
    let is_free =
        |name: &str| !is_in_path(route, name) && (route.operation, name) != ("task_views", "after");
    let mut all = Vec::new();
    for (name, schema) in properties.iter().filter(|(name, _)| is_free(name)) {
        let mut parameter = json!({
            "name": name,
            "in": "query",
            "required": input.requires(name),
            "schema": bounded(name, without_null(components.of_catalog(schema))),
        });
        if input.kind(name) == ParameterKind::Map {
            parameter["schema"] = entries_of(schema);
        }
        if let Some(about) = schema.get("description") {
            parameter["description"] = about.clone();
        }
        all.push(parameter);
    }
    all
}

/// A map as a parameter that may be repeated: each time with a `KEY=VALUE`, within the map's bounds.
fn entries_of(map: &Json) -> Json {
    let key = map["propertyNames"]["pattern"].as_str().unwrap_or("^[^=]+$");
    let longest = map["additionalProperties"]["maxLength"].as_u64();
    let value = longest.map_or_else(String::new, |longest| format!("[\\s\\S]{{0,{longest}}}$"));
    let pattern = format!("{}={value}", key.trim_end_matches('$'));
    let mut schema = json!({ "type": "array", "items": { "type": "string", "pattern": pattern } });
    if let Some(most) = map.get("maxProperties") {
        schema["maxItems"] = most.clone();
    }
    schema
}

/// A `limit` has the bounds of a page.
fn bounded(name: &str, mut schema: Json) -> Json {
    if name == "limit"
        && let Some(fields) = schema.as_object_mut()
    {
        fields.extend([("minimum".into(), 1.into()), ("maximum".into(), PAGE_MAX.into())]);
    }
    schema
}

/// A parameter is there or not, and never null.
fn without_null(mut schema: Json) -> Json {
    if let Some(Json::Array(types)) = schema.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = &types[..] {
            schema["type"] = one.clone();
        }
    }
    if let Some(Json::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
        if let [one] = &choices[..] {
            schema = one.clone();
        }
    }
    schema
}

fn is_in_path(route: &OperationRoute, name: &str) -> bool {
    route.path.contains(&format!("{{{name}}}"))
}

fn query(name: &'static str, form: ParameterForm, about: &'static str) -> Json {
    Parameter::query(name, form, about).object()
}

fn header(name: &'static str, form: ParameterForm, about: &'static str) -> Json {
    Parameter::header(name, form, about).object()
}

/// What every write may say.
fn of_writes() -> Vec<Json> {
    let key =
        "An id for the command, of 1 to 256 bytes: repeated with the same, it takes effect once.";
    let tag = "The ETag of the Task: refused (412) if orchestrators have changed the Task since.";
    let expected = "Carry the command out only at this version of the Task (OCC-02).";
    let spec = "As If-Match, by the number alone (OCC-07).";
    vec![
        header("Idempotency-Key", KEY, key),
        header("If-Match", TAG, tag),
        query("expected_version", ParameterForm::NUMBER, expected),
        query("expected_spec_version", ParameterForm::NUMBER, spec),
    ]
}

/// What the reading of a Task may say.
fn of_task() -> Vec<Json> {
    let tag = "ETags that the caller has: if one is that of the Task, the answer is 304.";
    let wait = "How long to wait for a change, such as `30s`; the answer is 204 if there is none.";
    let since = "The version behind which a change is waited for.";
    vec![
        header("If-None-Match", ParameterForm::Text, tag),
        query("wait", ParameterForm::TIME, wait),
        query("since", ParameterForm::NUMBER, since),
    ]
}

/// The body: the input without what the path says.
fn body(route: &OperationRoute, components: &mut Components<'_>) -> Json {
    let input = route.input();
    let mut schema = match cut(route) {
        Some(cut) => components.of_catalog(&cut),
        None => components.of_catalog(input.input),
    };
    let needs = input.properties().is_some_and(|all| {
        all.keys()
            .any(|name| input.requires(name) && !is_in_path(route, name) && !is_made(route, name))
    });
    if schema.is_null() {
        schema = json!({ "type": "object" });
    }
    let is_required = needs || route.operation == "retry_task";
    json!({ "required": is_required, "content": { "application/json": { "schema": schema } } })
}

/// Whether the gateway makes a field that the bus needs.
fn is_made(route: &OperationRoute, name: &str) -> bool {
    (route.operation, name) == ("task_create", "task_id")
}

/// The schema of the input without fields that the path gives, or with a Task that needs no id; none if
/// that is the input as it is.
fn cut(route: &OperationRoute) -> Option<Json> {
    let input = route.input();
    let is_given = |name: &str| is_in_path(route, name) && name != "task_id";
    let properties = input.properties()?;
    if !properties.keys().any(|name| is_given(name) || is_made(route, name)) {
        return None;
    }
    let mut schema: Map<String, Json> = input.whole()?.clone();
    if let Some(Json::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| !is_given(name));
    }
    if let Some(Json::Array(required)) = schema.get_mut("required") {
        required.retain(|name| {
            name.as_str().is_none_or(|name| !is_given(name) && !is_made(route, name))
        });
    }
    Some(schema.into())
}

fn responses(
    route: &OperationRoute,
    entry: &OperationEntry,
    components: &mut Components<'_>,
) -> Map<String, Json> {
    let mut statuses: BTreeSet<u16> = ALWAYS.into();
    let codes = entry.refusals.iter().chain(Code::COMMON);
    statuses.extend(codes.map(|&code| status_of(code).as_u16()));
    if !route.has_input_in_query() {
        statuses.extend(
            [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNSUPPORTED_MEDIA_TYPE]
                .map(|it| it.as_u16()),
        );
    }
    if entry.writes {
        statuses.insert(StatusCode::PRECONDITION_FAILED.as_u16());
    }
    let mut all = problem_responses(&statuses);
    let success = if MAKE.contains(&route.operation) { "201" } else { "200" };
    all.insert(success.to_owned(), answer(route, entry, components));
    if route.operation == "retry_task" {
        let mut made = all[success].clone();
        made["headers"]["Location"] = text_header("Where the new Task is.");
        all.insert("201".to_owned(), made);
    }
    if route.operation == "task_get" {
        let etag = json!({ "ETag": text_header("The tag of the Task.") });
        all.insert("204".to_owned(), json!({ "description": "Nothing has changed meanwhile." }));
        let same = json!({ "description": "The caller has this version.", "headers": etag });
        all.insert("304".to_owned(), same);
    }
    all
}

fn answer(route: &OperationRoute, entry: &OperationEntry, components: &mut Components<'_>) -> Json {
    let mut headers = Map::new();
    if entry.writes || route.operation == "task_get" {
        let tag = "The tag of the Task, `\"<version>-<spec_version>\"`; absent in a repetition.";
        headers.insert("ETag".into(), text_header(tag));
    }
    if entry.writes {
        let again = "`true` if the command had been carried out before.";
        headers.insert("Idempotency-Replayed".into(), text_header(again));
    }
    if MAKE.contains(&route.operation) {
        headers.insert("Location".into(), text_header("Where the Task is."));
    }
    json!({
        "description": "The answer.",
        "headers": headers,
        "content": { "application/json": { "schema": shown(route, entry, components) } },
    })
}

/// The schema of an answer, with what the gateway adds to it.
fn shown(route: &OperationRoute, entry: &OperationEntry, components: &mut Components<'_>) -> Json {
    let output = components.of_catalog(&entry.output.clone().to_value());
    match route.operation {
        "task_views" => json!({
            "type": "object",
            "properties": {
                "snapshot": components.of_catalog(&json!({ "$ref": "#/outputs/Snapshot" })),
                "missing_partitions": { "type": "array", "items": { "type": "integer" } },
            },
            "required": ["snapshot"],
        }),
        "task_update" => json!({ "anyOf": [output, {
            "type": "object",
            "description": "What the patch would do (`plan=true`).",
            "required": ["version", "spec_version", "added", "removed", "changed", "ready", "graph"],
        }] }),
        _ if position_in(&route.input()).is_some() => {
            let token =
                json!({ "type": "string", "description": "For the next page; absent at the end." });
            json!({ "allOf": [output, {
                "type": "object",
                "properties": { "next_page_token": token },
            }] })
        }
        _ => output,
    }
}

fn text_header(about: &str) -> Json {
    json!({ "description": about, "schema": { "type": "string" } })
}
