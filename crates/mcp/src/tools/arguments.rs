//! The arguments of a call: those around the input, and the input.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use tenure_core::Rejection;
use tenure_core::id::{CommandId, TaskId};
use tenure_wire::bus::VERSION;
use tenure_wire::bus::call::CALL_MAX;
use tenure_wire::bus::request::Request;
use uuid::Uuid;

use super::set::{MAX_BYTES, MadeTool, OF_WRITES, TASK_ID};
use crate::result::{BYTES_DEFAULT, BYTES_MAX, BYTES_MIN};

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arguments {
    /// How long the answer may be.
    pub(crate) max_bytes: usize,
    given: Map<String, Json>,
}

impl Arguments {
    /// Reads how long the answer may be.
    ///
    /// # Errors
    /// `validation_error`: it is no number in its range.
    pub(crate) fn read(given: Option<Map<String, Json>>) -> Result<Self, Rejection> {
        let mut given = given.unwrap_or_default();
        let max_bytes = match given.remove(MAX_BYTES) {
            None | Some(Json::Null) => BYTES_DEFAULT,
            Some(most) => {
                let bytes = most.as_u64().and_then(|most| usize::try_from(most).ok());
                bytes.filter(|most| (BYTES_MIN..=BYTES_MAX).contains(most)).ok_or_else(|| {
                    Rejection::invalid(
                        MAX_BYTES,
                        format!("max_bytes is {BYTES_MIN} to {BYTES_MAX}"),
                    )
                })?
            }
        };
        Ok(Self { max_bytes, given })
    }

    /// Gives a command an id, if it has none, so that a repetition can name it.
    ///
    /// # Errors
    /// `validation_error`: the id has another form.
    pub(crate) fn with_command_id(mut self) -> Result<(Self, CommandId), Rejection> {
        let [name, ..] = OF_WRITES;
        let id = match self.given.get(name) {
            None | Some(Json::Null) => CommandId::new(Uuid::now_v7().to_string())?,
            Some(Json::String(id)) => CommandId::new(id.as_str())?,
            Some(_) => return Err(Rejection::invalid(name, "command_id is a text")),
        };
        self.given.insert(name.into(), id.as_str().into());
        Ok((self, id))
    }

    /// The request of the bus for an operation: it reads the arguments as it reads those of every client, and names
    /// each wrong field.
    ///
    /// # Errors
    /// `validation_error`: what is wrong with which argument.
    pub(crate) fn request(
        mut self,
        tool: &MadeTool,
        operation: &str,
    ) -> Result<Request, Rejection> {
        let mut message = Map::new();
        message.insert("v".into(), VERSION.into());
        message.insert("operation".into(), operation.into());
        if tool.is_on_task {
            let task = self.task()?;
            message.insert(TASK_ID.into(), task.as_str().into());
        }
        if tool.writes {
            for name in OF_WRITES {
                if let Some(value) = self.given.remove(name).filter(|it| !it.is_null()) {
                    message.insert(name.into(), value);
                }
            }
        }
        // Models send `null` for what they leave out.
        self.given.retain(|_, value| !value.is_null());
        message.insert("input".into(), self.given.into());
        let packed = rmp_serde::to_vec(&Json::Object(message));
        let packed = packed.map_err(|error| Rejection::invalid("arguments", error.to_string()))?;
        Request::read_within(CALL_MAX, &packed).map_err(placed)
    }

    /// Takes the Task out of the arguments.
    ///
    /// # Errors
    /// `validation_error`: it is missing, or no id.
    pub(crate) fn task(&mut self) -> Result<TaskId, Rejection> {
        match self.given.remove(TASK_ID) {
            None | Some(Json::Null) => Err(Rejection::invalid(TASK_ID, "task_id is missing")),
            Some(Json::String(id)) => Ok(TaskId::new(id.as_str())?),
            Some(_) => Err(Rejection::invalid(TASK_ID, "task_id is a text")),
        }
    }

