//! [`ToolSchema`]: what a tool takes or gives, as a JSON Schema that every client can read.
//!
//! Clients differ in what they read of JSON Schema, and some drop a whole tool, or all of them, over a word that they
//! do not know. So a schema is checked when its file is read, and is refused with the word that has to go.

use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value as Json, json};

/// Words at the top of a schema with which hosts drop the tool.
const NOT_ON_TOP: [&str; 3] = ["oneOf", "anyOf", "allOf"];

/// Words whose value is data and no schema.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// What is said in place of a value in a refusal: a value may be long, or nobody else's business.
const THE_VALUE: &str = "the value";

/// A schema of objects, ready to check them.
#[derive(Debug, Clone)]
pub(super) struct ToolSchema {
    schema: Arc<Map<String, Json>>,
    validator: Arc<Validator>,
}

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaMismatch {
    /// The field, such as `size.width`; empty: the object itself.
    pub(super) field: String,
    /// What is wrong with it.
    pub(super) why: String,
}

impl ToolSchema {
    /// The schema of a tool.
    ///
    /// # Errors
    /// It is no schema of objects, or one that strict clients cannot read.
    pub(super) fn new(mut schema: Map<String, Json>) -> Result<Self, String> {
        schema.remove("$schema"); // Some clients refuse it, and all know which draft is meant.
        let kind = schema.entry("type").or_insert_with(|| "object".into());
        if kind != "object" {
            return Err("type has to be \"object\" at the top".into());
        }
        if let Some(word) = NOT_ON_TOP.iter().find(|word| schema.contains_key(**word)) {
            return Err(format!("{word} cannot stand at the top: many clients do not read it"));
        }
        schema.entry("properties").or_insert_with(|| json!({}));
        let whole = Json::Object(schema);
        check_words(&whole)?;
        let validator = validator(&whole)?;
        let Json::Object(schema) = whole else { return Err("it is no object".into()) };
        Ok(Self { schema: schema.into(), validator: validator.into() })
    }

    /// That of a tool that says nothing of it: any object.
    ///
    /// # Errors
    /// As [`new`](Self::new); this one is well formed.
    pub(super) fn any() -> Result<Self, String> {
        Self::new(Map::new())
    }

    /// The schema as clients get it.
    pub(super) fn shown(&self) -> Arc<Map<String, Json>> {
        Arc::clone(&self.schema)
    }

    /// Checks an object.
    ///
    /// # Errors
    /// What is wrong first.
    pub(super) fn check(&self, given: &Json) -> Result<(), SchemaMismatch> {
        self.validator.validate(given).map_err(|error| mismatch(&error))
    }
}

/// Checks an object against a schema that is known for this once.
///
/// # Errors
/// What is wrong first, also if it is the schema.
pub(super) fn check_once(schema: &Json, given: &Json) -> Result<(), SchemaMismatch> {
    let wrong = |why| SchemaMismatch { field: String::new(), why };
    let validator = validator(schema).map_err(wrong)?;
    validator.validate(given).map_err(|error| mismatch(&error))
}

/// Patterns are looked for in linear time, whoever has written them, and nothing is fetched.
fn validator(schema: &Json) -> Result<Validator, String> {
    jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .map_err(|error| error.to_string())
}

/// Refuses words that strict clients cannot read, wherever they stand.
fn check_words(schema: &Json) -> Result<(), String> {
    match schema {
        Json::Object(words) => {
            if words.get("$ref").is_some_and(Json::is_string) {
                return Err("$ref cannot be used: write out what it stands for".into());
            }
            if words.get("type").is_some_and(Json::is_array) {
                return Err("type has to be one name: some clients drop tools with a list".into());
            }
            let inner = words.iter().filter(|(word, _)| !DATA.contains(&word.as_str()));
            inner.map(|(_, value)| value).try_for_each(check_words)
        }
        Json::Array(all) => all.iter().try_for_each(check_words),
        _ => Ok(()),
    }
}

fn mismatch(error: &ValidationError<'_>) -> SchemaMismatch {
    let path = error.instance_path().to_string();
    let mut field: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match error.kind() {
        ValidationErrorKind::Required { property } => field.extend(property.as_str()),
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            field.extend(unexpected.first().map(String::as_str));
        }
        _ => {}
    }
    SchemaMismatch { field: field.join("."), why: error.masked_with(THE_VALUE).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(given: Json) -> Result<ToolSchema, String> {
        let Json::Object(given) = given else { panic!("{given}") };
        ToolSchema::new(given)
    }

    /// What clients get has a type and properties, and no word on which one of them trips.
    #[test]
    fn a_schema_is_what_all_clients_read() {
        let of = |given| Json::Object((*schema(given).unwrap().shown()).clone());
        let empty = json!({"type": "object", "properties": {}});
        assert_eq!(of(json!({})), empty);
        assert_eq!(of(json!({"$schema": "https://json-schema.org/draft/2020-12/schema"})), empty);
        let named = json!({
            "type": "object",
            "properties": {"$ref": {"type": "string"}, "type": {"enum": [{"$ref": "a"}]}},
        });
        assert_eq!(of(named.clone()), named, "these are names and data");
        for (wrong, word) in [
            (json!({"type": "array"}), "object"),
            (json!({"type": ["object", "null"]}), "object"),
            (json!({"anyOf": []}), "anyOf"),
            (json!({"properties": {"a": {"type": ["string", "null"]}}}), "one name"),
            (json!({"properties": {"a": {"items": [{"$ref": "#/$defs/a"}]}}}), "$ref"),
            (json!({"properties": {"a": {"type": "text"}}}), "text"),
            (json!({"properties": {"a": {"pattern": "(?=a)"}}}), "(?=a)"),
        ] {
            let why = schema(wrong.clone()).unwrap_err();
            assert!(why.contains(word), "{wrong}: {why}");
        }
    }

    /// A refusal names the field, and does not repeat what was given.
    #[test]
    fn a_mismatch_names_its_field() {
        let schema = schema(json!({
            "properties": {
                "size": {
                    "type": "object",
                    "properties": {"width": {"type": "integer", "maximum": 9}},
                    "required": ["width"],
                },
            },
            "additionalProperties": false,
        }))
        .unwrap();
        assert_eq!(schema.check(&json!({"size": {"width": 3}})), Ok(()));
        for (given, field) in [
            (json!({"size": {"width": 4711}}), "size.width"),
            (json!({"size": {}}), "size.width"),
            (json!({"size": "4711"}), "size"),
            (json!({"other": 4711}), "other"),
            (json!(4711), ""),
        ] {
            let wrong = schema.check(&given).unwrap_err();
            assert_eq!(wrong.field, field, "{given}");
            assert!(!wrong.why.contains("4711"), "{}", wrong.why);
        }
    }
}
