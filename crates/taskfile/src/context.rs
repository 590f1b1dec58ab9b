use std::borrow::Cow;
use std::cell::Cell;

use serde_json::{Map, Value};

use super::limits::{DEPTH_MAX, EXPANDED_BYTES_MAX};
use super::node::{Kind, Node, number};
use super::path::Path;
use super::report::{Finding, Report, quoted};
use super::vars::{Expanded, Repetition, Vars, has_reference};

/// What every part of the reader needs: where to put problems, and what references mean.
#[derive(Debug)]
pub(super) struct Context<'c, 'a> {
    pub(super) report: &'c Report<'a>,
    pub(super) vars: &'c Vars<'a>,
    /// Set while a repeated Step is read.
    pub(super) repetition: Option<Repetition<'c>>,
    pub(super) expanded: &'c Expansion,
}

/// Counts the text that substitution and repetition make, since a short file can ask for a lot.
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

impl<'a> Context<'_, 'a> {
    /// The value that `node` stands for: itself, or what its references say. `None` was reported.
    pub(super) fn value<'n>(
        &self,
        node: &'n Node<'a>,
        path: &Path<'_>,
    ) -> Option<Cow<'n, Node<'a>>> {
        let Some(text) = node.as_text().filter(|text| has_reference(text)) else {
            return Some(Cow::Borrowed(node));
        };
        let kind = match self.vars.expand(text, self.repetition) {
            Ok(Expanded::Value(value)) if self.charge(value.weight(), node.at(), path) => {
                value.kind.clone()
            }
            Ok(Expanded::Text(text)) if self.charge(text.len(), node.at(), path) => {
                Kind::Text(text.into())
            }
            Ok(_) => return None,
            Err((message, hint)) => {
                let finding = || Finding::at(node.at(), message).field(path).maybe_hint(hint);
                self.report.add(finding);
                return None;
            }
        };
        Some(Cow::Owned(Node { at: node.at, kind }))
    }

    /// Counts `bytes` of expanded text, or reports that there are too many.
    pub(super) fn charge(&self, bytes: usize, at: usize, path: &Path<'_>) -> bool {
        let fits = self.expanded.charge(bytes);
        if !fits {
            self.report.add(|| too_large(at).field(path));
        }
        fits
    }

    /// A text; numbers and booleans are taken as written, so that `PORT: 8080` needs no quotes.
    pub(super) fn text<'n>(&self, node: &'n Node<'a>, path: &Path<'_>) -> Option<Cow<'n, str>> {
        let value = self.value(node, path)?;
        match value {
            Cow::Borrowed(Node { kind: Kind::Text(text) | Kind::Number(text), .. }) => {
                Some(Cow::Borrowed(text))
            }
            Cow::Owned(Node { kind: Kind::Text(text) | Kind::Number(text), .. }) => {
                Some(Cow::Owned(text.into_owned()))
            }
            value => match value.kind {
                Kind::Bool(value) => Some(if value { "true" } else { "false" }.into()),
                _ => self.wrong_type(&value, path, "a text"),
            },
        }
    }

    /// Reports a value of the wrong type.
    pub(super) fn wrong_type<T>(
        &self,
        node: &Node<'_>,
        path: &Path<'_>,
        expected: &str,
    ) -> Option<T> {
        self.report.add(|| {
            let message = format!("expected {expected}, found {}", node.describe());
            Finding::at(node.at(), message).field(path)
        });
        None
    }

    /// The value as JSON, with references replaced at every depth.
    pub(super) fn json(&self, node: &Node<'a>, path: &Path<'_>) -> Option<Value> {
        self.json_at(node, path, 0)
    }

    fn json_at(&self, node: &Node<'a>, path: &Path<'_>, depth: usize) -> Option<Value> {
        let node = self.value(node, path)?;
        if depth > DEPTH_MAX {
            self.report.add(|| {
                let message = format!("with variables, the value is more than {DEPTH_MAX} deep");
                Finding::at(node.at(), message).field(path)
            });
            return None;
        }
        match &node.kind {
            Kind::Null => Some(Value::Null),
            Kind::Bool(value) => Some(Value::Bool(*value)),
            Kind::Text(text) => Some(Value::String(text.to_string())),
            Kind::Number(literal) => self.json_number(literal, &node, path),
            Kind::List(items) => {
                let item = |(n, item)| self.json_at(item, &path.item(n), depth + 1);
                items.iter().enumerate().map(item).collect()
            }
            Kind::Map(entries) => entries
                .iter()
                .map(|entry| {
                    let value = self.json_at(&entry.value, &path.key(&entry.key), depth + 1)?;
                    Some((entry.key.to_string(), value))
                })
                .collect::<Option<Map<_, _>>>()
                .map(Value::Object),
        }
    }

    fn json_number(&self, literal: &str, node: &Node<'_>, path: &Path<'_>) -> Option<Value> {
        let value = number(literal).map(Value::Number);
        if value.is_none() {
            self.report.add(|| {
                let message = format!("{} does not fit a JSON number", quoted(literal));
                Finding::at(node.at(), message).field(path)
            });
        }
        value
    }
}

/// The plan would not fit in memory.
pub(super) fn too_large(at: usize) -> Finding {
    Finding::at(at, format!("with `vars` and `repeat`, more than {EXPANDED_BYTES_MAX} bytes"))
        .hint("give large data to steps by reference, not in the file")
}
