//! Steps that are handed to an agent: the client of A2A against the agents of a gateway, in both versions.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use serde_json::{Value as Json, json};
use tenure_core::id::{StepId, TaskId};
use tenure_core::record::RetryPolicy;
use tenure_core::retry_policy::Limit;
use tenure_core::status::TaskStatus;
use tenure_gateway::GatewaySettings;
use tenure_gateway::identity::Identity;
use tenure_sdk::a2a::{PeerBinding, PeerClient, PeerError, PeerReason, PeerSettings, PeerVersion};
use tenure_sdk::client::{Step, Task};
use tokio::time::{sleep, timeout};

use crate::house::{House, LocalClient, serve};
use crate::talk::Talk;

/// Whatever a test waits for comes sooner than this.
const SOON: Duration = Duration::from_secs(30);

/// A house with a gateway, and somebody whose Steps go to its agents.
struct Errands {
    house: House,
    client: LocalClient,
    to: SocketAddr,
}

impl Errands {
    async fn open() -> Self {
        let house = House::open().await;
        let to = house.gateway(Identity::local(), GatewaySettings::WAIT_MAX).await;
        let client = house.client("home");
        Self { house, client, to }
    }

    fn card(&self, path: &str) -> String {
        format!("http://{}/a2a/{path}", self.to)
    }

    /// A Task whose one Step says this to an agent, and may fail once.
    async fn say(&self, path: &str, text: &str) -> TaskId {
        self.say_to(&self.card(path), text).await
    }

    /// The same for an agent anywhere.
    async fn say_to(&self, card: &str, text: &str) -> TaskId {
        let input = json!({"card": card, "message": text});
        let step = Step::new("ask").handler("a2a").input_json(&input).unwrap();
        let once = RetryPolicy { max_attempts: Some(Limit::Of(1)), ..RetryPolicy::default() };
        self.client.create(Task::new("errand").step(step).retry(once)).await.unwrap()
    }

