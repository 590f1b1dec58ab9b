//! The formats of answers: for people, as JSON, as a line of JSON for each item, or as ids alone.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::Value;

use super::exit::{Exit, Failure};
use super::output;

/// How an answer is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    #[default]
    Table,
    /// For programs: the field names of the API, times in epoch milliseconds
    Json,
    /// The same, a line for each item
    Jsonl,
    /// Ids alone, a line for each item
    Quiet,
}

/// Where the items of an answer are, and what names them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// The field with the items; none if the answer itself is the only item.
    items: Option<&'static str>,
    /// The field that names an item, with slashes between nested fields; or several fields that
    /// name it together, with blanks between them. None if items have no name: then `-o quiet`
    /// prints nothing.
    id: Option<&'static str>,
    /// The offset of the next page; none if there are no more items.
    next_offset: Option<usize>,
}

impl Shape {
    /// Items in the field `items`, each named by its field `id`.
    pub(crate) const fn many(items: &'static str, id: &'static str) -> Self {
        Self { items: Some(items), id: Some(id), next_offset: None }
    }

    /// The same for one page of the items.
    pub(crate) const fn before(self, next_offset: Option<usize>) -> Self {
        Self { next_offset, ..self }
    }

    /// One item, named by its field `id`.
    pub(crate) const fn one(id: &'static str) -> Self {
        Self { items: None, id: Some(id), next_offset: None }
    }

    /// An answer without names.
    pub(crate) const fn nameless() -> Self {
        Self { items: None, id: None, next_offset: None }
    }
}

impl Format {
    /// Writes an answer; `table` writes it for people. Most commands end with this.
    pub(crate) fn answer<E>(
        self,
        answer: &impl Serialize,
        shape: Shape,
        table: impl FnOnce() -> Result<(), E>,
    ) -> Result<Exit, Failure>
    where
        Failure: From<E>,
    {
        match self {
            Self::Table => table()?,
            Self::Json => output::print_json(answer)?,
            Self::Jsonl | Self::Quiet => {
                let answer = serde_json::to_value(answer)
                    .map_err(|error| Failure::caused(Exit::Unavailable, &error))?;
                output::print(self.lines(&answer, shape))?;
            }
        }
        if let Some(next) = shape.next_offset.filter(|_| self != Self::Json) {
            output::say(format_args!("there are more: --offset {next}"));
        }
        Ok(Exit::Ok)
    }

    /// Whether it is for programs that read JSON.
    pub(crate) const fn is_json(self) -> bool {
        matches!(self, Self::Json | Self::Jsonl)
    }

    fn lines(self, answer: &Value, shape: Shape) -> String {
        let one = std::slice::from_ref(answer);
        let items = match shape.items {
            Some(field) => answer[field].as_array().map_or(&[][..], Vec::as_slice),
            None => one,
        };
        let mut lines = String::new();
        for item in items {
            let _ = match (self, shape.id) {
                (Self::Quiet, None) => Ok(()),
                (Self::Quiet, Some(id)) => writeln!(lines, "{}", named(item, id)),
                _ => writeln!(lines, "{item}"),
            };
        }
        lines
    }
}

/// The name of an item: those of the fields that it has, or the item itself if it is a text.
fn named(item: &Value, fields: &str) -> String {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if item.is_string() {
        return plain(item);
    }
    let names = fields.split(' ').filter_map(|field| item.pointer(&format!("/{field}")).map(plain));
    names.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_lines_and_ids_are_names() {
        let page = json!({"tasks": [{"task_id": "a", "n": 1}, {"task_id": "b"}], "version": 3});
        let tasks = Shape::many("tasks", "task_id");
        assert_eq!(Format::Quiet.lines(&page, tasks), "a\nb\n");
        assert_eq!(Format::Jsonl.lines(&page, tasks).lines().count(), 2);
        assert_eq!(Format::Quiet.lines(&json!({"tasks": ["a"]}), tasks), "a\n", "an id itself");
        assert_eq!(Format::Quiet.lines(&page["tasks"][0], Shape::one("task_id")), "a\n");
        let both = Shape::many("tasks", "task_id n");
        assert_eq!(Format::Quiet.lines(&page, both), "a 1\nb\n", "of more fields those there are");
        assert_eq!(Format::Quiet.lines(&page, Shape::nameless()), "");
        assert_eq!(Format::Jsonl.lines(&page, Shape::nameless()), format!("{page}\n"));
    }
}
