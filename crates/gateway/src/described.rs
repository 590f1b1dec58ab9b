//! How a module describes the routes that it serves and that are no operations of the catalog, for
//! `/openapi.json`.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value as Json, json};

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
    /// What is let through.
    pub(crate) form: ParameterForm,
    /// What it says.
    pub(crate) about: &'static str,
    /// Whether it must be there.
    pub(crate) is_required: bool,
}

/// The form of a parameter: whatever has it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ParameterForm {
    /// Any text.
    Text,
    /// A text of this pattern.
    Pattern(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// The id of a Run or an Attempt.
    Uuid,
    /// A whole number from the one to the other.
    Number(u64, u64),
    /// `true` or `false`.
    Boolean,
}

impl ParameterForm {
    /// The name of a session, a pool, a Task or a Step.
    pub(crate) const NAME: Self = Self::Pattern("^[a-z0-9_-]{1,128}$");
    /// A time: `30s`, `500ms`, or a number of seconds.
    pub(crate) const TIME: Self = Self::Pattern("^[0-9]{1,9}(ms|s)?$");
    /// The place of an event of a Task: its `wal_seq`, and perhaps its number among those that share it.
    pub(crate) const PLACE: Self = Self::Pattern("^[0-9]{1,19}(\\.[1-9][0-9]{0,8})?$");
    /// The digest of a blob.
    pub(crate) const DIGEST: Self = Self::Pattern("^sha256:[0-9a-f]{64}$");
    /// The same, or nothing.
    pub(crate) const PLACE_IF_ANY: Self = Self::Pattern("^([0-9]{1,19}(\\.[1-9][0-9]{0,8})?)?$");
    /// A whole number.
    pub(crate) const NUMBER: Self = Self::Number(0, u64::MAX);

    /// As a schema.
    pub(crate) fn schema(self) -> Json {
        match self {
            Self::Text => json!({ "type": "string" }),
            Self::Pattern(pattern) => json!({ "type": "string", "pattern": pattern }),
            Self::Word(words) => json!({ "type": "string", "enum": words }),
            Self::Uuid => json!({ "type": "string", "format": "uuid" }),
            Self::Number(least, most) => {
                json!({ "type": "integer", "minimum": least, "maximum": most })
            }
            Self::Boolean => json!({ "type": "boolean" }),
        }
    }
}

/// A body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    /// JSON of this schema.
    Json(SchemaOf),
    /// Something else, of this media type.
    Other(&'static str),
    /// One of these, by what the caller accepts.
    Either(&'static [Self]),
}

/// JSON of a type.
pub(crate) const fn json_of<T: JsonSchema>() -> Content {
    Content::Json(SchemaGenerator::subschema_for::<T>)
}

impl Parameter {
    /// A parameter of the query string.
    pub(crate) const fn query(
        name: &'static str,
        form: ParameterForm,
        about: &'static str,
    ) -> Self {
        Self { name, place: "query", form, about, is_required: false }
    }

    /// A header.
    pub(crate) const fn header(
        name: &'static str,
        form: ParameterForm,
        about: &'static str,
    ) -> Self {
        Self { name, place: "header", form, about, is_required: false }
    }

    /// The same, which must be there.
    pub(crate) const fn required(mut self) -> Self {
        self.is_required = true;
        self
    }

    /// As a parameter object of the document.
    pub(crate) fn object(&self) -> Json {
        json!({
            "name": self.name,
            "in": self.place,
            "required": self.is_required,
            "description": self.about,
            "schema": self.form.schema(),
        })
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
