//! Keeps texts that others have written from steering the terminal that shows them.
//!
//! Titles, messages, names and outputs come from whoever may write into a Task. A control character among them could
//! clear the screen, rename the window or, as some terminals go, type a command; one that turns the direction of
//! text around makes a line read as another. All that this program prints passes through [`harmless`], which writes
//! such a character as JSON does, `\u001b`, so that an answer in JSON stays the same value.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

/// Whether a character steers a terminal, or the direction or the lines of the text around it.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text, with each character that [steers](steers) written as `\uXXXX`. Line ends, tabs and the colours of this
/// program stay.
pub(crate) fn harmless(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| steers(c) && c != '\n' && c != '\t') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '\x1b' => colour(rest).unwrap_or(""),
            '\n' | '\t' => &rest[..1],
            c if steers(c) => "",
            c => &rest[..c.len_utf8()],
        };
        if taken.is_empty() {
            let _ = write!(out, "\\u{:04x}", u32::from(c)); // A String takes everything.
        }
        out.push_str(taken);
        rest = &rest[taken.len().max(c.len_utf8())..];
    }
    Cow::Owned(out)
}

/// The sequence for a colour at the start of a text, if this program, its tables or its log use it. Others could hide
/// text.
fn colour(text: &str) -> Option<&str> {
    let end = text.find('m')?;
    let codes = text[..end].strip_prefix("\x1b[")?;
    let is_ours = match codes.strip_prefix("38;5;") {
        Some(colour) => matches!(colour, "1" | "2" | "3" | "6"),
        None => codes.split(';').all(|code| {
            matches!(
                code,
                "0" | "1" | "2" | "3" | "22" | "31" | "32" | "33" | "34" | "35" | "36" | "39"
            )
        }),
    };
    is_ours.then(|| &text[..=end])
}

/// A writer of whole texts that lets through what is [harmless].
pub(crate) struct HarmlessWriter<W>(pub(crate) W);

impl<W: Write> Write for HarmlessWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_all(harmless(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        assert_eq!(harmless("a\x1b[2Jb\r\u{9b}31m\u{7f}"), r"a\u001b[2Jb\u000d\u009b31m\u007f");
        assert_eq!(harmless("\x1b]0;title\x07"), r"\u001b]0;title\u0007");
        assert_eq!(
            harmless("pay \u{202e}00,1\u{202c} now\u{2066}\u{2028}"),
            r"pay \u202e00,1\u202c now\u2066\u2028"
        );
        assert_eq!(harmless("two\nlines\tand שלום ✔"), "two\nlines\tand שלום ✔");
    }

    #[test]
    fn colours_stay_and_other_sequences_do_not() {
        for ours in ["\x1b[1;31mfailed\x1b[0m", "\x1b[38;5;2mdone\x1b[39m", "\x1b[2mfaint\x1b[22m"]
        {
            assert_eq!(harmless(ours), ours);
        }
        assert_eq!(harmless("\x1b[8mhidden"), r"\u001b[8mhidden", "text could be hidden");
        assert_eq!(harmless("\x1b[38;5;0m"), r"\u001b[38;5;0m", "black on black");
        assert_eq!(harmless("\x1b[31"), r"\u001b[31", "a sequence without its end");
        assert_eq!(harmless("\x1b"), r"\u001b");
    }

    #[test]
    fn an_answer_in_json_stays_the_same_value() {
        let value = Value::from("a\u{9b}b\x1b\u{202e}c\u{7f}\n");
        let text = value.to_string();
        let shown = harmless(&text);
        assert!(shown.chars().all(|c| !steers(c)));
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
    }

    #[test]
    fn a_writer_lets_through_what_is_harmless() {
        let mut out = HarmlessWriter(Vec::new());
        out.write_all("title\u{9b}2J\n".as_bytes()).unwrap();
        out.flush().unwrap();
        assert_eq!(out.0, b"title\\u009b2J\n");
    }
}
