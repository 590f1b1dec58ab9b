//! The cards of agents, which say what an agent does and how it is reached. Anybody may read them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, ETAG, HOST, IF_NONE_MATCH, LAST_MODIFIED};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, Version};
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use tenure_core::id::Millis;

use super::agent_of;
use super::agents::{Agent, AgentAbout, Agents};
use super::dialect::{A2aDialect, json as to_json};
use super::wire::{
    A2aAgentCard, A2aCapabilities, A2aInterface, A2aMetadata, A2aSkill, to_http_date,
};
use crate::api::bytes_reply;
use crate::guard::Peer;
use crate::problem::HttpProblem;
use crate::{Backend, Gateway, GatewaySettings};

/// Where a card stands below the address of its agent.
const PATH: &str = "/.well-known/agent-card.json";

/// Where the card of the only agent of a gateway stands, too.
pub(super) const ROOT_PATH: &str = PATH;

/// A card changes with the file of agents, so readers may keep it for a while.
const A_MINUTE: HeaderValue = HeaderValue::from_static("public, max-age=60");

/// Whether a path is that of a card, which may be read without a login.
pub(crate) fn is_card(path: &str) -> bool {
    path == ROOT_PATH || (path.starts_with("/a2a/") && path.ends_with(PATH))
}

/// What a card calls the way in which callers prove who they are.
const BEARER: &str = "bearer";

/// The card of an agent of a gateway at this address that asks for no login, as JSON; none if there is no such
/// agent.
pub fn card(agents: &Agents, name: &str, address: &str) -> Option<Json> {
    let base = agents.url().unwrap_or(address).trim_end_matches('/');
    let places = CardPlaces { http: Some(base.to_owned()), grpc: agents.grpc().map(str::to_owned) };
    agents.find(name).map(|agent| {
        let (calls_back, asks_for_login) = (agents.push().is_some(), false);
        let facts = CardFacts { calls_back, asks_for_login, is_whole: false };
        to_json(&card_of(agent, &places, facts))
    })
}

/// The route of the cards of agents in a version, below the address that agents have in it.
pub(super) fn routes<B: Backend>(base: &str, dialect: A2aDialect) -> Router<Arc<Gateway<B>>> {
    Router::new().route(&format!("{base}{PATH}"), get(of_agent)).layer(Extension(dialect))
}

/// The card of an agent for everybody.
async fn of_agent<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    Path(agent): Path<String>,
    Extension(dialect): Extension<A2aDialect>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let (parts, _) = request.into_parts();
    let agent = agent_of(&gateway, &agent)?;
    let card = written(&agent, &gateway.settings, &parts, dialect, false);
    Ok(reply(&parts.headers, &card, gateway.settings.agents.now().changed_at()))
}

/// The card with everything that callers learn who are let in.
pub(super) fn whole_card(
    agent: &Agent,
    settings: &GatewaySettings,
    parts: &Parts,
    dialect: A2aDialect,
) -> Json {
    written(agent, settings, parts, dialect, true)
}

fn written(
    agent: &Agent,
    settings: &GatewaySettings,
    parts: &Parts,
    dialect: A2aDialect,
    is_whole: bool,
) -> Json {
    let agents = settings.agents.now();
    let (calls_back, asks_for_login) = (agents.push().is_some(), settings.asks_for_login);
    let facts = CardFacts { calls_back, asks_for_login, is_whole };
    let places = CardPlaces::of(&agents, settings.grpc_port, parts);
    match dialect {
        A2aDialect::V1 => to_json(&card_of(agent, &places, facts)),
        A2aDialect::V03 => card_of_v03(agent, places.http.as_deref().unwrap_or_default(), facts),
    }
}

/// The card of the only agent. Where there are several, each has one at its own address.
pub(super) async fn of_only_agent<B: Backend>(
    state: State<Arc<Gateway<B>>>,
    request: Request,
) -> Result<Response, HttpProblem> {
    let only = state.settings.agents.now().only().map(|agent| agent.name.clone());
    let message = "this gateway has not one agent alone: their cards stand below /a2a/NAME";
    let only = only.ok_or_else(|| HttpProblem::not_found(message))?;
    of_agent(state, Path(only), Extension(A2aDialect::V1), request).await
}

/// The addresses of the gateway: those that the file of agents says, or else by the one that the caller has used.
#[derive(Debug, PartialEq, Eq)]
struct CardPlaces {
    /// Over HTTP. A caller over gRPC has not used it.
    http: Option<String>,
    /// Over gRPC, as host and port. None if that is not spoken.
    grpc: Option<String>,
}

