//! Results of tools: each as structured content and as text, within a budget.

use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::{Map, Value as Json, json};
use tenure_core::Rejection;
use tenure_core::id::CommandId;

use crate::advice::advice;

/// The longest answer by default, in bytes of JSON: some six thousand tokens.
pub(crate) const BYTES_DEFAULT: usize = 24 << 10;

/// The least and the most that a caller may ask for.
pub(crate) const BYTES_MIN: usize = 1 << 10;
/// See [`BYTES_MIN`].
pub(crate) const BYTES_MAX: usize = 256 << 10;

/// The longest text inside an answer that has to be cut.
const CUT_TEXT: usize = 400;

/// The fields of an answer, and the words that say what is left out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolAnswer {
    fields: Map<String, Json>,
    text: Option<String>,
    more: Option<String>,
}

impl ToolAnswer {
    /// An answer with these fields. One that is no object is the field `answer`.
    pub(crate) fn of(answer: &impl Serialize) -> Self {
        let fields = match serde_json::to_value(answer) {
            Ok(Json::Object(fields)) => fields,
            Ok(other) => Map::from_iter([("answer".to_owned(), other)]),
            Err(error) => Map::from_iter([("answer".to_owned(), error.to_string().into())]),
        };
        Self { fields, text: None, more: None }
    }

    /// A field of it.
    pub(crate) fn field(&self, name: &str) -> Option<&Json> {
        self.fields.get(name)
    }

    /// The same, with a text for the model in place of its JSON.
    #[must_use]
    pub(crate) fn told(self, text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..self }
    }

    /// The same, which says how to read on.
    #[must_use]
    pub(crate) fn with_more(self, more: impl Into<String>) -> Self {
        Self { more: Some(more.into()), ..self }
    }

    /// The result of the call, with at most so many bytes of text.
    pub(crate) fn within(mut self, bytes: usize) -> CallToolResult {
        if length(&self.fields) > bytes {
            cut(&mut self.fields, bytes);
            self.more.get_or_insert_with(|| {
                format!("parts are left out, as the answer has more than {bytes} bytes; max_bytes goes up to {BYTES_MAX}")
            });
        }
        if let Some(more) = &self.more {
            self.fields.insert("more".into(), more.clone().into());
        }
        let text = match self.text {
            Some(text) => text,
            None => serde_json::to_string(&self.fields).unwrap_or_default(),
        };
        let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
        result.structured_content = Some(self.fields.into());
        result
    }
}

/// How many bytes something takes as JSON.
pub(crate) fn length(it: &impl Serialize) -> usize {
    serde_json::to_vec(it).map_or(usize::MAX, |bytes| bytes.len())
}

/// Makes an answer fit: long texts are cut, then lists are halved, the longest first.
fn cut(fields: &mut Map<String, Json>, bytes: usize) {
    for value in fields.values_mut() {
        cut_texts(value);
    }
    while length(fields) > bytes {
        let longest = fields.values_mut().filter_map(longest_list).max_by_key(|(long, _)| *long);
        match longest {
            Some((_, list)) => list.truncate(list.len() / 2),
            None => {
                // What is left are many small fields: the largest goes.
                let largest =
                    fields.iter().max_by_key(|(_, it)| length(it)).map(|(name, _)| name.clone());
                let Some(largest) = largest else { return };
                fields.remove(&largest);
            }
        }
    }
}

