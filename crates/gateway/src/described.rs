//! How a module describes the routes that it serves and that are no operations of the catalog, for
//! `/openapi.json`.

use schemars::{JsonSchema, Schema, SchemaGenerator};

/// What makes the schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// A route, for the document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DescribedRoute {
    /// The method, in lower case.
    pub(crate) method: &'static str,
    /// The whole path.
    pub(crate) path: &'static str,
    /// A name that no other route has.
    pub(crate) id: &'static str,
    /// What it does, for people.
    pub(crate) summary: &'static str,
    /// Parameters beside those of the path.
    pub(crate) parameters: &'static [Parameter],
    /// The body of the request.
    pub(crate) body: Option<Content>,
    /// The statuses of success, each with the body of its answer.
    pub(crate) answers: &'static [(u16, Option<Content>)],
    /// Statuses with which it may be refused, beside those with which any request may be.
    pub(crate) refusals: &'static [u16],
}

/// A parameter of the query string or a header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    /// Its name.
    pub(crate) name: &'static str,
    /// `query` or `header`.
    pub(crate) place: &'static str,
    /// `string`, `integer` or `boolean`.
    pub(crate) kind: &'static str,
    /// What it says.
    pub(crate) about: &'static str,
}

/// A body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// JSON of this schema.
    Json(SchemaOf),
    /// Something else, of this media type.
    Other(&'static str),
}

/// JSON of a type.
pub(crate) const fn json_of<T: JsonSchema>() -> Content {
    Content::Json(SchemaGenerator::subschema_for::<T>)
}

impl Parameter {
    /// A parameter of the query string.
    pub(crate) const fn query(name: &'static str, kind: &'static str, about: &'static str) -> Self {
        Self { name, place: "query", kind, about }
    }

    /// A header.
    pub(crate) const fn header(name: &'static str, about: &'static str) -> Self {
        Self { name, place: "header", kind: "string", about }
    }
}

impl DescribedRoute {
    /// A resource that is read alone.
    pub(crate) const fn read(
        path: &'static str,
        id: &'static str,
        summary: &'static str,
        parameters: &'static [Parameter],
        answers: &'static [(u16, Option<Content>)],
    ) -> Self {
        Self { method: "get", path, id, summary, parameters, body: None, answers, refusals: &[] }
    }
}
