//! The payload of a Commitment.

use crate::code::invalid;
use crate::pb::{CommitmentPayload, CommitmentRef, Envelope};
use crate::start::MacpBound;
use crate::{MacpRefusal, envelope};

/// Actions that end so say that something came to a bad end, and the outcome must say the same.
const NEGATIVE: [&str; 3] = ["rejected", "failed", "declined"];
/// Actions that end so say that something came to a good end.
const POSITIVE: [&str; 4] = ["selected", "accepted", "completed", "approved"];

/// Reads a Commitment and holds it against what the start of its session bound (MACP-10).
pub(crate) fn read(
    envelope: &Envelope,
    bound: &MacpBound,
) -> Result<CommitmentPayload, MacpRefusal> {
    let commitment: CommitmentPayload = envelope::read_payload(envelope)?;
    for (field, text) in [
        ("commitment_id", &commitment.commitment_id),
        ("action", &commitment.action),
        ("authority_scope", &commitment.authority_scope),
        ("reason", &commitment.reason),
    ] {
        if text.trim().is_empty() {
            return invalid(format!("{field} must not be empty"));
        }
    }
    for (field, text, of_session) in [
        ("mode_version", &commitment.mode_version, &bound.start.mode_version),
        (
            "configuration_version",
            &commitment.configuration_version,
            &bound.start.configuration_version,
        ),
    ] {
        if text != of_session {
            return invalid(format!("{field} must be that of the session, {of_session:?}"));
        }
    }
    let policy = bound.policy.policy_id();
    if !commitment.policy_version.is_empty() && commitment.policy_version != policy {
        return invalid(format!("policy_version must be empty or that of the session, {policy:?}"));
    }
    if let Some(earlier) = &commitment.supersedes {
        check_reference(earlier)?;
    }
    let ends_with = |ends: &[&str]| ends.iter().any(|end| commitment.action.ends_with(end));
    if commitment.outcome_positive && ends_with(&NEGATIVE) {
        return invalid("outcome_positive must be false with this action");
    }
    if !commitment.outcome_positive && ends_with(&POSITIVE) {
        return invalid("outcome_positive must be true with this action");
    }
    Ok(commitment)
}

/// Looks at the form of a reference to an earlier Commitment. Whether there is one is not known here.
fn check_reference(earlier: &CommitmentRef) -> Result<(), MacpRefusal> {
    if earlier.session_id.trim().is_empty() {
        return invalid("supersedes.session_id must not be empty");
    }
    let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let hash = earlier.commitment_hash.strip_prefix("sha256:");
    if !hash.is_some_and(|hash| hash.len() == 64 && hash.bytes().all(is_hex)) {
        return invalid(
            "supersedes.commitment_hash must be sha256: and 64 hexadecimal digits in lower case",
        );
    }
    Ok(())
}
