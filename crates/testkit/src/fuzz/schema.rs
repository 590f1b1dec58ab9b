//! Makes values that a JSON Schema allows: samples of every field that a message has.

use serde_json::{Map, Value as Json, json};

use super::mutate::Draw;

/// How deep what refers to itself is followed.
const DEPTH_MAX: u32 = 7;

/// A value of a schema. `root` has what the schema refers to, by JSON Pointers. The value is meant as a sample to be
/// mutated: it has about two of three optional fields, and patterns of strings are not looked at.
pub fn instance(draw: &mut Draw, schema: &Json, root: &Json) -> Json {
    within(draw, schema, root, DEPTH_MAX)
}

fn within(draw: &mut Draw, schema: &Json, root: &Json, depth: u32) -> Json {
    if depth == 0 {
        return Json::Null;
    }
    if let Some(at) = schema["$ref"].as_str() {
        let pointer = at.trim_start_matches('#');
        return root
            .pointer(pointer)
            .map_or(Json::Null, |there| within(draw, there, root, depth - 1));
    }
    if let Some(only) = schema.get("const") {
        return only.clone();
    }
    for choice in ["enum", "oneOf", "anyOf", "examples"] {
        let Some(all) = schema[choice].as_array().filter(|all| !all.is_empty()) else { continue };
        let one = draw.one(&all[..]).clone();
        if choice == "enum" || choice == "examples" {
            return one;
        }
        let mut made = within(draw, &one, root, depth - 1);
        if let (Json::Object(made), Json::Object(more)) =
            (&mut made, object(draw, schema, root, depth))
        {
            made.extend(more);
        }
        return made;
    }
    if let Some(all) = schema["allOf"].as_array() {
        let parts = all.iter().map(|part| within(draw, part, root, depth - 1));
        let objects = parts.filter_map(|part| part.as_object().cloned());
        let whole: Map<String, Json> = objects.flatten().collect();
        return Json::Object(whole);
    }
    let kind = match &schema["type"] {
        Json::Array(all) if !all.is_empty() => {
            draw.one(&all[..]).as_str().unwrap_or("null").to_owned()
        }
        Json::String(kind) => kind.clone(),
        _ if schema.get("properties").is_some() => "object".to_owned(),
        _ => return draw.one(&[json!(null), json!("x"), json!({ "a": [1, "b"] })]).clone(),
    };
    match kind.as_str() {
        "boolean" => json!(draw.once_in(2)),
        "integer" => {
            json!(schema["minimum"].as_i64().unwrap_or(0).saturating_add(draw.below(9) as i64))
        }
        "number" => json!(0.5),
        "string" => text(draw, schema),
        "array" => {
            let least = schema["minItems"].as_u64().unwrap_or(0);
            let count = least + draw.below(3) as u64;
            (0..count).map(|_| within(draw, &schema["items"], root, depth - 1)).collect()
        }
        "object" => object(draw, schema, root, depth),
        _ => Json::Null,
    }
}

fn text(draw: &mut Draw, schema: &Json) -> Json {
    json!(match schema["format"].as_str() {
        Some("uuid") => "01900000-0000-7000-8000-000000000001",
        Some("date-time") => "2026-01-01T00:00:00Z",
        Some("uri" | "url") => "https://example.org/a",
        _ if schema["contentEncoding"] == "base64" => "YWJj",
        _ => draw.one(&["a", "b", "task-1", "urn:x", "default"]),
    })
}

fn object(draw: &mut Draw, schema: &Json, root: &Json, depth: u32) -> Json {
    let mut made = Map::new();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, of) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.iter().any(|it| it == name);
        if is_required || draw.below(3) != 0 {
            let value = within(draw, of, root, depth - 1);
            if is_required || !value.is_null() {
                made.insert(name.clone(), value);
            }
        }
    }
    if let Some(of @ Json::Object(_)) = schema.get("additionalProperties") {
        made.insert("a".into(), within(draw, of, root, depth - 1));
    }
    Json::Object(made)
}
