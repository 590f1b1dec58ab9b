//! Reads the fields of one map of a task file, with their types and limits, and reports mistakes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::context::ReadContext;
use super::ids;
use super::limits::{DURATION_MS_MAX, PRINCIPAL_BYTES_MAX};
use super::node::{MapEntry, NodeKind, SyntaxNode, number};
use super::path::Path;
use super::report::{FileFinding, did_you_mean, quoted};

/// The names of one map's fields, and the names that people write instead, each with a hint.
#[derive(Debug)]
pub(super) struct KnownFields {
    pub(super) names: &'static [&'static str],
    pub(super) meant: &'static [(&'static str, &'static str)],
    /// Whether keys that begin with `x-` are left alone.
    pub(super) extensible: bool,
}

impl KnownFields {
    fn allows(&self, key: &str) -> bool {
        self.names.contains(&key) || self.extensible && key.starts_with("x-")
    }
}

/// A map being read field by field. A field with a mistake goes to the report and reads as absent:
/// the caller drops the plan at the end, and the reader still finds the other mistakes.
pub(super) struct Fields<'f, 'a> {
    pub(super) cx: &'f ReadContext<'f, 'a>,
    pub(super) path: Path<'f>,
    pub(super) at: usize,
    entries: &'f [MapEntry<'a>],
    /// Whether there are unknown fields; a missing field may be one of them, misspelt.
    pub(super) has_unknown: bool,
}

/// A value with its place in the file.
pub(super) type Located<T> = (T, usize);

impl<'f, 'a> Fields<'f, 'a> {
    /// `node` as a map with `known` fields; `None` if a mistake was reported.
    pub(super) fn of(
        cx: &'f ReadContext<'f, 'a>,
        node: &'f SyntaxNode<'a>,
        path: Path<'f>,
        known: &KnownFields,
    ) -> Option<Self> {
        let Some(entries) = node.as_map() else {
            return cx.wrong_type(node, &path, "a map");
        };
        let mut has_unknown = false;
        for entry in entries.iter().filter(|entry| !known.allows(&entry.key)) {
            has_unknown = true;
            cx.report.add(|| unknown_field(entry, &path, known));
        }
        Some(Fields { cx, path, at: node.at(), entries, has_unknown })
    }

