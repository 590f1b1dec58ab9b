//! Text in, tree of [`SyntaxNode`]s out. One reader per language, one builder that keeps the bounds.

mod builder;
mod json;
mod toml;
mod yaml;

use super::FileFormat;
use super::node::SyntaxNode;
use super::report::FileFinding;

/// What a reader says: the first mistake ends the text, since what follows it cannot be trusted.
type Read<T> = Result<T, FileFinding>;

/// The tree of a text. WfFormat is JSON.
pub(super) fn parse(text: &str, format: FileFormat) -> Read<SyntaxNode<'_>> {
    match format {
        FileFormat::Yaml => yaml::parse(text),
        FileFormat::Toml => toml::parse(text),
        FileFormat::Json | FileFormat::WfFormat => json::parse(text),
    }
}

/// A value given on the command line for a variable that holds a list or a map.
pub(super) fn parse_json(text: &str) -> Read<SyntaxNode<'_>> {
    json::parse(text)
}
