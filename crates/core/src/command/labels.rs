//! Labels: names and values by which listings find a Task (LABEL-01).

use alloc::format;
use alloc::string::String;

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::record::Labels;
use crate::reject::Rejection;

/// LABEL-01: how many labels a Task has, and how long they are, at most.
const LABELS_MAX: usize = 16;
const LABEL_KEY_MAX: usize = 63;
const LABEL_VALUE_MAX: usize = 128;

/// The schema of labels (LABEL-01).
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": LABELS_MAX,
        "propertyNames": { "pattern": format!("^[^=]{{1,{LABEL_KEY_MAX}}}$") },
        "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE_MAX },
    })
}

/// LABEL-01: the labels of a Task, or those that a list asks for. No key has a `=`, so `key=value` is clear.
pub(crate) fn check(given: &Labels) -> Result<(), Rejection> {
    let wrong = |limit: usize, message: String| {
        Err(Rejection::invalid("labels", message).with("limit", limit))
    };
    if given.len() > LABELS_MAX {
        return wrong(LABELS_MAX, format!("{} labels; at most {LABELS_MAX}", given.len()));
    }
    for (key, value) in given {
        let (long, short) = (key.chars().count(), value.chars().count());
        if !(1..=LABEL_KEY_MAX).contains(&long) || key.contains('=') {
            let form = format!("a key has 1 to {LABEL_KEY_MAX} characters and no `=`");
            return wrong(LABEL_KEY_MAX, format!("{form}, not {long}: {key:.80}"));
        }
        if short > LABEL_VALUE_MAX {
            let message =
                format!("the value of {key} has {short} characters; at most {LABEL_VALUE_MAX}");
            return wrong(LABEL_VALUE_MAX, message);
        }
    }
    Ok(())
}
