//! The rules of MACP's Task mode ([`TASK_MODE`]) as a pure state machine, and the messages of MACP.
//!
//! Nothing here reads a clock, sends or stores. A gateway does this for one message of a client:
//!
//! 1. [`check_shape`] looks at the envelope, before the gateway knows who sends it.
//! 2. The gateway finds out who the caller is, and [`bind_sender`] puts that into the envelope (MACP-16).
//! 3. [`open`] judges a `SessionStart`, and [`MacpSession::decide`] every other message of a session. Both answer a
//!    refusal, a repetition, or a [`MacpRecord`] with what it means for Tenure ([`MacpEffect`]).
//! 4. The gateway does what the effect says, and keeps the record with the Task. Only then does it call
//!    [`MacpSession::begin`] or [`MacpSession::apply`] with the record, and answers the client ([`acknowledge`]).
//!
//! [`MacpSession::steer`] judges what is done to a session as a whole: to cancel, to suspend, to resume it.
//! [`MacpSession::expire`] says whether its time is over. These give records as well.
//!
//! [`replay`] builds a session from its records with the same two functions, and so it comes to the same decisions
//! (MACP-15). Times and the policy come from the records, never from a clock or a file of today.
//!
//! A session may give its assignee a lease, by the version of its configuration (L-07). Two kinds of members are
//! Tenure's own: pools, as which the work of native workers is told ([`MacpSession::said_by_pool`]), and [`ERRANDS`],
//! the initiator of sessions in which participants do native Steps ([`MacpErrand`]).
//!
//! The rules are those of the reference runtime 0.13.0, with the order of its checks, which clients can see. A test
//! beside it holds both against random messages (`tests/outsiders/macp`). This is stricter in four things:
//!
//! - A progress that is no finite number is refused. The reference accepts it, and cannot read its session afterwards.
//! - Only members learn that a message id is known. Everyone else gets FORBIDDEN.
//! - Lists of sessions have only those that the caller may read ([`MacpSession::may_read`]).
//! - A payload may be limited to less than a MiB, and is then refused with PAYLOAD_TOO_LARGE.

mod answer;
mod code;
mod commitment;
mod envelope;
mod errand;
mod lease;
mod lifecycle;
mod policy;
mod pool;
mod record;
mod session;
mod start;
mod task;

/// The messages of the package `macp.v1`, and with the feature `grpc` its service.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, rustdoc::all)]
pub mod pb {
    include!(concat!(env!("OUT_DIR"), "/macp.v1.rs"));
}

/// The payloads of the package `macp.modes.task.v1`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, rustdoc::all)]
pub mod task_pb {
    include!(concat!(env!("OUT_DIR"), "/macp.modes.task.v1.rs"));
}

pub use self::answer::{
    MacpPage, MacpRuntime, acknowledge, acknowledge_steer, page_of_sessions, refuse, task_mode,
};
pub use self::code::{MacpCode, MacpDenial, MacpRefusal};
pub use self::envelope::{MacpKind, bind_sender, check_ambient, check_shape, is_session_id};
pub use self::errand::{ERRANDS, MacpErrand, MacpErrandEnd, MacpErrandStep};
pub use self::lifecycle::{MacpSteer, MacpSteered};
pub use self::pb::SessionState;
pub use self::policy::{
    DEFAULT_POLICY, MacpAuthority, MacpPolicies, MacpPolicy, MacpPolicyError, MacpRules,
};
pub use self::pool::{MacpPool, MacpPoolWork, is_pool, is_reserved};
pub use self::record::{MacpChange, MacpRecord, MacpReplayError, MacpStarted, REVISION, replay};
pub use self::session::{MacpAccepted, MacpActivity, MacpDecision, MacpSession};
pub use self::start::{MacpBound, MacpOpening, open};
pub use self::task::{MacpDecline, MacpEffect, MacpReport};

/// The version of the protocol.
pub const PROTOCOL_VERSION: &str = "1.0";
/// The one mode that is served (MACP-01).
pub const TASK_MODE: &str = "macp.mode.task.v1";
/// The version of the mode.
pub const TASK_MODE_VERSION: &str = "1.0.0";
/// Bytes that a payload may have, unless a gateway wants fewer.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Milliseconds that a session may live.
pub const TTL_MS_MAX: i64 = 24 * 60 * 60 * 1000;
/// Milliseconds that a session may stand still altogether, if it does not say so itself.
pub const SUSPEND_MS_MAX: i64 = 7 * 24 * 60 * 60 * 1000;
/// How often a session may be suspended and resumed.
pub const SUSPENSIONS_MAX: u32 = 1024;
/// Participants that a session may have.
pub const PARTICIPANTS_MAX: usize = 1000;