impl CardPlaces {
    fn of(agents: &Agents, grpc_port: Option<u16>, parts: &Parts) -> Self {
        let used = used(parts);
        let is_grpc = parts.version == Version::HTTP_2;
        let http = agents.url().map(str::to_owned);
        let http = http.or_else(|| (!is_grpc).then(|| format!("{}://{used}", scheme(parts))));
        let grpc = grpc_port.map(|port| match agents.grpc() {
            Some(said) => said.to_owned(),
            None if is_grpc => used.to_string(),
            None => {
                format!("{}:{port}", host_of(agents.url()).unwrap_or_else(|| used.host().into()))
            }
        });
        Self { http, grpc }
    }
}

fn host_of(url: Option<&str>) -> Option<String> {
    url?.parse::<Uri>().ok()?.host().map(str::to_owned)
}

fn scheme(parts: &Parts) -> &'static str {
    let is_tls = parts.extensions.get::<Arc<Peer>>().is_some_and(|peer| peer.is_tls);
    if is_tls { "https" } else { "http" }
}

/// The host, and perhaps the port, to which the caller has sent its request.
fn used(parts: &Parts) -> Authority {
    let in_header = parts.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
    let used = in_header.or_else(|| parts.uri.authority().cloned());
    used.unwrap_or(Authority::from_static("localhost"))
}

/// What stands on all cards of a gateway.
#[derive(Debug, Clone, Copy)]
struct CardFacts {
    /// Whether it sends updates to addresses that callers name. Those of agents that show no tasks get none.
    calls_back: bool,
    /// Whether callers have to say who they are.
    asks_for_login: bool,
    /// Whether it is the card for callers that are let in.
    is_whole: bool,
}

/// The skills that stand on a card.
fn skills_of(about: &AgentAbout, is_whole: bool) -> Vec<A2aSkill> {
    let extended = about.extended_skills.iter().filter(|_| is_whole);
    about.skills.iter().chain(extended).cloned().collect()
}

/// Where and how an agent is reached, the preferred way first.
fn interfaces(agent: &Agent, places: &CardPlaces) -> Vec<A2aInterface> {
    let interface = |url: String, binding: &str, tenant| A2aInterface {
        url,
        protocol_binding: binding.into(),
        tenant,
        protocol_version: "1.0".into(),
    };
    let mut all = Vec::new();
    if let Some(address) = &places.http {
        let url = || format!("{address}/a2a/{}", agent.name);
        all.extend(["JSONRPC", "HTTP+JSON"].map(|binding| interface(url(), binding, None)));
    }
    let grpc = places.grpc.clone();
    all.extend(grpc.map(|address| interface(address, "GRPC", Some(agent.name.clone()))));
    all
}

fn card_of(agent: &Agent, places: &CardPlaces, facts: CardFacts) -> A2aAgentCard {
    let CardFacts { calls_back, asks_for_login, is_whole } = facts;
    let about = agent.about.clone();
    let (extended_agent_card, skills) = (about.is_extended(), skills_of(&about, is_whole));
    let scheme = json!({ "httpAuthSecurityScheme": { "scheme": "Bearer" } });
    let requirement = json!({ BEARER: { "list": [] } });
    A2aAgentCard {
        name: about.title,
        description: about.description,
        supported_interfaces: interfaces(agent, places),
        provider: about.provider,
        version: about.version,
        documentation_url: about.documentation_url,
        capabilities: A2aCapabilities {
            streaming: true,
            push_notifications: calls_back && agent.shows_tasks(),
            extensions: about.extensions,
            extended_agent_card,
        },
        security_schemes: asks_for_login.then(|| object(BEARER, scheme)),
        security_requirements: asks_for_login
            .then(|| object("schemes", requirement))
            .into_iter()
            .collect(),
        default_input_modes: about.input_modes,
        default_output_modes: about.output_modes,
        skills,
        icon_url: about.icon_url,
        signatures: Vec::new(), // Nobody signs cards here.
    }
}

/// An object with one field.
fn object(name: &str, value: Json) -> A2aMetadata {
    A2aMetadata::from_iter([(name.to_owned(), value)])
}

