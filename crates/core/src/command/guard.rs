//! What a command is compared with before it is judged: the versions that its caller expects, and the command
//! that the Task remembers under its id.

use alloc::format;

use super::{Command, Cx};
use crate::creation::Creation;
use crate::id::{CommandId, Digest, DigestForm};
use crate::reject::{Code, Rejection};
use crate::task::Task;

impl Task {
    /// OCC-02, OCC-07: the versions that the caller expects, if it expects any.
    pub(super) fn check_version(&self, cx: &Cx<'_>) -> Result<(), Rejection> {
        let (version, spec_version) = (self.mark.version, self.head.spec_version);
        let is_off = cx.expected_version.is_some_and(|expected| expected != version);
        let is_spec_off = cx.expected_spec_version.is_some_and(|expected| expected != spec_version);
        if !is_off && !is_spec_off {
            return Ok(());
        }
        let message = match cx.expected_spec_version {
            None => format!("the task is at version {version}"),
            Some(_) => format!("the task is at version {version}, spec_version {spec_version}"),
        };
        let mut no =
            Rejection::new(Code::VersionConflict, message).with("current_version", version);
        if let Some(expected) = cx.expected_version {
            no = no.with("expected_version", expected);
        }
        if let Some(expected) = cx.expected_spec_version {
            no = no.with("current_spec_version", spec_version);
            no = no.with("expected_spec_version", expected);
        }
        Err(no)
    }

    /// IDEM-02: the digest by which the Task remembers a command. It has who asks for it, except where the
    /// command is a part of a create: then it is the same for all replicas of a publisher.
    pub(super) fn signed_digest(&self, cx: &Cx<'_>, command: &Command) -> Option<Digest> {
        let is_of_create = match command {
            Command::TaskUpdate { .. } => {
                cx.command_id.is_some_and(|id| Creation::part_of(id).is_some())
            }
            Command::SubmitTask(_) => self.head.idempotency_key.is_some(),
            _ => false,
        };
        match is_of_create {
            true => cx.digest,
            false => cx.digest.map(|digest| digest.asked_by(&cx.caller.agent)),
        }
    }

    /// Whether the Task remembers a command with this id: then a request with it is a repetition (K6).
    pub fn remembers(&self, id: &CommandId) -> bool {
        self.commands.by_key(id).is_some()
    }

    /// EVOLVE-04: in which form the Task compares the digest of a command with this id, or of a create
    /// (`is_create`): that of what it remembers of it, or of the creation that the command is a part of.
    pub fn digest_form(&self, id: Option<&CommandId>, is_create: bool) -> DigestForm {
        let known = id.and_then(|id| self.commands.by_key(id));
        let first = self.commands.get(0).filter(|_| is_create);
        let remembered = known.or(first).and_then(|record| record.digest);
        let part =
            id.and_then(|id| Creation::part_of(id)).and_then(|(digest, _)| Digest::of_text(digest));
        remembered.or(part).map_or(DigestForm::of(self.head.rules), |digest| digest.form)
    }
}
