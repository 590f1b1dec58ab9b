//! A creation in parts: a Task that is too long for one message comes as a draft with some of its Steps
//! and patches that add the others (IDEM-07 to IDEM-09).

use alloc::format;

use serde::{Deserialize, Serialize};

use crate::id::{BadId, CommandId, Digest};
use crate::status::TaskStatus;
use crate::table::Pos;
use crate::task::Head;

/// What a Task that comes in parts is when it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// Of the whole, made by its creator: the same for the same content, another for another.
    pub digest: Digest,
    /// It stays a draft when it is whole; else it begins then.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub draft: bool,
    /// Steps that the whole has.
    pub steps: Pos,
}

impl Creation {
    /// The id of the command that brings a part, from 1: the same however often it is sent.
    ///
    /// # Errors
    /// Never: it is short enough.
    pub fn part(&self, number: usize) -> Result<CommandId, BadId> {
        CommandId::new(format!("{}/{number}", self.digest))
    }

    /// Whether this is the id of one of its parts.
    pub(crate) fn has_part(&self, id: &CommandId) -> bool {
        let rest = id.as_str().strip_prefix(self.digest.hex(&mut [0; 64]));
        rest.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// A creation of which parts are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// The whole.
    pub creation: Creation,
    /// Steps that have come.
    pub here: Pos,
}

impl Unfinished {
    /// What is missing of a Task that has so many Steps: nothing once it is whole, or has ended.
    pub(crate) fn of(head: &Head, here: Pos) -> Option<Self> {
        let creation = head.creation.filter(|_| head.status == TaskStatus::Draft)?;
        (here < creation.steps).then_some(Self { creation, here })
    }
}