/// 0.3 has one address, and says the version of the protocol beside it.
fn card_of_v03(agent: &Agent, address: &str, facts: CardFacts) -> Json {
    let about = &agent.about;
    let CardFacts { calls_back, asks_for_login, is_whole } = facts;
    let url = format!("{address}/a2a/{}/v0.3", agent.name);
    let interface = |transport: &str| json!({ "url": url, "transport": transport });
    let mut card = json!({
        "protocolVersion": "0.3.0",
        "name": about.title,
        "description": about.description,
        "url": url,
        "preferredTransport": "JSONRPC",
        "additionalInterfaces": [interface("JSONRPC"), interface("HTTP+JSON")],
        "version": about.version,
        "capabilities": {
            "streaming": true,
            "pushNotifications": calls_back && agent.shows_tasks(),
            "stateTransitionHistory": false,
            "extensions": about.extensions,
        },
        "defaultInputModes": about.input_modes,
        "defaultOutputModes": about.output_modes,
        "skills": skills_of(about, is_whole),
        "supportsAuthenticatedExtendedCard": about.is_extended(),
    });
    let scheme = || json!({ BEARER: { "type": "http", "scheme": "bearer" } });
    let more = [
        ("securitySchemes", asks_for_login.then(scheme)),
        ("security", asks_for_login.then(|| json!([{ BEARER: [] }]))),
        ("provider", about.provider.as_ref().map(to_json)),
        ("documentationUrl", about.documentation_url.as_deref().map(Json::from)),
        ("iconUrl", about.icon_url.as_deref().map(Json::from)),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            card[name] = value;
        }
    }
    card
}

/// A card with its tag and the time of its file, or 304 for who has it already.
fn reply(asked: &HeaderMap, card: &Json, changed_at: Option<Millis>) -> Response {
    let text = card.to_string();
    let hex: String = Sha256::digest(&text)[..16].iter().map(|it| format!("{it:02x}")).collect();
    let tag = format!("\"{hex}\"");
    let mut response =
        bytes_reply(StatusCode::OK, HeaderValue::from_static("application/json"), text);
    if knows(asked, &tag) {
        *response.body_mut() = Body::empty();
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, A_MINUTE);
    let date = changed_at.and_then(to_http_date);
    for (name, value) in [(ETAG, Some(tag)), (LAST_MODIFIED, date)] {
        if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
            headers.insert(name, value);
        }
    }
    response
}

