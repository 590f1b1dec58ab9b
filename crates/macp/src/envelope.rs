//! What is looked at in an envelope before its session is known.

use prost::Message as _;

use crate::code::invalid;
use crate::pb::{Envelope, ProgressPayload, SignalPayload};
use crate::{MacpCode, MacpRefusal, PROTOCOL_VERSION, is_reserved};

/// Where a message belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MacpKind {
    /// `SessionStart`.
    Start,
    /// A message of a session.
    InSession,
    /// `Signal` and `Progress`: they are shown to whoever watches, and are in no history.
    Ambient,
}

/// Looks at the shape of an envelope, before the caller is known: the version of the protocol, the fields that must not
/// be empty, and the size of the payload.
///
/// # Errors
///
/// UNSUPPORTED_PROTOCOL_VERSION, INVALID_ENVELOPE or PAYLOAD_TOO_LARGE, in this order.
pub fn check_shape(envelope: &Envelope, payload_bytes_max: usize) -> Result<MacpKind, MacpRefusal> {
    if envelope.macp_version != PROTOCOL_VERSION {
        let message = format!("macp_version must be {PROTOCOL_VERSION:?}");
        return Err(MacpRefusal::new(MacpCode::UnsupportedProtocolVersion, message));
    }
    if envelope.message_type.is_empty() || envelope.message_id.is_empty() {
        return invalid("message_type and message_id must not be empty");
    }
    let kind = match envelope.message_type.as_str() {
        "SessionStart" => MacpKind::Start,
        "Signal" | "Progress" => MacpKind::Ambient,
        _ => MacpKind::InSession,
    };
    let (no_session, no_mode) = (envelope.session_id.is_empty(), envelope.mode.trim().is_empty());
    match envelope.message_type.as_str() {
        "Signal" if !(no_session && no_mode) => {
            return invalid("a Signal belongs to no session: session_id and mode must be empty");
        }
        "Progress" if no_session != no_mode => {
            return invalid("a Progress has both session_id and mode, or neither");
        }
        "Signal" | "Progress" => {}
        _ if no_session || no_mode => return invalid("session_id and mode must not be empty"),
        _ => {}
    }
    if envelope.payload.len() > payload_bytes_max {
        let message = format!(
            "the payload has {} bytes; at most {payload_bytes_max}",
            envelope.payload.len()
        );
        return Err(MacpRefusal::new(MacpCode::PayloadTooLarge, message));
    }
    Ok(kind)
}

/// Puts the caller into the envelope as its sender. An envelope that names somebody else is refused, and so is a caller
/// with a name that belongs to Tenure, such as that of a pool (MACP-16, MACP-19).
///
/// # Errors
///
/// UNAUTHENTICATED.
pub fn bind_sender(envelope: &mut Envelope, caller: &str) -> Result<(), MacpRefusal> {
    if is_reserved(caller) {
        let message =
            "names that begin with pool:// or tenure:// belong to Tenure: come with another";
        return Err(MacpRefusal::new(MacpCode::Unauthenticated, message));
    }
    if !envelope.sender.is_empty() && envelope.sender != caller {
        let message =
            "the envelope names another sender than the one whose credentials came with it";
        return Err(MacpRefusal::new(MacpCode::Unauthenticated, message));
    }
    caller.clone_into(&mut envelope.sender);
    Ok(())
}

/// Looks at the payload of a `Signal` or a `Progress`, which may be empty.
///
/// # Errors
///
/// INVALID_ENVELOPE.
pub fn check_ambient(envelope: &Envelope) -> Result<(), MacpRefusal> {
    if envelope.payload.is_empty() {
        return Ok(());
    }
    if envelope.message_type == "Signal" {
        let signal: SignalPayload = read_payload(envelope)?;
        if signal.signal_type.trim().is_empty() {
            return invalid("signal_type must not be empty");
        }
    } else {
        let _: ProgressPayload = read_payload(envelope)?;
    }
    Ok(())
}

/// The payload of an envelope as the message that its type asks for.
pub(crate) fn read_payload<M: prost::Message + Default>(
    envelope: &Envelope,
) -> Result<M, MacpRefusal> {
    M::decode(envelope.payload.as_slice()).or_else(|e| {
        invalid(format!("the payload cannot be read as that of a {}: {e}", envelope.message_type))
    })
}

/// The envelope as it is kept in a record.
pub(crate) fn to_bytes(envelope: &Envelope) -> Vec<u8> {
    envelope.encode_to_vec()
}

/// Whether a session may have this id: a UUID of version 4 or 7 in lower case, or 22 to 128 characters of base64url. An
/// id that has the form of a UUID must be one of those.
pub fn is_session_id(id: &str) -> bool {
    if id.len() > 128 {
        return false;
    }
    if is_uuid(id) {
        let is_lower = !id.bytes().any(|b| b.is_ascii_uppercase());
        return is_lower && matches!(id.as_bytes().get(14), Some(b'4' | b'7'));
    }
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    id.len() >= 22 && id.bytes().all(is_token)
}

/// Whether a text has the form of a UUID with hyphens.
fn is_uuid(id: &str) -> bool {
    id.len() == 36
        && id.bytes().enumerate().all(|(at, b)| match at {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}
