//! The agents of the tests, and the worker that does what messages say.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use tenure_core::command::create::CreateTask;
use tenure_core::record::ArtifactInput;
use tenure_gateway::a2a::Agents;
use tenure_mcp::file::AgentsFile;
use tenure_sdk::worker::{Handlers, StepContext};
use tokio::sync::Semaphore;

/// The media type of an artifact that says exactly what to show.
const ARTIFACT: &str = "application/vnd.tenure.a2a-artifact+json";

const FILE: &str = r#"
[[agents]]
name = "echo"
title = "Echo"
description = "Does what it is told."
handler = "act"

[[agents.skills]]
id = "act"
name = "Act"
description = "Does what it is told."
tags = ["test"]

[[agents.skills]]
id = "hold"
name = "Hold"
description = "Holds on until it is let go."
extended = true

[[agents]]
name = "strict"
description = "Speaks to those who know what it needs."
handler = "act"

[[agents.extensions]]
uri = "https://example.org/needed"
required = true

[[agents]]
name = "oracle"
description = "Answers with messages alone."
handler = "act"
answers = "message"

[[agents]]
name = "trips"
description = "Plans, then books."
template = "trip.yaml"
shared = true
"#;

/// The agents.
pub(crate) fn agents() -> Agents {
    read(FILE)
}

/// The same, which call back on this machine.
pub(crate) fn agents_that_call_back() -> Agents {
    read(&format!("[push]\nallow = [\"127.0.0.1\"]\n{FILE}"))
}

pub(crate) fn read(text: &str) -> Agents {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agents.toml");
    std::fs::write(&path, text).unwrap();
    Agents::read(&AgentsFile::read(&path).unwrap(), &trip).unwrap()
}

fn trip(_: &Path) -> Result<CreateTask, String> {
    let task = json!({
        "task_id": "unused",
        "title": "Trip",
        "output_from": "book",
        "steps": [
            {"step_id": "plan", "title": "Plan", "handler": "act"},
            {"step_id": "book", "title": "Book", "handler": "book", "depends_on_step_ids": ["plan"]},
        ],
    });
    let task: CreateTask = serde_json::from_value(task).map_err(|error| error.to_string())?;
    Ok(CreateTask { task_id: None, ..task })
}

type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// What the worker can do. `hold` ends as often as the gate has permits.
pub(crate) fn handlers(gate: &Arc<Semaphore>) -> Handlers {
    let gate = Arc::clone(gate);
    let act = move |ctx: StepContext| act(ctx, Arc::clone(&gate));
    let book = |ctx: StepContext| async move { Ok(ctx.complete_json(&"booked")?) };
    Handlers::new().on("act", act).unwrap().on("book", book).unwrap()
}

/// Does what the first text of the message says.
async fn act(ctx: StepContext, gate: Arc<Semaphore>) -> Done {
    let input: Json = ctx.input_json()?;
    let text = input["message"]["parts"][0]["text"].as_str().unwrap_or_default();
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    match verb {
        "echo" => ctx.complete_json(&rest)?,
        "ask" => match ctx.answers().last() {
            Some(answer) => ctx.complete_json(answer)?,
            None => ctx.request_input(rest)?,
        },
        "login" => match ctx.answers().last() {
            Some(_) => ctx.complete_json(&"you are in")?,
            None => ctx.request_auth("log in, please", serde_json::Map::new())?,
        },
        "fail" => ctx.fail("broken", rest, None)?,
        "reject" => ctx.reject(rest)?,
        "hold" => {
            tokio::select! {
                permit = gate.acquire() => permit?.forget(),
                () = ctx.cancellation().cancelled() => return Ok(()),
            }
            ctx.complete_json(&ctx.answers())?;
        }
        "draw" => match &input["referencedTasks"] {
            Json::Array(several) if several.len() > 1 && ctx.answers().is_empty() => {
                ctx.request_input("which of the boats?")?;
            }
            referenced => draw(&ctx, referenced, rest)?,
        },
        "chunks" => {
            for (number, is_last) in [(1, false), (2, true)] {
                let parts = json!([{"text": format!("chunk-{number} ")}]);
                let said = json!({
                    "artifactId": "long", "parts": parts, "append": number > 1, "lastChunk": is_last,
                });
                ctx.emit_data_artifact("ignored", &json!(number)).await?;
                ctx.attach(artifact("long.txt", "A long text.", &said));
            }
            ctx.complete(None)?;
        }
        _ => ctx.reply_directly(text)?,
    }
    Ok(())
}

/// Draws a boat: anew, or as another version of the one in the task that is referred to.
fn draw(ctx: &StepContext, referenced: &Json, what: &str) -> Done {
    let before = &referenced[0]["artifacts"][0];
    let name = before["name"].as_str().unwrap_or("sailboat_image.png");
    let parts = json!([{"raw": "cG5n", "filename": name, "mediaType": "image/png"}]);
    let about = format!("A generated image of {what}.");
    ctx.attach(artifact(name, &about, &json!({ "parts": parts, "lastChunk": true })));
    Ok(ctx.complete(None)?)
}

fn artifact(name: &str, description: &str, said: &Json) -> ArtifactInput {
    let artifact = json!({
        "artifact_id": uuid::Uuid::now_v7().to_string(),
        "name": name,
        "description": description,
        "kind": "data",
        "media_type": ARTIFACT,
        "data": said.to_string(),
        "state": "available",
    });
    serde_json::from_value(artifact).unwrap()
}
