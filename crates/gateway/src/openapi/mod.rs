//! What the API is, for programs and for people: `/openapi.json` (OpenAPI 3.1), `/v1/operations` (the
//! catalog) and `/docs`, a page.
//!
//! Operations come from the [table of routes](crate::api::routes) and the catalog. Other resources are
//! [described](crate::described) by the modules that serve them.

mod links;
mod operation;
mod page;
mod resource;
mod schemas;

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value as Json, json};

use self::schemas::Components;
use crate::api::bytes_reply;
use crate::api::routes::{CATALOG, ROUTES};
use crate::described::{Content, DescribedRoute};
use crate::health::{LIVE_PATH, READY_PATH};
use crate::{Backend, Gateway, metrics};

/// These pages change with the program alone.
const AN_HOUR: HeaderValue = HeaderValue::from_static("public, max-age=3600");

/// The page has its style in itself, and nothing else.
const ONLY_ITSELF: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
);

/// The pages that every gateway has, for the document.
const PAGES: [DescribedRoute; 6] = [
    page_of("/openapi.json", "openapi", "Reads this document.", JSON),
    page_of("/v1/operations", "operations", "Reads the catalog of operations.", JSON),
    page_of("/docs", "docs", "Reads this document as a page.", HTML),
    page_of(LIVE_PATH, "livez", "Says whether the gateway works.", JSON),
    page_of(READY_PATH, "readyz", "Says whether requests would be answered now.", JSON),
    page_of(metrics::PATH, "metrics", "Reads counts for Prometheus.", TEXT),
];

/// What a page is.
type PageAnswers = &'static [(u16, Option<Content>)];

const JSON: PageAnswers = &[(200, Some(Content::Json(json_schema_of_any)))];
const HTML: PageAnswers = &[(200, Some(Content::Other("text/html")))];
const TEXT: PageAnswers = &[(200, Some(Content::Other("text/plain")))];

fn json_schema_of_any(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

/// A page without parameters.
const fn page_of(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    answers: PageAnswers,
) -> DescribedRoute {
    DescribedRoute::read(path, id, summary, &[], answers)
}

/// The document, made once.
static DOCUMENT: LazyLock<Json> = LazyLock::new(document);
static DOCUMENT_TEXT: LazyLock<Bytes> = LazyLock::new(|| text_of(&*DOCUMENT));
static CATALOG_TEXT: LazyLock<Bytes> = LazyLock::new(|| text_of(&*CATALOG));
static PAGE: LazyLock<Bytes> = LazyLock::new(|| page::page(&DOCUMENT).into());

fn text_of(value: &impl serde::Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_default().into() // Maps with texts as keys have a form.
}

/// The routes.
pub(crate) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    Router::new()
        .route("/openapi.json", get(async || json_page(&DOCUMENT_TEXT)))
        .route("/v1/operations", get(async || json_page(&CATALOG_TEXT)))
        .route("/docs", get(async || html_page(&PAGE)))
}

fn json_page(text: &Bytes) -> Response {
    public(bytes_reply(StatusCode::OK, HeaderValue::from_static("application/json"), text.clone()))
}

fn html_page(text: &Bytes) -> Response {
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    let mut response = public(bytes_reply(StatusCode::OK, html, text.clone()));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, ONLY_ITSELF);
    response
}

fn public(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, AN_HOUR);
    response
}

/// The methods that a path has, for people; `path` is as the document names it.
pub(crate) fn methods_of(path: &str) -> Option<String> {
    let methods = DOCUMENT["paths"][path].as_object()?;
    let names: Vec<String> = methods.keys().map(|name| name.to_ascii_uppercase()).collect();
    Some(names.join(", "))
}

/// The document.
fn document() -> Json {
    let mut components = Components::new(&CATALOG);
    let mut paths: Map<String, Json> = Map::new();
    for route in &ROUTES {
        let method = route.method.as_str().to_ascii_lowercase();
        add(&mut paths, &route.whole_path(), &method, operation::of(route, &mut components));
    }
    for described in crate::described_routes().chain(PAGES) {
        let made = resource::of(&described, &mut components);
        add(&mut paths, described.path, described.method, made);
    }
    links::add_links(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Durable DAGs of steps, and the workers that run them. \
                Every refusal is a problem (RFC 9457) with a stable `code`.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": components.into_schemas(),
            "responses": resource::problems(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of the gateway, or a JWT. \
                        Without authentication a gateway serves this machine alone.",
                },
            },
        },
    })
}

fn add(paths: &mut Map<String, Json>, path: &str, method: &str, operation: Json) {
    let methods = paths.entry(path).or_insert_with(|| json!({}));
    if let Some(methods) = methods.as_object_mut() {
        methods.insert(method.to_owned(), operation);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references<'a>(value: &'a Json, found: &mut BTreeSet<&'a str>) {
        match value {
            Json::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Json::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Json::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let mut found = BTreeSet::new();
        references(&DOCUMENT, &mut found);
        assert!(found.len() > 50, "{}", found.len());
        for reference in found {
            let path = reference.strip_prefix('#').unwrap();
            assert!(DOCUMENT.pointer(path).is_some(), "{reference}");
        }
    }

    #[test]
    fn every_operation_has_an_id_of_its_own_and_its_parameters() {
        let mut ids = BTreeSet::new();
        for (path, methods) in DOCUMENT["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(ids.insert(id), "{id} is there twice");
                let named = operation["parameters"].as_array().unwrap();
                let in_path = named.iter().filter(|it| it["in"] == "path");
                let in_path: BTreeSet<_> = in_path.map(|it| it["name"].as_str().unwrap()).collect();
                let expected = path.split('/').filter_map(|it| it.strip_prefix('{'));
                let expected: BTreeSet<_> = expected.map(|it| it.trim_end_matches('}')).collect();
                assert_eq!(in_path, expected, "{method} {path}");
                let responses = operation["responses"].as_object().unwrap();
                assert!(responses.keys().any(|status| status.starts_with('2')), "{id}");
            }
        }
        assert!(ids.len() > ROUTES.len());
    }
}
