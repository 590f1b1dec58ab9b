//! The page at `/docs`: what the document says, for people. It needs nothing but itself: no script, no
//! font, no image.

use serde_json::Value as Json;

use crate::api::routes::CATALOG;
use crate::problem::status_of;

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;color:#222}\
code{font:13px ui-monospace,monospace}table{border-collapse:collapse;width:100%}\
td,th{padding:.3rem .6rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}\
.method{display:inline-block;min-width:4rem;font-weight:600}\
@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}td,th{border-color:#444}a{color:#8bf}}";

/// The page.
pub(super) fn page(document: &Json) -> String {
    let mut html = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    html.push_str("<meta name=\"viewport\" content=\"width=device-width\">");
    html.push_str("<title>Tenure over HTTP</title><style>");
    html.push_str(STYLE);
    html.push_str("</style></head><body><h1>Tenure over HTTP</h1>");
    html.push_str("<p>For programs: <a href=\"/openapi.json\">openapi.json</a>, ");
    html.push_str("<a href=\"/v1/operations\">operations of the bus</a>.</p>");
    html.push_str("<h2>Requests</h2><table>");
    let paths = document["paths"].as_object();
    for (path, methods) in paths.into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            row(&mut html, path, method, operation);
        }
    }
    html.push_str("</table><h2>Codes of refusals</h2><table>");
    html.push_str("<tr><th>Code</th><th>Status</th><th>The same may be sent again</th></tr>");
    for error in &CATALOG.errors {
        let (code, status) = (error.code.as_str(), status_of(error.code).as_u16());
        let again = if error.retryable { "yes" } else { "no" };
        html.push_str(&format!(
            "<tr id=\"{code}\"><td><code>{code}</code></td><td>{status}</td><td>{again}</td></tr>"
        ));
    }
    html.push_str("</table></body></html>");
    html
}

fn row(html: &mut String, path: &str, method: &str, operation: &Json) {
    let text = |name: &str| escaped(operation[name].as_str().unwrap_or_default());
    let (path, method) = (escaped(path), escaped(&method.to_ascii_uppercase()));
    html.push_str(&format!(
        "<tr id=\"{}\"><td><code><span class=\"method\">{method}</span>{path}</code></td><td>{}</td></tr>",
        text("operationId"),
        text("summary"),
    ));
}

/// A text that means nothing but itself in HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page(&super::super::DOCUMENT);
        for outside in ["http://", "https://", "<script", "src=", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("id=\"task_not_found\""), "problems point there");
        assert!(page.contains("/v1/sessions/{session}/tasks/{task_id}/pause"));
    }

    #[test]
    fn text_is_text() {
        assert_eq!(escaped("<a href=\"&\">"), "&lt;a href=&quot;&amp;&quot;&gt;");
    }
}
