//! Schemas that strict clients take.
//!
//! Hosts hand the schemas of tools on to models, and many take only a part of JSON Schema: some drop a tool, or all
//! tools of a server, for one keyword that they do not know. So the schemas of the catalog are rewritten here:
//! references are inlined, `null` is no value but a field that is left out, `type` is one name, and alternatives
//! stand only below the top.

use serde_json::{Map, Value as Json, json};

/// Definitions to which schemas refer, by their names.
pub(crate) type Definitions = Map<String, Json>;

/// How deep an inlined schema may be. What is deeper may have any form, as far as the schema says.
const DEPTH_MAX: usize = 24;

/// The largest number that every client reads exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_991.0;

/// Keywords that are of no use to a client, or that some refuse.
const DROPPED: [&str; 8] = [
    "$schema",
    "$defs",
    "definitions",
    "title",
    "examples",
    "default",
    "unevaluatedProperties",
    "patternProperties",
];

/// Formats that clients know.
const FORMATS: [&str; 3] = ["date-time", "uuid", "uri"];

/// The schema of an input, as an object at its top.
pub(crate) fn input(schema: &Json, definitions: &Definitions) -> Map<String, Json> {
    let mut made = Inliner::of(definitions).object(schema, 0);
    made.entry("type").or_insert_with(|| "object".into());
    made.entry("properties").or_insert_with(|| json!({}));
    unmark(&mut made);
    made
}

/// The schema of an answer: the names and kinds of its fields, and what they are. Their own fields are left out, as
/// models read the answer itself. No field is required, as a refusal is an answer, too.
pub(crate) fn answer(schema: &Json, definitions: &Definitions) -> Map<String, Json> {
    let whole = Inliner::of(definitions).object(schema, 0);
    let fields = whole.get("properties").and_then(Json::as_object).cloned().unwrap_or_default();
    let mut shown: Map<String, Json> =
        fields.into_iter().map(|(name, it)| (name, outline(&it))).collect();
    shown.insert(
        "error".into(),
        json!({ "type": "object", "description": "Why the call was refused." }),
    );
    let more = "What is left out of this answer, and how to read it.";
    shown.insert("more".into(), json!({ "type": "string", "description": more }));
    Map::from_iter([("type".into(), "object".into()), ("properties".into(), shown.into())])
}

/// A field of an answer: its kind, if it has only one, and what it is.
fn outline(field: &Json) -> Json {
    let mut kept = Map::new();
    let is_nullable = field.get(NULLABLE).is_some();
    if let Some(kind) = field.get("type").filter(|_| !is_nullable) {
        kept.insert("type".into(), kind.clone());
        if kind == "array" {
            let of = field.get("items").and_then(|items| items.get("type"));
            let items = of.map_or_else(|| json!({}), |kind| json!({ "type": kind }));
            kept.insert("items".into(), items);
        }
    }
    if let Some(about) = field.get("description") {
        kept.insert("description".into(), about.clone());
    }
    kept.into()
}

/// Marks a schema of which `null` was a value: [`outline`] looks for it.
const NULLABLE: &str = "x-nullable";

struct Inliner<'a> {
    definitions: &'a Definitions,
    /// The definitions that are being inlined: one that refers to itself has any form there.
    open: Vec<String>,
    /// Long definitions that stand in the schema already.
    written: Vec<String>,
}

/// A definition of so many bytes stands in a schema once: what models read of tools is dear.
const LONG: usize = 400;

/// What is said where it would stand again.
const AGAIN: &str = "Fields as where this kind of object stands before.";

impl<'a> Inliner<'a> {
    fn of(definitions: &'a Definitions) -> Self {
        Self { definitions, open: Vec::new(), written: Vec::new() }
    }

