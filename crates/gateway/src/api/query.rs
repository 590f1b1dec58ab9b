//! The query string of a request, as fields of the input of an operation.
//!
//! What type a field has is read from the JSON Schema of the input, in the catalog. A text that is no
//! value of that type stays a text: the reader of the input refuses it, and names the field.

use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value as Json};
use smol_str::SmolStr;

use super::pack::Fields;
use crate::problem::HttpProblem;

/// The most parameters that a query string may have: more than any operation has fields, and few enough
/// to look through.
pub(super) const PARAMETERS_MAX: usize = 64;

/// A query string, decoded.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Vec<(SmolStr, String)>);

impl Parameters {
    /// Decodes a query string.
    ///
    /// # Errors
    /// 400: it has too many parameters, or is no UTF-8.
    pub(crate) fn read(text: Option<&str>) -> Result<Self, HttpProblem> {
        let parts = text.unwrap_or_default().split('&').filter(|part| !part.is_empty());
        let mut all = Vec::new();
        for part in parts {
            if all.len() == PARAMETERS_MAX {
                let message = format!("a query string has at most {PARAMETERS_MAX} parameters");
                return Err(HttpProblem::malformed(message));
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            all.push((decoded(name)?.into(), decoded(value)?));
        }
        Ok(Self(all))
    }

    /// Takes the parameter of this name out.
    ///
    /// # Errors
    /// 400: it is given more than once.
    pub(crate) fn take(&mut self, name: &str) -> Result<Option<String>, HttpProblem> {
        let Some(at) = self.0.iter().position(|(it, _)| it == name) else { return Ok(None) };
        let (_, value) = self.0.remove(at);
        match self.0.iter().any(|(it, _)| it == name) {
            true => Err(HttpProblem::malformed(format!("the parameter {name} is given twice"))),
            false => Ok(Some(value)),
        }
    }

    /// Takes a number out.
    ///
    /// # Errors
    /// 400: it is given more than once; 422: it is no number.
    pub(crate) fn take_number(&mut self, name: &str) -> Result<Option<u64>, HttpProblem> {
        let Some(text) = self.take(name)? else { return Ok(None) };
        let no_number = |_| {
            let message = format!("{name} is a whole number that is not negative");
            tenure_core::Rejection::invalid(name, message).into()
        };
        text.parse().map(Some).map_err(no_number)
    }

    /// Takes a time out: `30s`, `500ms`, or a number of seconds.
    ///
    /// # Errors
    /// 400: it is given more than once; 422: it is no time.
    pub(crate) fn take_time(&mut self, name: &str) -> Result<Option<Duration>, HttpProblem> {
        let Some(text) = self.take(name)? else { return Ok(None) };
        let no_time = || {
            let message =
                format!("{name} is a time in whole seconds or milliseconds, such as 30s or 500ms");
            tenure_core::Rejection::invalid(name, message).into()
        };
        time(&text).map(Some).ok_or_else(no_time)
    }

    /// What is left, in its order.
    pub(super) fn rest(&self) -> &[(SmolStr, String)] {
        &self.0
    }

    /// Refuses what is left: nothing has read it.
    ///
    /// # Errors
    /// 422: there is something.
    pub(crate) fn end(&self) -> Result<(), HttpProblem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(80).collect();
                let message = format!("there is no parameter `{name}` here");
                Err(tenure_core::Rejection::invalid(&name, message).into())
            }
        }
    }

    /// What is left, as fields of an input with this schema.
    pub(super) fn fields(&self, schema: &InputSchema<'_>) -> Fields {
        let mut fields = Fields::new();
        for (name, text) in &self.0 {
            match schema.kind(name) {
                ParameterKind::List(of) => {
                    let items = text.split(',').map(|item| of.value(item));
                    append(&mut fields, name, items);
                }
                ParameterKind::Map => insert(&mut fields, name, text),
                ParameterKind::One(of) => fields.push((name.clone(), of.value(text))),
            }
        }
        fields
    }
}

