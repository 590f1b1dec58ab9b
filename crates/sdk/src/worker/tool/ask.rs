//! The questions of a server as a text for people, and what people say as an answer for the server.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

/// Words with which people agree, or do not, where nothing else is asked for.
const YES: [&str; 6] = ["yes", "y", "true", "ok", "accept", "approve"];
const NO: [&str; 5] = ["no", "n", "false", "decline", "reject"];

/// The questions that a server asks at a time, by their names.
pub(super) type Questions = BTreeMap<String, Json>;

/// Why a question cannot be passed on to people.
///
/// # Errors
/// A question is none of those that this client has offered to answer.
pub(super) fn check(questions: &Questions) -> Result<(), String> {
    for (name, question) in questions {
        let method = question["method"].as_str().unwrap_or_default();
        let mode = question["params"]["mode"].as_str().unwrap_or("form");
        if method != "elicitation/create" || mode != "form" {
            return Err(format!(
                "the question {name:?} is {method:?} ({mode}), which was not offered"
            ));
        }
    }
    Ok(())
}

/// The text with which people are asked.
pub(super) fn prompt(questions: &Questions) -> String {
    let mut said: Vec<String> = Vec::new();
    if let [(_, question)] = *questions.iter().collect::<Vec<_>>() {
        said.push(message(question));
        match fields(question).len() {
            0 => said.push("Answer with yes or no.".to_owned()),
            1 => said.extend(only_field(question).and_then(|(_, field)| choices(field))),
            _ => said.push(format!("Answer as JSON: {}", form(question))),
        }
        return said.join("\n");
    }
    for (name, question) in questions {
        said.push(format!("{name}: {} {}", message(question), form(question)));
    }
    let names: Vec<&str> = questions.keys().map(String::as_str).collect();
    said.push(format!("Answer as JSON, an object with the names {}.", names.join(", ")));
    said.join("\n")
}

/// The answers to these questions that a text of a person gives.
///
/// # Errors
/// The text is no answer to them; the error says why.
pub(super) fn read(questions: &Questions, text: &str) -> Result<Map<String, Json>, String> {
    let given: Option<Json> = serde_json::from_str(text).ok();
    if let [(name, question)] = *questions.iter().collect::<Vec<_>>() {
        let answer = match given {
            Some(Json::Object(given)) => of_object(question, given),
            _ => of_text(question, text.trim()),
        };
        return Ok(Map::from_iter([(name.clone(), answer?)]));
    }
    let Some(Json::Object(given)) = given else {
        return Err("it is no JSON object with the names of the questions".to_owned());
    };
    let mut answers = Map::new();
    for (name, value) in given {
        let question = questions.get(&name).ok_or_else(|| format!("nobody asked for {name:?}"))?;
        let answer = match value {
            Json::Object(value) => of_object(question, value),
            Json::String(text) => of_text(question, &text),
            other => of_text(question, &other.to_string()),
        };
        answers.insert(name.clone(), answer.map_err(|why| format!("{name}: {why}"))?);
    }
    Ok(answers)
}

fn message(question: &Json) -> String {
    let message = question["params"]["message"].as_str();
    message.unwrap_or("the server asks for input").to_owned()
}

/// The fields of the form, by their names.
fn fields(question: &Json) -> Vec<(&String, &Json)> {
    let fields = question["params"]["requestedSchema"]["properties"].as_object();
    fields.map(|fields| fields.iter().collect()).unwrap_or_default()
}

fn only_field(question: &Json) -> Option<(&String, &Json)> {
    if let [only] = *fields(question) { Some(only) } else { None }
}

/// The form as a person would write it.
fn form(question: &Json) -> String {
    let field = |(name, field): &(&String, &Json)| {
        let kind = field["type"].as_str().unwrap_or("string");
        let one_of = choices(field).map(|it| format!(" ({it})")).unwrap_or_default();
        format!("\"{name}\": {kind}{one_of}")
    };
    format!("{{{}}}", fields(question).iter().map(field).collect::<Vec<_>>().join(", "))
}

/// The values among which a field chooses, if it does.
fn values(field: &Json) -> Option<Vec<&Json>> {
    let listed = field["enum"].as_array().map(|all| all.iter().collect());
    let titled = || Some(field["oneOf"].as_array()?.iter().map(|it| &it["const"]).collect());
    listed.or_else(titled)
}

fn choices(field: &Json) -> Option<String> {
    let all: Vec<&str> = values(field)?.into_iter().filter_map(Json::as_str).collect();
    Some(format!("one of: {}", all.join(", ")))
}

/// An answer that is an object: the form, or what becomes of the question as MCP writes it.
fn of_object(question: &Json, given: Map<String, Json>) -> Result<Json, String> {
    match given.get("action").and_then(Json::as_str) {
        Some(action @ ("decline" | "cancel")) => return Ok(json!({"action": action})),
        Some("accept") if given.get("content").is_some_and(Json::is_object) => {
            let content = given["content"].as_object().cloned().unwrap_or_default();
            return accepted(question, content);
        }
        _ => {}
    }
    accepted(question, given)
}

