//! The routes of workers, for `/openapi.json`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value as Json;
use tenure_core::command::{EndRun, StepReport};
use tenure_core::event::ReleaseReason;
use tenure_core::patch::ReasonInput;
use tenure_core::view::{ClaimResult, Look, Looked, StepPage};
use tenure_wire::bus::blob::BlobTaken;
use tenure_wire::bus::worker::{Delivery, Pulses, ReportResult};

use super::bodies::{
    CapacityBody, ChangeBody, ClaimBody, HeartbeatBody, HolderBody, JoinBody, JoinedWorker,
    QueryBody, RunBody,
};
use crate::described::{Content, DescribedRoute, Parameter, ParameterForm, json_of};

/// Fields of a report that no worker says here: the path has the Attempt, and the rest is for others.
const NOT_SAID: [&str; 3] = ["attempt_id", "content_fields", "input_refs"];

const AFTER: Parameter = Parameter::query(
    "after",
    ParameterForm::NUMBER,
    "The worker has all deliveries up to this number.",
);

/// The ids of the Attempt for which a blob goes, from its claim; and the part of the blob, if not all of it
/// is sent at once.
const PART: [Parameter; 6] = [
    Parameter::query("session_id", ParameterForm::NAME, "The session of the claim.").required(),
    Parameter::query("task_id", ParameterForm::NAME, "The Task of the claim.").required(),
    Parameter::query("run_id", ParameterForm::Uuid, "The Run of the claim.").required(),
    Parameter::query("fencing_token", ParameterForm::NUMBER, "The token of the claim.").required(),
    Parameter::query(
        "offset",
        ParameterForm::NUMBER,
        "The body is a part that begins at this byte.",
    ),
    Parameter::query(
        "size_bytes",
        ParameterForm::NUMBER,
        "With `offset`: the bytes of the whole blob.",
    ),
];

/// The ids alone.
const HOLDER: [Parameter; 4] = {
    let [session, task, run, token, ..] = PART;
    [session, task, run, token]
};

const BYTES: Content = Content::Other("application/octet-stream");
const RECORDED: [(u16, Option<Content>); 1] = [(200, Some(json_of::<ReportResult>()))];
const OF_JSON: [u16; 3] = [409, 413, 415];

/// A request with a body of JSON.
const fn post(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    body: Content,
    answers: &'static [(u16, Option<Content>)],
) -> DescribedRoute {
    let (parameters, body) = (&[], Some(body));
    DescribedRoute {
        method: "post",
        path,
        id,
        summary,
        parameters,
        body,
        answers,
        refusals: &OF_JSON,
    }
}

/// The routes of this module, for the document.
pub(crate) fn described() -> impl Iterator<Item = DescribedRoute> {
    OF_LINKS.into_iter().chain(OF_ATTEMPTS).chain(OF_RUNS)
}

const OF_LINKS: [DescribedRoute; 6] = [
    post(
        "/v1/pools/{pool}/workers",
        "join_pool",
        "Joins a pool as a worker.",
        json_of::<JoinBody>(),
        &[(200, Some(json_of::<JoinedWorker>())), (201, Some(json_of::<JoinedWorker>()))],
    ),
    DescribedRoute::read(
        "/v1/pools/{pool}/workers/{link}",
        "get_link",
        "Reads what the gateway knows of a worker that joined here.",
        &[],
        &[(200, Some(json_of::<JoinedWorker>()))],
    ),
    DescribedRoute {
        method: "patch",
        ..post(
            "/v1/pools/{pool}/workers/{link}",
            "change_worker",
            "Sets how many Steps a worker runs at a time, or takes what it says of its capacity.",
            json_of::<ChangeBody>(),
            &[(200, Some(json_of::<JoinedWorker>()))],
        )
    },
    DescribedRoute {
        method: "delete",
        path: "/v1/pools/{pool}/workers/{link}",
        id: "leave_pool",
        summary: "Leaves the pool: Steps that the worker has not got go back.",
        parameters: &[AFTER],
        body: None,
        answers: &[(204, None)],
        refusals: &[],
    },
    DescribedRoute::read(
        "/v1/pools/{pool}/workers/{link}/deliveries",
        "fetch_deliveries",
        "Waits for deliveries, and acknowledges those that came before.",
        &[
            AFTER,
            Parameter::query(
                "wait",
                ParameterForm::TIME,
                "How long to wait: 20s. None if left out.",
            ),
        ],
        &[(200, Some(Content::Json(delivery_page)))],
    ),
    post(
        "/v1/pools/{pool}/workers/{link}/heartbeat",
        "send_heartbeat",
        "Renews the leases of Attempts that the worker holds.",
        json_of::<HeartbeatBody>(),
        &[(200, Some(json_of::<Pulses>()))],
    ),
];

