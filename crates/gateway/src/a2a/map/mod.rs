//! How what Tenure keeps becomes what A2A shows, and the other way round. Everything here is a pure function:
//! no clock, no network, no state beside that of the log (A2A-01).
//!
//! ```text
//!  message ─► input ─► a Task, or a reference   commits of its log ─► fold ─► task and updates
//!                                                values, artifacts ─► parts
//! ```
//!
//! The tables of states are in the core ([`tenure_core::view::gateway`]).

mod artifact;
mod fold;
mod input;
mod parts;
mod stored;
mod weights;

use std::collections::HashMap;
use std::sync::Arc;

use tenure_core::id::BlobHash;

pub(crate) use self::fold::{FoldError, TaskFold};
pub(crate) use self::input::{AGENT, CALLER, CONTEXT, NewTask, key_of};
pub(crate) use self::parts::standard_base64;
pub(crate) use self::stored::{StoredMessage, stored};
pub(crate) use self::weights::{KEPT_MAX, KEPT_WHILE_FOLLOWED};
pub(crate) use crate::a2a::wire::{has_ended, is_interrupted, is_settled};

/// The bytes of blobs that were read.
pub(crate) type BlobBytes = HashMap<BlobHash, Arc<[u8]>>;
