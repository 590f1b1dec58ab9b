//! What is kept of a session, and how it is built again.

use prost::Message as _;

use crate::pb::Envelope;
use crate::{MacpDecision, MacpRefusal, MacpSession};

/// The rules under which records are written now. A release that judges messages in another way writes a higher number,
/// and goes on to judge older records as they were judged.
pub const REVISION: u32 = 1;

/// One thing that happened in a session. A session is the fold of its records. It is kept as the bytes of this message,
/// as a fact of the kind `macp_envelope` (contract 6.5).
#[derive(Clone, PartialEq, prost::Message)]
pub struct MacpRecord {
    /// The rules under which it was judged ([`REVISION`]).
    #[prost(uint32, tag = "1")]
    pub revision: u32,
    /// How many envelopes the session has accepted with this record. Only envelopes count.
    #[prost(uint64, tag = "2")]
    pub ordinal: u64,
    /// When it was judged, in milliseconds since 1970.
    #[prost(int64, tag = "3")]
    pub accepted_at_ms: i64,
    /// Who sent it. Empty where time alone did it.
    #[prost(string, tag = "4")]
    pub sender: String,
    /// What happened.
    #[prost(oneof = "MacpChange", tags = "5, 6, 7, 8, 9, 10")]
    pub change: Option<MacpChange>,
    /// Whether what it means for the Task was done in the commit that keeps it (FACT-02). Else whoever reads it last
    /// does that.
    #[prost(bool, tag = "11")]
    pub carried_out: bool,
}

/// What a record says.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum MacpChange {
    /// The session began.
    #[prost(message, tag = "5")]
    Started(MacpStarted),
    /// The envelope of another message.
    #[prost(bytes, tag = "6")]
    Sent(Vec<u8>),
    /// The session was suspended, for this reason.
    #[prost(string, tag = "7")]
    Suspended(String),
    /// The session was resumed, for this reason.
    #[prost(string, tag = "8")]
    Resumed(String),
    /// The session was cancelled, for this reason.
    #[prost(string, tag = "9")]
    Cancelled(String),
    /// The time of the session was over.
    #[prost(bool, tag = "10")]
    Expired(bool),
}

/// The start of a session, with what was bound then and does not stand in the envelope.
#[derive(Clone, PartialEq, prost::Message)]
pub struct MacpStarted {
    /// The envelope of the `SessionStart`.
    #[prost(bytes = "vec", tag = "1")]
    pub envelope: Vec<u8>,
    /// The policy of the session as JSON.
    #[prost(string, tag = "2")]
    pub policy: String,
    /// Milliseconds that the session may stand still.
    #[prost(int64, tag = "3")]
    pub max_suspend_ms: i64,
    /// Milliseconds for which the assignee may be silent; 0 is for as long as the session lives.
    #[prost(int64, tag = "4")]
    pub lease_ms: i64,
}

/// Why a record does not go with the session it is said to belong to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MacpReplayError {
    /// Its bytes are no record.
    #[error("the record cannot be read: {0}")]
    Unreadable(String),
    /// A newer release wrote it.
    #[error("the record has revision {0}, and this release knows revision {REVISION}")]
    Newer(u32),
    /// It is not the one that comes next.
    #[error("the record has ordinal {found}, and {expected} comes next")]
    Ordinal {
        /// The ordinal it has.
        found: u64,
        /// The ordinal that comes next.
        expected: u64,
    },
    /// The rules refuse it.
    #[error("the record is refused: {0}")]
    Refused(#[from] MacpRefusal),
    /// It does not go with the state of the session.
    #[error("the record does not fit the session, which is {0}")]
    Unfit(&'static str),
}

impl MacpRecord {
    /// The bytes that are kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encode_to_vec()
    }

    /// Reads what [`MacpRecord::to_bytes`] wrote.
    ///
    /// # Errors
    ///
    /// [`MacpReplayError::Unreadable`] or [`MacpReplayError::Newer`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MacpReplayError> {
        let record = Self::decode(bytes);
        let record = record.map_err(|e| MacpReplayError::Unreadable(e.to_string()))?;
        match record.revision {
            0 => Err(MacpReplayError::Unreadable("it has no revision".to_owned())),
            1..=REVISION => Ok(record),
            newer => Err(MacpReplayError::Newer(newer)),
        }
    }

    /// The envelope that it keeps, if it keeps one.
    ///
    /// # Errors
    ///
    /// [`MacpReplayError::Unreadable`].
    pub fn envelope(&self) -> Result<Option<Envelope>, MacpReplayError> {
        let bytes = match &self.change {
            Some(MacpChange::Started(start)) => &start.envelope,
            Some(MacpChange::Sent(envelope)) => envelope,
            _ => return Ok(None),
        };
        let unreadable = |problem: String| Err(MacpReplayError::Unreadable(problem));
        match Envelope::decode(bytes.as_slice()) {
            Ok(envelope) if envelope.sender == self.sender => Ok(Some(envelope)),
            Ok(_) => unreadable("its envelope has another sender".to_owned()),
            Err(e) => unreadable(e.to_string()),
        }
    }
}

/// Builds a session from its records, in their order.
///
/// # Errors
///
/// The first record that does not fit.
pub fn replay<'a>(
    records: impl IntoIterator<Item = &'a MacpRecord>,
) -> Result<Option<MacpSession>, MacpReplayError> {
    let mut records = records.into_iter();
    let Some(first) = records.next() else { return Ok(None) };
    let mut session = MacpSession::begin(first)?;
    for record in records {
        session.apply(record)?;
    }
    Ok(Some(session))
}

/// What a message that was accepted once is when it is judged again.
pub(crate) fn unfit(decision: &MacpDecision) -> MacpReplayError {
    MacpReplayError::Unfit(match decision {
        MacpDecision::Duplicate(_) => "one that has accepted this message id",
        MacpDecision::Expire { .. } => "over at this time",
        MacpDecision::Accept(_) => "another one",
    })
}