const OF_ATTEMPTS: [DescribedRoute; 5] = [
    post(
        "/v1/pools/{pool}/workers/{link}/attempts/{attempt_id}/report",
        "report_step",
        "Reports status, results and progress of a Step in hand.",
        Content::Json(report_body),
        &RECORDED,
    ),
    post(
        "/v1/pools/{pool}/workers/{link}/attempts/{attempt_id}/end",
        "end_attempt",
        "Ends the Run of an Attempt without a final word on its Step, or after it.",
        Content::Json(end_body),
        &RECORDED,
    ),
    post(
        "/v1/pools/{pool}/workers/{link}/attempts/{attempt_id}/release",
        "release_step",
        "Gives a Step back.",
        Content::Json(release_body),
        &RECORDED,
    ),
    DescribedRoute {
        refusals: &[409],
        ..DescribedRoute::read(
            "/v1/pools/{pool}/workers/{link}/attempts/{attempt_id}/blobs/{digest}",
            "get_claimed_blob",
            "Reads a blob that the claim of the Attempt names.",
            &HOLDER,
            &[(200, Some(BYTES))],
        )
    },
    DescribedRoute {
        method: "put",
        path: "/v1/pools/{pool}/workers/{link}/attempts/{attempt_id}/blobs/{digest}",
        id: "put_reported_blob",
        summary: "Stores a blob that the report of the Attempt is to name.",
        parameters: &PART,
        body: Some(BYTES),
        answers: &[(200, Some(json_of::<BlobTaken>()))],
        refusals: &[409, 411, 413],
    },
];

const OF_RUNS: [DescribedRoute; 6] = [
    post(
        "/v1/pools/{pool}/workers/{link}/runs/{run_id}/query",
        "query_run",
        "Reads the Steps that can be claimed under a Run.",
        Content::Json(merged::<RunBody, QueryBody>),
        &[(200, Some(json_of::<StepPage>()))],
    ),
    post(
        "/v1/pools/{pool}/workers/{link}/runs/{run_id}/claim",
        "claim_step",
        "Claims a Step under a Run.",
        Content::Json(merged::<RunBody, ClaimBody>),
        &[(200, Some(json_of::<ClaimResult>()))],
    ),
    post(
        "/v1/pools/{pool}/workers/{link}/runs/{run_id}/look",
        "look_at_task",
        "Reads the Task of a Run, as far as the Run shows it.",
        Content::Json(look_body),
        &[(200, Some(json_of::<Looked>()))],
    ),
    post(
        "/v1/pools/{pool}/workers/{link}/runs/{run_id}/decline",
        "decline_run",
        "Declines a Run.",
        Content::Json(decline_body),
        &RECORDED,
    ),
    post(
        "/v1/pools/{pool}/workers/{link}/runs/{run_id}/end",
        "end_unused_run",
        "Ends a Run under which there was nothing to claim.",
        Content::Json(end_unused_body),
        &RECORDED,
    ),
    DescribedRoute {
        method: "delete",
        path: "/v1/pools/{pool}/workers/{link}/runs/{run_id}",
        id: "let_run_go",
        summary: "Does nothing more with a Run, which is offered again later.",
        parameters: &[],
        body: None,
        answers: &[(204, None)],
        refusals: &[],
    },
];

/// The fields of two objects, side by side. What the second says of a field counts less.
fn merged<A: JsonSchema, B: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let (mut first, second) = (A::json_schema(generator), B::json_schema(generator));
    merge(&mut first, &second);
    first
}

