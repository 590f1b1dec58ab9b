//! The messages of A2A 1.0 as JSON: own types, after `specification/a2a.proto` of the protocol, and their form in
//! 0.3 ([`v03`]). Both the agents of a gateway and the client of other agents use them; nothing here sends or waits.
//!
//! Readers pass over fields that they do not know, and take what callers send also under the names of the
//! definition, such as `context_id`. A field without a value is not written, and one that is null is read as if it were
//! not there. ProtoJSON asks for all of this.

mod card;
mod message;
mod push;
mod request;
mod task;
mod time;
pub mod v03;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value as Json};

pub use self::card::{
    A2aAgentCard, A2aCapabilities, A2aCardSignature, A2aExtension, A2aInterface, A2aProvider,
    A2aSkill,
};
pub use self::message::{A2aContent, A2aMessage, A2aPart, A2aRole};
pub use self::push::{A2aAuthentication, A2aPushConfig, A2aPushList, A2aPushName, A2aPushPage};
pub use self::request::{
    A2aCancel, A2aGet, A2aList, A2aSend, A2aSendConfiguration, A2aSubscribe, A2aTaskPage,
};
pub use self::task::{
    A2aArtifact, A2aArtifactUpdate, A2aReply, A2aStatusUpdate, A2aTask, A2aTaskStatus, A2aUpdate,
    has_ended, is_interrupted, is_settled, state_from_wire, state_to_wire,
};
pub use self::time::{from_timestamp, to_http_date, to_timestamp};

/// An open map of JSON values.
pub type A2aMetadata = Map<String, Json>;

/// Reads a field that may be null, and then has its default value.
fn or_default<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

/// Whether a flag has its default value, and so is not written.
#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
const fn is_off(flag: &bool) -> bool {
    !*flag
}
