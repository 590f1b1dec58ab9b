//! Links: what an answer gives to the requests that may follow it, for programs that find their way by the
//! document.

use serde_json::{Map, Value as Json, json};

/// An operation whose answer names what other operations need.
struct LinkSource {
    path: &'static str,
    method: &'static str,
    /// The statuses of that answer.
    statuses: &'static [&'static str],
    /// The parameter that only the answer gives.
    found: &'static str,
    /// The parameters of paths, and where each comes from.
    gives: &'static [(&'static str, &'static str)],
}

const SESSION: (&str, &str) = ("session", "$request.path.session");
const TASK: (&str, &str) = ("task_id", "$request.path.task_id");

const SOURCES: [LinkSource; 4] = [
    LinkSource {
        path: "/v1/sessions/{session}/tasks",
        method: "post",
        statuses: &["201"],
        found: "task_id",
        gives: &[
            SESSION,
            ("task_id", "$response.body#/task/task_id"),
            ("step_id", "$response.body#/steps/0/step_id"),
        ],
    },
    LinkSource {
        path: "/v1/sessions/{session}/tasks/{task_id}/attempts",
        method: "get",
        statuses: &["200"],
        found: "attempt_id",
        gives: &[SESSION, TASK, ("attempt_id", "$response.body#/attempts/0/attempt_id")],
    },
    LinkSource {
        path: "/v1/sessions/{session}/tasks/{task_id}/runs",
        method: "get",
        statuses: &["200"],
        found: "run_id",
        gives: &[SESSION, TASK, ("run_id", "$response.body#/runs/0/run_id")],
    },
    LinkSource {
        path: "/v1/pools/{pool}/workers",
        method: "post",
        statuses: &["200", "201"],
        found: "link",
        gives: &[("pool", "$request.path.pool"), ("link", "$response.body#/link")],
    },
];

/// Adds links to those operations of the document that have some.
pub(super) fn add_links(paths: &mut Map<String, Json>) {
    for source in &SOURCES {
        let links: Json = links(source, paths).into();
        let operation = paths.get_mut(source.path).and_then(|it| it.get_mut(source.method));
        let Some(responses) = operation.and_then(|it| it.get_mut("responses")) else { continue };
        for status in source.statuses {
            if let Some(Json::Object(response)) = responses.get_mut(status) {
                response.insert("links".to_owned(), links.clone());
            }
        }
    }
}

/// Links to all operations that need what the answer gives, and nothing else.
fn links(source: &LinkSource, paths: &Map<String, Json>) -> Map<String, Json> {
    let mut links = Map::new();
    for (path, methods) in paths {
        let needed: Vec<&str> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let given = needed
            .iter()
            .map(|name| source.gives.iter().find(|(given, _)| given == name).copied())
            .collect::<Option<Vec<_>>>();
        let Some(given) = given.filter(|_| needed.contains(&source.found)) else { continue };
        let given: Map<String, Json> =
            given.into_iter().map(|(name, from)| (name.to_owned(), from.into())).collect();
        for operation in methods.as_object().into_iter().flat_map(Map::values) {
            if let Some(id) = operation["operationId"].as_str() {
                links.insert(id.to_owned(), json!({ "operationId": id, "parameters": given }));
            }
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::super::DOCUMENT;
    use super::*;

    /// A program that has made a Task knows where to go from there.
    #[test]
    fn an_answer_leads_to_what_can_be_asked_next() {
        let of_task =
            &DOCUMENT["paths"]["/v1/sessions/{session}/tasks"]["post"]["responses"]["201"];
        let pause = &of_task["links"]["pause_task"];
        assert_eq!(pause["parameters"]["task_id"], "$response.body#/task/task_id");
        assert!(of_task["links"]["explain"]["parameters"].get("step_id").is_some());
        assert!(of_task["links"].get("cancel_run").is_none(), "the answer has no run_id");
    }

    #[test]
    fn every_source_has_links() {
        for source in &SOURCES {
            for status in source.statuses {
                let operation = &DOCUMENT["paths"][source.path][source.method];
                let links = operation["responses"][status]["links"].as_object();
                assert!(links.is_some_and(|it| !it.is_empty()), "{} {status}", source.path);
            }
        }
    }
}
