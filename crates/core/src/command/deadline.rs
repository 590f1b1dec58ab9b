//! The deadline of a Task: a time or, in a create, a duration that counts from the creation
//! (POL-08, POL-11).

use serde_json::Value;

use crate::id::Millis;
use crate::record::{DEADLINE_AT, DEADLINE_MS, Object};
use crate::reject::Rejection;

/// The constraints of a create as the Task stores them, with the deadline as a time.
pub(super) fn kept(constraints: Option<&Object>, created_at: Millis) -> Option<Object> {
    let mut constraints = constraints?.clone();
    let after = constraints.remove(DEADLINE_MS);
    if let Some(ms) = after.as_ref().and_then(Value::as_u64) {
        let at = created_at.saturating_add_unsigned(ms);
        constraints.insert(DEADLINE_AT.into(), at.into());
    }
    Some(constraints)
}

/// K3: a create gives the deadline as a time or as a duration, not both.
pub(super) fn first(constraints: Option<&Object>) -> Result<(), Rejection> {
    let wrong = |message| Err(Rejection::invalid("constraints.deadline_ms", message));
    match (given(constraints, DEADLINE_AT), given(constraints, DEADLINE_MS)) {
        (Some(_), Some(_)) => wrong("deadline_at and deadline_ms are both given; leave one out"),
        (_, Some(ms)) if !ms.is_u64() => wrong("deadline_ms is a whole number of milliseconds"),
        _ => at(constraints),
    }
}

/// K3: for a Task that exists, only a time may be given as the deadline.
pub(super) fn later(constraints: &Object) -> Result<(), Rejection> {
    if given(Some(constraints), DEADLINE_MS).is_some() {
        let message = "deadline_ms counts from the creation of a task; give deadline_at here";
        return Err(Rejection::invalid("constraints.deadline_ms", message));
    }
    at(Some(constraints))
}

fn at(constraints: Option<&Object>) -> Result<(), Rejection> {
    match given(constraints, DEADLINE_AT) {
        Some(at) if !at.is_i64() => Err(Rejection::invalid(
            "constraints.deadline_at",
            "deadline_at is a whole number of milliseconds since 1970",
        )),
        _ => Ok(()),
    }
}

fn given<'a>(constraints: Option<&'a Object>, key: &str) -> Option<&'a Value> {
    constraints?.get(key).filter(|value| !value.is_null())
}
