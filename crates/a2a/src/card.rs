//! The card of an agent: what it is called, what it can do, and how it is reached.

use serde::{Deserialize, Serialize};

use super::{A2aMetadata, is_off};

/// The card.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aAgentCard {
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// Where and how it is reached, the preferred way first.
    pub supported_interfaces: Vec<A2aInterface>,
    /// Who provides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<A2aProvider>,
    /// Its version.
    pub version: String,
    /// Where it is described.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub documentation_url: Option<String>,
    /// What of the protocol it can do.
    pub capabilities: A2aCapabilities,
    /// Ways to prove who one is, by their names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_schemes: Option<A2aMetadata>,
    /// Which of these ways are asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub security_requirements: Vec<A2aMetadata>,
    /// Media types that it takes.
    pub default_input_modes: Vec<String>,
    /// Media types that it gives.
    pub default_output_modes: Vec<String>,
    /// What it does.
    pub skills: Vec<A2aSkill>,
    /// Its picture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
    /// Who vouches for the card.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<A2aCardSignature>,
}

/// A signature of a card (RFC 7515).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct A2aCardSignature {
    /// The header that is signed with the card: JSON in base64url.
    pub protected: String,
    /// The signature in base64url.
    pub signature: String,
    /// A header that is not signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<A2aMetadata>,
}

/// An address, and what is spoken there.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aInterface {
    /// The address.
    pub url: String,
    /// `JSONRPC`, `HTTP+JSON` or `GRPC`.
    pub protocol_binding: String,
    /// What a caller names as the tenant in its requests there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// `1.0`.
    pub protocol_version: String,
}

/// Who provides an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct A2aProvider {
    /// The organization.
    pub organization: String,
    /// Its address.
    pub url: String,
}

/// What of the protocol an agent can do.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aCapabilities {
    /// Whether it tells what happens while it happens.
    pub streaming: bool,
    /// Whether it calls back.
    pub push_notifications: bool,
    /// Extensions of the protocol.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<A2aExtension>,
    /// Whether callers that have proved who they are get more of a card.
    #[serde(skip_serializing_if = "is_off")]
    pub extended_agent_card: bool,
}

/// An extension of the protocol that an agent knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct A2aExtension {
    /// Its name.
    pub uri: String,
    /// How the agent uses it, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether callers have to know it.
    #[serde(default, skip_serializing_if = "is_off")]
    pub required: bool,
    /// Anything beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<A2aMetadata>,
}

/// Something that an agent does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct A2aSkill {
    /// Unique among those of the agent.
    pub id: String,
    /// For people.
    pub name: String,
    /// For people.
    pub description: String,
    /// Words by which it is found.
    pub tags: Vec<String>,
    /// What one may say to have it done.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Media types that it takes, if others than the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// Media types that it gives, if others than the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A card without signatures does not name them, and a signature comes and goes unchanged.
    #[test]
    fn a_card_carries_its_signatures() {
        let card = A2aAgentCard {
            name: "a".into(),
            description: "b".into(),
            supported_interfaces: Vec::new(),
            provider: None,
            version: "1".into(),
            documentation_url: None,
            capabilities: A2aCapabilities::default(),
            security_schemes: None,
            security_requirements: Vec::new(),
            default_input_modes: Vec::new(),
            default_output_modes: Vec::new(),
            skills: Vec::new(),
            icon_url: None,
            signatures: Vec::new(),
        };
        let written = serde_json::to_value(&card).unwrap();
        assert!(written.get("signatures").is_none(), "{written}");
        let given = json!([
            {"protected": "eyJhbGciOiJFUzI1NiJ9", "signature": "QFdk", "header": {"kid": "k1"}},
            {"protected": "eyJhbGciOiJFUzI1NiJ9", "signature": "QFdk"},
        ]);
        let signatures = serde_json::from_value(given.clone()).unwrap();
        let signed = serde_json::to_value(A2aAgentCard { signatures, ..card }).unwrap();
        assert_eq!(signed["signatures"], given);
    }
}
