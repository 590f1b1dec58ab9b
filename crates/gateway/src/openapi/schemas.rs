//! The schemas of the document. Those of the catalog have two homes, for what nodes read and for what they
//! write; a document has one.

use std::collections::{BTreeMap, BTreeSet};

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json};
use tenure_wire::bus::catalog::Catalog;

use crate::described::SchemaOf;

/// Where schemas are in the document.
const PREFIX: &str = "#/components/schemas/";

/// Where the catalog has those of what nodes read, and of what they write.
const INPUTS: &str = "#/inputs/";
const OUTPUTS: &str = "#/outputs/";

/// What is put behind the name of an input that differs from the output of the same name.
const AS_INPUT: &str = "Input";

/// Schemas that the document needs so far.
pub(super) struct Components<'a> {
    catalog: &'a Catalog,
    /// Names of inputs that differ from the output of the same name.
    differing: BTreeSet<&'a str>,
    schemas: Map<String, Json>,
    /// Makes schemas of what the gateway answers.
    answers: SchemaGenerator,
    /// Makes schemas of what it reads, in which fields with a default are optional.
    bodies: SchemaGenerator,
}

impl<'a> Components<'a> {
    /// None so far.
    pub(super) fn new(catalog: &'a Catalog) -> Self {
        let at = |settings: SchemaSettings, path: &'static str| {
            settings.with(|it| it.definitions_path = path.into()).into_generator()
        };
        let settings = SchemaSettings::draft2020_12;
        Self {
            catalog,
            differing: differing(catalog),
            schemas: Map::new(),
            answers: at(settings().for_serialize(), "/components/schemas"),
            bodies: at(settings().for_deserialize(), "/inputs"),
        }
    }

    /// A schema of the catalog, for the document: what it refers to is there, too.
    pub(super) fn of_catalog(&mut self, schema: &Json) -> Json {
        let mut schema = schema.clone();
        self.rename(&mut schema);
        schema
    }

    /// A schema of an answer that the catalog does not have.
    pub(super) fn of_answer(&mut self, schema: SchemaOf) -> Json {
        schema(&mut self.answers).to_value()
    }

    /// A schema of a body that the catalog does not have.
    pub(super) fn of_body(&mut self, schema: SchemaOf) -> Json {
        let mut schema = schema(&mut self.bodies).to_value();
        self.rename(&mut schema);
        schema
    }

    /// Whether an object of this schema, which is in the document, needs a field.
    pub(super) fn needs_a_field(&self, schema: &Json) -> bool {
        let reference = schema.get("$ref").and_then(Json::as_str);
        let named = reference.and_then(|it| self.schemas.get(it.strip_prefix(PREFIX)?));
        let schema = named.unwrap_or(schema);
        let all_of = schema.get("allOf").and_then(Json::as_array).into_iter().flatten();
        let required = schema.get("required").and_then(Json::as_array);
        required.is_some_and(|names| !names.is_empty())
            || all_of.into_iter().any(|part| self.needs_a_field(part))
    }

    /// All schemas, by name.
    pub(super) fn into_schemas(mut self) -> Map<String, Json> {
        for (name, schema) in self.answers.take_definitions(true) {
            self.schemas.entry(name).or_insert(schema);
        }
        self.schemas
    }

    /// Renames what a schema refers to, and takes it in.
    fn rename(&mut self, schema: &mut Json) {
        match schema {
            Json::Object(fields) => {
                set_bounds(fields);
                if let Some(Json::String(reference)) = fields.get_mut("$ref") {
                    *reference = self.reference(reference);
                }
                fields.values_mut().for_each(|field| self.rename(field));
            }
            Json::Array(items) => items.iter_mut().for_each(|item| self.rename(item)),
            _ => {}
        }
    }

    fn reference(&mut self, reference: &str) -> String {
        if let Some(name) = reference.strip_prefix(INPUTS) {
            let suffix = if self.differing.contains(name) { AS_INPUT } else { "" };
            let schema = self.catalog.inputs.get(name);
            let schema = schema.or_else(|| self.bodies.definitions().get(name)).cloned();
            return self.take_in(format!("{name}{suffix}"), schema);
        }
        match reference.strip_prefix(OUTPUTS) {
            Some(name) => self.take_in(name.to_owned(), self.catalog.outputs.get(name).cloned()),
            None => reference.to_owned(),
        }
    }

    fn take_in(&mut self, name: String, schema: Option<Json>) -> String {
        if !self.schemas.contains_key(&name) {
            let mut schema = schema.unwrap_or_default();
            self.schemas.insert(name.clone(), Json::Null); // It may refer to itself.
            self.rename(&mut schema);
            self.schemas.insert(name.clone(), schema);
        }
        format!("{PREFIX}{name}")
    }
}

