//! The client of a2a-client-lf, over JSON-RPC and HTTP+JSON, against the agents of agents.toml.
//!
//! `cargo run -- http://127.0.0.1:7677`

mod receiver;

use a2a::{
    A2AError, AuthenticationInfo, CancelTaskRequest, DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest, GetTaskRequest, ListTaskPushNotificationConfigsRequest,
    ListTasksRequest, Message, Part, Role, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig,
    TaskState, error_code,
};
use a2a_client::agent_card::AgentCardResolver;
use a2a_client::{A2AClient, A2AClientFactory, Transport};
use futures::{Stream, StreamExt};

use receiver::Receiver;

/// One agent, over one binding.
struct Talk(A2AClient<Box<dyn Transport>>);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let url = std::env::args().nth(1).expect("the address of the gateway");
    for binding in ["JSONRPC", "HTTP+JSON"] {
        let card = AgentCardResolver::new(None)
            .resolve(&format!("{url}/a2a/helper"))
            .await
            .expect("a card");
        let factory = A2AClientFactory::builder().preferred_bindings(vec![binding.into()]).build();
        let (client, interface) =
            factory.create_from_card_with_interface(&card).await.expect("a client");
        assert_eq!(interface.protocol_binding, binding);
        let talk = Talk(client);
        let known = talk.sends().await;
        talk.streams().await;
        talk.lists(&known).await;
        talk.follows_up().await;
        talk.subscribes_and_cancels().await;
        talk.is_called_back().await;
        println!("{binding}: send, get, stream, list, follow-up, subscribe, cancel, push");
    }
}

impl Talk {
    async fn say(&self, request: SendMessageRequest) -> Task {
        match self.0.send_message(&request).await.expect("an answer") {
            SendMessageResponse::Task(task) => task,
            SendMessageResponse::Message(message) => panic!("{message:?}"),
        }
    }

    async fn get(&self, id: &str, history: Option<i32>) -> Result<Task, A2AError> {
        self.0
            .get_task(&GetTaskRequest { id: id.into(), history_length: history, tenant: None })
            .await
    }

    async fn cancel(&self, id: &str) -> Result<Task, A2AError> {
        self.0.cancel_task(&CancelTaskRequest { id: id.into(), metadata: None, tenant: None }).await
    }

    async fn sends(&self) -> Task {
        let task = self.say(message("say hello", None)).await;
        assert_eq!(
            (&task.status.state, text(&artifacts(&task)[0].parts)),
            (&TaskState::Completed, "hello")
        );
        let again = self.get(&task.id, Some(1)).await.expect("the task");
        assert_eq!(again.artifacts, task.artifacts);
        assert_eq!(again.history.map(|all| all.len()), Some(1));
        assert_eq!(
            self.get("absent", None).await.expect_err("absent").code,
            error_code::TASK_NOT_FOUND
        );
        let refused = self.0.send_message(&message("say more", Some(&task))).await;
        assert_eq!(refused.expect_err("it has ended").code, error_code::UNSUPPORTED_OPERATION);
        task
    }

    async fn streams(&self) {
        let told =
            self.0.send_streaming_message(&message("write poem", None)).await.expect("a stream");
        let told = all(told).await;
        assert!(matches!(told[0], StreamResponse::Task(_)), "{told:?}");
        let mut said = told.iter().filter_map(|it| match it {
            StreamResponse::StatusUpdate(it) => {
                it.status.message.as_ref().map(|said| text(&said.parts))
            }
            _ => None,
        });
        assert!(said.any(|it| it == "I am looking for words."), "{told:?}");
        let shown = told.iter().filter_map(|it| match it {
            StreamResponse::ArtifactUpdate(it) => {
                Some((it.artifact.name.as_deref()?, text(&it.artifact.parts)))
            }
            _ => None,
        });
        assert_eq!(shown.collect::<Vec<_>>(), [("poem", "Roses are red."), ("output", "done")]);
        assert_eq!(last_state(&told), TaskState::Completed);
    }

    async fn lists(&self, known: &Task) {
        let asked = ListTasksRequest { context_id: Some(known.context_id.clone()), ..nothing() };
        let page = self.0.list_tasks(&asked).await.expect("a page");
        assert_eq!((page.tasks.len(), page.total_size, &page.tasks[0].id), (1, 1, &known.id));
        let asked = ListTasksRequest {
            status: Some(TaskState::Completed),
            page_size: Some(1),
            include_artifacts: Some(true),
            ..nothing()
        };
        let first = self.0.list_tasks(&asked).await.expect("a page");
        assert!(!artifacts(&first.tasks[0]).is_empty());
        let asked = ListTasksRequest { page_token: Some(first.next_page_token), ..asked };
        let second = self.0.list_tasks(&asked).await.expect("a page");
        assert_ne!(second.tasks[0].id, first.tasks[0].id);
    }

    async fn follows_up(&self) {
        let asks = self.say(message("ask Your name?", None)).await;
        assert_eq!(asks.status.state, TaskState::InputRequired);
        assert_eq!(asks.status.message.as_ref().map(|it| text(&it.parts)), Some("Your name?"));
        let task = self.say(message("Ann", Some(&asks))).await;
        assert_eq!((&task.id, task.status.state.clone()), (&asks.id, TaskState::Completed));
        assert_eq!(text(&artifacts(&task)[0].parts), "You said Ann.");
    }

