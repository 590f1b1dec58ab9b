//! What a caller is told at a bound of live Tasks.

use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::{Code, Rejection, RejectionKind};

use super::SHARE_TIMES;

/// After how long a caller asks again whose request was refused until Tasks have ended.
const RETRY_AFTER_MS: u64 = 1_000;

pub(super) fn at_quota(
    what: &str,
    used: &AtomicU64,
    limit: u64,
    option: &str,
) -> Result<(), Rejection> {
    let used = used.load(Ordering::Relaxed);
    if used < limit {
        return Ok(());
    }
    let message = format!(
        "the session has {used} {what} on this node, and may have {limit}: complete or cancel some, use another \
         session, or have the nodes allow more (--{option})"
    );
    let refused = Rejection::new(Code::QuotaExceeded, message);
    Err(refused.with("used", used).with("limit", limit).with("quota", option.replace('-', "_")))
}

pub(super) fn at_bound(
    what: &str,
    used: &AtomicU64,
    limit: u64,
    option: &str,
) -> Result<(), Rejection> {
    let used = used.load(Ordering::Relaxed);
    if used < limit {
        return Ok(());
    }
    let message = format!(
        "this node has {used} {what}, and may have {limit}: come again when some have ended; more nodes, or \
         --{option}, make place"
    );
    Err(full(message).with("used", used).with("limit", limit))
}

/// As [`at_bound`], for what one maker of Tasks may have.
pub(super) fn at_share(
    what: &str,
    used: &AtomicU64,
    limit: u64,
    option: &str,
) -> Result<(), Rejection> {
    let used = used.load(Ordering::Relaxed);
    if used == 0 || used < limit {
        return Ok(());
    }
    let message = format!(
        "whoever made them has {used} {what} on this node, and may have {limit}, {SHARE_TIMES} times as many as are \
         free: come again when some have ended; more nodes, or --{option}, make place"
    );
    Err(full(message).with("used", used).with("limit", limit))
}

/// The same for the memory of Tasks at work, of a session or of a maker.
pub(super) fn at_work_share(used: &AtomicU64, limit: u64) -> Result<(), Rejection> {
    let used = used.load(Ordering::Relaxed);
    if used == 0 || used < limit {
        return Ok(());
    }
    let message = format!(
        "tasks at work of the session, or of whoever made them, take {used} bytes of this node's memory, and may take \
         {limit}: come again when attempts have ended, end some, or have the nodes allow more (--memory)"
    );
    Err(full(message).with("used", used).with("limit", limit))
}

pub(super) fn no_place(limit: u64) -> Rejection {
    let message = format!(
        "as many bytes of tasks are in memory as may be, {limit}: come again in a moment; more nodes, or --memory, \
         make place"
    );
    full(message).with("limit", limit)
}

fn full(message: String) -> Rejection {
    let refused = Rejection::new(Code::Unavailable, message).of_kind(RejectionKind::Overloaded);
    refused.with("retry_after_ms", RETRY_AFTER_MS)
}
