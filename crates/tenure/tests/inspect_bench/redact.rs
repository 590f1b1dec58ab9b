//! Ids, times and places as words that do not change from run to run.

use std::path::Path;

/// What is replaced, longest first: `d` stands for a digit, `x` for a hex digit.
const TEMPLATES: [(&str, &str); 19] = [
    ("local-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "<worker>"),
    ("local-xxxxx…xxxxxx", "<worker>"),
    ("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "<id>"),
    ("dddd-dd-dd dd:dd:dd.ddd", "<time>"),
    ("dddd-dd-dd dd:dd:dd", "<time>"),
    ("process ddddddd", "process <pid>"),
    ("process dddddd", "process <pid>"),
    ("process ddddd", "process <pid>"),
    ("process dddd", "process <pid>"),
    ("process ddd", "process <pid>"),
    ("dh ddm", "<took>"),
    ("ddm dds", "<took>"),
    ("dm dds", "<took>"),
    ("dd.d s", "<took>"),
    ("d.d s", "<took>"),
    ("ddddd ms", "<took>"),
    ("dddd ms", "<took>"),
    ("ddd ms", "<took>"),
    ("dd ms", "<took>"),
];

/// Text for people. Runs of blanks become two: columns are as wide as what was replaced.
pub(crate) fn redact(text: &str, data: &Path) -> String {
    let text = text.replace(&data.display().to_string(), "<data>");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let in_number = out.ends_with(|c: char| c.is_ascii_digit());
        let found = TEMPLATES.iter().find(|(template, _)| !in_number && fits(rest, template));
        match found.or_else(|| (!in_number && fits(rest, "d ms")).then_some(&("d ms", "<took>"))) {
            Some((template, word)) => {
                out.push_str(word);
                rest = &rest[template.len()..];
            }
            None => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out.lines().map(|line| narrowed(line) + "\n").collect()
}

fn fits(text: &str, template: &str) -> bool {
    let text = text.as_bytes();
    text.len() >= template.len()
        && template.bytes().zip(text).all(|(wanted, &found)| match wanted {
            b'd' => found.is_ascii_digit(),
            b'x' => found.is_ascii_hexdigit(),
            wanted => wanted == found,
        })
}

fn narrowed(line: &str) -> String {
    let mut out = String::new();
    let mut blanks = 0;
    for c in line.trim_end().chars() {
        match c {
            ' ' => blanks += 1,
            c => {
                out.push_str(&" ".repeat(blanks.min(2)));
                blanks = 0;
                out.push(c);
            }
        }
    }
    out
}
