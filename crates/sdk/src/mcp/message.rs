//! The messages of JSON-RPC, and what each version of the protocol writes into them.

use serde_json::{Map, Value as Json, json};
use tenure_wire::json::read_bounded;
use tokio::sync::watch;

use super::error::ToolError;

/// How far a call has come.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolProgress {
    /// How much is done.
    pub done: f64,
    /// Of how much.
    pub total: Option<f64>,
    /// The same for people.
    pub message: Option<String>,
}

/// Tells how far a call has come: the newest word counts.
pub type ProgressSender = watch::Sender<Option<ToolProgress>>;

/// The newest version: no session, and each request says who asks and what it can do.
pub(super) const NEWEST: &str = "2026-07-28";

/// The newest version that begins with `initialize`.
pub(super) const NEWEST_OF_SESSIONS: &str = "2025-11-25";

/// The versions that begin with `initialize`.
const OF_SESSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST_OF_SESSIONS];

/// The longest id of a request of a server.
const ID_MAX: usize = 1_024;

/// The version that is spoken with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolVersion {
    /// [`NEWEST`].
    Newest,
    /// An older one, in a session.
    OfSessions(&'static str),
}

impl ToolVersion {
    /// The version in which a server wants to go on.
    pub(super) fn of_sessions(name: &str) -> Option<Self> {
        OF_SESSIONS.into_iter().find(|it| *it == name).map(Self::OfSessions)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Newest => NEWEST,
            Self::OfSessions(name) => name,
        }
    }

    /// What stands beside the parameters of a request.
    fn meta(self) -> Map<String, Json> {
        let Self::Newest = self else { return Map::new() };
        let capabilities = json!({
            "elicitation": {"form": {}},
            "extensions": {"io.modelcontextprotocol/tasks": {}},
        });
        Map::from_iter([
            ("io.modelcontextprotocol/protocolVersion".to_owned(), json!(NEWEST)),
            ("io.modelcontextprotocol/clientInfo".to_owned(), program()),
            ("io.modelcontextprotocol/clientCapabilities".to_owned(), capabilities),
        ])
    }
}

/// What a server sees of this program.
fn program() -> Json {
    json!({"name": "tenure", "version": env!("CARGO_PKG_VERSION")})
}

/// The parameters of `initialize`.
pub(super) fn initialize() -> Json {
    json!({"protocolVersion": NEWEST_OF_SESSIONS, "capabilities": {}, "clientInfo": program()})
}

/// A request, without its number.
#[derive(Debug, Clone)]
pub(super) struct ToolRequest {
    pub(super) method: &'static str,
    pub(super) params: Map<String, Json>,
}

impl ToolRequest {
    pub(super) fn new(method: &'static str, params: Json) -> Self {
        let params = if let Json::Object(params) = params { params } else { Map::new() };
        Self { method, params }
    }

    /// The tool, or the task, that the request is for.
    pub(super) fn name(&self) -> Option<&str> {
        let field = match self.method {
            "tools/call" => "name",
            "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
            _ => return None,
        };
        self.params.get(field).and_then(Json::as_str)
    }

    /// The message. Its number is the token of its progress, too, if that is wanted.
    pub(super) fn message(&self, version: ToolVersion, id: u64, has_progress: bool) -> Json {
        let mut params = self.params.clone();
        let mut meta = version.meta();
        if let Some(Json::Object(given)) = params.remove("_meta") {
            meta.extend(given);
        }
        if has_progress {
            meta.insert("progressToken".to_owned(), id.into());
        }
        if !meta.is_empty() {
            params.insert("_meta".to_owned(), Json::Object(meta));
        }
        json!({"jsonrpc": "2.0", "id": id, "method": self.method, "params": params})
    }
}

/// A message that has no answer.
pub(super) fn notification(method: &str, params: Json) -> Json {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// What a server says.
#[derive(Debug, PartialEq)]
pub(super) enum ServerMessage {
    /// The answer to a request.
    Answer { id: Json, result: Result<Json, ToolError> },
    /// How far the request of this number has come.
    Progress { id: u64, progress: ToolProgress },
    /// A request of the server, with the answer that it gets.
    Asks(Json),
    /// Anything that has no answer, and changes nothing here.
    Other,
}

impl ServerMessage {
    /// Reads a message.
    ///
    /// # Errors
    /// It is none: the text says why.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, String> {
        let said = || String::from_utf8_lossy(bytes).chars().take(100).collect::<String>();
        let message = read_bounded(bytes).map_err(|error| match error.is_data() {
            true => format!("{:?}: {error}", said()),
            false => format!("{:?} is no JSON", said()),
        })?;
        let Json::Object(mut message) = message else {
            return Err(format!("{:?} is no message of JSON-RPC", said()));
        };
        let method = message.get("method").and_then(Json::as_str).map(str::to_owned);
        let id = message.remove("id");
        match (method, id) {
            (Some(method), Some(id)) if is_short(&id) => Ok(Self::Asks(reply(&method, id))),
            (Some(_), Some(_)) => {
                Err(format!("the id of a request is a number or a text of at most {ID_MAX} bytes"))
            }
            (Some(method), None) if method == "notifications/progress" => {
                Ok(progress(message.get("params")).unwrap_or(Self::Other))
            }
            (Some(_), None) => Ok(Self::Other),
            (None, id) => {
                let id = id.unwrap_or(Json::Null);
                if let Some(error) = message.get("error").filter(|it| it.is_object()) {
                    return Ok(Self::Answer { id, result: Err(ToolError::refused(error)) });
                }
                let result = message.remove("result").filter(Json::is_object);
                let result = result.ok_or("an answer has an object as its result, or an error")?;
                Ok(Self::Answer { id, result: Ok(result) })
            }
        }
    }
}