    /// The Task that is named, if one is, and the rest, as the input of an operation of a worker.
    ///
    /// # Errors
    /// `validation_error`: the Task is no text.
    pub(crate) fn of_run(mut self) -> Result<(Option<String>, Map<String, Json>), Rejection> {
        self.given.retain(|_, value| !value.is_null());
        let task = match self.given.remove(TASK_ID) {
            None => None,
            Some(Json::String(id)) => Some(id),
            Some(_) => return Err(Rejection::invalid(TASK_ID, "task_id is a text")),
        };
        Ok((task, self.given))
    }

    /// The rest of the arguments, as the input of a tool that is no operation.
    ///
    /// # Errors
    /// `validation_error`: what is wrong with them.
    pub(crate) fn input<T: DeserializeOwned>(mut self) -> Result<T, Rejection> {
        self.given.retain(|_, value| !value.is_null());
        serde_json::from_value(Json::Object(self.given)).map_err(|error| {
            let message = error.to_string();
            let named = message.split('`').nth(1).unwrap_or("arguments").to_owned();
            Rejection::invalid(&named, message)
        })
    }

    /// Whether there is an argument of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.get(name).is_some_and(|value| !value.is_null())
    }

    /// Adds an argument that the tool itself gives.
    pub(crate) fn add(&mut self, name: &str, value: Json) {
        self.given.insert(name.into(), value);
    }

    /// The arguments of these names, and the others.
    pub(crate) fn split(self, names: &[&str]) -> (Self, Self) {
        let max_bytes = self.max_bytes;
        let is_named = |(name, _): &(String, Json)| names.contains(&name.as_str());
        let (named, others) = self.given.into_iter().partition(is_named);
        (Self { max_bytes, given: named }, Self { max_bytes, given: others })
    }
}

/// A refusal of the input as a whole, in the words of a caller of tools.
fn placed(refused: Rejection) -> Rejection {
    if !refused.names_field("input") {
        return refused;
    }
    let why =
        refused.message.split_once("`input`: ").map_or(refused.message.as_str(), |(_, why)| why);
    if let Some(name) = why.strip_prefix("missing field `").and_then(|it| it.split('`').next()) {
        return Rejection::invalid(name, format!("{name} is missing"));
    }
    Rejection::invalid("arguments", format!("the arguments cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::set::find;
    use super::*;

    fn arguments(given: Json) -> Result<Arguments, Rejection> {
        Arguments::read(given.as_object().cloned())
    }

    fn field(refused: &Rejection) -> &str {
        refused.details["field"].as_str().unwrap()
    }

    #[test]
    fn the_length_of_an_answer_is_taken_at_its_limits_and_refused_beyond() {
        for most in [BYTES_MIN, BYTES_MAX] {
            assert_eq!(arguments(json!({ "max_bytes": most })).unwrap().max_bytes, most);
        }
        for most in
            [json!(BYTES_MIN - 1), json!(BYTES_MAX + 1), json!("9000"), json!(-1), json!(1.5)]
        {
            let refused = arguments(json!({ "max_bytes": most })).unwrap_err();
            assert_eq!(field(&refused), "max_bytes", "{most}");
        }
        assert_eq!(arguments(json!({ "max_bytes": null })).unwrap().max_bytes, BYTES_DEFAULT);
    }

    #[test]
    fn a_wrong_argument_is_named() {
        let tool = find("task_cancel").unwrap();
        for (given, expected) in [
            (json!({}), "task_id"),
            (json!({ "task_id": 7 }), "task_id"),
            (json!({ "task_id": "UPPER" }), "task_id"),
            (json!({ "task_id": "t", "wait": "yes" }), "wait"),
            (json!({ "task_id": "t", "unknown": 1 }), "unknown"),
            (json!({ "task_id": "t", "reason": { "message": 1 } }), "reason.message"),
            (json!({ "task_id": "t", "expected_version": "x" }), "expected_version"),
        ] {
            let refused =
                arguments(given.clone()).unwrap().request(tool, "agent.task_cancel").unwrap_err();
            assert_eq!(field(&refused), expected, "{given}: {refused}");
        }
        let nulls = json!({ "task_id": "t", "reason": null, "expected_version": null });
        arguments(nulls).unwrap().request(tool, "agent.task_cancel").unwrap();
    }
}
