//! What a log tells, on logs that a scheduler has written.

use std::num::NonZeroUsize;
use std::sync::Arc;

use tenure_core::command::AppendProgress;
use tenure_core::id::{AgentId, PoolId, TaskId};
use tenure_core::patch::{Operation, ReasonInput};
use tenure_core::record::Object;
use tenure_core::status::Role;
use tenure_local::MemoryLeases;
use tenure_mcp::file::AgentsFile;
use tenure_ports::ClientPort as _;
use tenure_scheduler::{ClientLink, Config, Scheduler, WorkerLink};
use tenure_sdk::client::Client;
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tenure_testkit::MemoryJournal;

use super::super::{NewTask, StoredMessage, stored};
use super::*;
use crate::a2a::agents::Agents;
use crate::a2a::wire::A2aRole;

/// A scheduler with a worker whose handler does what the message says.
struct Stage {
    client: Client<ClientLink<MemoryJournal, MemoryLeases>>,
    agents: Agents,
    _workers: WorkerPool<WorkerLink<MemoryJournal, MemoryLeases>>,
}

impl Stage {
    async fn open() -> Self {
        let pool = PoolId::new("default").unwrap();
        let (journal, leases) = (Arc::default(), Arc::new(MemoryLeases::default()));
        let config = Config::embedded(pool.clone());
        let scheduler = Scheduler::start(journal, leases, config).await.unwrap();
        let (link, deliveries) = scheduler.join("ant.b1".parse().unwrap(), pool, None).unwrap();
        let handlers = Handlers::new().on("echo", act).unwrap();
        let options = Options::new(NonZeroUsize::new(2).unwrap());
        let session = "a2a-echo".parse().unwrap();
        let ann: AgentId = "ann".parse().unwrap();
        let client = Client::new(scheduler.client(Role::Orchestrator, ann, session));
        let workers = WorkerPool::start(link, deliveries, handlers, options);
        Self { client, agents: agents(), _workers: workers }
    }

    async fn begin(&self, text: &str) -> TaskId {
        let task_id: TaskId = "t".parse().unwrap();
        let new = NewTask {
            agent: self.agents.find("echo").unwrap(),
            caller: "ann",
            message: message("m1", text),
            accepted_output_modes: Vec::new(),
            metadata: None,
            referenced_tasks: Vec::new(),
            task_id: task_id.clone(),
            idempotency_key: None,
        };
        let command = "c1".parse().unwrap();
        self.client.create_as(command, new.into_create().unwrap()).await.unwrap();
        task_id
    }

    /// The task, and everything that its log tells of it, once it has ended or asks for something.
    async fn settled(&self, task: &TaskId) -> (TaskFold, Vec<String>) {
        let mut commits = std::pin::pin!(self.client.watch(task, 0));
        let (mut fold, mut told): (Option<TaskFold>, Vec<String>) = (None, Vec::new());
        let last = self.client.port().log(task, u64::MAX).await.unwrap().version;
        while let Some(commit) = futures::StreamExt::next(&mut commits).await {
            let commit = commit.unwrap();
            let fold = match &mut fold {
                None => fold.insert(TaskFold::begin(&commit).unwrap()),
                Some(fold) => {
                    fold.replay(&commit).unwrap();
                    fold
                }
            };
            assert!(fold.wanted(&commit).is_empty(), "all values are small here");
            told.extend(fold.tell(&commit, &BlobBytes::new()).iter().map(in_short));
            if fold.is_settled() && fold.version() >= last {
                break;
            }
        }
        (fold.unwrap(), told)
    }

    async fn answer(&self, task: &TaskId, step: StepId, text: &str) {
        let StoredMessage::Inline(reference) = stored(&message("m2", text)) else { panic!("long") };
        let code = Some("input_received".into());
        let reason = ReasonInput { code, details: None, message: String::new(), retryable: None };
        let input_refs = vec![reference];
        let reopen = Operation::ReopenStep { input_refs, reason: Some(reason), step_id: step };
        self.client.update(task, vec![reopen]).await.unwrap();
    }
}

fn agents() -> Agents {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agents.toml");
    std::fs::write(&path, "[[agents]]\nname = \"echo\"\ndescription = \"Echo.\"\n").unwrap();
    Agents::read(&AgentsFile::read(&path).unwrap(), &|_| Err("there is none".into())).unwrap()
}

fn message(id: &str, text: &str) -> A2aMessage {
    A2aMessage {
        message_id: id.into(),
        context_id: Some("c".into()),
        role: A2aRole::User,
        parts: vec![A2aPart::text(text)],
        ..A2aMessage::default()
    }
}

