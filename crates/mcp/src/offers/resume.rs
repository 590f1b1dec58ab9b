//! [`RequestState`]: what a client brings back with its answers when it repeats a call (MRTR).
//!
//! It names the Task, and is sealed: with what the caller does not see of the Task, so that every gateway opens it
//! without a secret of its own, and for this caller, this tool and these arguments alone.

use std::time::Duration;

use rmcp::model::{RequestStateCodec, SealOptions};
use serde_json::{Map, Value as Json};
use tenure_core::id::{AgentId, TaskId};
use tenure_core::view::TaskView;

use super::start::hash_of;

/// How long a question may be answered by repeating the call.
const VALID_FOR: Duration = Duration::from_secs(7 * 24 * 3_600);

/// For what a seal is made: nothing else that is hashed here begins like this.
const DOMAIN: &str = "tenure mcp request state 1";

/// What binds a state to its call.
#[derive(Debug)]
pub(super) struct RequestState<'a> {
    pub(super) caller: &'a AgentId,
    pub(super) tool: &'a str,
    pub(super) arguments: &'a Map<String, Json>,
}

impl RequestState<'_> {
    /// The state of a call that asks for something.
    pub(super) fn seal(&self, task: &TaskView) -> Option<String> {
        let (id, attempts) = (&task.task.task_id, task.attempts.len());
        let named = format!("{id}.{attempts}");
        let context = self.context();
        let options = SealOptions::new().associated_data(context.as_bytes()).ttl(VALID_FOR);
        let sealed = codec(task, attempts)?.seal_with(named.as_bytes(), &options);
        Some(format!("{named}.{sealed}"))
    }

    /// The Task that a state names, which is to be [opened](Self::open) with that Task.
    pub(super) fn named(state: &str) -> Option<TaskId> {
        TaskId::new(state.split_once('.')?.0).ok()
    }

    /// Whether a state is one that was sealed for this call of this Task, not too long ago.
    pub(super) fn open(&self, state: &str, task: &TaskView) -> bool {
        let Some((id, rest)) = state.split_once('.') else { return false };
        let Some((attempts, sealed)) = rest.split_once('.') else { return false };
        let Ok(count) = attempts.parse::<usize>() else { return false };
        if id != task.task.task_id.as_str() || count > task.attempts.len() {
            return false;
        }
        let Some(codec) = codec(task, count) else { return false };
        let opened = codec.open_with(sealed, self.context().as_bytes());
        opened.is_ok_and(|named| named == format!("{id}.{attempts}").into_bytes())
    }

    fn context(&self) -> String {
        let arguments = Json::Object(self.arguments.clone()).to_string();
        hash_of(&[DOMAIN, self.caller.as_str(), self.tool, &arguments])
    }
}

/// What seals for a Task. The key is made of the ids of the Attempts that there had been, which the scheduler has drawn
/// at random; it is as long as keys have to be.
fn codec(task: &TaskView, attempts: usize) -> Option<RequestStateCodec> {
    let about = &task.task;
    let made_at = about.created_at.to_string();
    let ids = task.attempts.iter().take(attempts).map(|attempt| attempt.attempt_id.to_string());
    let ids: Vec<String> = ids.collect();
    let parts = [DOMAIN, about.session_id.as_str(), about.task_id.as_str(), &made_at];
    let parts: Vec<&str> = parts.into_iter().chain(ids.iter().map(String::as_str)).collect();
    RequestStateCodec::try_new(hash_of(&parts).into_bytes()).ok()
}
