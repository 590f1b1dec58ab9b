//! Checks for `tenure doctor` whether the servers are set up as Tenure needs them, and says what to
//! change.
//!
//! Asking and judging are separate: each module reads facts, and pure functions make [`Finding`]s
//! of them. The checks change nothing but one small message among the checkpoints ([`log`]), which
//! measures how long it takes to make something durable.

pub mod limits;
pub mod log;
pub mod logins;
pub mod monitor;
pub mod nodes;
pub mod redis;
pub mod server;
pub mod store;

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// That could not be found out.
    Unknown,
    /// It works, but may not be what is wanted.
    Caution,
    /// It loses something, stops something, or lets somebody in who must not be.
    Bad,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check, which never changes.
    pub check: &'static str,
    /// How good or bad it is.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do, if it is not good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// A finding that all is as it should be.
    pub fn good(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Good, found: found.into(), advice: None }
    }

    /// A finding that something is not as it should be, with what to do about it.
    pub fn not(
        verdict: Verdict,
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { check, verdict, found: found.into(), advice: Some(advice.into()) }
    }

    /// A finding that something may not be what is wanted.
    pub fn caution(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::not(Verdict::Caution, check, found, advice)
    }

    /// A finding that something has to change.
    pub fn bad(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::not(Verdict::Bad, check, found, advice)
    }

    /// A finding that something could not be found out, with how to do so.
    pub fn unknown(
        check: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::not(Verdict::Unknown, check, found, advice)
    }
}

/// From this difference of clocks on it is a caution.
const CLOCK_CAUTION_MS: u64 = 1_000;
/// From this difference on a node should take no partitions (mechanisms 17).
const CLOCK_BAD_MS: u64 = 5_000;

/// Compares a clock with that of this machine. It was read within `round`, so the difference is
/// known no more exactly than that.
pub fn clock(check: &'static str, whose: &str, offset_ms: i64, round: Duration) -> Finding {
    let surely = offset_ms.unsigned_abs().saturating_sub(millis(round));
    let by = offset_ms.unsigned_abs();
    let found = match offset_ms {
        0 => format!("{whose} agrees with this machine"),
        ..0 => format!("{whose} is {by} ms behind this machine"),
        1.. => format!("{whose} is {by} ms ahead of this machine"),
    };
    let advice =
        "keep the clocks of all machines by NTP: a node more than 5 s off takes no partitions";
    match surely {
        CLOCK_BAD_MS.. => Finding::bad(check, found, advice),
        CLOCK_CAUTION_MS.. => Finding::caution(check, found, advice),
        _ => Finding::good(check, found),
    }
}

/// Judges how long something took, by the median of several times.
pub fn latency(
    check: &'static str,
    what: &str,
    times: &mut [Duration],
    limits: (Duration, Duration),
    advice: &str,
) -> Finding {
    times.sort_unstable();
    let (Some(&middle), Some(&worst)) = (times.get(times.len() / 2), times.last()) else {
        return Finding::unknown(check, format!("{what}: nobody answered"), advice);
    };
    let found = format!("{what} takes {} ms, at worst {}", tenths(middle), tenths(worst));
    match middle {
        middle if middle > limits.1 => Finding::bad(check, found, advice),
        middle if middle > limits.0 => Finding::caution(check, found, advice),
        _ => Finding::good(check, found),
    }
}

/// Milliseconds with one decimal.
fn tenths(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1_000.0)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// `3 partitions: 0, 4, 5`; no more than some of them by number.
pub(crate) fn partitions(which: &[u32]) -> String {
    const NAMED: usize = 8;
    let mut text = match which {
        [_] => "partition ".to_owned(),
        all => format!("{} partitions: ", all.len()),
    };
    for (at, partition) in which.iter().take(NAMED).enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(text, "{comma}{partition}"); // Into a string.
    }
    if which.len() > NAMED {
        text.push_str(", …");
    }
    text
}

/// A number of bytes for people to read.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut rest = count;
    while rest >= 10 * 1024 && unit + 1 < UNITS.len() {
        rest /= 1024;
        unit += 1;
    }
    format!("{rest} {}", UNITS[unit])
}

/// How full something is, in percent; 100 if it has no capacity.
pub(crate) fn percent(used: u64, of: u64) -> u64 {
    used.saturating_mul(100).checked_div(of).unwrap_or(100)
}

/// The first two numbers of `1.2.3-beta`; what is no number counts as 0.
pub(crate) fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.trim_start_matches('v').split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).map_or(part, |end| &part[..end]);
        digits.parse().unwrap_or(0)
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_judged_at_their_limits() {
        let of = |offset| clock("clock.redis", "redis", offset, Duration::ZERO).verdict;
        assert_eq!([of(0), of(999), of(-999)], [Verdict::Good; 3]);
        assert_eq!([of(1_000), of(-1_000), of(4_999)], [Verdict::Caution; 3]);
        assert_eq!([of(5_000), of(-5_000), of(i64::MIN)], [Verdict::Bad; 3]);
        let slow = clock("clock.redis", "redis", 5_400, Duration::from_millis(500));
        assert_eq!(slow.verdict, Verdict::Caution, "no more is known");
        assert_eq!(slow.found, "redis is 5400 ms ahead of this machine");
    }

    #[test]
    fn latencies_are_judged_by_the_middle() {
        let ms = Duration::from_millis;
        let of = |times: &[u64]| {
            let mut times: Vec<Duration> = times.iter().copied().map(ms).collect();
            latency("redis.latency", "a ping", &mut times, (ms(3), ms(50)), "look")
        };
        assert_eq!(of(&[90, 1, 2]).found, "a ping takes 2.0 ms, at worst 90.0");
        assert_eq!(of(&[3, 3, 3]).verdict, Verdict::Good);
        assert_eq!(of(&[4, 4, 1]).verdict, Verdict::Caution);
        assert_eq!(of(&[51, 51, 1]).verdict, Verdict::Bad);
        assert_eq!(of(&[]).verdict, Verdict::Unknown);
    }

    #[test]
    fn things_are_named_shortly() {
        assert_eq!(partitions(&[3]), "partition 3");
        assert_eq!(partitions(&[0, 4]), "2 partitions: 0, 4");
        let many: Vec<u32> = (0..20).collect();
        assert_eq!(partitions(&many), "20 partitions: 0, 1, 2, 3, 4, 5, 6, 7, …");
        assert_eq!([bytes(0), bytes(10_239), bytes(10_240)], ["0 B", "10239 B", "10 KiB"]);
        assert_eq!(bytes(256 << 20), "256 MiB");
        assert_eq!((percent(1, 2), percent(1, 0)), (50, 100));
        assert_eq!(version("2.15.1"), (2, 15));
        assert_eq!(version("v2.12-RC.3"), (2, 12));
        assert_eq!(version("unstable"), (0, 0));
    }
}
