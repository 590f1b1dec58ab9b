//! Calling back.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use axum::Extension;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value as Json, json};
use tenure_core::status::TaskStatus;
use tenure_gateway::Gateway;
use tenure_sdk::client::{Step, Task};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, timeout};

use crate::agents::agents_that_call_back;
use crate::house::{House, caller, serve, settings};
use crate::http::{Exchange, send};
use crate::talk::{Talk, in_short, message, with};

/// Whatever a test waits for comes sooner than this.
const SOON: Duration = Duration::from_secs(30);

/// Somebody who takes updates.
struct Receiver {
    address: SocketAddr,
    /// The status with which the next updates are answered.
    status: Arc<AtomicU16>,
    taken: UnboundedReceiver<(String, Json)>,
}

impl Receiver {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let status = Arc::new(AtomicU16::new(200));
        let (to, taken) = unbounded_channel();
        let answers = Arc::clone(&status);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (to, answers) = (to.clone(), Arc::clone(&answers));
                let take =
                    service_fn(move |request| take(request, to.clone(), Arc::clone(&answers)));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), take));
            }
        });
        Self { address, status, taken }
    }

    /// A configuration that names it.
    fn config(&self) -> Json {
        json!({
            "id": "hook", "url": format!("http://{}/hook", self.address), "token": "t1",
            "authentication": {"scheme": "Bearer", "credentials": "secret"},
        })
    }

    /// The next update, and what came with it.
    async fn next(&mut self) -> (String, Json) {
        timeout(SOON, self.taken.recv()).await.expect("an update comes").unwrap()
    }

    /// Updates up to the end of the task.
    async fn until_end(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            all.push(in_short(&self.next().await.1));
            if ["completed", "canceled"].contains(&&**all.last().unwrap()) {
                return all;
            }
        }
    }
}

async fn take(
    request: Request<Incoming>,
    to: UnboundedSender<(String, Json)>,
    status: Arc<AtomicU16>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let header = |name: &str| {
        request
            .headers()
            .get(name)
            .map_or(String::new(), |value| value.to_str().unwrap().to_owned())
    };
    let names = ["authorization", "x-a2a-notification-token", "content-type"];
    let came_with = names.map(header).join(", ");
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let _ = to.send((came_with, serde_json::from_slice(&body).unwrap()));
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status.load(Ordering::SeqCst).try_into().unwrap();
    Ok(response)
}

/// FACT-01, PUSH-CREATE-001 to PUSH-CREATE-002, PUSH-GET-001, PUSH-LIST-001, PUSH-DELIVER-001, PUSH-DELIVER-003:
/// updates go to the address of a configuration, from then on and to the end of the task.
#[tokio::test]
async fn updates_are_sent_to_the_address_that_was_named() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let mut receiver = Receiver::open().await;
    let asks = talk.say(message("ask where to?")).await;
    let of_task = json!({"taskId": asks["id"]});
    let given = with(receiver.config(), &of_task);
    let made = talk.result("CreateTaskPushNotificationConfig", given.clone()).await;
    assert_eq!(made, given);
    let named = with(json!({"id": "hook"}), &of_task);
    assert_eq!(talk.result("GetTaskPushNotificationConfig", named).await, given);
    let all = talk.result("ListTaskPushNotificationConfigs", of_task.clone()).await;
    assert_eq!(all, json!({"configs": [given], "nextPageToken": ""}));
    talk.say(with(message("north"), &of_task)).await;
    let (came_with, first) = receiver.next().await;
    assert_eq!(came_with, "Bearer secret, t1, application/a2a+json");
    assert_eq!(
        (in_short(&first), &first["statusUpdate"]["taskId"]),
        ("submitted".into(), &asks["id"])
    );
    assert_eq!(receiver.until_end().await, ["working", "artifact output", "completed"]);
    assert_eq!(
        talk.result("ListTasks", json!({})).await["totalSize"],
        1,
        "couriers are not listed"
    );
}

/// PUSH-DELIVER-002: an update that was not taken is sent again, and the ones behind it wait.
#[tokio::test]
async fn an_update_is_sent_until_it_is_taken() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let mut receiver = Receiver::open().await;
    receiver.status.store(503, Ordering::SeqCst);
    let inline = json!({"taskPushNotificationConfig": receiver.config()});
    let params = json!({"message": message("echo a"), "configuration": inline});
    talk.result("SendMessage", params).await;
    let (_, refused) = receiver.next().await;
    assert_eq!(in_short(&refused), "working");
    receiver.status.store(204, Ordering::SeqCst);
    assert_eq!(receiver.until_end().await, ["working", "artifact output", "completed"]);
}

