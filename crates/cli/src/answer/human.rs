//! Numbers and times as people read them.

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tenure_core::id::{AgentId, Millis};
use tenure_core::record::Reason;

use super::steers;

/// `950 ms`, `12.3 s`, `3m 12s`, `2h 05m`, `3d 04h`.
pub(crate) fn duration(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{s}.{} s", ms % 1000 / 100),
        60..3600 => format!("{}m {:02}s", s / 60, s % 60),
        3600..86_400 => format!("{}h {:02}m", s / 3600, s / 60 % 60),
        _ => format!("{}d {:02}h", s / 86_400, s / 3600 % 24),
    }
}

/// The same for a time limit.
pub(crate) fn limit(time: Duration) -> String {
    duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Milliseconds since 1970.
pub(crate) fn now() -> Millis {
    Timestamp::now().as_millisecond()
}

/// The time from one moment to another; an empty text if they are out of order.
pub(crate) fn between(from: Millis, to: Millis) -> String {
    duration(u64::try_from(to.saturating_sub(from)).unwrap_or(0))
}

/// `2026-11-21 23:45:01` in the reader's time zone.
pub(crate) fn local(at: Millis) -> String {
    in_zone(at, "%Y-%m-%d %H:%M:%S")
}

/// The same with milliseconds, for logs.
pub(crate) fn local_exact(at: Millis) -> String {
    in_zone(at, "%Y-%m-%d %H:%M:%S%.3f")
}

fn in_zone(at: Millis, format: &str) -> String {
    match Timestamp::from_millisecond(at) {
        Ok(time) => time.to_zoned(TimeZone::system()).strftime(format).to_string(),
        Err(_) => at.to_string(),
    }
}

/// `2026-11-21 23:45:01 (5m 02s ago)`.
pub(crate) fn local_and_ago(at: Millis, now: Millis) -> String {
    match now < at {
        true => format!("{} (in {})", local(at), between(now, at)),
        false => format!("{} ({} ago)", local(at), between(at, now)),
    }
}

/// `12,345`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `12,345` of a length.
pub(crate) fn len(n: usize) -> String {
    count(n as u64)
}

/// `1 step`, `2 steps`.
pub(crate) fn plural(n: usize, one: &str) -> String {
    format!("{} {one}{}", len(n), if n == 1 { "" } else { "s" })
}

/// `131 bytes`, `4.2 KiB`, `1.3 GiB`.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if n < 1024 {
        return format!("{n} byte{}", if n == 1 { "" } else { "s" });
    }
    let mut tenths = n.saturating_mul(10) / 1024;
    let mut unit = 0;
    while tenths >= 10 * 1024 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// Text of a Task on one line, and nothing in it that would steer a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => out.push(' '),
            c if steers(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c)); // Strings take all.
            }
            c => out.push(c),
        }
    }
    out
}

/// The message of a reason, or its code.
pub(crate) fn said(reason: &Reason) -> &str {
    if reason.message.is_empty() { &reason.code } else { &reason.message }
}

/// The same with its line breaks, each indented.
pub(crate) fn indented(text: &str, indent: &str) -> String {
    text.lines().map(|line| format!("{indent}{}\n", one_line(line))).collect()
}

/// A principal in a column: names made by machines differ at their ends.
pub(crate) fn worker(id: &AgentId) -> String {
    const CHARS_MAX: usize = 18;
    let name = one_line(id.as_str());
    let chars: Vec<char> = name.chars().collect();
    match chars.len() <= CHARS_MAX {
        true => name,
        false => {
            let (start, end) = (&chars[..CHARS_MAX - 7], &chars[chars.len() - 6..]);
            start.iter().chain(['…'].iter()).chain(end).collect()
        }
    }
}

/// At most `max` characters, and a sign that there was more.
pub(crate) fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => {
            let end = text.char_indices().nth(max.saturating_sub(1)).map_or(0, |(at, _)| at);
            format!("{}…", &text[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let all = [0, 999, 1_000, 12_345, 59_999, 60_000, 192_000, 7_500_000, 273_600_000];
        let all: Vec<String> = all.into_iter().map(duration).collect();
        let expected =
            ["0 ms", "999 ms", "1.0 s", "12.3 s", "59.9 s", "1m 00s", "3m 12s", "2h 05m", "3d 04h"];
        assert_eq!(all, expected);
        assert_eq!(between(5, 3), "0 ms", "clocks may differ");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"].map(String::from)
        );
        assert_eq!(plural(1, "step"), "1 step");
        assert_eq!(plural(2_000, "step"), "2,000 steps");
        assert_eq!(
            [1, 1023, 1024, 4_300, 5 << 20, 3 << 40].map(bytes),
            ["1 byte", "1023 bytes", "1.0 KiB", "4.1 KiB", "5.0 MiB", "3.0 TiB"].map(String::from)
        );
    }

    #[test]
    fn text_cannot_steer_the_terminal() {
        assert_eq!(one_line("a\x1b[2Jb\nc"), "a\\u{1b}[2Jb c");
        assert_eq!(indented("a\nb\u{7}", "  "), "  a\n  b\\u{7}\n");
    }

    #[test]
    fn workers_are_told_apart_by_their_ends() {
        let worker = |id: &str| worker(&AgentId::new(id).unwrap());
        assert_eq!(worker("gpu-box-7"), "gpu-box-7");
        assert_eq!(worker("local-01a200b4-a5cb-7348-833c-85769b839ec0"), "local-01a20…839ec0");
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
    }
}
