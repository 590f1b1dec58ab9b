//! A Task whose creation comes in parts, until it is whole (IDEM-07 to IDEM-09).

use super::{Head, Task};
use crate::creation::Creation;
use crate::id::{CommandId, Digest};
use crate::status::TaskStatus;
use crate::table::{Pos, next_pos};

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
        let is_own = |digest: &str| {
            own.is_some_and(|own| own.digest.text(&mut [0; Digest::TEXT_MAX]) == digest)
        };
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
