//! A resource that is no operation of the catalog, for the document, and what all descriptions share.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use super::schemas::Components;
use crate::described::{Content, DescribedRoute, Parameter, ParameterForm};

/// Statuses with which any request may be refused: a malformed one, one without credentials or rights, a
/// path or a media type that is not there, one that takes too long or comes too often, and one that finds
/// no scheduler.
pub(super) const ALWAYS: [u16; 9] = [400, 401, 403, 404, 406, 408, 422, 429, 503];

/// The operation object of a route.
pub(super) fn of(route: &DescribedRoute, components: &mut Components<'_>) -> Json {
    let mut parameters = path_parameters(route.path);
    parameters.extend(route.parameters.iter().map(Parameter::object));
    let mut statuses: BTreeSet<u16> = ALWAYS.into();
    statuses.extend(route.refusals);
    let mut responses = problem_responses(&statuses);
    for (status, body) in route.answers {
        let mut answer = json!({ "description": "The answer." });
        if let Some(body) = body {
            answer["content"] = content_of_answer(*body, components).into();
        }
        responses.insert(status.to_string(), answer);
    }
    let mut operation = json!({
        "operationId": route.id,
        "summary": route.summary,
        "tags": ["resources"],
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(body) = route.body {
        operation["requestBody"] = request_body(body, components);
    }
    operation
}

/// The content object of an answer.
fn content_of_answer(content: Content, components: &mut Components<'_>) -> Map<String, Json> {
    match content {
        Content::Json(schema) => of_json(components.of_answer(schema)),
        Content::Other(media_type) => of_other(media_type),
        Content::Either(all) => {
            all.iter().flat_map(|one| content_of_answer(*one, components)).collect()
        }
    }
}

/// The body of a request. One of JSON may be left out where it needs no field.
fn request_body(body: Content, components: &mut Components<'_>) -> Json {
    match body {
        Content::Json(schema) => {
            let schema = components.of_body(schema);
            let is_required = components.needs_a_field(&schema);
            json!({ "required": is_required, "content": of_json(schema) })
        }
        Content::Other(media_type) => json!({ "required": true, "content": of_other(media_type) }),
        Content::Either(_) => json!({}), // No request has several.
    }
}

fn of_json(schema: Json) -> Map<String, Json> {
    Map::from_iter([("application/json".to_owned(), json!({ "schema": schema }))])
}

fn of_other(media_type: &str) -> Map<String, Json> {
    Map::from_iter([(media_type.to_owned(), json!({ "schema": { "type": "string" } }))])
}

/// The parameters of a path.
pub(super) fn path_parameters(path: &str) -> Vec<Json> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|name| {
            let form = match name {
                "run_id" | "attempt_id" => ParameterForm::Uuid,
                "digest" => ParameterForm::DIGEST,
                "session" | "task_id" | "step_id" | "pool" => ParameterForm::NAME,
                "ordinal" => ParameterForm::Number(1, u32::MAX.into()),
                _ => ParameterForm::Text,
            };
            json!({ "name": name, "in": "path", "required": true, "schema": form.schema() })
        })
        .collect()
}

/// Responses that refuse, by their statuses.
pub(super) fn problem_responses(statuses: &BTreeSet<u16>) -> Map<String, Json> {
    let response = |status: &u16| {
        let reference = format!("#/components/responses/HttpProblem{status}");
        (status.to_string(), json!({ "$ref": reference }))
    };
    statuses.iter().map(response).collect()
}

/// All responses that refuse, with what their statuses mean here.
pub(super) fn problems() -> Json {
    let all = [
        (400, "The request is malformed."),
        (401, "The request has no valid credentials."),
        (403, "This is not for this caller."),
        (404, "There is no such thing."),
        (406, "The answer has another media type than the caller accepts."),
        (408, "The request took too long to come."),
        (409, "The request does not go with how things stand."),
        (411, "The length of the body is not said."),
        (412, "The Task has changed meanwhile."),
        (413, "The body is too large."),
        (415, "The body has another media type."),
        (422, "The request is well formed, and something in it is wrong."),
        (429, "Too many requests; `Retry-After` says when to come back."),
        (503, "It cannot be done now; `Retry-After` says when to come back."),
    ];
    let response = |(status, about): (u16, &str)| {
        let mut response = json!({
            "description": about,
            "content": { "application/problem+json": { "schema": problem() } },
        });
        match status {
            401 => response["headers"] = header("WWW-Authenticate", "How to say who one is."),
            429 | 503 => response["headers"] = header("Retry-After", "In how many seconds."),
            _ => {}
        }
        (format!("HttpProblem{status}"), response)
    };
    all.into_iter().map(response).collect::<Map<_, _>>().into()
}

fn header(name: &str, about: &str) -> Json {
    json!({ name: { "description": about, "schema": { "type": "string" } } })
}

/// The schema of a problem.
fn problem() -> Json {
    json!({
        "type": "object",
        "properties": {
            "type": { "type": "string", "description": "Where the code is explained." },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "detail": { "type": "string", "description": "For people." },
            "code": { "type": "string", "description": "Stable, for programs." },
            "retryable": { "type": "boolean", "description": "Whether the same may be sent again." },
            "details": { "type": "object", "description": "What belongs to the code: `field`, ids." },
        },
        "required": ["type", "title", "status", "detail", "code", "retryable", "details"],
    })
}