type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Does what the message says.
async fn act(ctx: StepContext) -> Done {
    let input: Json = ctx.input_json()?;
    match input["message"]["parts"][0]["text"].as_str().unwrap_or_default() {
        "make" => {
            ctx.start().await?;
            let note = Progress { summary: Some("half of it".into()), ..Progress::default() };
            ctx.send_status(Progress { percent: Some(50.0), ..note }).await?;
            ctx.emit_text_artifact("boat.txt", "a boat").await?;
            ctx.complete_json(&"done")?;
        }
        "ask" if ctx.input_refs().is_empty() => {
            let details = Object::from_iter([("scheme".to_owned(), "bearer".into())]);
            ctx.request_auth("who are you?", details)?;
        }
        "ask" => ctx.respond(None, "welcome")?,
        "fail" => ctx.fail("broken", "the oven is cold", None)?,
        "reject" => ctx.reject("not today")?,
        _ => ctx.reply_directly("hello")?,
    }
    Ok(())
}

/// An update, in a few words.
fn in_short(update: &A2aUpdate) -> String {
    match update {
        A2aUpdate::Task(_) | A2aUpdate::Message(_) => unreachable!("a log tells of changes"),
        A2aUpdate::StatusUpdate(it) => {
            let said = it.status.message.as_ref().map(A2aMessage::text);
            let said = said.map(|said| format!(": {said}")).unwrap_or_default();
            format!("{}{said}", it.status.state)
        }
        A2aUpdate::ArtifactUpdate(it) => {
            let name = it.artifact.name.as_deref().unwrap_or_default();
            format!("{name} = {}", it.artifact.parts[0].as_text().unwrap_or_default())
        }
    }
}

fn history(fold: &TaskFold) -> Vec<String> {
    fold.shown().history.iter().map(A2aMessage::text).collect()
}

/// A2A-07, A2A-09: a task is submitted, working when a worker takes it up, and its artifacts come before its
/// end.
#[tokio::test]
async fn a_log_tells_of_a_task_in_order() {
    let stage = Stage::open().await;
    let task = stage.begin("make").await;
    let (fold, told) = stage.settled(&task).await;
    let expected =
        ["working", "working: half of it", "boat.txt = a boat", "output = done", "completed"];
    assert_eq!(told, expected);
    let shown = fold.shown();
    assert_eq!((&*shown.id, &*shown.context_id, fold.has_ended()), ("t", "c", true));
    let names: Vec<_> = shown.artifacts.iter().filter_map(|it| it.name.as_deref()).collect();
    assert_eq!(names, ["boat.txt", "output"]);
    assert_eq!(history(&fold), ["make"]);
    assert_eq!(shown.history[0].task_id.as_deref(), Some("t"));
    assert!(fold.is_of_agent("echo") && fold.is_of_caller("ann") && !fold.is_of_caller("bee"));
}

/// A2A-10: an answer makes the task submitted again, and question and answer stay in the history.
#[tokio::test]
async fn a_question_and_its_answer_are_told() {
    let stage = Stage::open().await;
    let task = stage.begin("ask").await;
    let (fold, told) = stage.settled(&task).await;
    assert_eq!(told, ["working", "auth_required: who are you?"]);
    let question = fold.shown().status.message.clone().unwrap();
    assert_eq!(question.parts.len(), 2, "the details are for programs");
    let [step] = &fold.asking()[..] else { panic!("one step asks") };
    stage.answer(&task, step.clone(), "ann").await;
    let (fold, told) = stage.settled(&task).await;
    assert_eq!(told[2..], ["submitted", "working", "completed: welcome"]);
    assert_eq!(history(&fold), ["ask", "who are you?", "ann"]);
    assert!(fold.asking().is_empty() && fold.shown().artifacts.is_empty());
}

/// A2A-10: whatever is told meanwhile, a question comes into the history once, when it is answered.
#[tokio::test]
async fn a_question_that_is_still_asked_is_not_in_the_history() {
    let stage = Stage::open().await;
    let task = stage.begin("ask").await;
    let (fold, _) = stage.settled(&task).await;
    for percent in [10.0, 20.0] {
        let progress = Some(Progress { percent: Some(percent), ..Progress::default() });
        let note = AppendProgress { progress, ..AppendProgress::default() };
        stage.client.note(&task, note).await.unwrap();
    }
    let (waits, told) = stage.settled(&task).await;
    assert_eq!(told[1..], ["auth_required: who are you?"; 3]);
    assert_eq!(history(&waits), ["ask"]);
    stage.answer(&task, fold.asking()[0].clone(), "ann").await;
    let (fold, _) = stage.settled(&task).await;
    assert_eq!(history(&fold), ["ask", "who are you?", "ann"]);
}

