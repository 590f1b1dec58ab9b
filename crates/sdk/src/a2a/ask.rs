//! The requests to agents, as each version and binding writes them.

use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tenure_a2a::{A2aCancel, A2aGet, A2aList, A2aSend, A2aSubscribe, v03};

use super::card::PeerVersion;

/// What stands in a path or a query as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What an agent is asked.
#[derive(Debug)]
pub(super) enum PeerAsk<'a> {
    /// It takes a message.
    Send(&'a A2aSend),
    /// It shows a task.
    Get(&'a A2aGet),
    /// It shows the tasks of a context. There is none in 0.3.
    List(&'a A2aList),
    /// It cancels a task.
    Cancel(&'a A2aCancel),
    /// It tells what happens to a task.
    Subscribe(&'a A2aSubscribe),
}

impl PeerAsk<'_> {
    /// The method in JSON-RPC.
    pub(super) const fn method(&self, version: PeerVersion) -> &'static str {
        match (version, self) {
            (PeerVersion::V1, Self::Send(_)) => "SendMessage",
            (PeerVersion::V1, Self::Get(_)) => "GetTask",
            (_, Self::List(_)) => "ListTasks",
            (PeerVersion::V1, Self::Cancel(_)) => "CancelTask",
            (PeerVersion::V1, Self::Subscribe(_)) => "SubscribeToTask",
            (PeerVersion::V03, Self::Send(_)) => "message/send",
            (PeerVersion::V03, Self::Get(_)) => "tasks/get",
            (PeerVersion::V03, Self::Cancel(_)) => "tasks/cancel",
            (PeerVersion::V03, Self::Subscribe(_)) => "tasks/resubscribe",
        }
    }

    /// The parameters in JSON-RPC.
    pub(super) fn params(&self, version: PeerVersion, tenant: Option<&str>) -> Json {
        let mut params = match (version, self) {
            (PeerVersion::V03, Self::Send(asked)) => v03::send_out(asked),
            (_, Self::Send(asked)) => to_json(asked),
            (_, Self::Get(asked)) => to_json(asked),
            (_, Self::List(asked)) => to_json(asked),
            (_, Self::Cancel(asked)) => to_json(asked),
            (_, Self::Subscribe(asked)) => to_json(asked),
        };
        if let (Some(tenant), Some(fields)) = (tenant, params.as_object_mut()) {
            fields.insert("tenant".into(), tenant.into());
        }
        params
    }

    /// The method of HTTP, the path below the address of the agent, and the body.
    pub(super) fn rest(&self, tenant: Option<&str>) -> (Method, String, Option<Json>) {
        let (method, path, body) = match self {
            Self::Send(asked) => (Method::POST, "/message:send".to_owned(), Some(to_json(asked))),
            Self::Get(asked) => {
                let length = asked.history_length.map(|it| format!("?historyLength={it}"));
                let path = format!("/tasks/{}{}", plain(&asked.id), length.unwrap_or_default());
                (Method::GET, path, None)
            }
            Self::List(asked) => (Method::GET, format!("/tasks{}", query(asked)), None),
            Self::Cancel(asked) => {
                (Method::POST, format!("/tasks/{}:cancel", plain(&asked.id)), Some(json!({})))
            }
            Self::Subscribe(asked) => {
                (Method::POST, format!("/tasks/{}:subscribe", plain(&asked.id)), Some(json!({})))
            }
        };
        let tenant = tenant.map(|it| format!("/{}", plain(it))).unwrap_or_default();
        (method, format!("{tenant}{path}"), body)
    }
}

/// The parameters of a list, as a query.
fn query(asked: &A2aList) -> String {
    let fields = to_json(asked);
    let each = fields.as_object().into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={}", plain(&value))
    });
    let all: Vec<String> = each.collect();
    if all.is_empty() { String::new() } else { format!("?{}", all.join("&")) }
}

fn plain(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// JSON of a type that has texts as keys, and so always a form.
fn to_json(value: &impl Serialize) -> Json {
    serde_json::to_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ids of an agent may have any characters: they change neither path nor query.
    #[test]
    fn ids_are_escaped_in_paths_and_queries() {
        let get = A2aGet { id: "a/b?c".into(), history_length: Some(3) };
        let (method, path, body) = PeerAsk::Get(&get).rest(Some("t/1"));
        assert_eq!(
            (method, &*path, body),
            (Method::GET, "/t%2F1/tasks/a%2Fb%3Fc?historyLength=3", None)
        );
        let list =
            A2aList { context_id: Some("a&b".into()), page_size: Some(7), ..A2aList::default() };
        assert_eq!(PeerAsk::List(&list).rest(None).1, "/tasks?contextId=a%26b&pageSize=7");
    }

    /// Both versions have a name for everything that this client asks.
    #[test]
    fn each_version_has_its_own_names() {
        let (get, cancel) =
            (A2aGet { id: "t".into(), history_length: None }, A2aCancel { id: "t".into() });
        assert_eq!(PeerAsk::Get(&get).method(PeerVersion::V03), "tasks/get");
        assert_eq!(PeerAsk::Cancel(&cancel).method(PeerVersion::V1), "CancelTask");
        assert_eq!(
            PeerAsk::Get(&get).params(PeerVersion::V1, Some("x")),
            json!({"id": "t", "tenant": "x"})
        );
    }
}