fn cut_texts(value: &mut Json) {
    match value {
        Json::String(text) if text.len() > CUT_TEXT => {
            let end = (0..=CUT_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
        Json::Array(all) => all.iter_mut().for_each(cut_texts),
        Json::Object(fields) => fields.values_mut().for_each(cut_texts),
        _ => {}
    }
}

/// The list that takes the most bytes, with these.
fn longest_list(value: &mut Json) -> Option<(usize, &mut Vec<Json>)> {
    match value {
        Json::Array(all) if !all.is_empty() => Some((length(all), all)),
        Json::Object(fields) => {
            fields.values_mut().filter_map(longest_list).max_by_key(|(long, _)| *long)
        }
        _ => None,
    }
}

/// The result of a call that was refused: an error of the tool, which the model reads and can act on.
pub(crate) fn refused(no: &Rejection, command_id: Option<&CommandId>) -> CallToolResult {
    let next = advice(no.code);
    let mut error = json!({
        "code": no.code.as_str(),
        "message": no.message,
        "retryable": no.code.is_retryable(),
        "next": next,
    });
    let mut text = format!("{}: {}", no.code, no.message);
    if let Some(field) = no.details.get("field").and_then(Json::as_str) {
        error["field"] = field.into();
        text.push_str(&format!("\nfield: {field}"));
    }
    let mut details = no.details.clone();
    details.remove("field");
    if !details.is_empty() && length(&details) <= BYTES_MIN {
        text.push_str(&format!("\ndetails: {}", Json::Object(details.clone())));
        error["details"] = details.into();
    }
    if let Some(id) = command_id.filter(|_| no.code.is_retryable()) {
        error["command_id"] = id.as_str().into();
        text.push_str(&format!("\ncommand_id: {id}"));
    }
    text.push_str(&format!("\nnext: {next}"));
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({ "error": error }));
    result
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;

    use super::*;

    fn text(result: &CallToolResult) -> String {
        result.content[0].as_text().unwrap().text.clone()
    }

    #[test]
    fn an_answer_at_its_budget_is_whole_and_one_over_it_is_cut_and_says_so() {
        let answer = json!({ "steps": (0..100).collect::<Vec<_>>(), "id": "a" });
        let whole = length(&answer);
        let result = ToolAnswer::of(&answer).within(whole);
        assert_eq!((text(&result).len(), result.structured_content), (whole, Some(answer.clone())));
        let result = ToolAnswer::of(&answer).within(whole - 1);
        let shown = result.structured_content.clone().unwrap();
        assert_eq!((shown["steps"].as_array().unwrap().len(), &shown["id"]), (50, &json!("a")));
        assert!(shown["more"].as_str().unwrap().contains("max_bytes"), "{shown}");
        assert_eq!(serde_json::from_str::<Json>(&text(&result)).unwrap(), shown);
    }

    #[test]
    fn long_texts_are_cut_first_and_at_a_whole_character() {
        let answer = json!({ "a": { "text": "é".repeat(2_000) }, "list": [1, 2, 3] });
        let result = ToolAnswer::of(&answer).within(2_000);
        let shown = result.structured_content.unwrap();
        assert_eq!(shown["list"], json!([1, 2, 3]));
        assert_eq!(shown["a"]["text"].as_str().unwrap().chars().count(), 201);
    }

    #[test]
    fn whatever_an_answer_has_it_fits() {
        let many: Map<String, Json> = (0..500).map(|n| (format!("field-{n}"), json!(n))).collect();
        for answer in [
            json!(many),
            json!({ "deep": [[["x".repeat(9_000)]]] }),
            json!({ "t": "x".repeat(9_000) }),
        ] {
            let result = ToolAnswer::of(&answer).within(BYTES_MIN);
            assert!(text(&result).len() <= BYTES_MIN + 200, "{}", text(&result).len());
        }
    }

    /// CTRL-09: a refusal has its code, its field and what to do next.
    #[test]
    fn a_refusal_is_an_error_of_the_tool() {
        let no = Rejection::invalid("steps", "steps is missing").with("limit", 3);
        let result = refused(&no, None);
        assert_eq!(result.is_error, Some(true));
        let error = &result.structured_content.as_ref().unwrap()["error"];
        assert_eq!(
            (&error["code"], &error["field"]),
            (&json!("validation_error"), &json!("steps"))
        );
        assert_eq!(error["details"], json!({ "limit": 3 }));
        assert!(text(&result).ends_with(advice(Code::ValidationError)), "{}", text(&result));
        let id = CommandId::new("c-1").unwrap();
        let doubtful = refused(&Rejection::in_doubt("nobody answers"), Some(&id));
        assert_eq!(doubtful.structured_content.unwrap()["error"]["command_id"], "c-1");
    }
}
