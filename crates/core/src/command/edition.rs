//! K5: refuses what names something new while the log may hold only what the first edition of the contract has
//! (EVOLVE-02).

use alloc::format;

use serde::Serialize;
use serde_json::Value as Json;

use super::create::CreateTask;
use super::{Command, Cx};
use crate::event::{Body, Commit, Event};
use crate::features::EDITION_2;
use crate::id::{DigestForm, FIRST_NAME_MAX, PoolId};
use crate::record::{Blob, DEADLINE_HARD};
use crate::reject::{Code, Rejection};
use crate::rules::Rules;
use crate::status::Role;

/// Fields that only the second edition has, wherever they stand in a command.
const FIELDS: [&str; 17] = [
    "accept_late",
    "blocked_ms",
    "cancel_grace_ms",
    "claim_only_by",
    "cwd",
    "ext",
    "grace_ms",
    "inputs_from",
    "labels",
    "on_behalf",
    "on_failure",
    "on_lease_doubt",
    "optional_wait_ms",
    "output_from",
    "parent_close",
    "schedule_to_close_ms",
    "ttl_ms",
];

/// Fields whose content is the caller's own: nothing in it is a field of the contract.
const FREE: [&str; 7] =
    ["bindings", "constraints", "custom", "details", "metadata", "scope", "task_profile"];

/// Fields that hold ids, which were shorter in the first edition.
const NAMES: [&str; 9] = [
    "allowed_step_ids",
    "default_worker_pool_id",
    "depends_on_step_ids",
    "handler",
    "step_id",
    "task_id",
    "wal_filename",
    "wal_name",
    "worker_pool_id",
];

/// Limits of a retry policy that the second edition lifts by a word.
const LIMITS: [&str; 4] = ["max_attempts", "max_lost", "schedule_to_start_ms", "start_to_close_ms"];

/// Refuses a command that names something that the log may not hold yet.
pub(super) fn check<C: Serialize>(cx: &Cx<'_>, command: &C) -> Result<(), Rejection> {
    if cx.limits.edition >= Rules::Second {
        return Ok(());
    }
    let told = serde_json::to_value(command).unwrap_or_default();
    new_in(&told, "").map_or(Ok(()), |name| Err(refusal(name)))
}

impl Command {
    /// The same for a command on a Task.
    pub(super) fn check_edition(&self, cx: &Cx<'_>) -> Result<(), Rejection> {
        if cx.limits.edition >= Rules::Second {
            return Ok(());
        }
        match self {
            Self::TaskFact(_) => Err(refusal("task_fact")),
            Self::TaskComplete(given) if given.output.is_some() => Err(refusal("output")),
            Self::TaskUpdateStep(report) if cx.caller.role == Role::Worker => {
                check(cx, &report.output).and_then(|()| check(cx, &report.artifacts))
            }
            _ => check(cx, self),
        }
    }
}

/// The same for a create. `taken_over` is no field of it (RETRY-15).
pub(super) fn check_create(
    cx: &Cx<'_>,
    given: &CreateTask,
    default_pool: &PoolId,
) -> Result<(), Rejection> {
    if cx.limits.edition >= Rules::Second {
        return Ok(());
    }
    if !given.facts.is_empty() {
        return Err(refusal("task_fact"));
    }
    if !given.taken_over.is_empty() {
        return Err(refusal("keep_completed"));
    }
    if default_pool.as_str().len() > FIRST_NAME_MAX {
        return Err(refusal("default_worker_pool_id"));
    }
    check(cx, given)
}

/// Refuses a log from elsewhere of which something is of the second edition, if the log into which it would be
/// written may not hold that.
///
/// # Errors
/// `unavailable` with the feature.
pub fn check_log<'a>(
    log: impl IntoIterator<Item = &'a Commit>,
    may_hold: impl Fn(&str) -> bool,
) -> Result<(), Rejection> {
    if may_hold(EDITION_2) {
        return Ok(());
    }
    for commit in log {
        if commit.command_digest.is_some_and(|digest| digest.form != DigestForm::First) {
            return Err(refusal("command_digest"));
        }
        commit.events.iter().try_for_each(check_event)?;
    }
    Ok(())
}

fn check_event(event: &Event) -> Result<(), Rejection> {
    let name = match &event.body {
        Body::TaskCreated(created) if created.rules >= Rules::Second => Some("rules"),
        Body::TaskFact(_) | Body::StepTakenOver(_) => Some(event.body.event_type()),
        Body::RunDispatched(run) if run.expires_at.is_none() => Some("ttl_ms"),
        Body::StepFailed(failed) if failed.retry_after_ms.is_some() => Some("retry_after_ms"),
        Body::StepCompleted(completed) if completed.adopted => Some("adopted"),
        _ => None,
    };
    let told = || serde_json::to_value(&event.body).unwrap_or_default();
    match name {
        Some(name) => Err(refusal(name)),
        None => new_in(&told(), "").map_or(Ok(()), |name| Err(refusal(name))),
    }
}

fn refusal(name: &str) -> Rejection {
    let message = format!(
        "not all nodes of this cluster know {name} yet; leave it out, or try again when all are of the newest version"
    );
    Rejection::new(Code::Unavailable, message).with("feature", EDITION_2)
}

/// The first name in a command that only the second edition knows; `field` is the one that holds this part.
fn new_in<'a>(told: &'a Json, field: &'a str) -> Option<&'a str> {
    match told {
        Json::Object(fields) => fields.iter().find_map(|(name, value)| match name.as_str() {
            "constraints" => value.get(DEADLINE_HARD).map(|_| DEADLINE_HARD),
            "encoding" if *value != "base64" => Some("encoding"),
            name if FREE.contains(&name) => None,
            name if FIELDS.contains(&name) => Some(name),
            name => new_in(value, name),
        }),
        Json::Array(items) => items.iter().find_map(|item| new_in(item, field)),
        Json::String(text) => {
            let is_long = NAMES.contains(&field) && text.len() > FIRST_NAME_MAX;
            let is_word = LIMITS.contains(&field);
            let is_blob = field == "ref" && text.starts_with(Blob::PREFIX);
            // Of a Task that is created in parts (EVOLVE-04).
            let is_digest = field == "digest" && text.starts_with("2:");
            (is_long || is_word || is_blob || is_digest).then_some(field)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// EVOLVE-02: what only the second edition has is found wherever it stands, and nothing in what is the
    /// caller's own.
    #[test]
    fn what_is_new_is_found_wherever_it_stands() {
        let long = "x".repeat(FIRST_NAME_MAX + 1);
        let blob = format!("{}{}", Blob::PREFIX, "0".repeat(64));
        for (told, found) in [
            (json!({"steps": [{"step_id": "a", "inputs_from": ["b"]}]}), Some("inputs_from")),
            (json!({"constraints": {"deadline_hard": false}}), Some("deadline_hard")),
            (json!({"steps": [{"step_id": long}]}), Some("step_id")),
            (json!({"retry_policy": {"max_attempts": "unlimited"}}), Some("max_attempts")),
            (json!({"output": {"data": "AA==", "encoding": ["zstd"]}}), Some("encoding")),
            (json!({"output": {"ref": blob}}), Some("ref")),
            (json!({"creation": {"digest": "2:00", "steps": 9}}), Some("digest")),
            (json!({"output": {"data": "AA==", "encoding": "base64"}}), None),
            (json!({"metadata": {"ext": 1}, "constraints": {"ttl_ms": 1}, "title": long}), None),
            (json!({"retry_policy": {"max_attempts": 3, "max_lost": null}}), None),
        ] {
            assert_eq!(new_in(&told, ""), found, "{told}");
        }
    }
}