    fn object(&mut self, schema: &Json, depth: usize) -> Map<String, Json> {
        let Json::Object(given) = schema else { return Map::new() };
        if depth > DEPTH_MAX {
            return Map::new();
        }
        let mut made = match given.get("$ref").and_then(Json::as_str) {
            Some(path) => self.definition(path, depth),
            None => Map::new(),
        };
        for part in given.get("allOf").and_then(Json::as_array).into_iter().flatten() {
            merge(&mut made, self.object(part, depth + 1));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Json::Array(members)) = given.get(keyword) {
                let one_of = self.alternatives(members, depth);
                merge(&mut made, one_of);
            }
        }
        for (keyword, value) in given {
            self.keyword(&mut made, keyword, value, depth);
        }
        made
    }

    fn definition(&mut self, path: &str, depth: usize) -> Map<String, Json> {
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let Some(found) = self.definitions.get(&name).filter(|_| !self.open.contains(&name)) else {
            return Map::new();
        };
        if self.written.contains(&name) {
            let about = found.get("description").and_then(Json::as_str).map(plain);
            let about = about.into_iter().chain([AGAIN.to_owned()]).collect::<Vec<_>>().join(" ");
            return Map::from_iter([
                ("type".to_owned(), "object".into()),
                ("description".to_owned(), about.into()),
            ]);
        }
        self.open.push(name);
        let made = self.object(found, depth + 1);
        if let Some(name) = self.open.pop().filter(|_| is_long_object(&made)) {
            self.written.push(name);
        }
        made
    }

    /// One of several: those that are words become a list of words, and one that is alone stands for itself.
    fn alternatives(&mut self, members: &[Json], depth: usize) -> Map<String, Json> {
        let is_null = |it: &&Json| it.get("type").is_some_and(|kind| kind == "null");
        let nullable = members.iter().any(|it| is_null(&it));
        let mut all: Vec<Map<String, Json>> =
            members.iter().filter(|it| !is_null(it)).map(|it| self.object(it, depth + 1)).collect();
        // Members that only say which fields go together: the refusal of a call says that, too.
        all.retain(|it| it.keys().any(|keyword| keyword != "required" && keyword != "description"));
        let words = |it: &Map<String, Json>| {
            let is_text = it.get("type").is_some_and(|kind| kind == "string");
            it.get("enum").filter(|_| is_text).and_then(Json::as_array).cloned()
        };
        let mut made = match all.len() {
            0 => Map::new(),
            1 => all.remove(0),
            _ => match all.iter().map(words).collect::<Option<Vec<_>>>() {
                Some(words) if !words.is_empty() => Map::from_iter([
                    ("type".into(), "string".into()),
                    ("enum".into(), words.concat().into()),
                ]),
                _ => Map::from_iter([(
                    "anyOf".to_owned(),
                    all.into_iter().map(Json::Object).collect::<Vec<_>>().into(),
                )]),
            },
        };
        if nullable {
            made.insert(NULLABLE.into(), true.into());
        }
        made
    }

    fn keyword(&mut self, made: &mut Map<String, Json>, keyword: &str, value: &Json, depth: usize) {
        match (keyword, value) {
            ("$ref" | "allOf" | "anyOf" | "oneOf", _) => {}
            (dropped, _) if DROPPED.contains(&dropped) => {}
            ("type", Json::Array(kinds)) => {
                if kinds.iter().any(|kind| kind == "null") {
                    made.insert(NULLABLE.into(), true.into());
                }
                let mut kinds = kinds.iter().filter(|kind| *kind != "null");
                if let (Some(kind), None) = (kinds.next(), kinds.next()) {
                    made.insert("type".into(), kind.clone());
                }
            }
            ("const", Json::String(_)) => {
                made.insert("type".into(), "string".into());
                made.insert("enum".into(), json!([value]));
            }
            ("description", Json::String(text)) => {
                let known = made.get("description").and_then(Json::as_str);
                let is_again = known.is_some_and(|known| known.ends_with(AGAIN));
                let text = if is_again { format!("{} {AGAIN}", plain(text)) } else { plain(text) };
                made.insert("description".into(), text.into());
            }
            ("format", Json::String(format)) if !FORMATS.contains(&format.as_str()) => {}
            ("minimum" | "maximum", number)
                if number.as_f64().is_none_or(|it| it.abs() > EXACT_MAX) => {}
            ("pattern", Json::String(pattern)) if pattern.contains("\\x00") => {}
            ("additionalProperties", Json::Object(of)) if of.is_empty() => {}
            ("properties", Json::Object(fields)) => {
                let field = |(name, it): (&String, &Json)| {
                    (name.clone(), self.object(it, depth + 1).into())
                };
                let fields = fields.iter().map(field).collect();
                merge(made, Map::from_iter([("properties".into(), Json::Object(fields))]));
            }
            ("items" | "additionalProperties", Json::Object(_) | Json::Bool(true)) => {
                let of = self.object(value, depth + 1);
                made.insert(keyword.into(), of.into());
            }
            _ => {
                made.insert(keyword.into(), value.clone());
            }
        }
    }
}

