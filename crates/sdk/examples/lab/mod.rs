//! A handler for every way in which a Step can end.

use serde_json::json;
use tenure_sdk::record::{Progress, Value};
use tenure_sdk::worker::{HandlerError, Handlers, StepContext};

/// All of them, by their names.
pub(crate) fn handlers() -> Result<Handlers, tenure_sdk::id::BadId> {
    Handlers::new()
        .on("measure", measure)?
        .on("compare", compare)?
        .on("greet", greet)?
        .on("flaky", flaky)?
        .on("read", read)?
        .on("stumble", stumble)?
        .on("forget", forget)?
        .on("choose", choose)?
        .on("enter", enter)?
        .on("refuse", refuse)?
        .on("travel", travel)?
        .on("watch", watch)
}

/// Completes with a result that later Steps get as their input, and says how far it has come.
async fn measure(ctx: StepContext) -> Result<(), HandlerError> {
    for percent in [25.0, 50.0, 75.0] {
        ctx.send_status(Progress { percent: Some(percent), ..Progress::default() }).await?;
    }
    ctx.emit_text_artifact("notes", "three samples were taken").await?;
    Ok(ctx.complete_json(&json!({"samples": 3}))?)
}

/// Completes, and tells a person so: the message goes with the result as its summary.
async fn compare(ctx: StepContext) -> Result<(), HandlerError> {
    Ok(ctx.respond(Some(Value::json(&b"2"[..])), "sample 2 is the purest")?)
}

/// Completes: the answer is a message to whoever asked, and no artifact of the Task.
async fn greet(ctx: StepContext) -> Result<(), HandlerError> {
    Ok(ctx.reply_directly("hello")?)
}

/// Fails, for the policy of the Step to judge: it is tried again if that says so.
async fn flaky(ctx: StepContext) -> Result<(), HandlerError> {
    if ctx.attempt() < 2 {
        return Ok(ctx.fail("no_answer", "the instrument did not answer", None)?);
    }
    Ok(ctx.complete(None)?)
}

/// Leaves a mark on its way: if the worker is lost, another one goes on from there.
async fn travel(ctx: StepContext) -> Result<(), HandlerError> {
    if ctx.checkpoint_refs().is_empty() {
        ctx.checkpoint("https://example.org/half-way").await?;
    }
    Ok(ctx.complete(None)?)
}

/// Waits for a person: the Step is blocked until somebody answers, and then runs once more.
async fn choose(ctx: StepContext) -> Result<(), HandlerError> {
    match ctx.answers().first() {
        None => Ok(ctx.request_input("which sample is to be kept, 1, 2 or 3?")?),
        Some(answer) => Ok(ctx.complete_json(answer)?),
    }
}

/// Waits for a permission: the Step is blocked until somebody gives it, and then runs once more.
async fn enter(ctx: StepContext) -> Result<(), HandlerError> {
    if ctx.answers().is_empty() {
        let details = [("room".to_owned(), json!("archive"))].into_iter().collect();
        return Ok(ctx.request_auth("may I have the key?", details)?);
    }
    Ok(ctx.complete(None)?)
}

/// Breaks with an error: the Step fails as `unhandled_exception`, and is tried again if its policy
/// says so.
async fn read(ctx: StepContext) -> Result<(), HandlerError> {
    let sample: u8 = ctx.input_json()?; // There is none.
    Ok(ctx.complete_json(&sample)?)
}

/// Panics: the same. The worker and its other Steps go on.
async fn stumble(_ctx: StepContext) -> Result<(), HandlerError> {
    panic!("the instrument fell")
}

/// Returns without a word: the Step fails as `worker_finished_without_terminal_step_status`, and is
/// tried again if its policy says so.
async fn forget(_ctx: StepContext) -> Result<(), HandlerError> {
    Ok(())
}

/// Is not this worker's business: the Step fails as `rejected`, and is not tried again.
async fn refuse(ctx: StepContext) -> Result<(), HandlerError> {
    Ok(ctx.reject("nobody here can do that")?)
}

/// Works until it is told to stop, as its Task was cancelled: the Step ends with its last word.
async fn watch(ctx: StepContext) -> Result<(), HandlerError> {
    ctx.cancellation().cancelled().await;
    Ok(ctx.fail("stopped", "it was asked to", None)?)
}