fn merge(into: &mut Schema, from: &Schema) {
    let mut properties = from.get("properties").cloned().unwrap_or_default();
    if let (Some(all), Some(Json::Object(own))) =
        (properties.as_object_mut(), into.get("properties"))
    {
        all.extend(own.clone());
    }
    let list = |schema: &Schema| schema.get("required").and_then(Json::as_array).cloned();
    let mut required = list(into).unwrap_or_default();
    required.extend(list(from).unwrap_or_default());
    let mut seen = Vec::new();
    required.retain(|name| {
        !seen.contains(name) && {
            seen.push(name.clone());
            true
        }
    });
    into.insert("properties".into(), properties);
    into.insert("required".into(), required.into());
    into.remove("additionalProperties"); // A worker's words may have more fields.
}

fn report_body(generator: &mut SchemaGenerator) -> Schema {
    let mut body = merged::<HolderBody, StepReport>(generator);
    if let Some(Json::Object(properties)) = body.get_mut("properties") {
        properties.retain(|name, _| !NOT_SAID.contains(&name.as_str()));
    }
    with_room(generator, body)
}

/// The body of a report, beside which a worker that counts by itself says its capacity.
fn with_room(generator: &mut SchemaGenerator, mut body: Schema) -> Schema {
    let room =
        json_schema!({ "properties": { "room": generator.subschema_for::<CapacityBody>() } });
    merge(&mut body, &room);
    body
}

fn end_body(generator: &mut SchemaGenerator) -> Schema {
    let body = merged::<HolderBody, EndRun>(generator);
    with_room(generator, body)
}

fn end_unused_body(generator: &mut SchemaGenerator) -> Schema {
    let body = RunBody::json_schema(generator);
    with_room(generator, body)
}

fn release_body(generator: &mut SchemaGenerator) -> Schema {
    let mut body = HolderBody::json_schema(generator);
    let how = json_schema!({
        "properties": {
            "reason": generator.subschema_for::<ReleaseReason>(),
            "retry_after_ms": {
                "description": "How many milliseconds must pass before it is given out again.",
                "type": "integer",
                "format": "uint64",
            },
        },
    });
    merge(&mut body, &how);
    with_room(generator, body)
}

fn decline_body(generator: &mut SchemaGenerator) -> Schema {
    let mut body = RunBody::json_schema(generator);
    let why =
        json_schema!({ "properties": { "reason": generator.subschema_for::<ReasonInput>() } });
    merge(&mut body, &why);
    with_room(generator, body)
}

fn look_body(generator: &mut SchemaGenerator) -> Schema {
    let parts = [generator.subschema_for::<RunBody>(), generator.subschema_for::<Look>()];
    json_schema!({ "allOf": parts })
}

fn delivery_page(generator: &mut SchemaGenerator) -> Schema {
    let mut delivery = Delivery::json_schema(generator);
    let numbered = json_schema!({
        "properties": {
            "number": { "description": "Its number, from 1.", "type": "integer", "minimum": 1 },
        },
        "required": ["number"],
    });
    merge(&mut delivery, &numbered);
    json_schema!({
        "type": "object",
        "properties": {
            "deliveries": { "type": "array", "items": delivery },
            "last": {
                "description": "The number to acknowledge them with, as `after`.",
                "type": "integer",
                "minimum": 0,
            },
        },
        "required": ["deliveries", "last"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document has what the router has.
    #[test]
    fn every_route_has_a_name_of_its_own() {
        let mut ids: Vec<_> = described().map(|it| it.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), count), (17, 17));
        assert!(described().all(|it| it.path.starts_with(super::super::WORKERS)));
    }

    #[test]
    fn a_report_has_the_ids_of_its_claim_and_what_it_says() {
        let body = report_body(&mut SchemaGenerator::default());
        let properties = body.get("properties").and_then(Json::as_object).unwrap();
        for name in
            ["session_id", "task_id", "run_id", "fencing_token", "step_id", "output", "room"]
        {
            assert!(properties.contains_key(name), "{name}");
        }
        assert!(NOT_SAID.iter().all(|name| !properties.contains_key(*name)));
        let required = body.get("required").and_then(Json::as_array).unwrap();
        let mut required: Vec<_> = required.iter().filter_map(Json::as_str).collect();
        required.sort_unstable();
        assert_eq!(required, ["fencing_token", "run_id", "session_id", "step_id", "task_id"]);
    }
}
