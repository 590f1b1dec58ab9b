//! Agents elsewhere that speak A2A: a client of versions 1.0 and 0.3.
//!
//! | Module | What it is |
//! |---|---|
//! | `address` | the addresses of agents, and which hosts may be reached |
//! | [`card`] | what the card of an agent says, and which version and binding are spoken with it |
//! | `ask` | the requests, as each version and binding writes them |
//! | `exchange` | sends one request, and reads its answer within limits |
//! | [`client`] | [`PeerClient`]: sends messages, and reads and cancels tasks |
//! | [`follow`] | follows a task: by a stream that is resumed, and by asking |
//!
//! No redirect is followed, an answer has a longest size, and every wait an end. Of the two bindings of 0.3 only
//! JSON-RPC is spoken, as programs write HTTP+JSON of 0.3 in two different ways.

mod address;
mod ask;
pub mod card;
pub mod client;
mod error;
mod exchange;
pub mod follow;

pub use card::{PeerBinding, PeerCard, PeerInterface, PeerVersion};
pub use client::{PeerClient, PeerSettings};
pub use error::{PeerError, PeerReason};
pub use follow::{PeerFollower, PeerUpdates};
pub use tenure_a2a::*;