/// ART-01: a chunk that another Attempt reports again neither comes twice nor takes the place of those behind it. An
/// address that is reported again is shown as it is now.
#[tokio::test]
async fn an_artifact_that_is_reported_again_loses_nothing() {
    let stage = Stage::open().await;
    let task = stage.begin("ask").await;
    stage.settled(&task).await;
    let artifact = |fields: Json| -> ArtifactInput {
        let mut all = json!({"name": "n", "kind": "data", "state": "available"});
        all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    };
    let chunk = |number: u8| {
        let parts = json!([{"text": format!("chunk-{number}")}]);
        let said = json!({"artifactId": "x", "parts": parts, "append": number > 1});
        let media_type = "application/vnd.tenure.a2a-artifact+json";
        let id = format!("c{number}");
        artifact(json!({"artifact_id": id, "media_type": media_type, "data": said.to_string()}))
    };
    let at = |uri: &str| artifact(json!({"artifact_id": "u", "uri": uri}));
    let (old, new) = (at("https://a.example"), at("https://b.example"));
    for one in [chunk(1), chunk(2), chunk(1), chunk(2), old, new] {
        let note = AppendProgress { artifacts: vec![one], ..AppendProgress::default() };
        stage.client.note(&task, note).await.unwrap();
    }
    let (fold, _) = stage.settled(&task).await;
    let parts: Vec<Json> = fold.shown().artifacts.iter().map(|it| json!(it.parts)).collect();
    let url = json!([{"url": "https://b.example", "filename": "n"}]);
    assert_eq!(parts, [json!([{"text": "chunk-1"}, {"text": "chunk-2"}]), url]);
}

/// A2A-17, 7.3: a task that its worker rejects is rejected, and one that fails has failed.
#[tokio::test]
async fn a_task_says_why_it_has_not_completed() {
    for (text, end) in [("fail", "failed: the oven is cold"), ("reject", "rejected: not today")] {
        let stage = Stage::open().await;
        let task = stage.begin(text).await;
        let (fold, told) = stage.settled(&task).await;
        assert_eq!(told, ["working", end]);
        assert!(fold.has_ended());
    }
}

/// A2A-07, CTX-01: a direct answer is no artifact.
#[tokio::test]
async fn a_direct_answer_is_a_message() {
    let stage = Stage::open().await;
    let task = stage.begin("hi").await;
    let (fold, told) = stage.settled(&task).await;
    assert_eq!(told, ["working", "completed: hello"], "who has seen a task is told, too");
    let direct = fold.direct().unwrap();
    assert_eq!((direct.text(), direct.task(), direct.context()), ("hello".into(), None, Some("c")));
    assert!(fold.shown().artifacts.is_empty());
}

/// A2A-16: what no worker has is canceled at once.
#[tokio::test]
async fn a_canceled_task_is_canceled() {
    let stage = Stage::open().await;
    let task = stage.begin("ask").await;
    let (_, told) = stage.settled(&task).await;
    assert_eq!(told.len(), 2);
    stage.client.cancel(&task, "enough of it").await.unwrap();
    let (fold, told) = stage.settled(&task).await;
    assert_eq!(told.last().unwrap(), "canceled: enough of it");
    assert_eq!(history(&fold), ["ask", "who are you?"]);
}

/// A message is in the history once, however often it is named, and the oldest are left out when all take too much
/// memory. What is told stays the same.
#[tokio::test]
async fn a_history_has_each_message_once_and_the_newest() {
    let stage = Stage::open().await;
    let task = stage.begin("ask").await;
    stage.settled(&task).await;
    for number in 1..=4 {
        let said = message("m", &number.to_string().repeat(300));
        let StoredMessage::Inline(reference) = stored(&said) else { panic!("long") };
        let input_refs = vec![reference; 100];
        let note = AppendProgress { input_refs, ..AppendProgress::default() };
        stage.client.note(&task, note).await.unwrap();
    }
    let (mut fold, told) = stage.settled(&task).await;
    let numbers = |fold: &TaskFold| -> Vec<String> {
        let all = history(fold).into_iter();
        all.filter(|text| text.len() == 300).map(|text| text[..1].to_owned()).collect()
    };
    assert_eq!((numbers(&fold).join(" "), fold.is_cut()), ("1 2 3 4".into(), false));
    fold.trim(12_000);
    assert_eq!((numbers(&fold).join(" "), fold.is_cut()), ("3 4".into(), true));
    fold.trim(0);
    assert!(fold.shown().history.is_empty() && fold.shown().artifacts.is_empty());
    stage.answer(&task, fold.asking()[0].clone(), "ann").await;
    assert_eq!(stage.settled(&task).await.1[..told.len()], told);
}
