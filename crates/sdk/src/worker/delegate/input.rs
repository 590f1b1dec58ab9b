//! The input of the handler, and the messages that are made of it.

use serde::Deserialize;
use tenure_a2a::{A2aMessage, A2aMetadata, A2aPart, A2aRole, A2aSend, A2aSendConfiguration};
use tenure_core::id::Ref;
use uuid::Uuid;

use crate::a2a::PeerVersion;
use crate::secrets::SecretRef;
use crate::worker::context::StepContext;

/// What the handler is to do.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Delegation {
    /// The address of the agent or of its card.
    pub(super) card: String,
    message: GivenMessage,
    /// The secret that the agent is sent as a token; none: the one that the worker has for its host.
    #[serde(default)]
    pub(super) token: Option<SecretRef>,
    /// The version to speak; none: the latest one that both know.
    #[serde(default)]
    pub(super) version: Option<PeerVersion>,
    /// Media types that the Step takes as results.
    #[serde(default)]
    accepted_output_modes: Vec<String>,
}

/// The message: a text, or parts with what stands beside them.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum GivenMessage {
    Text(String),
    Whole(GivenParts),
}

/// The fields of a message of A2A 1.0 that a Step may give.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GivenParts {
    parts: Vec<A2aPart>,
    #[serde(default)]
    context_id: Option<String>,
    #[serde(default)]
    metadata: Option<A2aMetadata>,
    #[serde(default)]
    extensions: Vec<String>,
    #[serde(default)]
    reference_task_ids: Vec<String>,
}

/// Makes ids that are the same in each Attempt of a Step.
#[derive(Debug, Clone)]
pub(super) struct StepIds {
    step: String,
}

impl StepIds {
    pub(super) fn of(ctx: &StepContext) -> Self {
        Self { step: format!("{}\0{}\0{}", ctx.session_id(), ctx.task_id(), ctx.step_id()) }
    }

    /// The id of this name.
    pub(super) fn id(&self, name: &str) -> String {
        let whole = format!("tenure-a2a\0{}\0{name}", self.step);
        Uuid::new_v5(&Uuid::NAMESPACE_OID, whole.as_bytes()).to_string()
    }
}

/// An answer of a person, with an id of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PersonsAnswer {
    pub(super) id: String,
    pub(super) text: String,
}

/// The answers that a Step was given, oldest first.
pub(super) fn answers(refs: &[Ref], ids: &StepIds) -> Vec<PersonsAnswer> {
    let answer = |reference: &Ref| {
        let text = crate::answer::of_ref(reference)?;
        Some(PersonsAnswer { id: ids.id(reference.as_str()), text })
    };
    refs.iter().filter_map(answer).collect()
}

impl Delegation {
    /// The message that begins a task, for the so-manyth time from 0: after a failure the work begins anew.
    pub(super) fn first(&self, ids: &StepIds, round: u32) -> A2aSend {
        let message = A2aMessage {
            message_id: ids.id(&format!("message {round}")),
            context_id: Some(ids.id("context")),
            role: A2aRole::User,
            ..A2aMessage::default()
        };
        let message = match &self.message {
            GivenMessage::Text(text) => A2aMessage { parts: vec![A2aPart::text(text)], ..message },
            GivenMessage::Whole(given) => A2aMessage {
                parts: given.parts.clone(),
                context_id: given.context_id.clone().or(message.context_id),
                metadata: given.metadata.clone(),
                extensions: given.extensions.clone(),
                reference_task_ids: given.reference_task_ids.clone(),
                ..message
            },
        };
        self.asked(message)
    }

    /// The message that answers a question of the agent.
    pub(super) fn answering(
        &self,
        ids: &StepIds,
        task: &str,
        context: &str,
        said: &[PersonsAnswer],
    ) -> A2aSend {
        let names: Vec<&str> = said.iter().map(|it| &*it.id).collect();
        self.asked(A2aMessage {
            message_id: ids.id(&format!("answer {}", names.join(" "))),
            task_id: Some(task.to_owned()),
            context_id: Some(context.to_owned()),
            role: A2aRole::User,
            parts: said.iter().map(|it| A2aPart::text(&*it.text)).collect(),
            ..A2aMessage::default()
        })
    }

    /// The agent answers at once: its task is then known, and can be followed.
    fn asked(&self, message: A2aMessage) -> A2aSend {
        let configuration = A2aSendConfiguration {
            accepted_output_modes: self.accepted_output_modes.clone(),
            return_immediately: true,
            ..A2aSendConfiguration::default()
        };
        A2aSend { message, configuration: Some(configuration), metadata: None }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn ids(step: &str) -> StepIds {
        StepIds { step: step.to_owned() }
    }

    fn read(input: Json) -> Result<Delegation, serde_json::Error> {
        serde_json::from_value(input)
    }

    /// A restart of the worker sends the same message, and the work of another Step or after a failure another one.
    #[test]
    fn the_ids_of_a_message_are_those_of_its_step() {
        let input = read(json!({"card": "http://one", "message": "hello"})).unwrap();
        let first = input.first(&ids("a"), 0).message;
        assert_eq!(input.first(&ids("a"), 0).message, first);
        assert_eq!((first.text(), first.role), ("hello".to_owned(), A2aRole::User));
        let again = input.first(&ids("a"), 1).message;
        assert_ne!(again.message_id, first.message_id);
        assert_eq!(again.context_id, first.context_id);
        assert_ne!(input.first(&ids("b"), 0).message.message_id, first.message_id);
    }

    /// A message may be given whole, but its ids are made here.
    #[test]
    fn a_message_may_be_given_whole() {
        let parts = json!([{"data": {"a": 1}}, {"url": "https://one/a.png"}]);
        let message = json!({"parts": parts, "contextId": "trip", "referenceTaskIds": ["t"]});
        let first =
            read(json!({"card": "http://one", "message": message})).unwrap().first(&ids("a"), 0);
        assert_eq!(serde_json::to_value(&first.message.parts).unwrap(), parts);
        assert_eq!(first.message.context(), Some("trip"));
        for wrong in [
            json!({"card": "http://one"}),
            json!({"card": "http://one", "message": {"parts": [], "messageId": "m"}}),
            json!({"card": "http://one", "message": "a", "version": "2.0"}),
            json!({"card": "http://one", "message": "a", "token": "t"}),
            json!({"card": "http://one", "message": "a", "token": {"secret": "../t"}}),
        ] {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