/// Says how small and how large a number may be: its `format` names a type, whose bounds not all readers know.
fn set_bounds(fields: &mut Map<String, Json>) {
    let (least, most): (Json, Json) = match fields.get("format").and_then(Json::as_str) {
        Some("uint64" | "uint") => (0.into(), u64::MAX.into()),
        Some("uint32") => (0.into(), u32::MAX.into()),
        Some("int64") => (i64::MIN.into(), i64::MAX.into()),
        _ => return,
    };
    fields.entry("minimum").or_insert(least);
    fields.entry("maximum").or_insert(most);
}

/// The names that stand for one thing in inputs and for another in outputs, be it because something differs
/// that they refer to.
fn differing(catalog: &Catalog) -> BTreeSet<&str> {
    let both: BTreeMap<&str, (&Json, &Json)> = catalog
        .inputs
        .iter()
        .filter_map(|(name, input)| Some((name.as_str(), (input, catalog.outputs.get(name)?))))
        .collect();
    let neutral = |schema: &Json| schema.to_string().replace(INPUTS, "").replace(OUTPUTS, "");
    let differs = |(input, output): &(&Json, &Json)| neutral(input) != neutral(output);
    let mut found: BTreeSet<&str> =
        both.iter().filter(|(_, pair)| differs(pair)).map(|(name, _)| *name).collect();
    loop {
        let refers = |(input, _): &(&Json, &Json)| {
            let text = input.to_string();
            found.iter().any(|name| text.contains(&format!("\"{INPUTS}{name}\"")))
        };
        let more: Vec<&str> = both
            .iter()
            .filter(|(name, pair)| !found.contains(*name) && refers(pair))
            .map(|(name, _)| *name)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_wire::bus::catalog::catalog;

    use super::*;

    #[test]
    fn an_input_that_differs_has_a_name_of_its_own() {
        let catalog = catalog();
        let mut components = Components::new(&catalog);
        let input = components.of_catalog(&json!({ "$ref": "#/inputs/RetryPolicy" }));
        let output = components.of_catalog(&json!({ "$ref": "#/outputs/RetryPolicy" }));
        let same = components.of_catalog(&json!({ "$ref": "#/inputs/TaskId" }));
        assert_eq!(input["$ref"], "#/components/schemas/RetryPolicyInput");
        assert_eq!(output["$ref"], "#/components/schemas/RetryPolicy");
        assert_eq!(same["$ref"], "#/components/schemas/TaskId");
        let all = components.into_schemas();
        assert!(all.contains_key("RetryPolicyInput") && all.contains_key("RetryPolicy"));
        assert!(all.values().all(|schema| !schema.is_null()));
    }

    #[test]
    fn a_number_has_the_bounds_of_its_type() {
        let catalog = catalog();
        let mut components = Components::new(&catalog);
        let mut bounds = |schema: Json| {
            let schema = components.of_catalog(&schema);
            (schema["minimum"].clone(), schema["maximum"].clone())
        };
        let number = json!({ "type": "integer", "format": "uint64", "minimum": 1 });
        assert_eq!(bounds(number), (json!(1), json!(u64::MAX)));
        let signed = json!({ "type": ["integer", "null"], "format": "int64" });
        assert_eq!(bounds(signed), (json!(i64::MIN), json!(i64::MAX)));
        assert_eq!(bounds(json!({ "type": "number" })), (Json::Null, Json::Null));
    }

    #[test]
    fn no_name_of_the_catalog_looks_like_a_renamed_one() {
        let catalog = catalog();
        for name in differing(&catalog) {
            let renamed = format!("{name}{AS_INPUT}");
            assert!(!catalog.inputs.contains_key(&renamed), "{renamed}");
            assert!(!catalog.outputs.contains_key(&renamed), "{renamed}");
        }
    }
}
