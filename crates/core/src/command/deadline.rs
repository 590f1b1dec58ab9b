//! The deadline of a Task: a time or, in a create, a duration that counts from the creation
//! (POL-08, POL-11).

use serde_json::Value;

use super::RetryEnded;
use crate::id::Millis;
use crate::record::{DEADLINE_AT, DEADLINE_HARD, DEADLINE_MS, Object, TaskSpec};
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
    if given(constraints, DEADLINE_HARD).is_some_and(|hard| !hard.is_boolean()) {
        let message = "deadline_hard is true or false";
        return Err(Rejection::invalid("constraints.deadline_hard", message));
    }
    match given(constraints, DEADLINE_AT) {
        Some(at) if !at.is_i64() => Err(Rejection::invalid(
            "constraints.deadline_at",
            "deadline_at is a whole number of milliseconds since 1970",
        )),
        _ => Ok(()),
    }
}

/// RETRY-12: the constraints of a Task that is made again: the command gives a deadline, or it is as far
/// from the creation as it was, or it is a hard one and stays.
pub(super) fn again(spec: &TaskSpec, created_at: Millis, how: &RetryEnded) -> Option<Object> {
    let mut constraints = spec.constraints.clone().unwrap_or_default();
    if how.deadline_at.is_some() || how.deadline_ms.is_some() {
        constraints.remove(DEADLINE_AT);
        how.deadline_at.map(|at| constraints.insert(DEADLINE_AT.into(), at.into()));
        how.deadline_ms.map(|ms| constraints.insert(DEADLINE_MS.into(), ms.into()));
    } else if let Some(at) = spec.deadline_at().filter(|_| !spec.is_deadline_hard()) {
        constraints.remove(DEADLINE_AT);
        let after = u64::try_from(at.saturating_sub(created_at)).ok().filter(|ms| *ms > 0);
        after.map(|ms| constraints.insert(DEADLINE_MS.into(), ms.into()));
    }
    Some(constraints).filter(|constraints| !constraints.is_empty())
}

/// RETRY-12: a hard deadline that has passed would end the new Task at once.
pub(super) fn not_passed(spec: &TaskSpec, now: Millis) -> Result<(), Rejection> {
    match spec.deadline_at().filter(|at| spec.is_deadline_hard() && *at <= now) {
        Some(at) => Err(Rejection::invalid(
            "deadline_at",
            "the hard deadline of the task has passed; give another",
        )
        .with("passed_at", at)),
        None => Ok(()),
    }
}

fn given<'a>(constraints: Option<&'a Object>, key: &str) -> Option<&'a Value> {
    constraints?.get(key).filter(|value| !value.is_null())
}
