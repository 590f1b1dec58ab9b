//! Carries out a request of the bus: asks the port, and makes the answer fit.

use serde::Serialize;
use serde_json::Value as Json;
use tenure_core::command::check_tool;
use tenure_core::id::{CommandId, TaskId};
use tenure_core::view::board::template;
use tenure_core::view::{TaskSummary, WriteSummary};
use tenure_core::{Caller, Code, Command, Context, Query, Rejection};
use tenure_ports::ClientPort;
use tenure_ports::client::Answers;
use tenure_sdk::client::patiently;
use tenure_wire::bus::request::{Ask, Request, RequestHead, TemplateInput};
use tokio::time::sleep;
use uuid::Uuid;

use super::ToolCall;
use super::wait::HEADER_BYTES;
use crate::result::{ToolAnswer, length};

/// Carries out a request within so many bytes of answer.
pub(super) async fn perform<P: ClientPort>(
    call: &ToolCall<'_, P>,
    request: Request,
    max_bytes: usize,
) -> Result<ToolAnswer, Rejection> {
    let Request { head, ask } = request;
    Performing { call, max_bytes }.answer(head, ask).await
}

/// A request that is being carried out.
struct Performing<'a, 'c, P> {
    call: &'a ToolCall<'c, P>,
    max_bytes: usize,
}

macro_rules! answered {
    (
        task { $($task:ident($asks:ty))* }
        history { $($history:ident($reads:ty))* }
        parts { $($part:ident($part_asks:ty))* }
        other { $($other:ident($other_asks:ty))* }
    ) => {
        impl<P: ClientPort> Performing<'_, '_, P> {
            /// Asks the port, each query as its kind asks for.
            async fn answer(self, head: RequestHead, ask: Ask) -> Result<ToolAnswer, Rejection> {
                match ask {
                    $(Ask::$task(query) => self.ask(head, query).await,)*
                    $(Ask::$history(query) => self.ask(head, query).await,)*
                    $(Ask::$part(_) => self.other(ask).await,)*
                    $(Ask::$other(_) => self.other(ask).await,)*
                    Ask::Create(_) | Ask::RetryEnded(_) | Ask::Command(_) => {
                        Box::pin(self.write(head, ask)).await // It is large, and reads are many.
                    }
                }
            }
        }
    };
}

tenure_wire::queries!(answered);

impl<P: ClientPort> Performing<'_, '_, P> {
    async fn ask<Q: Query>(&self, head: RequestHead, query: Q) -> Result<ToolAnswer, Rejection>
    where
        P: Answers<Q>,
    {
        let answer = self.call.caller.client.ask(&named(head.task_id)?, query.clone()).await?;
        Ok(self.shown(answer, |answer| query.shorten(answer)))
    }

    /// Asks what is of no single Task, each of these in its own way.
    async fn other(&self, ask: Ask) -> Result<ToolAnswer, Rejection> {
        match ask {
            Ask::Tasks(input) => {
                let page = self.call.caller.client.port().tasks(input.clone()).await?;
                Ok(self.shown(page, |page| input.shorten(page)))
            }
            Ask::Template(_) => {
                check_tool(&self.caller(), TemplateInput::TOOL)?;
                let guide = template();
                Ok(ToolAnswer::of(&guide).told(guide.text.clone()))
            }
            other => Err(Rejection::new(
                Code::ToolNotAvailable,
                format!("{} is no tool", other.operation()),
            )),
        }
    }

    async fn write(&self, head: RequestHead, ask: Ask) -> Result<ToolAnswer, Rejection> {
        let task = head.task_id.clone();
        let context = context(head)?;
        let client = &self.call.caller.client;
        let summary = match ask {
            Ask::Create(input) => client.create_under(context, *input).await?,
            Ask::Command(command) if command.may_wait() => {
                return self.write_and_wait(&named(task)?, context, *command).await;
            }
            Ask::Command(command) => client.command_as(&named(task)?, context, *command).await?,
            other => {
                let message = format!("{} is no tool", other.operation());
                return Err(Rejection::new(Code::ToolNotAvailable, message));
            }
        };
        Ok(self.shown(summary, WriteSummary::shorten))
    }

    /// A command whose answer waits for an end. If that takes longer than a call may, the answer says how to go on
    /// waiting. The command itself is recorded long before. A client bounds each of its requests, so the command is
    /// sent again under its id until its answer comes.
    async fn write_and_wait(
        &self,
        task: &TaskId,
        context: Context,
        command: Command,
    ) -> Result<ToolAnswer, Rejection> {
        let client = &self.call.caller.client;
        let id = context.command_id.clone();
        let closes = matches!(command, Command::TaskCancel(_) | Command::TaskFail(_));
        let send = || client.command_as(task, context.clone(), command.clone());
        let done = tokio::select! {
            biased; // The command goes out, whatever happens next.
            done = patiently(client.port(), send) => Some(done?),
            () = sleep(self.call.wait_max) => None,
            () = self.call.over() => None,
        };
        match done {
            Some(summary) => Ok(self.shown(summary, WriteSummary::shorten)),
            None => {
                let view = client.within(self.max_bytes.min(HEADER_BYTES)).get(task).await?;
                let seen = &view.task;
                if closes && seen.cancel_requested.is_none() && !seen.native_status.is_terminal() {
                    return Err(Rejection::in_doubt("the call has ended before its answer came"));
                }
                let going_on = GoingOn { task: view.task, command_id: id };
                Ok(ToolAnswer::of(&going_on)
                    .with_more("it is requested and goes on: call wait to learn how it ends"))
            }
        }
    }

    /// An answer that has lost as much as it must to fit (CTRL-06), and says where to go on.
    fn shown<T: Serialize>(
        &self,
        mut answer: T,
        mut shorten: impl FnMut(&mut T) -> bool,
    ) -> ToolAnswer {
        while length(&answer) > self.max_bytes && shorten(&mut answer) {}
        let answer = ToolAnswer::of(&answer);
        match how_to_go_on(&answer) {
            Some(more) => answer.with_more(more),
            None => answer,
        }
    }

    /// The caller as the core knows it.
    fn caller(&self) -> Caller {
        let caller = self.call.caller;
        Caller {
            agent: caller.agent.clone(),
            role: caller.role,
            session_id: caller.session().clone(),
            run_id: None,
            worker_pool_id: None,
            origin: None,
        }
    }
}

/// What is answered when a command goes on for longer than a call waits.
#[derive(Serialize)]
struct GoingOn {
    task: TaskSummary,
    command_id: CommandId,
}

/// How the caller reads what was left out of an answer, if anything was.
fn how_to_go_on(answer: &ToolAnswer) -> Option<String> {
    if let Some(next) = answer.field("next_offset").and_then(Json::as_u64) {
        return Some(format!("there is more: call the tool again with offset {next}"));
    }
    let is_reference = |task: &Json| task.get("operation").is_some();
    let task =
        answer.field("left_out").or_else(|| answer.field("task").filter(|it| is_reference(it)))?;
    let task = task.get("task_id").and_then(Json::as_str)?;
    Some(format!(
        "lists are left out: task_query_steps with task_id {task} reads the steps in pages"
    ))
}

/// The context of a write, under a new id if its caller gave none.
fn context(head: RequestHead) -> Result<Context, Rejection> {
    head.context(|| Ok(CommandId::new(Uuid::now_v7().to_string())?))
}

/// The Task of a request.
fn named(task: Option<TaskId>) -> Result<TaskId, Rejection> {
    task.ok_or_else(|| Rejection::invalid("task_id", "task_id is missing"))
}
