//! Reads the retry policy of a Task or a Step.

use super::fields::{Fields, KnownFields};
use super::limits::{ATTEMPTS_MAX, DURATION_MS_MAX};
use super::path::Path;
use super::plan::{BackoffPlan, DoubtMode, RetryPlan};
use super::report::{FileFinding, quoted};

/// Fields of `retry`.
pub(super) const RETRY: KnownFields = KnownFields {
    names: &[
        "max_attempts",
        "max_lost",
        "backoff",
        "non_retryable",
        "schedule_to_start",
        "start_to_close",
        "schedule_to_close",
        "blocked_timeout",
        "grace",
        "heartbeat",
        "on_lease_doubt",
        "accept_late",
    ],
    meant: &[
        ("attempts", "did you mean `max_attempts`?"),
        ("timeout", "the time for one attempt is `start_to_close`, or `timeout` beside `retry`"),
        ("delay", "the first wait is `initial` under `backoff`"),
    ],
    extensible: false,
};

/// Fields of `retry.backoff`.
pub(super) const BACKOFF: KnownFields = KnownFields {
    names: &["initial", "factor", "max", "jitter"],
    meant: &[
        ("multiplier", "did you mean `factor`?"),
        ("base", "did you mean `initial`?"),
        ("delay", "did you mean `initial`?"),
    ],
    extensible: false,
};

/// The largest growth of a wait from one retry to the next.
const FACTOR_MAX: f64 = 1_000.0;

/// The policy that `retry`, `retries` and `timeout` make of `base`, if one of them is written, and
/// the timeout.
pub(super) fn read(fields: &Fields<'_, '_>, base: &RetryPlan) -> (Option<RetryPlan>, Option<u64>) {
    let timeout = fields.duration("timeout", 1);
    let retries = fields.whole("retries", 0..=ATTEMPTS_MAX - 1);
    let mut policy = fields.node(&["retry"]).map(|(name, node)| {
        let mut policy = base.clone();
        if let Some(retry) = Fields::of(fields.cx, node, fields.path.key(name), &RETRY) {
            fill(&mut policy, &retry);
            refuse_doubles(fields, &retry);
        }
        policy
    });
    if let Some(retries) = retries {
        policy.get_or_insert_with(|| base.clone()).max_attempts = attempts(retries + 1);
    }
    if let Some(timeout) = timeout {
        policy.get_or_insert_with(|| base.clone()).start_to_close_ms = Some(timeout);
    }
    (policy, timeout)
}

fn attempts(count: u64) -> Option<u32> {
    u32::try_from(count).ok()
}

fn refuse_doubles(step: &Fields<'_, '_>, retry: &Fields<'_, '_>) {
    for (short, long) in [("retries", "max_attempts"), ("timeout", "start_to_close")] {
        if step.has(short) && retry.entry(long).is_some() {
            let hint = format!("`{short}` is the short form of `{long}`; keep one");
            retry.conflict(short, long, &hint);
        }
    }
}

fn fill(policy: &mut RetryPlan, retry: &Fields<'_, '_>) {
    if let Some(limit) = limit(retry, "max_attempts") {
        policy.max_attempts = limit;
    }
    if let Some(limit) = limit(retry, "max_lost") {
        policy.max_lost = limit;
    }
    if let Some((name, node)) = retry.node(&["backoff"])
        && let Some(fields) = Fields::of(retry.cx, node, retry.path.key(name), &BACKOFF)
    {
        policy.backoff = backoff(policy.backoff, &fields);
    }
    if let Some(codes) = retry.texts(&["non_retryable"]) {
        let path = retry.path.key("non_retryable");
        policy.non_retryable =
            codes.into_iter().filter_map(|code| checked(retry, &path, code)).collect();
    }
    let or = |name, inherited| retry.duration(name, 1).or(inherited);
    policy.schedule_to_start_ms = or("schedule_to_start", policy.schedule_to_start_ms);
    policy.start_to_close_ms = or("start_to_close", policy.start_to_close_ms);
    policy.schedule_to_close_ms = or("schedule_to_close", policy.schedule_to_close_ms);
    policy.blocked_ms = or("blocked_timeout", policy.blocked_ms);
    policy.cancel_grace_ms = retry.duration("grace", 0).or(policy.cancel_grace_ms);
    policy.heartbeat_ms = or("heartbeat", policy.heartbeat_ms);
    policy.on_lease_doubt = on_lease_doubt(retry).or(policy.on_lease_doubt);
    policy.accept_late = retry.boolean("accept_late").or(policy.accept_late);
}

fn on_lease_doubt(retry: &Fields<'_, '_>) -> Option<DoubtMode> {
    let (text, at) = retry.text(&["on_lease_doubt"])?;
    match text.as_str() {
        "stop" => Some(DoubtMode::Stop),
        "finish" => Some(DoubtMode::Finish),
        _ => {
            let message = format!("expected `stop` or `finish`, found {}", quoted(&text));
            let path = retry.path.key("on_lease_doubt");
            retry.cx.report.add(|| FileFinding::at(at, message).field(path));
            None
        }
    }
}

/// A number from 1, or null for no limit.
fn limit(retry: &Fields<'_, '_>, name: &'static str) -> Option<Option<u32>> {
    let (_, node) = retry.written(&[name])?;
    if node.is_null() {
        return Some(None);
    }
    retry.whole(name, 1..=ATTEMPTS_MAX).map(attempts)
}

fn backoff(base: BackoffPlan, fields: &Fields<'_, '_>) -> BackoffPlan {
    let initial_ms = fields.duration("initial", 0);
    let max_ms = fields.duration("max", 0);
    if let (Some(initial_ms), Some(max_ms)) = (initial_ms, max_ms)
        && initial_ms > max_ms
    {
        fields.conflict("initial", "max", "`max` must be at least `initial`");
    }
    let initial = initial_ms.unwrap_or(base.initial_ms).min(max_ms.unwrap_or(DURATION_MS_MAX));
    BackoffPlan {
        initial_ms: initial,
        factor: fields.decimal("factor", 1.0..=FACTOR_MAX).unwrap_or(base.factor),
        // Otherwise a first wait above the inherited longest one would be cut to it without a message.
        max_ms: max_ms.unwrap_or(base.max_ms.max(initial)),
        jitter: fields.decimal("jitter", 0.0..=1.0).unwrap_or(base.jitter),
    }
}

/// An error code that a worker may report.
fn checked(retry: &Fields<'_, '_>, path: &Path<'_>, (code, at): (String, usize)) -> Option<String> {
    let legal = !code.is_empty() && code.len() <= 128 && !code.contains(char::is_control);
    if !legal {
        retry.cx.report.add(|| {
            FileFinding::at(at, format!("{} is no error code", quoted(&code)))
                .field(path)
                .hint("1 to 128 characters, as the worker reports it")
        });
    }
    legal.then_some(code)
}