/// PUSH-GET-002, PUSH-DEL-001 to PUSH-DEL-002: a configuration that was deleted is carried out no more. To delete it
/// again does no harm. Fields may have their names of the definition here, too.
#[tokio::test]
async fn a_deleted_configuration_is_not_carried_out() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let (mut receiver, mut other) = (Receiver::open().await, Receiver::open().await);
    let asks = talk.say(message("ask where to?")).await;
    let of_task = json!({"taskId": asks["id"]});
    let named = json!({"id": "hook", "task_id": asks["id"]});
    let create = async |config: Json| {
        talk.result("CreateTaskPushNotificationConfig", with(config, &of_task)).await
    };
    create(receiver.config()).await;
    for _ in 0..2 {
        talk.result("DeleteTaskPushNotificationConfig", named.clone()).await;
    }
    assert_eq!(talk.refusal("GetTaskPushNotificationConfig", named).await, -32001);
    create(other.config()).await;
    talk.say(with(message("north"), &of_task)).await;
    assert_eq!(other.until_end().await.last().unwrap(), "completed");
    assert!(receiver.taken.try_recv().is_err());
}

/// Callers cannot have a gateway reach what only the gateway can.
#[tokio::test]
async fn inner_addresses_are_not_called() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let asks = talk.say(message("ask where to?")).await;
    for url in ["http://example.org/", "https://10.0.0.1/", "https://169.254.169.254/", "", "x"] {
        let config = json!({"taskId": asks["id"], "url": url});
        assert_eq!(talk.refusal("CreateTaskPushNotificationConfig", config).await, -32602, "{url}");
    }
}

/// FACT-01, TERM-21: a configuration of a task that has ended is kept, read and deleted like any other, as a caller
/// cannot know when a task ends. Nothing is sent, and there are not too many.
#[tokio::test]
async fn configurations_of_an_ended_task_are_kept() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let mut receiver = Receiver::open().await;
    let ended = talk.say(message("echo a")).await;
    let of_task = json!({"taskId": ended["id"]});
    let given = with(receiver.config(), &of_task);
    for _ in 0..2 {
        let made = talk.result("CreateTaskPushNotificationConfig", given.clone()).await;
        assert_eq!(made, given);
    }
    let named = with(json!({"id": "hook"}), &of_task);
    assert_eq!(talk.result("GetTaskPushNotificationConfig", named.clone()).await, given);
    for number in 1..16 {
        let another = with(given.clone(), &json!({"id": format!("hook-{number}")}));
        talk.result("CreateTaskPushNotificationConfig", another).await;
    }
    let one_more = with(given.clone(), &json!({"id": "more"}));
    assert_eq!(talk.refusal("CreateTaskPushNotificationConfig", one_more).await, -32004);
    for _ in 0..2 {
        talk.result("DeleteTaskPushNotificationConfig", named.clone()).await;
    }
    assert_eq!(talk.refusal("GetTaskPushNotificationConfig", named).await, -32001);
    let all = talk.result("ListTaskPushNotificationConfigs", of_task).await;
    assert_eq!(all["configs"].as_array().unwrap().len(), 15);
    assert!(receiver.taken.try_recv().is_err());
    assert_eq!(talk.get(&ended["id"]).await, ended, "nothing else of the task has changed");
}

/// A configuration too many that comes with an answer is refused, and the answer with it.
#[tokio::test]
async fn an_answer_with_a_configuration_too_many_is_refused() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let receiver = Receiver::open().await;
    let asks = talk.say(message("ask why?")).await;
    for number in 0..16 {
        let named = json!({"taskId": asks["id"], "id": format!("hook-{number}")});
        let config = with(receiver.config(), &named);
        talk.result("CreateTaskPushNotificationConfig", config).await;
    }
    let before = talk.get(&asks["id"]).await;
    let one_more = json!({"taskPushNotificationConfig": receiver.config()});
    let answer = with(message("because"), &json!({"taskId": asks["id"]}));
    let params = json!({"message": answer, "configuration": one_more});
    assert_eq!(talk.refusal("SendMessage", params).await, -32004);
    assert_eq!(talk.get(&asks["id"]).await, before);
}