    /// The Step of a Task as JSON, when it is in this state.
    async fn until(&self, task: &TaskId, status: &str) -> Json {
        let comes = async {
            loop {
                let view = json!(self.client.get(task).await.unwrap());
                let step = view["steps"][0].clone();
                if step["status"] == status {
                    return step;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, comes).await.expect("it comes to be so")
    }

    /// How a Task has ended.
    async fn end(&self, task: &TaskId) -> TaskStatus {
        timeout(SOON, self.client.wait_for_end(task)).await.unwrap().unwrap();
        self.client.get(task).await.unwrap().task.native_status
    }

    /// The tasks of the agent `echo`, as it shows them.
    async fn tasks(&self) -> Vec<Json> {
        let talk = Talk::new(self.to, "echo");
        let page = talk.result("ListTasks", json!({"includeArtifacts": true})).await;
        page["tasks"].as_array().unwrap().clone()
    }
}

fn step() -> StepId {
    "ask".parse().unwrap()
}

/// A2A-02, A2A-04: a Step is completed when its agent has ended and the artifacts are stored, in each version.
#[tokio::test]
async fn a_step_is_done_by_an_agent() {
    let errands = Errands::open().await;
    for path in ["echo", "echo/", "echo/v0.3", "echo/.well-known/agent-card.json"] {
        let task = errands.say(path, "echo hello").await;
        assert_eq!(errands.end(&task).await, TaskStatus::Completed, "{path}");
        let step = errands.until(&task, "completed").await;
        let remote = &step["remote"];
        assert_eq!(
            (&remote["native_protocol"], &remote["reconciled"]),
            (&json!("a2a"), &json!(true))
        );
        assert_eq!(remote["remote_status"], "completed");
        assert_eq!(remote["remote_artifact_refs"].as_array().unwrap().len(), 1, "{remote}");
        assert_eq!(step["artifact_ids"].as_array().unwrap().len(), 1, "{step}");
    }
    assert_eq!(errands.tasks().await.len(), 4, "each Step has come to the agent once");
}

/// An agent that answers with a message alone completes the Step, too.
#[tokio::test]
async fn a_message_is_an_answer() {
    let errands = Errands::open().await;
    let task = errands.say("oracle", "echo hello").await;
    assert_eq!(errands.end(&task).await, TaskStatus::Completed);
}

/// A question of the agent blocks the Step; the answer goes back to the same task of the agent, once.
#[tokio::test]
async fn a_question_comes_here_and_the_answer_goes_back() {
    let errands = Errands::open().await;
    for path in ["echo", "echo/v0.3"] {
        let task = errands.say(path, "ask where to?").await;
        let asks = errands.until(&task, "blocked").await;
        assert_eq!(asks["wait_kind"], "input");
        assert_eq!(asks["status_reason"]["message"], "where to?");
        errands.client.answer(&task, step(), "to Helsinki").await.unwrap();
        assert_eq!(errands.end(&task).await, TaskStatus::Completed);
        let tasks = errands.tasks().await;
        let artifact = &tasks[0]["artifacts"][0]["parts"][0]["text"];
        assert_eq!(artifact, "to Helsinki", "the newest task comes first");
    }
    assert_eq!(errands.tasks().await.len(), 2);
}

/// A request for a login waits for a permission here.
#[tokio::test]
async fn a_login_waits_for_a_permission() {
    let errands = Errands::open().await;
    let task = errands.say("echo", "login").await;
    assert_eq!(errands.until(&task, "blocked").await["wait_kind"], "permission");
}

/// What the agent rejects, or fails, fails here with what it says.
#[tokio::test]
async fn a_failure_of_the_agent_is_one_of_the_step() {
    let errands = Errands::open().await;
    for (text, code) in [("fail it is broken", "a2a_failed"), ("reject it is broken", "rejected")] {
        let task = errands.say("echo", text).await;
        let failed = errands.until(&task, "failed").await;
        assert_eq!(failed["status_reason"]["code"], code, "{failed}");
        assert_eq!(failed["status_reason"]["message"], "it is broken");
    }
}

/// An agent that fails where it is asked has refused nothing: another try may do better.
#[tokio::test]
async fn an_internal_error_of_the_agent_is_no_refusal() {
    let errands = Errands::open().await;
    let card = |headers: HeaderMap| async move {
        let url = format!("http://{}", headers["host"].to_str().unwrap());
        let interface = json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
        json!({"name": "a", "supportedInterfaces": [interface]}).to_string()
    };
    let by_status = || async { (StatusCode::INTERNAL_SERVER_ERROR, String::new()) };
    let by_code = || async {
        let error = json!({"code": -32603, "message": "Internal error"});
        (StatusCode::OK, json!({"jsonrpc": "2.0", "id": 1, "error": error}).to_string())
    };
    let routes = Router::new().route("/.well-known/agent-card.json", get(card));
    for routes in [routes.clone().fallback(by_status), routes.fallback(by_code)] {
        let task = errands.say_to(&format!("http://{}", serve(routes).await), "hello").await;
        let failed = errands.until(&task, "failed").await;
        assert_eq!(failed["status_reason"]["code"], "a2a_failed", "{failed}");
    }
}

/// A cancellation goes through to the agent.
#[tokio::test]
async fn a_cancellation_goes_through() {
    let errands = Errands::open().await;
    let task = errands.say("echo", "hold").await;
    let works = async {
        while errands
            .tasks()
            .await
            .first()
            .is_none_or(|it| it["status"]["state"] != "TASK_STATE_WORKING")
        {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, works).await.unwrap();
    let is_known = async {
        while json!(errands.client.get(&task).await.unwrap())["steps"][0]["remote"].is_null() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, is_known).await.unwrap();
    errands.client.cancel(&task, "enough").await.unwrap();
    assert_eq!(errands.end(&task).await, TaskStatus::Cancelled);
    let tasks = errands.tasks().await;
    assert_eq!(tasks[0]["status"]["state"], "TASK_STATE_CANCELED");
}

/// An Attempt that follows another one goes on with the same task of the agent: nothing is sent twice.
#[tokio::test]
async fn a_worker_that_is_restarted_goes_on_with_the_same_task() {
    let errands = Errands::open().await;
    let task = errands.say("echo", "ask one?").await;
    errands.until(&task, "blocked").await;
    // Without an answer the next Attempt finds the same question.
    errands.client.reopen_step(&task, step(), "look again").await.unwrap();
    let again = async {
        while json!(errands.client.get(&task).await.unwrap())["steps"][0]["status_reason"]["message"]
            != "one?"
        {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, again).await.unwrap();
    assert_eq!(errands.tasks().await.len(), 1);
}

/// What cannot be a Step of an agent is rejected, and says why.
#[tokio::test]
async fn what_leads_to_no_agent_is_rejected() {
    let errands = Errands::open().await;
    let task = errands.say("nobody", "echo hello").await;
    let failed = errands.until(&task, "failed").await;
    assert_eq!(failed["status_reason"]["code"], "rejected");
    let said = failed["status_reason"]["message"].as_str().unwrap();
    assert!(said.contains("no card"), "{said}");
}

/// The client chooses the latest version, speaks the one that is wanted, and reads refusals.
#[tokio::test]
async fn a_client_speaks_what_the_card_offers() {
    let errands = Errands::open().await;
    let client = PeerClient::connect(&PeerSettings::new(errands.card("echo"))).await.unwrap();
    let interface = &client.card().interface;
    assert_eq!((interface.version, interface.binding), (PeerVersion::V1, PeerBinding::JsonRpc));
    let old = PeerClient::connect(&PeerSettings::new(errands.card("echo/v0.3"))).await.unwrap();
    assert_eq!(old.card().interface.version, PeerVersion::V03);
    for client in [client, old] {
        let absent = client.get("absent", None).await.unwrap_err();
        assert_eq!(absent.reason(), Some(PeerReason::TaskNotFound));
        let refused = client.subscribe("absent", None).await.unwrap_err();
        assert_eq!(refused.reason(), Some(PeerReason::TaskNotFound));
    }
    let wanted =
        PeerSettings { version: Some(PeerVersion::V03), ..PeerSettings::new(errands.card("echo")) };
    assert!(matches!(PeerClient::connect(&wanted).await, Err(PeerError::Offer { .. })));
    drop(errands.house);
}