/// An answer that is a text: what the only field asks for, or a yes or a no.
fn of_text(question: &Json, text: &str) -> Result<Json, String> {
    if fields(question).is_empty() {
        let word = text.to_lowercase();
        return match (YES.contains(&word.as_str()), NO.contains(&word.as_str())) {
            (true, _) => Ok(json!({"action": "accept", "content": {}})),
            (_, true) => Ok(json!({"action": "decline"})),
            _ => Err("it is neither yes nor no".to_owned()),
        };
    }
    let Some((name, field)) = only_field(question) else {
        return Err("it is no JSON object with the fields of the form".to_owned());
    };
    let value = match field["type"].as_str() {
        Some("boolean") => {
            let word = text.to_lowercase();
            let is_yes = YES.contains(&word.as_str());
            Some(is_yes).filter(|is_yes| *is_yes || NO.contains(&word.as_str())).map(Json::Bool)
        }
        Some("integer" | "number") => serde_json::from_str::<Json>(text).ok(),
        _ => Some(json!(text)),
    };
    let value = value
        .ok_or_else(|| format!("{name} is no {}", field["type"].as_str().unwrap_or_default()))?;
    accepted(question, Map::from_iter([(name.clone(), value)]))
}

/// The answer with this form, if it is as the server wants it.
fn accepted(question: &Json, content: Map<String, Json>) -> Result<Json, String> {
    let schema = &question["params"]["requestedSchema"];
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Json::as_str) {
        if !content.contains_key(name) {
            return Err(format!("{name} is missing"));
        }
    }
    for (name, value) in &content {
        let field = &schema["properties"][name];
        if field.is_null() {
            return Err(format!("nobody asked for {name:?}"));
        }
        let fits = match field["type"].as_str().unwrap_or("string") {
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "array" => value.is_array(),
            _ => value.is_string(),
        };
        if !fits {
            return Err(format!("{name} is no {}", field["type"].as_str().unwrap_or("string")));
        }
        if values(field).is_some_and(|all| !all.contains(&value)) {
            return Err(format!("{name} is not {}", choices(field).unwrap_or_default()));
        }
    }
    Ok(json!({"action": "accept", "content": content}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(message: &str, properties: Json, required: &[&str]) -> Json {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        json!({"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}})
    }

    fn one(question: Json) -> Questions {
        [("k".to_owned(), question)].into()
    }

    fn answer(questions: &Questions, text: &str) -> Result<Json, String> {
        read(questions, text).map(|answers| answers["k"].clone())
    }

    /// Who is asked for one thing answers with it, and not with a form.
    #[test]
    fn the_only_field_is_answered_by_a_text() {
        let city = one(asks("where to?", json!({"city": {"type": "string"}}), &["city"]));
        assert_eq!(prompt(&city), "where to?");
        let to = |city: &str| Ok(json!({"action": "accept", "content": {"city": city}}));
        assert_eq!(answer(&city, "Turku"), to("Turku"));
        assert_eq!(answer(&city, "{\"city\": \"Turku\"}"), to("Turku"));
        assert_eq!(answer(&city, "42"), to("42"), "a text is a text");
        assert_eq!(answer(&city, "{\"action\": \"cancel\"}"), Ok(json!({"action": "cancel"})));
        let days = one(asks("how long?", json!({"days": {"type": "integer"}}), &["days"]));
        assert_eq!(answer(&days, "3").unwrap()["content"]["days"], 3);
        assert_eq!(answer(&days, "three"), Err("days is no integer".to_owned()));
        let size =
            one(asks("which?", json!({"size": {"type": "string", "enum": ["s", "m"]}}), &[]));
        assert_eq!(prompt(&size), "which?\none of: s, m");
        assert!(answer(&size, "xl").unwrap_err().contains("one of"));
        let titled = json!({"type": "string", "oneOf": [{"const": "s", "title": "small"}]});
        let size = one(asks("which?", json!({"size": titled}), &[]));
        assert!(answer(&size, "s").is_ok() && answer(&size, "small").is_err());
        let sure = one(asks("sure?", json!({"sure": {"type": "boolean"}}), &[]));
        assert_eq!(answer(&sure, "Yes").unwrap()["content"]["sure"], true);
        assert!(answer(&sure, "perhaps").is_err());
    }

    #[test]
    fn a_question_without_fields_takes_yes_or_no() {
        let sure = one(asks("delete it?", json!({}), &[]));
        assert!(prompt(&sure).contains("yes or no"));
        assert_eq!(answer(&sure, "yes"), Ok(json!({"action": "accept", "content": {}})));
        assert_eq!(answer(&sure, "No"), Ok(json!({"action": "decline"})));
        assert!(answer(&sure, "Turku").is_err());
    }

    #[test]
    fn several_questions_are_answered_by_name() {
        let city = asks("where to?", json!({"city": {"type": "string"}}), &["city"]);
        let sure = asks("sure?", json!({}), &[]);
        let both = Questions::from([("a".to_owned(), city), ("b".to_owned(), sure)]);
        assert!(prompt(&both).contains("a: where to?") && prompt(&both).contains("a, b"));
        let answers = read(&both, "{\"a\": \"Turku\", \"b\": true}").unwrap();
        assert_eq!((answers.len(), &answers["a"]["content"]["city"]), (2, &json!("Turku")));
        assert_eq!(read(&both, "{\"a\": {\"city\": \"Turku\"}}").unwrap().len(), 1);
        for wrong in ["Turku", "{\"c\": 1}", "{\"a\": {\"town\": \"Turku\"}}", "{\"a\": {}}"] {
            assert!(read(&both, wrong).is_err(), "{wrong}");
        }
    }

    /// What was not offered is no question for people.
    #[test]
    fn other_questions_are_refused() {
        assert!(check(&one(asks("?", json!({}), &[]))).is_ok());
        let url =
            json!({"method": "elicitation/create", "params": {"mode": "url", "url": "http://one"}});
        for question in [url, json!({"method": "sampling/createMessage"}), json!(1)] {
            assert!(check(&one(question)).is_err());
        }
    }
}