/// Mechanisms 15: a caller who makes as many configurations as it can is refused more of them, and leaves couriers to
/// others. It gets others when it deletes some.
#[tokio::test]
async fn one_caller_leaves_couriers_to_others() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let (mut receiver, mut other) = (Receiver::open().await, Receiver::open().await);
    let create = "CreateTaskPushNotificationConfig";
    let (mut made, mut refused) = (Vec::new(), None);
    for _ in 0..70 {
        let asks = talk.say(message("ask why?")).await;
        for number in 0..16 {
            let named = json!({"taskId": asks["id"], "id": format!("hook-{number}")});
            let answer = talk.ask(create, with(receiver.config(), &named)).await;
            match answer.get("result") {
                Some(_) => made.push(named),
                None => refused = refused.or(Some((named, answer["error"].clone()))),
            }
        }
    }
    let (named, error) = refused.expect("a caller has a share");
    assert!(error["message"].as_str().unwrap().contains("delete configurations"), "{error}");
    assert!((760..900).contains(&made.len()), "{}", made.len());

    // With a message, too, and then the message begins nothing.
    let before = talk.result("ListTasks", json!({})).await["totalSize"].clone();
    let configuration = json!({"taskPushNotificationConfig": receiver.config()});
    let params = json!({"message": message("echo a"), "configuration": configuration});
    talk.refusal("SendMessage", params).await;
    assert_eq!(talk.result("ListTasks", json!({})).await["totalSize"], before);

    let gateway = Gateway::new(house.backend(), settings(agents_that_call_back()));
    let routes = tenure_gateway::routes(gateway).layer(Extension(caller("bob", "echo")));
    let bob = Talk::new(serve(routes).await, "echo");
    let asks = bob.say(message("ask where to?")).await;
    let of_task = json!({"taskId": asks["id"]});
    bob.result(create, with(other.config(), &of_task)).await;
    bob.say(with(message("north"), &of_task)).await;
    assert_eq!(other.until_end().await.last().unwrap(), "completed");

    for named in made.drain(..150) {
        talk.result("DeleteTaskPushNotificationConfig", named).await;
    }
    let begun = Instant::now();
    while talk.ask(create, with(receiver.config(), &named)).await.get("result").is_none() {
        assert!(begun.elapsed() < SOON, "couriers that have ended leave their places");
        sleep(Duration::from_millis(20)).await;
    }
    talk.say(with(message("north"), &json!({"taskId": named["taskId"]}))).await;
    receiver.until_end().await;
}

/// Who makes the Task of a courier by itself cannot have it run as somebody else.
#[tokio::test]
async fn a_courier_runs_as_the_one_who_has_made_it() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let mut receiver = Receiver::open().await;
    let ended = talk.say(message("echo a")).await;
    let config = with(receiver.config(), &json!({"taskId": ended["id"]}));
    let client = house.client("echo");
    let ends = async |caller: &str| {
        let order = json!({"task_id": ended["id"], "caller": caller, "since": 0, "config": config});
        let step = Step::new("carry").handler("a2a-push").input_json(&order).unwrap();
        let courier = Task::new("courier").pool("a2a-push").step(step);
        let courier = client.create(courier).await.unwrap();
        client.wait_for_end(&courier).await.unwrap().status
    };
    let forged = ends("bob").await;
    assert_eq!(forged, TaskStatus::Failed);
    assert!(receiver.taken.try_recv().is_err(), "nothing was sent for bob");
    assert_eq!(ends("local").await, TaskStatus::Completed);
    assert_eq!(receiver.until_end().await.last().unwrap(), "completed");
}

/// What cannot stand in a header is refused before a message begins anything.
#[tokio::test]
async fn a_token_that_cannot_be_sent_is_refused() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let receiver = Receiver::open().await;
    let forged = with(receiver.config(), &json!({"token": "a\r\nx: y"}));
    let configuration = json!({"taskPushNotificationConfig": forged});
    let params = json!({"message": message("echo a"), "configuration": configuration});
    assert_eq!(talk.refusal("SendMessage", params).await, -32602);
    assert_eq!(talk.result("ListTasks", json!({})).await["totalSize"], 0);
}

/// The callers of a shared agent see the tasks of each other, and not with what secrets another one is called back.
#[tokio::test]
async fn secrets_of_others_are_not_shown() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("trips").await;
    let receiver = Receiver::open().await;
    let trip = talk.say(message("echo plan")).await;
    let of_task = json!({"taskId": trip["id"]});
    let given = with(receiver.config(), &of_task);
    talk.result("CreateTaskPushNotificationConfig", given.clone()).await;
    let mut shown = given;
    shown.as_object_mut().unwrap().remove("token");
    shown["authentication"] = json!({"scheme": "Bearer"});
    let named = with(json!({"id": "hook"}), &of_task);
    assert_eq!(talk.result("GetTaskPushNotificationConfig", named).await, shown);
    let all = talk.result("ListTaskPushNotificationConfigs", of_task).await;
    assert_eq!(all["configs"], json!([shown]));
}

