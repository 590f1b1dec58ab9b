//! Makes names of spans of what people wrote: bounded, and without characters that change how text is shown.

/// How many characters such a text may have in a name.
const SHOWN_MAX: usize = 80;

/// The text in one line, without control characters and those that turn or hide text, and cut off if it is long.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len().min(SHOWN_MAX + 1));
    let mut kept = text.chars().filter(|c| !is_hidden(*c)).map(|c| match c {
        c if c.is_whitespace() => ' ',
        c => c,
    });
    shown.extend(kept.by_ref().take(SHOWN_MAX));
    if kept.next().is_some() {
        shown.push('…');
    }
    shown.truncate(shown.trim_end().len());
    shown
}

/// Whether a character is not seen itself. Line breaks and tabs are: they become blanks.
fn is_hidden(c: char) -> bool {
    (c.is_control() && !c.is_whitespace())
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_show_what_they_say() {
        for (text, name) in [
            ("Nightly report", "Nightly report"),
            ("a\nb\tc\u{0}\u{1b}[31m", "a b c[31m"),
            ("abc\u{202e}fed\u{feff}", "abcfed"),
            ("", ""),
        ] {
            assert_eq!(shown(text), name);
        }
        let long = shown(&"ü".repeat(500));
        assert_eq!((long.chars().count(), long.ends_with('…')), (81, true));
    }
}
