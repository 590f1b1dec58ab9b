//! A creation in parts: a Task that is too long for one message comes as a draft with some of its
//! Steps, and as patches that add the others (IDEM-07 to IDEM-09).

use alloc::format;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::{BadId, CommandId, Digest};
use crate::status::TaskStatus;
use crate::table::{Pos, next_pos};
use crate::task::{Head, Task};

/// What a Task that comes in parts will be when it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Creation {
    /// The digest of the patches that follow ([`digest_of`](Self::digest_of)). The create carries
    /// it, and together they identify the whole.
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
        let all = parts.into_iter().fold(Sha256::new(), |all, part| all.chain_update(part.0));
        Digest(all.finalize().into())
    }

    /// The part that a command with this id brings, as the digest of its creation in hexadecimal
    /// and a number.
    fn part_of(id: &CommandId) -> Option<(&str, usize)> {
        let (digest, number) = id.as_str().split_once('/')?;
        let is_digest = Digest::from_hex(digest).is_some();
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

/// A creation of which parts are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unfinished {
    /// The whole.
    pub creation: Creation,
    /// How many Steps have come.
    pub here: Pos,
}

impl Task {
    /// What is missing of a creation in parts.
    pub fn unfinished(&self) -> Option<Unfinished> {
        Unfinished::of(&self.head, next_pos(self.steps.len()))
    }

    /// Whether a command that the Task does not remember brings a part of another creation, which
    /// this Task's creation has replaced (IDEM-10).
    pub(crate) fn is_stray_part(&self, id: &CommandId) -> bool {
        let own = self.head.creation;
        let is_own = |digest: &str| own.is_some_and(|own| own.digest.hex(&mut [0; 64]) == digest);
        Creation::part_of(id).is_some_and(|(digest, _)| !is_own(digest))
    }

    /// Whether a command that the Task does not remember brings the next part of a creation.
    pub(crate) fn is_next_part(&self, creation: Creation, id: &CommandId) -> bool {
        let Some((_, number)) = Creation::part_of(id).filter(|_| !self.is_stray_part(id)) else {
            return false;
        };
        let has_come = |id: CommandId| self.commands.by_key(&id).is_some();
        match number {
            0 => false,
            1 => true,
            _ => creation.part(number - 1).is_ok_and(has_come),
        }
    }

    /// The digests of the patches of a creation that have come, in order.
    pub(crate) fn parts_here(
        &self,
        creation: Creation,
    ) -> impl Iterator<Item = Option<Digest>> + '_ {
        let part = move |number| self.commands.by_key(&creation.part(number).ok()?);
        (1..).map_while(part).map(|command| command.digest)
    }
}

impl Unfinished {
    /// What is missing of a Task with `here` Steps; `None` once it is whole, or has ended.
    pub(crate) fn of(head: &Head, here: Pos) -> Option<Self> {
        let creation = head.creation.filter(|_| head.status == TaskStatus::Draft)?;
        (here < creation.steps).then_some(Self { creation, here })
    }
}
