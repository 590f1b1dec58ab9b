//! Handlers that say every word, for the suite of one process and of a cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tenure_core::Code;
use tenure_core::record::{Object, Progress};
use tenure_core::status::{StepStatus, TaskStatus};
use tenure_core::view::QueryInput;
use tenure_sdk::worker::{HandlerError, Handlers, StepContext};
use tokio::sync::Notify;

/// What handlers wait for, and what they have seen, which tests look at from outside: a handler that
/// panics after its final word is not heard.
#[derive(Clone, Default)]
pub(crate) struct Stage {
    pub(crate) go: Arc<Notify>,
    seen: Arc<Mutex<BTreeMap<String, Vec<String>>>>,
}

impl Stage {
    fn note(&self, ctx: &StepContext, seen: impl ToString) {
        let step = format!("{}/{}", ctx.task_id(), ctx.step_id());
        self.seen.lock().unwrap().entry(step).or_default().push(seen.to_string());
    }

    /// What the handler of a Step has seen.
    pub(crate) fn seen(&self, step: &str) -> Vec<String> {
        self.seen.lock().unwrap().get(step).cloned().unwrap_or_default()
    }
}

/// Every word that a handler may end with or say on its way.
pub(crate) fn handlers(stage: &Stage) -> Handlers {
    let go = Arc::clone(&stage.go);
    let says = |name: &'static str, say: fn(&StepContext)| {
        (name, move |ctx: StepContext| {
            say(&ctx);
            std::future::ready(Ok(()))
        })
    };
    let mut all = Handlers::new();
    for (name, handler) in [
        says("complete", |ctx| ctx.complete_json(&42).unwrap()),
        says("respond", |ctx| ctx.respond(None, "here you are").unwrap()),
        says("direct", |ctx| ctx.reply_directly("hello").unwrap()),
        says("fail", |ctx| ctx.fail("no_luck", "it rained", None).unwrap()),
        says("reject", |ctx| ctx.reject("not my kind of work").unwrap()),
        says("panic", |_| panic!("oh no")),
        says("silent", |_| {}),
        says("reporting", |ctx| {
            ctx.complete(None).unwrap();
            ctx.set_run_result("it took two tries").unwrap();
        }),
        says("auth", |ctx| {
            let details = [("scope".to_owned(), json!("repo"))].into_iter().collect();
            ctx.request_auth("may I?", details).unwrap();
        }),
        says("ask", |ctx| match &ctx.answers()[..] {
            [] => ctx.request_input("which colour?").unwrap(),
            [answer, ..] => ctx.complete_json(answer).unwrap(),
        }),
    ] {
        all = all.on(name, handler).unwrap();
    }
    let told = move |ctx: StepContext| {
        let go = Arc::clone(&go);
        async move {
            let progress = Progress { percent: Some(50.0), ..Progress::default() };
            ctx.send_status(progress).await?;
            ctx.emit_text_artifact("notes", "half done").await?;
            ctx.emit_data_artifact("facts", &json!({"n": 1})).await?;
            go.notified().await;
            ctx.complete(None)?;
            Ok(())
        }
    };
    // PROMPT-06, GET-04: what a worker is told of the Task that its Step is of.
    let board = |ctx: StepContext| async move {
        let board = ctx.board(Some(200)).await?;
        assert!(ctx.board(Some(1)).await.unwrap_err().code == Code::ValidationError);
        let task = ctx.task().await?;
        assert_eq!(
            (task.task_id.as_str(), task.native_status),
            (ctx.task_id(), TaskStatus::Running)
        );
        let mine = Some(vec![StepStatus::Claimed, StepStatus::Running]);
        let page = ctx.query_steps(QueryInput { statuses: mine, ..QueryInput::default() }).await?;
        assert!(page.steps.iter().any(|step| step.spec.step_id == *ctx.step_id()));
        Ok(ctx.complete_json(&board.text)?)
    };
    let all = all.on("board", board).unwrap();
    let deaf = |_| std::future::pending();
    let all = all.on("told", told).unwrap().on("deaf", deaf).unwrap();
    let all = all.on("keeps", keeps).unwrap();
    let of = |stage: &Stage| stage.clone();
    let (one, other) = (of(stage), of(stage));
    let all = all.on("until_told", move |ctx| until_told(ctx, one.clone())).unwrap();
    all.on("twice", move |ctx| twice(ctx, other.clone())).unwrap()
}

/// CTX-09: sees that it is to stop, and says so.
async fn until_told(ctx: StepContext, stage: Stage) -> Result<(), HandlerError> {
    stage.note(&ctx, ctx.is_cancelled());
    ctx.cancellation().cancelled().await;
    stage.note(&ctx, ctx.is_cancelled());
    ctx.fail("stopped", "as I was told", None)?;
    Ok(())
}

/// CTX-10: says all that there is to say after its final word.
async fn twice(ctx: StepContext, stage: Stage) -> Result<(), HandlerError> {
    ctx.complete_json(&1)?;
    let later = [
        ctx.complete_json(&2),
        ctx.respond(None, "again"),
        ctx.reply_directly("again"),
        ctx.fail("late", "", None),
        ctx.reject("late"),
        ctx.request_input("late?"),
        ctx.request_auth("late?", Object::default()),
        ctx.start().await,
        ctx.send_status(Progress::default()).await,
        ctx.emit_text_artifact("late", "").await,
        ctx.emit_data_artifact("late", &1).await,
        ctx.checkpoint("mem:late").await,
        ctx.emit_output_ref("mem:late").await,
    ];
    for said in later {
        stage.note(&ctx, said.map_or_else(|refused| refused.code.to_string(), |()| "said".into()));
    }
    Ok(())
}

/// ATT-09: leaves off, and goes on from there in the next try.
async fn keeps(ctx: StepContext) -> Result<(), HandlerError> {
    if ctx.attempt() > 1 {
        return Ok(ctx.complete_json(&ctx.checkpoint_refs())?);
    }
    ctx.checkpoint("mem:half").await?;
    ctx.emit_output_ref("mem:out").await?;
    assert_eq!(ctx.checkpoint("no such thing").await.unwrap_err().code, Code::ValidationError);
    Ok(ctx.fail("tired", "half of it is done", None)?)
}