fn time(text: &str) -> Option<Duration> {
    if let Some(milliseconds) = text.strip_suffix("ms") {
        return milliseconds.parse().ok().map(Duration::from_millis);
    }
    text.strip_suffix('s').unwrap_or(text).parse().ok().map(Duration::from_secs)
}

fn decoded(text: &str) -> Result<String, HttpProblem> {
    let text = text.replace('+', " ");
    let text = percent_decode_str(&text).decode_utf8().map(String::from);
    text.map_err(|_| HttpProblem::malformed("the query string is no UTF-8"))
}

/// Adds values to a field that is a list.
fn append(fields: &mut Fields, name: &SmolStr, values: impl Iterator<Item = Json>) {
    let found = fields.iter_mut().find(|(it, _)| it == name);
    match found {
        Some((_, Json::Array(all))) => all.extend(values),
        _ => fields.push((name.clone(), values.collect())),
    }
}

/// Adds an entry, `key=value`, to a field that is a map.
fn insert(fields: &mut Fields, name: &SmolStr, text: &str) {
    let entry = text.split_once('=').map(|(key, value)| (key.to_owned(), Json::from(value)));
    let found = fields.iter_mut().find(|(it, _)| it == name);
    match (found, entry) {
        (Some((_, Json::Object(all))), Some(entry)) => all.extend([entry]),
        (_, Some(entry)) => fields.push((name.clone(), Map::from_iter([entry]).into())),
        (_, None) => fields.push((name.clone(), text.into())),
    }
}

/// How a parameter is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    /// One value.
    One(Scalar),
    /// Values with commas between them, or the parameter again and again.
    List(Scalar),
    /// `key=value`, again and again.
    Map,
}

/// The type of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scalar {
    Text,
    Number,
    Boolean,
}

impl Scalar {
    fn value(self, text: &str) -> Json {
        let read = match self {
            Self::Text => None,
            Self::Number => text.parse::<u64>().ok().map(Json::from),
            Self::Boolean => text.parse::<bool>().ok().map(Json::from),
        };
        read.unwrap_or_else(|| text.into())
    }
}

/// The JSON Schema of the input of an operation, with the schemas to which it refers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputSchema<'a> {
    /// The schema.
    pub(crate) input: &'a Json,
    /// The others, by name.
    pub(crate) all: &'a Map<String, Json>,
}

impl<'a> InputSchema<'a> {
    /// The fields of the input with their schemas.
    pub(crate) fn properties(&self) -> Option<&'a Map<String, Json>> {
        self.resolved(self.input).get("properties")?.as_object()
    }

    /// The schema itself, behind references.
    pub(crate) fn whole(&self) -> Option<&'a Map<String, Json>> {
        self.resolved(self.input).as_object()
    }

    /// Whether the input needs this field.
    pub(crate) fn requires(&self, name: &str) -> bool {
        let required = self.resolved(self.input).get("required").and_then(Json::as_array);
        required.is_some_and(|all| all.iter().any(|it| it == name))
    }

    /// How a parameter is read. A parameter that the input does not have is a text.
    pub(crate) fn kind(&self, name: &str) -> ParameterKind {
        let schema = self.properties().and_then(|all| all.get(name));
        let Some(schema) = schema.map(|schema| self.resolved(schema)) else {
            return ParameterKind::One(Scalar::Text);
        };
        match type_of(schema) {
            Some("array") => {
                let items = schema.get("items").map(|items| self.resolved(items));
                ParameterKind::List(items.map_or(Scalar::Text, scalar))
            }
            Some("object") => ParameterKind::Map,
            _ => ParameterKind::One(scalar(schema)),
        }
    }

    /// The schema behind references, and behind the choice between a value and null.
    fn resolved(&self, schema: &'a Json) -> &'a Json {
        let mut schema = schema;
        for _ in 0..8 {
            let named = schema.get("$ref").and_then(Json::as_str);
            let named = named.and_then(|path| path.rsplit('/').next());
            let choice = schema.get("anyOf").and_then(Json::as_array);
            let choice = choice.and_then(|all| all.iter().find(|it| type_of(it) != Some("null")));
            match named.and_then(|name| self.all.get(name)).or(choice) {
                Some(behind) => schema = behind,
                None => break,
            }
        }
        schema
    }
}

