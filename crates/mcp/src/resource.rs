//! Resources: a Task by its address, as a view, as lines, as its log and as a picture.

use std::fmt::Write as _;

use rmcp::ErrorData;
use rmcp::model::{
    CacheScope, ListResourceTemplatesResult, ListResourcesResult, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde::Serialize;
use tenure_core::command::Operator;
use tenure_core::id::{SessionId, StepId, TaskId};
use tenure_core::status::StepStatus;
use tenure_core::view::board::template;
use tenure_core::view::{BoardInput, GetInput, InspectInput, ListInput, QueryInput};
use tenure_core::{Code, Query, Rejection};
use tenure_ports::ClientPort;

use crate::McpCaller;
use crate::result::length;

/// How addresses begin.
const SCHEME: &str = "tenure://";

/// The address of the guide to writing a Task.
const GUIDE: &str = "tenure://guide/task";

/// The longest text of a resource.
const BYTES_MAX: usize = 256 << 10;

/// Tasks of one page of the list.
const PAGE: usize = 50;

/// The most Steps of a picture: a larger one helps nobody.
const NODES_MAX: usize = 500;

/// What of a Task an address names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourcePart {
    /// The whole view, as JSON.
    View,
    /// Lines for a model.
    Board,
    /// The events of the log, as JSON.
    Log,
    /// The graph, in the language of Mermaid.
    Graph,
}

impl ResourcePart {
    const ALL: [Self; 4] = [Self::View, Self::Board, Self::Log, Self::Graph];

    /// The end of the address.
    const fn path(self) -> &'static str {
        match self {
            Self::View => "",
            Self::Board => "/board",
            Self::Log => "/log",
            Self::Graph => "/graph",
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::View | Self::Log => "application/json",
            Self::Board => "text/plain",
            Self::Graph => "text/vnd.mermaid",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::View => "A task as a whole",
            Self::Board => "A task in few lines",
            Self::Log => "What has happened to a task",
            Self::Graph => "The graph of a task, as Mermaid",
        }
    }
}

/// The address of a Task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskAddress {
    /// Its session.
    pub(crate) session: SessionId,
    /// Its id.
    pub(crate) task: TaskId,
    /// What of it.
    pub(crate) part: ResourcePart,
}

impl TaskAddress {
    /// Reads an address; `None` if it is of no Task.
    pub(crate) fn read(uri: &str) -> Option<Self> {
        let path = uri.strip_prefix(SCHEME)?.strip_prefix("task/")?;
        let (session, rest) = path.split_once('/')?;
        let (task, part) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let part = ResourcePart::ALL.into_iter().find(|it| it.path() == part)?;
        Some(Self { session: SessionId::new(session).ok()?, task: TaskId::new(task).ok()?, part })
    }

    fn of(session: &SessionId, task: &TaskId, part: ResourcePart) -> String {
        format!("{SCHEME}task/{session}/{task}{}", part.path())
    }
}

/// The guide, and the live Tasks of the session: a page from `offset` on.
///
/// # Errors
/// The cursor is none of ours, or the Tasks cannot be listed.
pub(crate) async fn listed<P: ClientPort>(
    caller: &McpCaller<P>,
    cursor: Option<String>,
) -> Result<ListResourcesResult, ErrorData> {
    let offset = match cursor {
        None => 0,
        Some(text) => text.parse().map_err(|_| {
            ErrorData::invalid_params("the cursor is of no list of this server", None)
        })?,
    };
    let page = ListInput { limit: Some(PAGE), offset, ..ListInput::default() };
    let page = caller.client.port().tasks(page).await.map_err(|no| refused(&no))?;
    let mut all = Vec::new();
    if offset == 0 && Operator::TaskTemplate.is_open_to(caller.role) {
        let guide = Resource::new(GUIDE, "task_template").with_title("How to write a task");
        all.push(guide.with_mime_type("text/markdown"));
    }
    all.extend(page.tasks.iter().map(|task| {
        let uri = TaskAddress::of(caller.session(), &task.task_id, ResourcePart::View);
        let about = format!("Task {}, {}", task.task_id, task.native_status);
        Resource::new(uri, task.task_id.as_str())
            .with_title(task.title.as_str())
            .with_description(about)
            .with_mime_type(ResourcePart::View.media_type())
    }));
    let mut result = ListResourcesResult::with_all_items(all);
    result.next_cursor = page.next_offset.map(|next| next.to_string());
    result.cache_scope = Some(CacheScope::Private);
    Ok(result)
}

/// The forms of addresses.
pub(crate) fn templates() -> ListResourceTemplatesResult {
    let of = |part: ResourcePart| {
        let uri = format!("{SCHEME}task/{{session}}/{{task_id}}{}", part.path());
        let name = match part {
            ResourcePart::View => "task",
            part => part.path().trim_start_matches('/'),
        };
        ResourceTemplate::new(uri, name).with_title(part.title()).with_mime_type(part.media_type())
    };
    ListResourceTemplatesResult::with_all_items(ResourcePart::ALL.into_iter().map(of).collect())
}

