//! A creation in parts: a Task that is too long for one message comes as a draft with some of its Steps
//! and patches that add the others (IDEM-07 to IDEM-09).

use alloc::format;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::{BadId, CommandId, Digest};
use crate::table::Pos;

/// What a Task that comes in parts is when it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// Of the patches that follow ([`digest_of`](Self::digest_of)): with the create, which says it, it names
    /// the whole.
    pub digest: Digest,
    /// It stays a draft when it is whole; else it begins then.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub draft: bool,
    /// Steps that the whole has.
    pub steps: Pos,
}

impl Creation {
    /// The digest of patches whose own digests (P38) are these, in their order.
    pub fn digest_of(parts: impl IntoIterator<Item = Digest>) -> Digest {
        let all = parts.into_iter().fold(Sha256::new(), |all, part| all.chain_update(part.0));
        Digest(all.finalize().into())
    }

    /// Which part of any creation a command of this id brings, with the digest of that creation in hexadecimal.
    pub(crate) fn part_of(id: &CommandId) -> Option<(&str, usize)> {
        let (digest, number) = id.as_str().split_once('/')?;
        let is_digest = Digest::from_hex(digest).is_some();
        number.parse().ok().filter(|_| is_digest).map(|number| (digest, number))
    }

    /// The id of the command that brings a part, from 1: the same however often it is sent.
    ///
    /// # Errors
    /// Never: it is short enough.
    pub fn part(&self, number: usize) -> Result<CommandId, BadId> {
        CommandId::new(format!("{}/{number}", self.digest))
    }
}
