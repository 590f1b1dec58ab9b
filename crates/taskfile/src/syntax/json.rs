//! The reader of JSON.

use std::borrow::Cow;

use super::Read;
use super::builder::Builder;
use crate::node::{NodeKind, SyntaxNode};
use crate::report::FileFinding;
use crate::source::printable;

/// Reads JSON. This code reads the structure, because `serde_json` does not say where a value
/// stood; `serde_json` reads numbers and escaped strings.
pub(super) fn parse(text: &str) -> Read<SyntaxNode<'_>> {
    let mut reader = JsonReader { text, at: 0, tree: Builder::default() };
    reader.document()?;
    let end = reader.at;
    reader.tree.finish().ok_or_else(|| FileFinding::at(end, "expected a value"))
}

struct JsonReader<'a> {
    text: &'a str,
    at: usize,
    tree: Builder<'a>,
}

impl<'a> JsonReader<'a> {
    fn document(&mut self) -> Read<()> {
        loop {
            if self.value()? && !self.after_value()? {
                break;
            }
        }
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end of the file")),
        }
    }

    /// Reads one value, or opens a list or map. Returns whether the value is complete.
    fn value(&mut self) -> Read<bool> {
        let at = self.at_next();
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                self.tree.open_map(at)?;
                self.first_key_or_end()
            }
            Some(b'[') => {
                self.at += 1;
                self.tree.open_list(at)?;
                self.ends(b']')
            }
            Some(_) => {
                let kind = self.scalar()?;
                self.tree.put(SyntaxNode::new(at, kind))?;
                Ok(true)
            }
            None => Err(self.expected("a value")),
        }
    }

    fn first_key_or_end(&mut self) -> Read<bool> {
        if self.ends(b'}')? {
            return Ok(true);
        }
        self.key()?;
        Ok(false)
    }

    /// Closes the innermost list or map if `bracket` comes next.
    fn ends(&mut self, bracket: u8) -> Read<bool> {
        if self.peek() != Some(bracket) {
            return Ok(false);
        }
        self.at += 1;
        if let Some(node) = self.tree.close()? {
            self.tree.put(node)?;
        }
        Ok(true)
    }

    /// Reads the text between a complete value and the next one. Returns whether there is a next one.
    fn after_value(&mut self) -> Read<bool> {
        while let Some(in_map) = self.tree.in_map() {
            if self.peek() == Some(b',') {
                self.at += 1;
                if in_map {
                    self.key()?;
                }
                return Ok(true);
            }
            let (bracket, expected) =
                if in_map { (b'}', "`,` or `}`") } else { (b']', "`,` or `]`") };
            if !self.ends(bracket)? {
                return Err(self.expected(expected));
            }
        }
        Ok(false)
    }

    fn key(&mut self) -> Read<()> {
        let at = self.at_next();
        if self.peek() != Some(b'"') {
            return Err(self.expected("a key in double quotes"));
        }
        let text = self.string()?;
        self.tree.key(text, at);
        if self.peek() != Some(b':') {
            return Err(self.expected("`:` after the key"));
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(&mut self) -> Read<NodeKind<'a>> {
        match self.peek() {
            Some(b'"') => self.string().map(NodeKind::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Read<NodeKind<'a>> {
        let rest = &self.text[self.at..];
        let length = rest.bytes().take_while(u8::is_ascii_alphanumeric).count();
        let kind = match &rest[..length] {
            "null" => NodeKind::Null,
            "true" => NodeKind::Bool(true),
            "false" => NodeKind::Bool(false),
            _ => return Err(self.expected("a value")),
        };
        self.at += length;
        Ok(kind)
    }

    fn number(&mut self) -> Read<NodeKind<'a>> {
        let rest = &self.text[self.at..];
        let in_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        let literal = &rest[..rest.bytes().take_while(in_number).count()];
        serde_json::from_str::<serde_json::Number>(literal)
            .map_err(|error| FileFinding::at(self.at, reason(&error)))?;
        self.at += literal.len();
        Ok(NodeKind::Number(literal.into()))
    }

    /// A string; `serde_json` decodes it if it has escapes.
    fn string(&mut self) -> Read<Cow<'a, str>> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut escaped = false;
        let mut end = start + 1;
        loop {
            match bytes.get(end) {
                None | Some(b'\n') => return Err(unclosed(start)),
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    end += 2;
                }
                Some(0..0x20) => return Err(control_character(end)),
                Some(_) => end += 1,
            }
        }
        self.at = end + 1;
        match escaped {
            false => Ok(self.text[start + 1..end].into()),
            true => serde_json::from_str::<String>(&self.text[start..=end])
                .map(Cow::Owned)
                .map_err(|error| {
                    FileFinding::at(start + error.column().saturating_sub(1), reason(&error))
                }),
        }
    }

    fn at_next(&mut self) -> usize {
        self.peek();
        self.at
    }

    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = bytes.get(self.at) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn expected(&mut self, what: &str) -> FileFinding {
        let next = self.peek();
        let found = self.text[self.at..].chars().next();
        let message = match found {
            None => format!("expected {what}, found the end of the file"),
            Some(c) => format!("expected {what}, found `{}`", printable(c)),
        };
        let hint = match next {
            Some(b'}' | b']') => Some("JSON has no comma before a closing bracket"),
            Some(b'/' | b'#') => Some("JSON has no comments; YAML and TOML have"),
            Some(b'\'') => Some("JSON writes texts in double quotes"),
            Some(b'T' | b'F' | b'N') => {
                Some("JSON writes `true`, `false` and `null` in lower case")
            }
            Some(b'A'..=b'Z' | b'a'..=b'z') => Some("JSON writes texts and keys in double quotes"),
            _ => None,
        };
        FileFinding::at(self.at, message).maybe_hint(hint.map(Into::into))
    }
}

/// `serde_json`'s message without its line and column, which count from the slice it was given.
fn reason(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.rsplit_once(" at line ").map_or(message.as_str(), |(reason, _)| reason).to_owned()
}

fn unclosed(start: usize) -> FileFinding {
    FileFinding::at(start, "the text has no closing quote on its line")
        .hint("write `\\n` for a line break inside a text")
}

fn control_character(at: usize) -> FileFinding {
    FileFinding::at(at, "control character in a text").hint("write it as an escape, as in `\\t`")
}