    async fn subscribes_and_cancels(&self) {
        let mut request = message("wait", None);
        request.configuration =
            Some(SendMessageConfiguration { return_immediately: Some(true), ..configuration() });
        let Task { id, .. } = self.say(request).await;
        let asked = SubscribeToTaskRequest { id: id.clone(), tenant: None };
        let mut events = self.0.subscribe_to_task(&asked).await.expect("a stream");
        let first = events.next().await.expect("an event").expect("an event");
        assert!(matches!(&first, StreamResponse::Task(task) if task.id == id), "{first:?}");
        assert_eq!(self.cancel(&id).await.expect("it is canceled").id, id);
        assert_eq!(last_state(&all(events).await), TaskState::Canceled);
        assert_eq!(self.get(&id, None).await.expect("the task").status.state, TaskState::Canceled);
        let again = self.cancel(&id).await.expect_err("it has ended");
        assert_eq!(again.code, error_code::TASK_NOT_CANCELABLE);
    }

    async fn is_called_back(&self) {
        let receiver = Receiver::open();
        let authentication =
            AuthenticationInfo { scheme: "Bearer".into(), credentials: Some("secret".into()) };
        let mut config = push(&receiver.url, None, "");
        (config.token, config.authentication) = (Some("for me".into()), Some(authentication));
        let mut request = message("write poem", None);
        request.configuration = Some(SendMessageConfiguration {
            task_push_notification_config: Some(config),
            ..configuration()
        });
        let Task { id, .. } = self.say(request).await;
        let told = receiver.until("TASK_STATE_COMPLETED");
        assert!(told.iter().any(|it| it.body.contains("artifactUpdate")));
        for update in told {
            assert_eq!(update.header("x-a2a-notification-token"), Some("for me"));
            assert_eq!(update.header("authorization"), Some("Bearer secret"));
            serde_json::from_str::<StreamResponse>(&update.body).expect("an update");
        }
        self.keeps_configurations(&id, &receiver.url).await;
    }

    async fn keeps_configurations(&self, task: &str, url: &str) {
        let made =
            self.0.create_push_config(&push(url, Some("second"), task)).await.expect("it is made");
        assert_eq!((made.id.as_deref(), &*made.task_id, &*made.url), (Some("second"), task, url));
        let one = GetTaskPushNotificationConfigRequest {
            task_id: task.into(),
            id: "second".into(),
            tenant: None,
        };
        assert_eq!(self.0.get_push_config(&one).await.expect("it is there"), made);
        let asked = ListTaskPushNotificationConfigsRequest {
            task_id: task.into(),
            page_size: None,
            page_token: None,
            tenant: None,
        };
        let page = self.0.list_push_configs(&asked).await.expect("a page");
        assert!(page.configs.len() == 2 && page.configs.contains(&made), "{page:?}");
        let gone = DeleteTaskPushNotificationConfigRequest {
            task_id: task.into(),
            id: "second".into(),
            tenant: None,
        };
        self.0.delete_push_config(&gone).await.expect("it is deleted");
        assert_eq!(self.0.list_push_configs(&asked).await.expect("a page").configs.len(), 1);
    }
}

/// A message of one text, to this task if there is one.
fn message(text: &str, to: Option<&Task>) -> SendMessageRequest {
    let mut message = Message::new(Role::User, vec![Part::text(text)]);
    message.task_id = to.map(|task| task.id.clone());
    message.context_id = to.map(|task| task.context_id.clone());
    SendMessageRequest { message, configuration: None, metadata: None, tenant: None }
}

const fn configuration() -> SendMessageConfiguration {
    SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
        return_immediately: None,
    }
}

const fn nothing() -> ListTasksRequest {
    ListTasksRequest {
        context_id: None,
        status: None,
        page_size: None,
        page_token: None,
        history_length: None,
        status_timestamp_after: None,
        include_artifacts: None,
        tenant: None,
    }
}

fn push(url: &str, id: Option<&str>, task: &str) -> TaskPushNotificationConfig {
    TaskPushNotificationConfig {
        url: url.into(),
        id: id.map(Into::into),
        task_id: task.into(),
        token: None,
        authentication: None,
        tenant: None,
    }
}

async fn all(events: impl Stream<Item = Result<StreamResponse, A2AError>>) -> Vec<StreamResponse> {
    events.map(|event| event.expect("an event")).collect().await
}

/// The state with which a stream ends.
fn last_state(told: &[StreamResponse]) -> TaskState {
    match told.last() {
        Some(StreamResponse::StatusUpdate(update)) => update.status.state.clone(),
        other => panic!("{other:?}"),
    }
}

fn artifacts(task: &Task) -> &[a2a::Artifact] {
    task.artifacts.as_deref().unwrap_or_default()
}

fn text(parts: &[Part]) -> &str {
    parts.first().and_then(Part::as_text).expect("a text")
}
