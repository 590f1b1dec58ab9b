//! Reads a text into a tree of [`SyntaxNode`]s: one reader per notation, and one builder that keeps
//! the limits.

mod builder;
mod json;
mod toml;
mod yaml;

use super::FileFormat;
use super::node::SyntaxNode;
use super::report::FileFinding;

/// The result of a reader: the first mistake ends it, since what follows it cannot be trusted.
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