/// A2A-07: of an agent that answers with messages alone nobody is told of a task, and its cards say so.
#[tokio::test]
async fn an_agent_without_tasks_does_not_call_back() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("oracle").await;
    let receiver = Receiver::open().await;
    let configuration = json!({"taskPushNotificationConfig": receiver.config()});
    let params = json!({"message": message("echo a"), "configuration": configuration});
    assert_eq!(talk.refusal("SendMessage", params).await, -32003);
    assert!(house.client("oracle").list(true).await.unwrap().entries.is_empty());
    for (agent, calls_back) in [("oracle", false), ("oracle/v0.3", false), ("echo", true)] {
        let path = format!("/a2a/{agent}/.well-known/agent-card.json");
        let card = send(Exchange::new(talk.to, Method::GET, &path)).await.json();
        assert_eq!(card["capabilities"]["pushNotifications"], calls_back, "{agent}");
    }
}

/// FACT-01: a configuration that is too long to be kept is refused before anything begins: no message, and no update.
#[tokio::test]
async fn a_configuration_that_is_too_long_is_refused() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let (mut receiver, mut other) = (Receiver::open().await, Receiver::open().await);
    for length in [4_096, 100_000] {
        let long = with(receiver.config(), &json!({"token": "t".repeat(length), "id": "long"}));
        let configuration = json!({"taskPushNotificationConfig": long});
        let params = json!({"message": message("echo a"), "configuration": configuration});
        assert_eq!(talk.refusal("SendMessage", params).await, -32602);
        assert_eq!(talk.result("ListTasks", json!({})).await["totalSize"], 0);
    }
    let asks = talk.say(message("ask where to?")).await;
    let of_task = json!({"taskId": asks["id"]});
    let create = "CreateTaskPushNotificationConfig";
    let long = with(receiver.config(), &json!({"token": "t".repeat(4_096), "id": "long"}));
    assert_eq!(talk.refusal(create, with(long, &of_task)).await, -32602);
    talk.result(create, with(other.config(), &of_task)).await;
    talk.say(with(message("north"), &of_task)).await;
    assert_eq!(other.until_end().await.last().unwrap(), "completed");
    assert!(receiver.taken.try_recv().is_err());
}

/// In 0.3 the task is sent as it then is.
#[tokio::test]
async fn callers_of_0_3_get_tasks() {
    let house = House::open().await;
    let (talk, _calls) = house.talk_with_calls("echo").await;
    let mut receiver = Receiver::open().await;
    let path = format!("{}/v0.3", talk.path());
    let ask = async |method: &str, params: Json| {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        send(Exchange::new(talk.to, Method::POST, &path).json(&request)).await.json()["result"]
            .take()
    };
    let login = json!({"schemes": ["Bearer"], "credentials": "secret"});
    let url = format!("http://{}/hook", receiver.address);
    let config = json!({"url": url, "token": "t1", "authentication": login});
    let said = json!({
        "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "ask where to?"}],
    });
    let options = json!({"blocking": true, "pushNotificationConfig": config});
    let asks = ask("message/send", json!({"message": said, "configuration": options})).await;
    assert_eq!(asks["status"]["state"], "input-required");
    let (came_with, first) = receiver.next().await;
    assert_eq!(came_with, "Bearer secret, t1, application/json");
    assert_eq!((&first["kind"], &first["id"]), (&json!("task"), &asks["id"]));
    let kept = json!({"taskId": asks["id"], "pushNotificationConfig": with(config, &json!({"id": "default"}))});
    let named = json!({"id": asks["id"]});
    assert_eq!(ask("tasks/pushNotificationConfig/get", named.clone()).await, kept);
    assert_eq!(ask("tasks/pushNotificationConfig/list", named.clone()).await, json!([kept]));
    assert_eq!(ask("tasks/pushNotificationConfig/set", kept.clone()).await, kept);
    let named = with(named, &json!({"pushNotificationConfigId": "default"}));
    assert_eq!(ask("tasks/pushNotificationConfig/delete", named.clone()).await, json!(null));
    assert_eq!(ask("tasks/pushNotificationConfig/get", named).await, json!(null), "it is refused");
}