/// Whether a request has an id that can stand in an answer which waits for its server.
fn is_short(id: &Json) -> bool {
    id.is_number() || id.as_str().is_some_and(|text| text.len() <= ID_MAX)
}

/// The answer to a request of the server: it may see whether somebody is here, and nothing else was offered.
fn reply(method: &str, id: Json) -> Json {
    match method {
        "ping" => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        _ => json!({
            "jsonrpc": "2.0",
            "id": id,
            "error": {"code": -32_601, "message": "this client did not offer that"},
        }),
    }
}

fn progress(params: Option<&Json>) -> Option<ServerMessage> {
    let params = params?;
    let id = params.get("progressToken")?.as_u64()?;
    let number = |name: &str| params.get(name).and_then(Json::as_f64);
    let message = params.get("message").and_then(Json::as_str).map(str::to_owned);
    let (done, total) = (number("progress")?, number("total"));
    Some(ServerMessage::Progress { id, progress: ToolProgress { done, total, message } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_wire::json::VALUES_MAX;

    fn read(message: Json) -> Result<ServerMessage, String> {
        ServerMessage::read(message.to_string().as_bytes())
    }

    #[test]
    fn messages_of_servers_are_read() {
        let answer = read(json!({"jsonrpc": "2.0", "id": 7, "result": {"a": 1}})).unwrap();
        assert_eq!(answer, ServerMessage::Answer { id: json!(7), result: Ok(json!({"a": 1})) });
        let refused = read(json!({"id": 7, "error": {"code": -32602, "message": "no"}})).unwrap();
        let ServerMessage::Answer { result: Err(error), .. } = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(error.to_string(), "the server refuses (-32602): no");
        let params = json!({"progressToken": 7, "progress": 1, "total": 4, "message": "on"});
        let told = read(json!({"method": "notifications/progress", "params": params})).unwrap();
        let progress = ToolProgress { done: 1.0, total: Some(4.0), message: Some("on".into()) };
        assert_eq!(told, ServerMessage::Progress { id: 7, progress });
        let asked = read(json!({"id": "a", "method": "roots/list"})).unwrap();
        let ServerMessage::Asks(reply) = asked else { panic!("{asked:?}") };
        assert_eq!((&reply["id"], &reply["error"]["code"]), (&json!("a"), &json!(-32601)));
        assert_eq!(read(json!({"method": "notifications/message"})).unwrap(), ServerMessage::Other);
        let longest = read(json!({"id": "x".repeat(ID_MAX), "method": "ping"}));
        assert!(matches!(longest, Ok(ServerMessage::Asks(_))));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for (text, why) in [
            ("Server started!", "no JSON"),
            ("[]", "no message"),
            ("{}", "result"),
            ("{\"id\":1,\"result\":3}", "result"),
            ("{\"id\":[1],\"method\":\"ping\"}", "the id of a request"),
            (
                &format!("{{\"id\":\"{}\",\"method\":\"ping\"}}", "x".repeat(ID_MAX + 1)),
                "at most 1024",
            ),
            (&format!("[{}0]", "{},".repeat(VALUES_MAX)), "more than 250000 values"),
        ] {
            let refused = ServerMessage::read(text.as_bytes()).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }

    /// Each request of the newest version says who asks; older ones say it once.
    #[test]
    fn a_request_says_what_its_version_wants() {
        let request =
            ToolRequest::new("tools/call", json!({"name": "t", "_meta": {"traceparent": "0"}}));
        assert_eq!(request.name(), Some("t"));
        let newest = request.message(ToolVersion::Newest, 3, true);
        let meta = &newest["params"]["_meta"];
        assert_eq!((&meta["progressToken"], &meta["traceparent"]), (&json!(3), &json!("0")));
        assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], NEWEST);
        let older = request.message(ToolVersion::of_sessions("2025-06-18").unwrap(), 3, false);
        assert_eq!(older["params"]["_meta"], json!({"traceparent": "0"}));
    }
}
