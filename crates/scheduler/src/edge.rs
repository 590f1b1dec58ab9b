//! Makes the digest of a command when the command enters the scheduler (P38).

use tenure_core::command::Operator;
use tenure_core::command::create::CreateTask;
use tenure_core::id::Digest;
use tenure_core::{Command, Rejection};
use tenure_wire::digest::{DigestError, command_digest, digest_command};

use crate::ask::Envelope;

/// The digest of a command that carries an id.
pub(crate) fn digest(envelope: &Envelope, command: &Command) -> Result<Option<Digest>, Rejection> {
    let made = envelope.command_id();
    made.map(|_| digest_command(&envelope.caller.agent, command)).transpose().map_err(unwritable)
}

/// The digest of a create that carries an id or a key.
pub(crate) fn create_digest(
    envelope: &Envelope,
    input: &CreateTask,
) -> Result<Option<Digest>, Rejection> {
    if envelope.command_id().is_none() && input.idempotency_key.is_none() {
        return Ok(None);
    }
    let digest = command_digest(&envelope.caller.agent, Operator::TaskCreate, input);
    digest.map(Some).map_err(unwritable)
}

#[allow(clippy::needless_pass_by_value)] // The shape `map_err` asks for.
fn unwritable(error: DigestError) -> Rejection {
    Rejection::invalid("input", error.to_string())
}
