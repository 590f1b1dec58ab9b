//! Reads any YAML, TOML or JSON text as a JSON value.

use serde_json::{Map, Value};

use super::format::FileFormat;
use super::limits::FILE_BYTES_MAX;
use super::node::{NodeKind, SyntaxNode, number};
use super::report::{FileFinding, quoted};
use super::source::Source;
use super::{TaskFileError, syntax, too_large};

/// Reads any YAML, TOML or JSON text as a value. Messages call it `name`, and the extension of
/// `name` gives the notation. It has the limits and messages of task files.
pub fn value(bytes: &[u8], name: &str) -> Result<Value, TaskFileError> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large(name));
    }
    let source = Source::decode(name, bytes)?;
    let format = FileFormat::detect(name, source.text);
    let root = syntax::parse(source.text, format);
    root.and_then(|root| plain(&root)).map_err(|found| found.into_error(source))
}

/// The tree as a JSON value. The depth of the tree limits the recursion.
fn plain(node: &SyntaxNode<'_>) -> Result<Value, FileFinding> {
    Ok(match &node.kind {
        NodeKind::Null => Value::Null,
        NodeKind::Bool(value) => Value::Bool(*value),
        NodeKind::Text(text) => Value::String(text.to_string()),
        NodeKind::Number(literal) => Value::Number(number(literal).ok_or_else(|| {
            FileFinding::at(node.at(), format!("{} does not fit a JSON number", quoted(literal)))
        })?),
        NodeKind::List(items) => items.iter().map(plain).collect::<Result<_, _>>()?,
        NodeKind::Map(entries) => {
            let entry = |e: &super::node::MapEntry<'_>| Ok((e.key.to_string(), plain(&e.value)?));
            Value::Object(entries.iter().map(entry).collect::<Result<Map<_, _>, FileFinding>>()?)
        }
    })
}