fn scalar(schema: &Json) -> Scalar {
    match type_of(schema) {
        Some("integer") => Scalar::Number,
        Some("boolean") => Scalar::Boolean,
        _ => Scalar::Text,
    }
}

/// The type in a schema, beside null.
fn type_of(schema: &Json) -> Option<&str> {
    match schema.get("type")? {
        Json::String(name) => Some(name),
        Json::Array(names) => names.iter().filter_map(Json::as_str).find(|name| *name != "null"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use serde_json::json;

    use super::*;

    fn fields(text: &str) -> Json {
        let all = json!({ "Status": { "enum": ["running"], "type": "string" } });
        let input = json!({ "type": "object", "properties": {
            "limit": { "type": ["integer", "null"] },
            "is_wanted": { "type": "boolean" },
            "statuses": { "type": ["array", "null"], "items": { "$ref": "#/inputs/Status" } },
            "labels": { "type": "object" },
            "key": { "anyOf": [{ "$ref": "#/inputs/Status" }, { "type": "null" }] },
        }});
        let schema = InputSchema { input: &input, all: all.as_object().unwrap() };
        let query = Parameters::read(Some(text)).unwrap();
        Map::from_iter(query.fields(&schema).into_iter().map(|(k, v)| (k.into(), v))).into()
    }

    #[test]
    fn parameters_have_the_types_of_the_schema() {
        let read = fields("limit=5&is_wanted=true&statuses=a,b&statuses=c&key=k");
        let expected =
            json!({ "limit": 5, "is_wanted": true, "statuses": ["a", "b", "c"], "key": "k" });
        assert_eq!(read, expected);
        assert_eq!(
            fields("labels=a%3Db%3Dc&labels=d="),
            json!({ "labels": { "a": "b=c", "d": "" } })
        );
    }

    #[test]
    fn what_does_not_fit_stays_a_text_for_the_reader_to_refuse() {
        let read = fields("limit=-1&is_wanted=yes&labels=none&other=1");
        let expected = json!({ "limit": "-1", "is_wanted": "yes", "labels": "none", "other": "1" });
        assert_eq!(read, expected);
    }

    #[test]
    fn a_query_string_is_decoded_and_bounded() {
        let mut query = Parameters::read(Some("a=b+c%20%C3%A9&&d")).unwrap();
        assert_eq!(query.take("a").unwrap().as_deref(), Some("b c é"));
        assert_eq!(query.take("d").unwrap().as_deref(), Some(""));
        assert_eq!(query.take("e").unwrap(), None);
        query.end().unwrap();
        assert_eq!(Parameters::read(Some("a=%FF")).unwrap_err().status(), StatusCode::BAD_REQUEST);
        let many = |count| vec!["a=1"; count].join("&");
        assert!(Parameters::read(Some(&many(PARAMETERS_MAX))).is_ok());
        assert!(Parameters::read(Some(&many(PARAMETERS_MAX + 1))).is_err());
    }

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        for (text, ms) in [("30s", 30_000), ("500ms", 500), ("2", 2_000), ("0", 0)] {
            assert_eq!(time(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "ms", "-1s", "1m", "1.5s"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn a_parameter_of_the_gateway_is_given_once() {
        let twice = Parameters::read(Some("wait=1&wait=2")).unwrap().take("wait").unwrap_err();
        assert_eq!(twice.status(), StatusCode::BAD_REQUEST);
        let text = Parameters::read(Some("since=x")).unwrap().take_number("since").unwrap_err();
        assert_eq!(text.status(), StatusCode::UNPROCESSABLE_ENTITY);
        let unknown = Parameters::read(Some("x=1")).unwrap().end().unwrap_err();
        assert_eq!(unknown.rejection().details["field"], "x");
    }
}
