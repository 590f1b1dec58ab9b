//! Operations of a patch, and how they end.

use serde_json::{Value as Json, json};
use tenure_core::{Code, Rejection};

use super::Fixture;
use super::input::patch;

/// Refused with this code at this operation.
pub fn no(t: &mut Fixture, operations: Json, code: Code, op_index: usize) -> Rejection {
    let rejection = t.refuse(patch(operations), code);
    assert_eq!(rejection.details["op_index"], op_index, "{rejection} {:?}", rejection.details);
    rejection
}

/// Accepted; the events of its commit.
pub fn yes(t: &mut Fixture, operations: Json) -> Vec<String> {
    t.ok(patch(operations));
    t.events()
}

pub fn new_step(id: &str, on: &[&str]) -> Json {
    json!({"step_id": id, "title": "t", "summary": "s", "depends_on_step_ids": on})
}

pub fn add(id: &str, on: &[&str]) -> Json {
    json!({"op": "add_step", "step": new_step(id, on)})
}

pub fn delete(id: &str) -> Json {
    json!({"op": "delete_step", "step_id": id})
}

pub fn depend(id: &str, on: &str) -> Json {
    json!({"op": "add_dependency", "step_id": id, "depends_on_step_id": on})
}

pub fn undepend(id: &str, on: &str) -> Json {
    json!({"op": "remove_dependency", "step_id": id, "depends_on_step_id": on})
}

pub fn update(id: &str, fields: Json) -> Json {
    json!({"op": "update_step", "step_id": id, "fields": fields})
}

pub fn cancel(id: &str) -> Json {
    json!({"op": "cancel_step", "step_id": id})
}

pub fn reopen(id: &str) -> Json {
    json!({"op": "reopen_step", "step_id": id})
}
