//! Texts of a process that a file may leave to its worker: `{secret: NAME}` in place of a value.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::context::ReadContext;
use super::fields::Fields;
use super::node::{MapEntry, NodeKind, SyntaxNode};
use super::path::Path;
use super::report::{FileFinding, quoted};

/// The longest name of a secret.
const NAME_MAX: usize = 128;

/// The field of a reference.
const SECRET: &str = "secret";

impl<'a> Fields<'_, 'a> {
    /// A list of texts and secrets, of which the first is a text; one text is a list, too.
    pub(super) fn words(&self, name: &'static str) -> Option<Vec<Value>> {
        let (name, node) = self.node(&[name])?;
        let path = self.path.key(name);
        let value = self.cx.value(node, &path)?;
        let NodeKind::List(items) = &value.kind else {
            return Some(vec![self.cx.text(&value, &path)?.into()]);
        };
        let word = |(at, item): (usize, &SyntaxNode<'a>)| match at {
            0 => self.cx.text(item, &path.item(0)).map(Value::from),
            _ => text_or_secret(self.cx, item, &path.item(at)),
        };
        Some(items.iter().enumerate().filter_map(word).collect())
    }

    /// A map of texts and secrets.
    pub(super) fn values(&self, name: &'static str) -> Option<BTreeMap<String, Value>> {
        let (_, node) = self.node(&[name])?;
        let path = self.path.key(name);
        let value = self.cx.value(node, &path)?;
        let Some(entries) = value.as_map() else {
            return self.cx.wrong_type(&value, &path, "a map of texts");
        };
        let pair = |entry: &MapEntry<'a>| {
            let value = text_or_secret(self.cx, &entry.value, &path.key(&entry.key))?;
            Some((entry.key.to_string(), value))
        };
        Some(entries.iter().filter_map(pair).collect())
    }
}

fn text_or_secret<'a>(
    cx: &ReadContext<'_, 'a>,
    node: &SyntaxNode<'a>,
    path: &Path<'_>,
) -> Option<Value> {
    let value = cx.value(node, path)?;
    let Some([entry]) = value.as_map().filter(|all| all.iter().any(|it| it.key == SECRET)) else {
        return cx.text(&value, path).map(Value::from);
    };
    let path = path.key(SECRET);
    let name = cx.text(&entry.value, &path)?;
    if is_name(&name) {
        return Some(json!({ SECRET: name }));
    }
    cx.report.add(|| {
        let message = format!("{} is not the name of a secret", quoted(&name));
        FileFinding::at(entry.value.at(), message).field(path).hint(format!(
            "1 to {NAME_MAX} characters a-z, A-Z, 0-9, _, - or ., the first a letter, a digit or _"
        ))
    });
    None
}

/// As a worker checks it (`SecretName` of the SDK).
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let first = name.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.len() <= NAME_MAX
        && name.bytes().all(is_plain)
}
