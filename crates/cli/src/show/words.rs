//! Durations and texts as people read them.

use tenure_core::id::Millis;

use crate::answer::steers;

/// `17 ms`, `2.4 s`, `3m 05s`, `2h 07m`.
pub(super) fn duration(ms: Millis) -> String {
    let seconds = ms / 1000;
    match ms {
        ..1_000 => format!("{} ms", ms.max(0)),
        1_000..60_000 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60_000..3_600_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// `1 step`, `2 steps`.
pub(crate) fn steps(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 step".into(),
        n => format!("{n} steps"),
    }
}

/// Removes what would affect a terminal: what steers it, and the colours that commands print.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\x1b' && chars.next_if_eq(&'[').is_some() {
            // A control sequence ends with its first letter.
            let _ = chars.find(|c| matches!(c, '@'..='~'));
        } else if !steers(c) || c == '\t' {
            out.push(c);
        }
    }
    out
}

/// The first line of a text.
pub(super) fn one_line(text: &str) -> String {
    printable(text.trim().lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let all = [0, 999, 1_000, 59_999, 60_000, 3_599_999, 3_600_000, 7_620_000];
        let texts = all.map(duration);
        let expected =
            ["0 ms", "999 ms", "1.0 s", "59.9 s", "1m 00s", "59m 59s", "1h 00m", "2h 07m"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn nothing_printed_moves_the_cursor() {
        assert_eq!(printable("a\x1b[1;31mred\x1b[0m\x07\r\x1b[2J!\tb"), "ared!\tb");
        assert_eq!(printable("\x1b["), "");
    }
}
