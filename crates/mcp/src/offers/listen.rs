//! `subscriptions/listen` with ids of tasks (SEP-2663): a client is told what `tasks/get` would answer, at each change.
//!
//! The SDK knows no ids of tasks in the filter of a subscription, and leaves them out as it reads the request. So a
//! request that has some is rewritten before it is read ([`listening_to_tasks`]): under another method it comes here as
//! it is. What is sent in answer is as the extension says.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, CustomNotification, CustomRequest, CustomResult, DetailedTask, ErrorCode,
    ProtocolVersion, ServerNotification, SubscriptionsListenResult, TaskStatusNotificationParams,
};
use rmcp::service::{RequestContext, RoleServer};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use tenure_core::id::TaskId;
use tenure_core::{Commit, Rejection};
use tenure_ports::ClientPort;
use tenure_sdk::client::{Client, passes};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Offers;
use super::call::ClientMeans;
use super::follow::{look, may_settle, reported_in};
use super::question::AskingModes;
use super::tasks::{detailed, find};
use crate::McpCaller;
use crate::follow::{FOLLOWED_MAX, of_task};
use crate::resource::TaskAddress;

/// The method of a client.
const STANDARD: &str = "subscriptions/listen";

/// The method under which a request with ids of tasks comes.
pub(crate) const LISTEN: &str = "dev.tenure/subscriptions/listen";

/// How often a client is told of progress of a task at most: as often as it is asked to look.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// The pause before what could not be read is read again.
const PAUSE: Duration = Duration::from_secs(1);

/// The message to read instead of one with which a client listens to tasks; none: the message is another one.
pub fn listening_to_tasks(message: &[u8]) -> Option<Vec<u8>> {
    let has = |word: &str| message.windows(word.len()).any(|it| it == word.as_bytes());
    if !has("\"taskIds\"") || !has("listen") {
        return None; // Nearly all messages are others, and are not read twice.
    }
    let mut message: Json = serde_json::from_slice(message).ok()?;
    message["params"]["notifications"].as_object()?.get("taskIds")?;
    (message["method"] == STANDARD).then(|| message["method"] = LISTEN.into())?;
    serde_json::to_vec(&message).ok()
}

/// What a client wants to be told of.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ListenFilter {
    task_ids: Vec<String>,
    resource_subscriptions: Vec<String>,
}

impl ListenFilter {
    /// Reads a request.
    ///
    /// # Errors
    /// Its version has no such method, its client does not know the extension, or it is no filter.
    pub(super) fn read(
        request: CustomRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<Self, ErrorData> {
        let since = ProtocolVersion::V_2026_07_28;
        if context.protocol_version().is_none_or(|it| it.as_str() < since.as_str()) {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, STANDARD, None));
        }
        if !ClientMeans::of(context).knows_tasks() {
            let needed = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        #[derive(Deserialize)]
        struct ListenParams {
            notifications: ListenFilter,
        }
        let invalid = |why: String| ErrorData::invalid_params(why, None);
        let params = request.params_as::<ListenParams>().map_err(|why| invalid(why.to_string()))?;
        let filter =
            params.ok_or_else(|| invalid("notifications is missing".into()))?.notifications;
        let count = filter.task_ids.len() + filter.resource_subscriptions.len();
        match count <= FOLLOWED_MAX {
            true => Ok(filter),
            false => Err(invalid(format!(
                "a request listens to at most {FOLLOWED_MAX} tasks and addresses"
            ))),
        }
    }
}

/// What a client is told.
enum ListenNews {
    Task(Box<DetailedTask>),
    Resource(String),
}

/// Tells a client of what its filter names and it may see.
pub(super) async fn serve<P: ClientPort>(
    offers: &Offers,
    caller: &McpCaller<P>,
    filter: ListenFilter,
    (context, modes, ending): (&RequestContext<RoleServer>, AskingModes, &CancellationToken),
) -> Result<CustomResult, ErrorData> {
    let (mut tasks, mut uris) = (Vec::new(), Vec::new());
    let mut all: SelectAll<BoxStream<'static, ListenNews>> = SelectAll::new();
    for id in filter.task_ids {
        if tasks.contains(&id) {
            continue;
        }
        // The client is told nothing of a task that it may not see, as if there were none.
        if let Some(view) = find(&offers.now(), caller, &id).await? {
            let followed = FollowedCall {
                offers: offers.clone(),
                client: caller.client.clone(),
                task: view.task.task_id,
                modes,
                last: Json::Null,
                version: 0,
                looked: None,
                is_over: false,
                commits: None,
            };
            let news = futures::stream::unfold(followed, |it| Box::pin(it.next()));
            all.push(news.map(|task| ListenNews::Task(Box::new(task))).boxed());
            tasks.push(id);
        }
    }
    for uri in filter.resource_subscriptions {
        let address = TaskAddress::read(&uri).filter(|it| it.session == *caller.session());
        if let Some(address) = address {
            let news = of_task(caller.clone(), &address, uri.clone());
            all.push(news.map(ListenNews::Resource).boxed());
            uris.push(uri);
        }
    }
    all.push(futures::stream::pending().boxed()); // Without any task the subscription stays open all the same.
    let mut accepted = Map::from_iter([("taskIds".to_owned(), json!(tasks))]);
    if !uris.is_empty() {
        accepted.insert("resourceSubscriptions".into(), json!(uris));
    }
    let told = json!({"notifications": accepted});
    if !tell(context, "notifications/subscriptions/acknowledged", told).await {
        return Ok(ended(context));
    }
    loop {
        let news = tokio::select! {
            () = context.ct.cancelled() => return Ok(ended(context)),
            () = ending.cancelled() => return Ok(ended(context)),
            Some(news) = all.next() => news,
        };
        let (method, params) = match news {
            ListenNews::Task(task) => {
                ("notifications/tasks", json!(TaskStatusNotificationParams::new(*task)))
            }
            ListenNews::Resource(uri) => ("notifications/resources/updated", json!({"uri": uri})),
        };
        if !tell(context, method, params).await {
            return Ok(ended(context));
        }
    }
}

