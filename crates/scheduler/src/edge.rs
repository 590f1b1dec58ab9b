//! Makes the digest of a command when the command enters the scheduler (P38).
//!
//! Step 4 of the walk in docs/architecture.md.

use tenure_core::command::create::CreateTask;
use tenure_core::id::{Digest, DigestForm};
use tenure_core::{Command, Rejection, Task};
use tenure_wire::digest::{DigestError, digest_command, digest_create};

use crate::ask::{Envelope, TaskOrder};

/// The digest of a command that carries an id.
pub(crate) fn digest(
    form: DigestForm,
    envelope: &Envelope,
    command: &Command,
) -> Result<Option<Digest>, Rejection> {
    let made = envelope.command_id().map(|_| digest_command(form, &envelope.caller.agent, command));
    made.transpose().map_err(unwritable)
}

/// The digest of a create that carries an id or a key.
pub(crate) fn create_digest(
    form: DigestForm,
    envelope: &Envelope,
    input: &CreateTask,
) -> Result<Option<Digest>, Rejection> {
    if envelope.command_id().is_none() && input.idempotency_key.is_none() {
        return Ok(None);
    }
    digest_create(form, &envelope.caller.agent, input).map(Some).map_err(unwritable)
}

/// The digest of a request in the form in which the Task compares it (EVOLVE-04).
pub(crate) fn digest_for(
    task: &Task,
    envelope: &Envelope,
    what: &TaskOrder,
    digest: Option<Digest>,
) -> Result<Option<Digest>, Rejection> {
    let Some(made) = digest else { return Ok(None) };
    let is_create = matches!(what, TaskOrder::Create(_));
    let form = task.digest_form(envelope.command_id(), is_create);
    match what {
        _ if form == made.form => Ok(digest),
        TaskOrder::Create(create) => create_digest(form, envelope, &create.0),
        TaskOrder::Command(command) => self::digest(form, envelope, command),
    }
}

#[allow(clippy::needless_pass_by_value)] // The shape `map_err` asks for.
fn unwritable(error: DigestError) -> Rejection {
    Rejection::invalid("input", error.to_string())
}
