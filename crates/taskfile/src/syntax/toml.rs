//! The reader of TOML.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Read;
use super::builder::{Builder, duplicate_key, too_deep};
use crate::limits::TOML_BYTES_MAX;
use crate::node::{NodeKind, SyntaxNode};
use crate::report::FileFinding;

/// Reads TOML. The library limits nesting itself, and thereby the recursion below.
pub(super) fn parse(text: &str) -> Read<SyntaxNode<'_>> {
    if text.len() > TOML_BYTES_MAX {
        let message = format!("the file is larger than {TOML_BYTES_MAX} bytes");
        return Err(
            FileFinding::of_file(message).hint("a task of this size goes into YAML or JSON")
        );
    }
    let table = DeTable::parse(text).map_err(|error| refused(&error, text))?;
    let mut tree = Builder::default();
    put_table(&mut tree, table.span().start, table.into_inner())?;
    tree.finish().ok_or_else(|| FileFinding::at(0, "expected a table"))
}

fn refused(error: &toml::de::Error, text: &str) -> FileFinding {
    let span = error.span().unwrap_or_default();
    let at = span.start;
    let message = error.message();
    // The library stops at 80 levels, with two different messages.
    if message.contains("recurs") {
        return too_deep(at);
    }
    if message == "duplicate key" {
        return duplicate_key(text.get(span).unwrap_or_default(), at);
    }
    FileFinding::at(at, message)
}

fn put_table<'a>(tree: &mut Builder<'a>, at: usize, table: DeTable<'a>) -> Read<()> {
    tree.open_map(at)?;
    let mut entries: Vec<_> = table.into_iter().collect();
    // The library sorts by key; the file's order is better for messages.
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let key_at = key.span().start;
        tree.key(key.into_inner(), key_at);
        put(tree, value)?;
    }
    close(tree)
}

fn put<'a>(tree: &mut Builder<'a>, value: Spanned<DeValue<'a>>) -> Read<()> {
    let at = value.span().start;
    let kind = match value.into_inner() {
        DeValue::Table(table) => return put_table(tree, at, table),
        DeValue::Array(items) => {
            tree.open_list(at)?;
            for item in items {
                put(tree, item)?;
            }
            return close(tree);
        }
        DeValue::String(text) => NodeKind::Text(text),
        DeValue::Boolean(value) => NodeKind::Bool(value),
        DeValue::Integer(literal) => NodeKind::Number(literal.to_string().into()),
        DeValue::Float(literal) => float(literal.to_string().into()),
        DeValue::Datetime(time) => NodeKind::Text(time.to_string().into()),
    };
    tree.put(SyntaxNode::new(at, kind))
}

/// Treats `inf` and `nan` as texts: they are no numbers in JSON, the form of inputs.
fn float(literal: Cow<'_, str>) -> NodeKind<'_> {
    if literal.ends_with(['f', 'n']) { NodeKind::Text(literal) } else { NodeKind::Number(literal) }
}

fn close(tree: &mut Builder<'_>) -> Read<()> {
    match tree.close()? {
        Some(node) => tree.put(node),
        None => Ok(()),
    }
}