/// Sends a notification of this subscription, and says whether somebody is there for it.
async fn tell(context: &RequestContext<RoleServer>, method: &str, mut params: Json) -> bool {
    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": context.id});
    let notification = CustomNotification::new(method, Some(params));
    context
        .peer
        .send_notification(ServerNotification::CustomNotification(notification))
        .await
        .is_ok()
}

/// The answer to the request, when nothing more is told.
fn ended(context: &RequestContext<RoleServer>) -> CustomResult {
    CustomResult::new(json!(SubscriptionsListenResult::complete(context.id.clone())))
}

/// A task of which a client is told.
struct FollowedCall<P> {
    offers: Offers,
    client: Client<P>,
    task: TaskId,
    modes: AskingModes,
    /// What it showed last, without the time.
    last: Json,
    /// The version at which it was read last, and when that was.
    version: u64,
    looked: Option<Instant>,
    is_over: bool,
    commits: Option<BoxStream<'static, Result<Commit, Rejection>>>,
}

impl<P: ClientPort> FollowedCall<P> {
    /// What it shows now, and then each time that has changed. It begins with how the task is, as it may have changed
    /// since its client has looked, and ends with the task.
    async fn next(mut self) -> Option<(DetailedTask, Self)> {
        while !self.is_over {
            if !self.wait().await {
                return None;
            }
            let (view, state) = match look(&self.client, &self.task).await {
                Ok(seen) => seen,
                Err(no) if passes(&no) && !self.client.port().is_over() => {
                    self.pause().await;
                    continue;
                }
                Err(_) => return None,
            };
            let table = self.offers.now();
            let Ok(shown) = detailed(&table, &self.client, &view, self.modes).await else {
                self.pause().await; // The output of the task cannot be read now.
                continue;
            };
            self.version = view.task.version;
            self.looked = Some(Instant::now());
            self.is_over = view.task.native_status.is_terminal();
            drop(state);
            let mut seen = json!(TaskStatusNotificationParams::new(shown.clone()));
            seen["lastUpdatedAt"] = Json::Null;
            if seen != self.last {
                self.last = seen;
                return Some((shown, self));
            }
        }
        None
    }

    /// Reads the task anew after a while, whatever its log says.
    async fn pause(&mut self) {
        sleep(PAUSE).await;
        (self.commits, self.looked) = (None, None);
    }

    /// Waits until the task may show something else. `false`: it cannot be followed any more.
    async fn wait(&mut self) -> bool {
        let Some(looked) = self.looked else { return true };
        let (client, task, version) = (&self.client, &self.task, self.version);
        let commits = self.commits.get_or_insert_with(|| client.watch(task, version).boxed());
        loop {
            match commits.next().await {
                None => return true, // The task has ended.
                Some(Err(_)) => return false,
                Some(Ok(commit)) if commit.last_seq() <= version => {}
                Some(Ok(commit)) if may_settle(&commit) => return true,
                Some(Ok(commit)) if reported_in(&commit).next().is_some() => {
                    sleep_until(looked + PROGRESS_EVERY).await;
                    return true;
                }
                Some(Ok(_)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what listens to tasks is read in another way.
    #[test]
    fn a_request_that_listens_to_tasks_is_read_in_another_way() {
        let of = |method: &str, filter: Json| {
            let params = json!({"notifications": filter, "_meta": {"a": 1}});
            let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
            listening_to_tasks(message.to_string().as_bytes())
        };
        let other = of(STANDARD, json!({"taskIds": ["t"], "toolsListChanged": true})).unwrap();
        let other: Json = serde_json::from_slice(&other).unwrap();
        assert_eq!((&other["method"], &other["id"]), (&json!(LISTEN), &json!(7)));
        assert_eq!(other["params"]["notifications"]["taskIds"], json!(["t"]));
        assert_eq!(other["params"]["_meta"], json!({"a": 1}));
        assert!(of(STANDARD, json!({"resourceSubscriptions": ["taskIds"]})).is_none());
        assert!(of("tools/call", json!({"taskIds": ["t"], "a": "listen"})).is_none());
        for text in ["", "{", "[]", "null", "\"taskIds\" listen", "{\"taskIds\":\"listen\"}"] {
            assert!(listening_to_tasks(text.as_bytes()).is_none(), "{text}");
        }
    }
}
