//! A creation in parts: a Task that is too long for one message comes as a draft with some of its
//! Steps, and as patches that add the others (IDEM-07 to IDEM-09).

use alloc::format;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::{BadId, CommandId, Digest, DigestForm};
use crate::table::Pos;

/// What a Task that comes in parts will be when it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// The digest of the patches that follow ([`digest_of`](Self::digest_of)), in the form of theirs. The
    /// create carries it, and together they identify the whole.
    pub digest: Digest,
    /// Whether the Task stays a draft when it is whole; otherwise it begins then.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub draft: bool,
    /// How many Steps the whole has.
    pub steps: Pos,
}

impl Creation {
    /// The digest of patches whose own digests (P38) are these, in their order.
    pub fn digest_of(parts: impl IntoIterator<Item = Digest>) -> Digest {
        let (mut all, mut form) = (Sha256::new(), DigestForm::NEWEST);
        for part in parts {
            all.update(part.sha256);
            form = part.form;
        }
        Digest { form, sha256: all.finalize().into() }
    }

    /// The part that a command with this id brings, as the text of its creation's digest and a number.
    pub(crate) fn part_of(id: &CommandId) -> Option<(&str, usize)> {
        let (digest, number) = id.as_str().split_once('/')?;
        let is_digest = Digest::of_text(digest).is_some();
        number.parse().ok().filter(|_| is_digest).map(|number| (digest, number))
    }

    /// The id of the command that brings a part, from 1. It is the same however often the client sends it.
    ///
    /// # Errors
    /// Never: the id is short enough.
    pub fn part(&self, number: usize) -> Result<CommandId, BadId> {
        CommandId::new(format!("{}/{number}", self.digest))
    }
}