/// Reads a resource.
///
/// # Errors
/// There is none at this address, or it cannot be read now.
pub(crate) async fn read<P: ClientPort>(
    caller: &McpCaller<P>,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    if uri == GUIDE && Operator::TaskTemplate.is_open_to(caller.role) {
        return Ok(of_text(uri, template().text, "text/markdown"));
    }
    let address = TaskAddress::read(uri).ok_or_else(|| absent(uri))?;
    if address.session != *caller.session() {
        return Err(absent(uri)); // As if there were none: another session is none of the caller's business.
    }
    let text = match address.part {
        ResourcePart::View => whole(caller, &address.task, GetInput {}).await,
        ResourcePart::Log => whole(caller, &address.task, InspectInput::default()).await,
        ResourcePart::Board => {
            let tasks = std::slice::from_ref(&address.task);
            caller.client.board(tasks, BoardInput::default()).await.map(|board| board.text)
        }
        ResourcePart::Graph => graph(caller, &address.task).await,
    };
    let text = text.map_err(|no| match no.code {
        Code::TaskNotFound => absent(uri),
        _ => refused(&no),
    })?;
    Ok(of_text(uri, text, address.part.media_type()))
}

fn of_text(uri: &str, text: String, media_type: &str) -> ReadResourceResult {
    ReadResourceResult::new(vec![ResourceContents::text(text, uri).with_mime_type(media_type)])
}

fn absent(uri: &str) -> ErrorData {
    let short: String = uri.chars().take(400).collect();
    ErrorData::resource_not_found(
        "there is no such resource",
        Some(serde_json::json!({ "uri": short })),
    )
}

fn refused(no: &Rejection) -> ErrorData {
    ErrorData::internal_error(no.to_string(), serde_json::to_value(no).ok())
}

/// The answer of a query, shortened as the query does it.
async fn whole<P, Q>(caller: &McpCaller<P>, task: &TaskId, query: Q) -> Result<String, Rejection>
where
    P: ClientPort + tenure_ports::client::Answers<Q>,
    Q: Query,
{
    let mut answer = caller.client.ask(task, query.clone()).await?;
    while length(&answer) > BYTES_MAX && query.shorten(&mut answer) {}
    text(&answer)
}

fn text(answer: &impl Serialize) -> Result<String, Rejection> {
    serde_json::to_string(answer).map_err(|error| Rejection::invalid("answer", error.to_string()))
}

/// The DAG in the language of Mermaid.
async fn graph<P: ClientPort>(caller: &McpCaller<P>, task: &TaskId) -> Result<String, Rejection> {
    let mut steps: Vec<(StepId, StepStatus, Vec<StepId>)> = Vec::new();
    let mut next = Some(0);
    while let Some(offset) = next.filter(|_| steps.len() < NODES_MAX) {
        let limit = Some(NODES_MAX.min(200));
        let page =
            QueryInput { include_terminal_steps: true, limit, offset, ..QueryInput::default() };
        let page = caller.client.steps(task, page).await?;
        let of = |step: tenure_core::view::StepView| {
            (step.spec.step_id.clone(), step.status, step.spec.depends_on_step_ids.clone())
        };
        steps.extend(page.steps.into_iter().map(of));
        next = page.next_offset;
    }
    Ok(mermaid(&steps, next.is_some()))
}

fn mermaid(steps: &[(StepId, StepStatus, Vec<StepId>)], is_cut: bool) -> String {
    // Mermaid has words of its own (`end`, `default`), so nodes go by number.
    let places: std::collections::HashMap<&StepId, usize> =
        steps.iter().enumerate().map(|(at, (id, ..))| (id, at)).collect();
    let mut text = String::from("flowchart LR\n");
    if is_cut {
        let _ = writeln!(text, "  %% only the first {} steps", steps.len());
    }
    for (at, (id, status, _)) in steps.iter().enumerate() {
        let _ = writeln!(text, "  s{at}[\"{id}<br/>{status}\"]:::{status}");
    }
    for (at, (_, _, after)) in steps.iter().enumerate() {
        for from in after.iter().filter_map(|id| places.get(id)) {
            let is_done =
                steps.get(*from).is_some_and(|(_, status, _)| *status == StepStatus::Completed);
            let arrow = if is_done { "-->" } else { "-.->" };
            let _ = writeln!(text, "  s{from} {arrow} s{at}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_task_and_a_part_of_it() {
        for part in ResourcePart::ALL {
            let (session, task) = ("main".parse().unwrap(), "t-1".parse().unwrap());
            let uri = TaskAddress::of(&session, &task, part);
            assert_eq!(TaskAddress::read(&uri), Some(TaskAddress { session, task, part }), "{uri}");
        }
        for uri in [
            "",
            "tenure://",
            "tenure://task/main",
            "tenure://task/main/",
            "tenure://task/main/t/other",
            "tenure://task/main/t/board/",
            "tenure://task/MAIN/t",
            "http://task/main/t",
            "tenure://task/../t",
        ] {
            assert_eq!(TaskAddress::read(uri), None, "{uri}");
        }
    }

    #[test]
    fn a_picture_has_solid_arrows_behind_what_is_done() {
        let id = |text: &str| text.parse::<StepId>().unwrap();
        let steps = [
            (id("end"), StepStatus::Completed, vec![]),
            (id("b"), StepStatus::Ready, vec![id("end")]),
            (id("c"), StepStatus::Pending, vec![id("b"), id("gone")]),
        ];
        let text = mermaid(&steps, true);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "flowchart LR",
                "%% only the first 3 steps",
                "s0[\"end<br/>completed\"]:::completed",
                "s1[\"b<br/>ready\"]:::ready",
                "s2[\"c<br/>pending\"]:::pending",
                "s0 --> s1",
                "s1 -.-> s2",
            ]
        );
    }
}