    /// The same map for another reading, which does not report unknown fields again.
    pub(super) fn again<'g>(&self, cx: &'g ReadContext<'g, 'a>) -> Fields<'g, 'a>
    where
        'f: 'g,
    {
        Fields { cx, ..*self }
    }

    /// The field that has one of `names`; a field with the value null counts as absent.
    pub(super) fn node(
        &self,
        names: &[&'static str],
    ) -> Option<(&'static str, &'f SyntaxNode<'a>)> {
        self.written(names).filter(|(_, node)| !node.is_null())
    }

    /// The field that has one of `names`, also if its value is null.
    pub(super) fn written(
        &self,
        names: &[&'static str],
    ) -> Option<(&'static str, &'f SyntaxNode<'a>)> {
        let mut found = names.iter().filter_map(|name| Some((*name, self.entry(name)?)));
        let (name, entry) = found.next()?;
        if let Some((other, entry)) = found.next() {
            self.cx.report.add(|| {
                let message = format!("`{name}` and `{other}` are two names of one field");
                FileFinding::at(entry.at(), message).field(self.path).hint("keep one")
            });
        }
        Some((name, &entry.value))
    }

    pub(super) fn entry(&self, name: &str) -> Option<&'f MapEntry<'a>> {
        self.entries.iter().find(|entry| entry.key == name)
    }

    /// Whether the field exists and is not null.
    pub(super) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some_and(|entry| !entry.value.is_null())
    }

    pub(super) fn text(&self, names: &[&'static str]) -> Option<Located<String>> {
        let (name, node) = self.node(names)?;
        let text = self.cx.text(node, &self.path.key(name))?;
        Some((text.into_owned(), node.at()))
    }

    /// A text in the form of an id.
    pub(super) fn id(&self, names: &[&'static str]) -> Option<Located<String>> {
        let (name, node) = self.node(names)?;
        let text = self.cx.text(node, &self.path.key(name))?;
        ids::check(self.cx, &text, node.at(), &self.path.key(name))
            .then(|| (text.into(), node.at()))
    }

    /// The name of a principal.
    pub(super) fn principal(&self, name: &'static str) -> Option<String> {
        let (text, at) = self.text(&[name])?;
        let is_one = (1..=PRINCIPAL_BYTES_MAX).contains(&text.len()) && !text.contains('\0');
        if !is_one {
            self.cx.report.add(|| {
                FileFinding::at(at, format!("{} is not the name of a principal", quoted(&text)))
                    .field(self.path.key(name))
                    .hint(format!("a name has 1 to {PRINCIPAL_BYTES_MAX} bytes"))
            });
        }
        Some(text).filter(|_| is_one)
    }

    pub(super) fn boolean(&self, name: &'static str) -> Option<bool> {
        let (_, node) = self.node(&[name])?;
        let path = self.path.key(name);
        let value = self.cx.value(node, &path)?;
        match value.kind {
            NodeKind::Bool(value) => Some(value),
            _ => self.cx.wrong_type(&value, &path, "`true` or `false`"),
        }
    }

    /// A whole number in `range`.
    pub(super) fn whole(&self, name: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        self.number(name, expected, |number| number.as_u64().filter(|n| range.contains(n)))
    }

    /// A number in `range`.
    pub(super) fn decimal(&self, name: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        let expected = || format!("a number from {} to {}", range.start(), range.end());
        self.number(name, expected, |number| number.as_f64().filter(|n| range.contains(n)))
    }

    /// The result of `pick` for a number; if it is `None`, reports that the number is not `expected`.
    pub(super) fn number<T>(
        &self,
        name: &'static str,
        expected: impl FnOnce() -> String,
        pick: impl FnOnce(serde_json::Number) -> Option<T>,
    ) -> Option<T> {
        let (_, node) = self.node(&[name])?;
        let path = self.path.key(name);
        let value = self.cx.value(node, &path)?;
        let found = match &value.kind {
            NodeKind::Number(literal) => match number(literal).and_then(pick) {
                Some(picked) => return Some(picked),
                None => quoted(literal),
            },
            NodeKind::Text(text) => format!("the text {}", quoted(text)),
            _ => value.describe().into(),
        };
        self.cx.report.add(|| {
            let message = format!("expected {}, found {found}", expected());
            FileFinding::at(node.at(), message).field(path)
        });
        None
    }

    /// A duration of at least `min_ms`, in milliseconds.
    pub(super) fn duration(&self, name: &'static str, min_ms: u64) -> Option<u64> {
        let (_, node) = self.node(&[name])?;
        let path = self.path.key(name);
        let value = self.cx.value(node, &path)?;
        match milliseconds(&value) {
            Ok(ms) if (min_ms..=DURATION_MS_MAX).contains(&ms) => Some(ms),
            Ok(_) => {
                self.cx.report.add(|| {
                    let least = humantime::format_duration(Duration::from_millis(min_ms));
                    let message = format!("expected a duration from {least} to 10 years");
                    FileFinding::at(node.at(), message).field(path)
                });
                None
            }
            Err(no) => {
                self.cx.report.add(|| no.at(node.at()).field(path));
                None
            }
        }
    }

    /// A text, or a list of texts.
    pub(super) fn texts(&self, names: &[&'static str]) -> Option<Vec<Located<String>>> {
        let (name, node) = self.node(names)?;
        let path = self.path.key(name);
        let value = self.cx.value(node, &path)?;
        match &value.kind {
            NodeKind::List(items) => Some(self.items(items, &path)),
            _ => Some(vec![(self.cx.text(&value, &path)?.into_owned(), node.at())]),
        }
    }

    fn items(&self, items: &[SyntaxNode<'a>], path: &Path<'_>) -> Vec<Located<String>> {
        let text = |(n, item): (usize, &SyntaxNode<'a>)| {
            Some((self.cx.text(item, &path.item(n))?.into_owned(), item.at()))
        };
        items.iter().enumerate().filter_map(text).collect()
    }

    /// A map of texts.
    pub(super) fn text_map(&self, name: &'static str) -> Option<BTreeMap<String, String>> {
        let (_, node) = self.node(&[name])?;
        let path = self.path.key(name);
        let value = self.cx.value(node, &path)?;
        let Some(entries) = value.as_map() else {
            return self.cx.wrong_type(&value, &path, "a map of texts");
        };
        let pair = |entry: &MapEntry<'a>| {
            let text = self.cx.text(&entry.value, &path.key(&entry.key))?;
            Some((entry.key.to_string(), text.into_owned()))
        };
        Some(entries.iter().filter_map(pair).collect())
    }

    /// Reports that two fields do not go together.
    pub(super) fn conflict(&self, one: &str, other: &str, hint: &str) {
        let at = self.entry(other).map_or(self.at, MapEntry::at);
        self.cx.report.add(|| {
            FileFinding::at(at, format!("`{one}` and `{other}` do not go together"))
                .field(self.path)
                .hint(hint)
        });
    }
}

fn unknown_field(entry: &MapEntry<'_>, path: &Path<'_>, known: &KnownFields) -> FileFinding {
    let meant = known.meant.iter().find(|(written, _)| entry.key == *written);
    let hint = match meant {
        Some((_, advice)) => (*advice).to_owned(),
        None => did_you_mean(&entry.key, known.names.iter().copied())
            .unwrap_or_else(|| format!("known fields: {}", known.names.join(", "))),
    };
    FileFinding::at(entry.at(), format!("unknown field {}", quoted(&entry.key)))
        .field(path.key(&entry.key))
        .hint(hint)
}

/// A value that is no duration, as a message.
pub(super) struct NoDuration(String);

impl NoDuration {
    pub(super) fn at(self, at: usize) -> FileFinding {
        FileFinding::at(at, self.0)
            .hint("write `500ms`, `30s`, `5m`, `1h 30m`, or milliseconds as a number")
    }
}

/// Reads `30s`, `1h 30m`, or a number of milliseconds.
pub(super) fn milliseconds(node: &SyntaxNode<'_>) -> Result<u64, NoDuration> {
    let read = match &node.kind {
        NodeKind::Number(literal) => number(literal)
            .and_then(|number| number.as_u64())
            .ok_or_else(|| format!("{} is no whole number of milliseconds", quoted(literal))),
        NodeKind::Text(text) => humantime::parse_duration(text)
            .map(|duration| u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX))
            .map_err(|_| format!("{} is no duration", quoted(text))),
        _ => Err(format!("expected a duration, found {}", node.describe())),
    };
    read.map_err(NoDuration)
}
