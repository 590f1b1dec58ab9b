//! The text of a file: decodes it, and finds line, column and excerpt for a byte offset.

use super::error::{Excerpt, TaskFileError};

/// How many characters of a source line an error shows; a JSON file may be a single line.
const EXCERPT_CHARS: usize = 100;
/// How many characters an error shows before the place that it points at, if it cuts the line.
const EXCERPT_BEFORE: usize = 40;

/// The text of a file, and its name in messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

/// The line and column of a byte offset, with an excerpt of the line.
#[derive(Debug)]
pub(super) struct SourcePos {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) excerpt: Excerpt,
}

impl<'a> Source<'a> {
    /// The bytes as text, without a byte order mark.
    pub(super) fn decode(name: &'a str, bytes: &'a [u8]) -> Result<Self, TaskFileError> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Source { name, text: text.strip_prefix('\u{feff}').unwrap_or(text) }),
            Err(error) => Err(not_utf8(name, bytes, error.valid_up_to())),
        }
    }

    /// Line, column and excerpt of a byte offset; one past the end is the end.
    pub(super) fn locate(&self, at: usize) -> SourcePos {
        let at = self.text.floor_char_boundary(at);
        let (before, after) = self.text.split_at(at);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let end = after.find(['\n', '\r']).map_or(self.text.len(), |length| at + length);
        let column = before[start..].chars().count();
        SourcePos {
            line: before.bytes().filter(|&byte| byte == b'\n').count() + 1,
            column: column + 1,
            excerpt: excerpt(&self.text[start..end], column),
        }
    }
}

/// A window of `line` around `column` (from 0), safe to print on a terminal.
fn excerpt(line: &str, column: usize) -> Excerpt {
    let fits = line.chars().nth(EXCERPT_CHARS).is_none();
    let skipped = if fits { 0 } else { column.saturating_sub(EXCERPT_BEFORE) };
    let mut shown = line.chars().skip(skipped);
    let text: String = shown.by_ref().take(EXCERPT_CHARS).map(printable).collect();
    let caret_at = column - skipped;
    let caret_width = word_chars(text.chars().skip(caret_at));
    let (head, tail) = (marker(skipped > 0), marker(shown.next().is_some()));
    Excerpt {
        caret_at: caret_at + head.chars().count(),
        caret_width,
        text: format!("{head}{}{tail}", text.trim_end()),
    }
}

fn marker(cut: bool) -> &'static str {
    if cut { "…" } else { "" }
}

/// Characters of the word or quoted text that begins here, at least 1.
fn word_chars(mut chars: impl Iterator<Item = char>) -> usize {
    let Some(first) = chars.next() else { return 1 };
    if first == '"' || first == '\'' {
        return chars.position(|c| c == first).map_or(1, |length| length + 2);
    }
    1 + chars.take_while(|c| c.is_alphanumeric() || "-_.$".contains(*c)).count()
}

/// Replaces control characters, which would move the cursor or colour the terminal.
pub(super) fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

fn not_utf8(name: &str, bytes: &[u8], valid: usize) -> TaskFileError {
    let hint = match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it looks like UTF-16; save it as UTF-8",
        _ => "save the file as UTF-8",
    };
    let mut error =
        TaskFileError::of_file(name, "the file is not UTF-8 text".into(), Some(hint.into()));
    let text = std::str::from_utf8(&bytes[..valid]).unwrap_or_default();
    let place = Source { name, text }.locate(valid);
    error.first.line = Some(place.line);
    error.first.column = Some(place.column);
    error
}
