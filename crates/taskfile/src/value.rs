use serde_json::{Map, Value};

use super::format::Format;
use super::limits::FILE_BYTES_MAX;
use super::node::{Kind, Node, number};
use super::report::{Finding, quoted};
use super::source::Source;
use super::{TaskFileError, syntax, too_large};

/// Reads any YAML, TOML or JSON text as a value; `name` stands in messages, and its extension tells
/// the notation. Limits and messages are those of task files.
pub fn value(bytes: &[u8], name: &str) -> Result<Value, TaskFileError> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large(name));
    }
    let source = Source::decode(name, bytes)?;
    let format = Format::detect(name, source.text);
    let root = syntax::parse(source.text, format);
    root.and_then(|root| plain(&root)).map_err(|found| found.into_error(source))
}

/// Recursion is bounded by the depth of the tree.
fn plain(node: &Node<'_>) -> Result<Value, Finding> {
    Ok(match &node.kind {
        Kind::Null => Value::Null,
        Kind::Bool(value) => Value::Bool(*value),
        Kind::Text(text) => Value::String(text.to_string()),
        Kind::Number(literal) => Value::Number(number(literal).ok_or_else(|| {
            Finding::at(node.at(), format!("{} does not fit a JSON number", quoted(literal)))
        })?),
        Kind::List(items) => items.iter().map(plain).collect::<Result<_, _>>()?,
        Kind::Map(entries) => {
            let entry = |e: &super::node::Entry<'_>| Ok((e.key.to_string(), plain(&e.value)?));
            Value::Object(entries.iter().map(entry).collect::<Result<Map<_, _>, Finding>>()?)
        }
    })
}
