//! The context of reading a file: the report for mistakes, and the values of references.

use std::borrow::Cow;
use std::cell::Cell;

use serde_json::{Map, Value};

use super::limits::{DEPTH_MAX, EXPANDED_BYTES_MAX};
use super::node::{NodeKind, SyntaxNode, number};
use super::path::Path;
use super::report::{FileFinding, FindingReport, quoted};
use super::vars::{Expanded, Repetition, Vars, has_reference};

/// What every part of the reader needs: the report for mistakes, and the values of references.
#[derive(Debug)]
pub(super) struct ReadContext<'c, 'a> {
    pub(super) report: &'c FindingReport<'a>,
    pub(super) vars: &'c Vars<'a>,
    /// Set while a repeated Step is read.
    pub(super) repetition: Option<Repetition<'c>>,
    pub(super) expanded: &'c Expansion,
}

/// Counts the text that substitution and repetition produce, since a short file can ask for a lot.
#[derive(Debug, Default)]
pub(super) struct Expansion {
    bytes: Cell<usize>,
}

impl Expansion {
    /// Whether `bytes` more still fit.
    pub(super) fn charge(&self, bytes: usize) -> bool {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.bytes.get() <= EXPANDED_BYTES_MAX
    }
}

impl<'a> ReadContext<'_, 'a> {
    /// The value of `node`: itself, or the value of its references. `None` if a mistake was reported.
    pub(super) fn value<'n>(
        &self,
        node: &'n SyntaxNode<'a>,
        path: &Path<'_>,
    ) -> Option<Cow<'n, SyntaxNode<'a>>> {
        let Some(text) = node.as_text().filter(|text| has_reference(text)) else {
            return Some(Cow::Borrowed(node));
        };
        let kind = match self.vars.expand(text, self.repetition) {
            Ok(Expanded::Value(value)) if self.charge(value.weight(), node.at(), path) => {
                value.kind.clone()
            }
            Ok(Expanded::Text(text)) if self.charge(text.len(), node.at(), path) => {
                NodeKind::Text(text.into())
            }
            Ok(_) => return None,
            Err((message, hint)) => {
                let finding = || FileFinding::at(node.at(), message).field(path).maybe_hint(hint);
                self.report.add(finding);
                return None;
            }
        };
        Some(Cow::Owned(SyntaxNode { at: node.at, kind }))
    }

    /// Counts `bytes` of expanded text, or reports that there are too many.
    pub(super) fn charge(&self, bytes: usize, at: usize, path: &Path<'_>) -> bool {
        let fits = self.expanded.charge(bytes);
        if !fits {
            self.report.add(|| too_large(at).field(path));
        }
        fits
    }

    /// A text. Numbers and booleans become texts as written, so that `PORT: 8080` needs no quotes.
    pub(super) fn text<'n>(
        &self,
        node: &'n SyntaxNode<'a>,
        path: &Path<'_>,
    ) -> Option<Cow<'n, str>> {
        let value = self.value(node, path)?;
        match value {
            Cow::Borrowed(SyntaxNode {
                kind: NodeKind::Text(text) | NodeKind::Number(text),
                ..
            }) => Some(Cow::Borrowed(text)),
            Cow::Owned(SyntaxNode {
                kind: NodeKind::Text(text) | NodeKind::Number(text), ..
            }) => Some(Cow::Owned(text.into_owned())),
            value => match value.kind {
                NodeKind::Bool(value) => Some(if value { "true" } else { "false" }.into()),
                _ => self.wrong_type(&value, path, "a text"),
            },
        }
    }

    /// Reports a value of the wrong type.
    pub(super) fn wrong_type<T>(
        &self,
        node: &SyntaxNode<'_>,
        path: &Path<'_>,
        expected: &str,
    ) -> Option<T> {
        self.report.add(|| {
            let message = format!("expected {expected}, found {}", node.describe());
            FileFinding::at(node.at(), message).field(path)
        });
        None
    }

    /// The value as JSON, with references replaced at every depth.
    pub(super) fn json(&self, node: &SyntaxNode<'a>, path: &Path<'_>) -> Option<Value> {
        self.json_at(node, path, 0)
    }

    fn json_at(&self, node: &SyntaxNode<'a>, path: &Path<'_>, depth: usize) -> Option<Value> {
        let node = self.value(node, path)?;
        if depth > DEPTH_MAX {
            self.report.add(|| {
                let message = format!("with variables, the value is more than {DEPTH_MAX} deep");
                FileFinding::at(node.at(), message).field(path)
            });
            return None;
        }
        match &node.kind {
            NodeKind::Null => Some(Value::Null),
            NodeKind::Bool(value) => Some(Value::Bool(*value)),
            NodeKind::Text(text) => Some(Value::String(text.to_string())),
            NodeKind::Number(literal) => self.json_number(literal, &node, path),
            NodeKind::List(items) => {
                let item = |(n, item)| self.json_at(item, &path.item(n), depth + 1);
                items.iter().enumerate().map(item).collect()
            }
            NodeKind::Map(entries) => entries
                .iter()
                .map(|entry| {
                    let value = self.json_at(&entry.value, &path.key(&entry.key), depth + 1)?;
                    Some((entry.key.to_string(), value))
                })
                .collect::<Option<Map<_, _>>>()
                .map(Value::Object),
        }
    }

    fn json_number(&self, literal: &str, node: &SyntaxNode<'_>, path: &Path<'_>) -> Option<Value> {
        let value = number(literal).map(Value::Number);
        if value.is_none() {
            self.report.add(|| {
                let message = format!("{} does not fit a JSON number", quoted(literal));
                FileFinding::at(node.at(), message).field(path)
            });
        }
        value
    }
}

/// The mistake of a plan that would not fit in memory.
pub(super) fn too_large(at: usize) -> FileFinding {
    FileFinding::at(at, format!("with `vars` and `repeat`, more than {EXPANDED_BYTES_MAX} bytes"))
        .hint("give large data to steps by reference, not in the file")
}
