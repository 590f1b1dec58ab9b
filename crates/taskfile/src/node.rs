//! The tree of values that the readers of YAML, TOML and JSON make.

use std::borrow::Cow;

use serde_json::Number;

/// A value of a YAML, TOML or JSON text with its place. The three readers make the same tree, so
/// that all code after them is written once and knows every line.
#[derive(Debug, Clone)]
pub(super) struct SyntaxNode<'a> {
    /// Byte offset of its first character.
    pub(super) at: u32,
    pub(super) kind: NodeKind<'a>,
}

#[derive(Debug, Clone)]
pub(super) enum NodeKind<'a> {
    Null,
    Bool(bool),
    /// The literal as written: a field that wants a text must get `1.10`, not `1.1`.
    Number(Cow<'a, str>),
    Text(Cow<'a, str>),
    List(Vec<SyntaxNode<'a>>),
    Map(Vec<MapEntry<'a>>),
}

#[derive(Debug, Clone)]
pub(super) struct MapEntry<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) key_at: u32,
    pub(super) value: SyntaxNode<'a>,
}

impl MapEntry<'_> {
    pub(super) fn at(&self) -> usize {
        self.key_at as usize
    }
}

impl<'a> SyntaxNode<'a> {
    pub(super) fn new(at: usize, kind: NodeKind<'a>) -> Self {
        SyntaxNode { at: offset(at), kind }
    }

    pub(super) fn at(&self) -> usize {
        self.at as usize
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Null)
    }

    pub(super) fn as_map(&self) -> Option<&[MapEntry<'a>]> {
        match &self.kind {
            NodeKind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub(super) fn as_list(&self) -> Option<&[SyntaxNode<'a>]> {
        match &self.kind {
            NodeKind::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value of `key` in a map.
    pub(super) fn get(&self, key: &str) -> Option<&SyntaxNode<'a>> {
        let entries = self.as_map()?;
        entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The kind of value, for messages such as "expected a text, found a list".
    pub(super) fn describe(&self) -> &'static str {
        match self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Bool(_) => "a boolean",
            NodeKind::Number(_) => "a number",
            NodeKind::Text(_) => "a text",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }

    /// Levels of lists and maps in the value.
    pub(super) fn depth(&self) -> usize {
        match &self.kind {
            NodeKind::List(items) => 1 + items.iter().map(SyntaxNode::depth).max().unwrap_or(0),
            NodeKind::Map(entries) => {
                1 + entries.iter().map(|e| e.value.depth()).max().unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Bytes that a copy of the value takes. The depth of the tree limits the recursion.
    pub(super) fn weight(&self) -> usize {
        let own = size_of::<SyntaxNode<'_>>();
        own + match &self.kind {
            NodeKind::Null | NodeKind::Bool(_) => 0,
            NodeKind::Number(text) | NodeKind::Text(text) => text_weight(text),
            NodeKind::List(items) => items.iter().map(SyntaxNode::weight).sum(),
            NodeKind::Map(entries) => {
                entries.iter().map(|e| own + text_weight(&e.key) + e.value.weight()).sum()
            }
        }
    }
}

/// Bytes that a copy of the text takes beside its node: none for a borrowed text.
#[expect(clippy::ptr_arg, reason = "whether it is owned is the question")]
fn text_weight(text: &Cow<'_, str>) -> usize {
    if let Cow::Owned(text) = text { text.len() } else { 0 }
}

/// A byte offset in 32 bits: files are far smaller than 4 GiB, and offsets take half of a tree's memory.
pub(super) fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The number of a literal in any of the three notations: `0x1f`, `0o17`, `1_000`, `+1`, `.5`.
pub(super) fn number(literal: &str) -> Option<Number> {
    let plain: Cow<'_, str> = match literal.contains('_') {
        true => literal.replace('_', "").into(),
        false => literal.into(),
    };
    let (negative, digits) = match plain.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    if let Some(magnitude) = magnitude(digits) {
        return match negative {
            false => Some(magnitude.into()),
            true => 0i64.checked_sub_unsigned(magnitude).map(Number::from),
        };
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let value: f64 = digits.parse().ok()?;
    Number::from_f64(if negative { -value } else { value })
}

fn magnitude(digits: &str) -> Option<u64> {
    let (digits, radix) = match digits.get(..2) {
        Some("0x") => (&digits[2..], 16),
        Some("0o") => (&digits[2..], 8),
        Some("0b") => (&digits[2..], 2),
        _ => (digits, 10),
    };
    // `from_str_radix` would accept a second sign.
    if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, radix).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_a_number_is_read() {
        let cases = [
            ("0", "0"),
            ("-0", "0"),
            ("+7", "7"),
            ("007", "7"),
            ("1_000", "1000"),
            ("0x1F", "31"),
            ("0o17", "15"),
            ("0b101", "5"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("1.50", "1.5"),
            (".5", "0.5"),
            ("1e3", "1000.0"),
        ];
        for (literal, expected) in cases {
            assert_eq!(number(literal).map(|n| n.to_string()).as_deref(), Some(expected));
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for literal in ["", "-", "+", "--1", "+-1", "0x", "0xg", "1e999", "inf", "nan", "1a", "."] {
            assert_eq!(number(literal), None, "{literal}");
        }
    }
}
