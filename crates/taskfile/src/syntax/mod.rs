//! Text in, tree of [`Node`]s out. One reader per language, one builder that keeps the bounds.

mod builder;
mod json;
mod toml;
mod yaml;

use super::Format;
use super::node::Node;
use super::report::Finding;

/// What a reader says: the first mistake ends the text, since what follows it cannot be trusted.
type Read<T> = Result<T, Finding>;

/// The tree of a text. WfFormat is JSON.
pub(super) fn parse(text: &str, format: Format) -> Read<Node<'_>> {
    match format {
        Format::Yaml => yaml::parse(text),
        Format::Toml => toml::parse(text),
        Format::Json | Format::WfFormat => json::parse(text),
    }
}

/// A value given on the command line for a variable that holds a list or a map.
pub(super) fn parse_json(text: &str) -> Read<Node<'_>> {
    json::parse(text)
}