fn is_long_object(schema: &Map<String, Json>) -> bool {
    let is_object = schema.get("type").is_some_and(|kind| kind == "object");
    is_object && schema.contains_key("properties") && crate::result::length(schema) > LONG
}

/// Takes the marks away.
fn unmark(schema: &mut Map<String, Json>) {
    schema.remove(NULLABLE);
    schema.values_mut().for_each(unmark_below);
}

fn unmark_below(value: &mut Json) {
    match value {
        Json::Object(schema) => unmark(schema),
        Json::Array(all) => all.iter_mut().for_each(unmark_below),
        _ => {}
    }
}

/// Adds a schema to another: fields and required names of both count.
fn merge(into: &mut Map<String, Json>, more: Map<String, Json>) {
    for (keyword, value) in more {
        match (into.get_mut(&keyword), value) {
            (Some(Json::Object(known)), Json::Object(new)) if keyword == "properties" => {
                known.extend(new)
            }
            (Some(Json::Array(known)), Json::Array(new)) if keyword == "required" => {
                known.extend(new);
            }
            (_, value) => {
                into.insert(keyword, value);
            }
        }
    }
}

/// A description of the code as a text for a model: on one line, without links and without numbers of rules.
fn plain(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "");
    while let Some(at) = line.find("](") {
        let Some(end) = line[at..].find(')') else { break };
        line.replace_range(at..=at + end, "");
    }
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some(at) = rest.find('(') {
        let (before, after) = rest.split_at(at);
        let Some(end) = after.find(')') else { break };
        let inside = &after[1..end];
        plain.push_str(before);
        if is_rule(inside) {
            plain.truncate(plain.trim_end().len());
        } else {
            plain.push_str(&after[..=end]);
        }
        rest = &after[end + 1..];
    }
    plain.push_str(rest);
    plain.replace('[', "")
}