fn knows(asked: &HeaderMap, tag: &str) -> bool {
    let values = asked.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = values.flat_map(|value| value.split(',')).map(str::trim);
    known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

#[cfg(test)]
mod tests {
    use tenure_mcp::file::AgentsFile;

    use super::*;

    fn places() -> CardPlaces {
        CardPlaces { http: Some("http://a".into()), grpc: None }
    }

    fn agents(head: &str) -> Agents {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.toml");
        let text = format!(
            "{head}\n[[agents]]\nname = \"echo\"\ntitle = \"Echo\"\ndescription = \"Says it again.\"\n\
             [[agents.skills]]\nid = \"say\"\nname = \"Say\"\ndescription = \"Says it.\"\n",
        );
        std::fs::write(&path, text).unwrap();
        Agents::read(&AgentsFile::read(&path).unwrap(), &|_| Err("there is none".into())).unwrap()
    }

    /// CARD-STRUCT-001: a card says where both bindings are, and nothing that 1.0 does not know.
    #[test]
    fn a_card_says_how_an_agent_is_reached() {
        let given = card(&agents(""), "echo", "http://127.0.0.1:7677/").unwrap();
        let interface = |binding: &str| {
            json!({
                "url": "http://127.0.0.1:7677/a2a/echo", "protocolBinding": binding,
                "protocolVersion": "1.0",
            })
        };
        let skill = json!({"id": "say", "name": "Say", "description": "Says it.", "tags": []});
        let expected = json!({
            "name": "Echo",
            "description": "Says it again.",
            "supportedInterfaces": [interface("JSONRPC"), interface("HTTP+JSON")],
            "version": "1.0.0",
            "capabilities": {"streaming": true, "pushNotifications": false},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [skill],
        });
        assert_eq!(given, expected);
        let public = agents("url = \"https://a.example.org/\"");
        let public = card(&public, "echo", "http://127.0.0.1").unwrap();
        assert_eq!(public["supportedInterfaces"][0]["url"], "https://a.example.org/a2a/echo");
        assert_eq!(card(&agents(""), "other", "http://a"), None);
    }

    /// A card names the address for gRPC as host and port: the one that the file says, or the host that the caller has
    /// used. A caller over gRPC learns no address that it has not used.
    #[test]
    fn a_card_says_where_grpc_is_spoken() {
        let asked = |uri: &str, version| {
            let request = Request::builder().uri(uri).version(version);
            request.body(Body::empty()).unwrap().into_parts().0
        };
        let http = asked("http://[::1]:7677/", Version::HTTP_11);
        let grpc = asked("http://b:50051/x", Version::HTTP_2);
        let of = |head: &str, port, parts| {
            let CardPlaces { http, grpc } = CardPlaces::of(&agents(head), port, parts);
            (http.unwrap_or_default(), grpc.unwrap_or_default())
        };
        let places = |http: &str, grpc: &str| (http.to_owned(), grpc.to_owned());
        let public = "url = \"https://a.example.org/x\"";
        assert_eq!(of("", None, &http), places("http://[::1]:7677", ""));
        assert_eq!(of("", Some(9), &http), places("http://[::1]:7677", "[::1]:9"));
        assert_eq!(
            of(public, Some(9), &http),
            places("https://a.example.org/x", "a.example.org:9")
        );
        assert_eq!(of("", Some(9), &grpc), places("", "b:50051"));
        let said = "grpc = \"g.example.org:443\"";
        assert_eq!(of(said, Some(9), &grpc), places("", "g.example.org:443"));
        let card = card(&agents(said), "echo", "http://c").unwrap();
        let interface = json!({
            "url": "g.example.org:443", "protocolBinding": "GRPC", "tenant": "echo", "protocolVersion": "1.0",
        });
        assert_eq!(card["supportedInterfaces"][2], interface);
    }

    /// A card says that a gateway asks for a token, in the form of its version.
    #[test]
    fn a_card_says_how_callers_prove_who_they_are() {
        let agents = agents("");
        let agent = agents.find("echo").unwrap();
        let facts = CardFacts { calls_back: true, asks_for_login: true, is_whole: false };
        let new = to_json(&card_of(agent, &places(), facts));
        let scheme = json!({"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}});
        assert_eq!(new["securitySchemes"], scheme);
        assert_eq!(new["capabilities"]["pushNotifications"], true);
        assert_eq!(new["securityRequirements"], json!([{"schemes": {"bearer": {"list": []}}}]));
        let old = card_of_v03(agent, "http://a", facts);
        assert_eq!(old["capabilities"]["pushNotifications"], true);
        assert_eq!(old["securitySchemes"], json!({"bearer": {"type": "http", "scheme": "bearer"}}));
        assert_eq!(old["security"], json!([{"bearer": []}]));
        let open = CardFacts { asks_for_login: false, ..facts };
        assert!(card_of_v03(agent, "http://a", open).get("security").is_none());
    }

    /// Some skills stand only on the card for callers that are let in, and both cards say that there is one.
    #[test]
    fn some_skills_are_for_callers_that_are_let_in() {
        let text = "[[agents]]\nname = \"bank\"\ndescription = \"Keeps money.\"\n\
                    [[agents.extensions]]\nuri = \"urn:a\"\nrequired = true\nparams = {a = 1}\n\
                    [[agents.skills]]\nid = \"pay\"\nname = \"Pay\"\ndescription = \"Pays.\"\nextended = true\n";
        let agents = agents(text);
        let agent = agents.find("bank").unwrap();
        let ids = |is_whole| {
            let facts = CardFacts { calls_back: false, asks_for_login: false, is_whole };
            let (new, old) =
                (to_json(&card_of(agent, &places(), facts)), card_of_v03(agent, "http://a", facts));
            assert_eq!(new["capabilities"]["extendedAgentCard"], true);
            assert_eq!(old["supportsAuthenticatedExtendedCard"], true);
            let extension = json!([{"uri": "urn:a", "required": true, "params": {"a": 1}}]);
            assert_eq!(new["capabilities"]["extensions"], extension);
            assert_eq!(new["skills"], old["skills"]);
            new["skills"].as_array().unwrap().len()
        };
        assert_eq!((ids(false), ids(true)), (0, 1));
    }

    #[test]
    fn a_card_that_is_known_is_not_sent_again() {
        let reply = |asked: &HeaderMap, card: Json| reply(asked, &card, Some(1_773_304_200_250));
        let first = reply(&HeaderMap::new(), json!({"name": "a"}));
        assert_eq!(first.headers()[LAST_MODIFIED], "Thu, 12 Mar 2026 08:30:00 GMT");
        let tag = first.headers()[ETAG].clone();
        let asked = HeaderMap::from_iter([(IF_NONE_MATCH, tag.clone())]);
        assert_eq!(reply(&asked, json!({"name": "a"})).status(), StatusCode::NOT_MODIFIED);
        assert_eq!(reply(&asked, json!({"name": "b"})).status(), StatusCode::OK);
    }

    #[test]
    fn cards_alone_are_for_everybody() {
        for (path, is) in [
            ("/.well-known/agent-card.json", true),
            ("/a2a/echo/.well-known/agent-card.json", true),
            ("/a2a/echo/v0.3/.well-known/agent-card.json", true),
            ("/a2a/echo", false),
            ("/a2a/echo/tasks", false),
            ("/v1/sessions/x/.well-known/agent-card.json", false),
        ] {
            assert_eq!(is_card(path), is, "{path}");
        }
    }
}
