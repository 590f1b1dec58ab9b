//! What every attack needs.
//!
//! [`stage`] is where it takes place, [`victim`] the one who must not notice it, and [`judge`] holds what happened
//! against the law. [`asker`] and [`flood`] keep requests under way, [`raw`] and [`http`] say what no library would;
//! `mcp` and `macp` speak these protocols.

pub(crate) mod asker;
pub(crate) mod flood;
pub(crate) mod http;
pub(crate) mod judge;
#[cfg(feature = "grpc")]
pub(crate) mod macp;
pub(crate) mod mcp;
pub(crate) mod raw;
pub(crate) mod stage;
pub(crate) mod victim;