/// Whether this names rules of the contract, as `POL-12` or `P30, U4` do.
fn is_rule(text: &str) -> bool {
    let is_of = |it: char| it.is_ascii_uppercase() || it.is_ascii_digit() || "-., ".contains(it);
    let has_digit = text.contains(|it: char| it.is_ascii_digit());
    has_digit
        && text.starts_with(|it: char| it.is_ascii_uppercase() || it.is_ascii_digit())
        && text.chars().all(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(schema: Json) -> Json {
        let definitions = json!({
            "Id": { "type": "string", "pattern": "^[^\\x00]+$", "maxLength": 9 },
            "Tree": { "type": "object", "properties": { "below": { "$ref": "#/$defs/Tree" } } },
        });
        let Json::Object(definitions) = definitions else { unreachable!() };
        input(&schema, &definitions).into()
    }

    #[test]
    fn a_reference_is_inlined_and_one_to_itself_ends() {
        let made = of(json!({ "type": "object", "properties": {
            "id": { "$ref": "#/$defs/Id", "description": "An id." },
            "tree": { "$ref": "#/$defs/Tree" },
        }}));
        let id = json!({ "type": "string", "maxLength": 9, "description": "An id." });
        assert_eq!(made["properties"]["id"], id);
        let tree = json!({ "type": "object", "properties": { "below": {} } });
        assert_eq!(made["properties"]["tree"], tree);
    }

    #[test]
    fn a_long_object_stands_once() {
        let fields: Map<String, Json> =
            (0..20).map(|n| (format!("field_{n}"), json!({ "type": "integer" }))).collect();
        let long = json!({ "type": "object", "description": "Long (P30).", "properties": fields });
        let definitions = Definitions::from_iter([("Long".to_owned(), long)]);
        let both = json!({ "properties": {
            "a": { "$ref": "#/$defs/Long" },
            "b": { "$ref": "#/$defs/Long", "description": "B." },
            "c": { "anyOf": [{ "$ref": "#/$defs/Long" }, { "type": "null" }] },
        }});
        let made = Json::Object(input(&both, &definitions));
        assert_eq!(made["properties"]["a"]["properties"].as_object().unwrap().len(), 20);
        assert_eq!(
            made["properties"]["b"],
            json!({ "type": "object", "description": format!("B. {AGAIN}") })
        );
        let again = json!({ "type": "object", "description": format!("Long. {AGAIN}") });
        assert_eq!(made["properties"]["c"], again);
    }

    #[test]
    fn null_is_a_field_that_is_left_out() {
        let made = of(json!({ "properties": { "deep": { "type": "object", "properties": {
            "a": { "type": ["string", "null"] },
            "b": { "anyOf": [{ "$ref": "#/$defs/Id" }, { "type": "null" }], "description": "B." },
            "c": { "oneOf": [{ "const": "x", "type": "string" }, { "const": "y", "type": "string" }] },
            "d": { "anyOf": [{ "type": "integer", "format": "uint64", "minimum": 0 }, { "type": "boolean" }] },
        }}}}));
        let deep = &made["properties"]["deep"]["properties"];
        assert_eq!(deep["a"], json!({ "type": "string" }));
        assert_eq!(deep["b"], json!({ "type": "string", "maxLength": 9, "description": "B." }));
        assert_eq!(deep["c"], json!({ "type": "string", "enum": ["x", "y"] }));
        assert_eq!(
            deep["d"],
            json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "boolean" }] })
        );
    }

    #[test]
    fn an_empty_input_is_an_object_with_no_fields() {
        assert_eq!(of(json!({})), json!({ "type": "object", "properties": {} }));
    }

    #[test]
    fn the_answer_of_a_tool_has_its_fields_in_outline_and_may_be_a_refusal() {
        let schema = json!({ "type": "object", "required": ["id"], "properties": {
            "id": { "$ref": "#/$defs/Id" },
            "list": { "type": "array", "items": { "$ref": "#/$defs/Tree" } },
            "maybe": { "type": ["string", "null"], "description": "Maybe." },
        }});
        let definitions = Definitions::from_iter([
            ("Id".to_owned(), json!({ "type": "string" })),
            ("Tree".to_owned(), json!({ "type": "object", "properties": { "a": {} } })),
        ]);
        let made = Json::Object(answer(&schema, &definitions));
        assert_eq!(made["properties"]["id"], json!({ "type": "string" }));
        assert_eq!(
            made["properties"]["list"],
            json!({ "type": "array", "items": { "type": "object" } })
        );
        assert_eq!(made["properties"]["maybe"], json!({ "description": "Maybe." }));
        assert_eq!(made["properties"]["error"]["type"], "object");
        assert_eq!(made.get("required"), None);
    }

    #[test]
    fn a_description_is_for_those_who_do_not_know_the_code() {
        let text =
            "How long\nit may take (POL-12), in [`MS`](Self::MS) (see `x`) of P30 (P30, U4).";
        assert_eq!(plain(text), "How long it may take, in MS (see x) of P30.");
    }
}
