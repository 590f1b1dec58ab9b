//! `tenure task views`: the Tasks of a session at once (VIEW-01 to VIEW-06).

use clap::Args;
use serde::Serialize;
use tenure_core::status::TaskStatus;
use tenure_core::view::{Snapshot, ViewName, ViewsInput};

use crate::answer::{
    Exit, Failure, Shape, Sheet, Tone, human, number, output, status, text, toned,
};
use crate::attempt::attempt_rows;
use crate::filter::{StatusFilter, named, task_status};
use crate::place::{TaskReader, ViewArgs, exit_without};

/// Show all live tasks of a session and the newest ended ones, and count the others.
#[derive(Debug, Args)]
pub(crate) struct ViewsArgs {
    /// Which views: all of them, if none is named
    #[arg(value_name = "VIEW", value_parser = |name: &str| named(name, ViewName::ALL))]
    views: Vec<ViewName>,

    /// Only tasks in this status, as tables have it or the native one (repeatable)
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = task_status)]
    status: Vec<StatusFilter<TaskStatus>>,

    /// No internal or hidden tasks
    #[arg(long)]
    user_facing: bool,

    #[command(flatten)]
    look: ViewArgs,
}

#[derive(Serialize)]
struct ViewsAnswer {
    #[serde(flatten)]
    snapshot: Snapshot,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

pub(super) fn run(args: &ViewsArgs) -> Result<Exit, Failure> {
    let data = TaskReader::open(&args.look.at)?;
    let (snapshot, missing_partitions) = read(args, &data)?;
    let exit = exit_without(&missing_partitions);
    for task in &snapshot.unreadable {
        output::warn(format_args!("{task} cannot be read: `tenure wal verify {task}` says why"));
    }
    let views = ViewsAnswer { snapshot, missing_partitions };
    args.look.output.answer(&views, Shape::nameless(), || print(&views.snapshot, &data))?;
    Ok(exit)
}

/// The views of the Tasks in one of the statuses. If native statuses do not select them, it reads those of all
/// Tasks and filters here, by the view that has the statuses.
fn read(args: &ViewsArgs, data: &TaskReader) -> Result<(Snapshot, Vec<u32>), Failure> {
    let session = &args.look.at.session;
    let (views, statuses) = (args.views.clone(), StatusFilter::natives(&args.status));
    let mut asked = ViewsInput { views, statuses, user_facing: args.user_facing };
    if asked.statuses.is_some() || args.status.is_empty() {
        return data.snapshot(session, asked);
    }
    let is_extra = !asked.views.is_empty() && !asked.views.contains(&ViewName::Tasks);
    asked.views.extend(is_extra.then_some(ViewName::Tasks));
    let (mut snapshot, missing) = data.snapshot(session, asked)?;
    snapshot.keep(|native, normal| StatusFilter::any(&args.status, native, normal));
    if is_extra {
        snapshot.tasks = None;
    }
    Ok((snapshot, missing))
}

/// Prints the main views for people; JSON has all of them.
fn print(all: &Snapshot, data: &TaskReader) -> Result<(), Failure> {
    if let Some(totals) = &all.task_summary {
        let mut sheet = Sheet::bare();
        sheet.field("live", totals.active);
        sheet.field("waiting", totals.waiting);
        sheet.field("lost", totals.lost);
        sheet.field("unknown", totals.unknown);
        sheet.field("ended", totals.terminal);
        sheet.field("failed", totals.failed);
        heading("task_summary", sheet)?;
        let mut sheet = Sheet::new(&["TASK", "STATUS", "ENDED", "TITLE"]);
        for task in &totals.recent_terminal {
            let at = task.ended_at.unwrap_or(task.updated_at);
            sheet.row([
                toned(&task.task_id, Tone::Strong),
                status::cell(task.status),
                text(human::local_and_ago(at, data.now)),
                text(human::cut(&human::one_line(&task.title), 60)),
            ]);
        }
        heading("recent_terminal", sheet)?;
    }
    if let Some(tasks) = &all.tasks {
        let mut sheet = Sheet::new(&["TASK", "STATUS", "STEPS", "TITLE"]);
        for task in tasks {
            let steps = task.progress.counters.get("steps");
            let steps = steps.map(|c| format!("{}/{}", c.done, c.total.unwrap_or(0)));
            sheet.row([
                toned(&task.task_id, Tone::Strong),
                status::cell(task.status),
                number(steps.unwrap_or_default()),
                text(human::cut(&human::one_line(&task.title), 60)),
            ]);
        }
        heading("tasks", sheet)?;
    }
    if let Some(edges) = &all.task_graph {
        let mut sheet = Sheet::new(&["FROM", "KIND", "TO"]);
        for graph in edges.iter().filter(|graph| !graph.derived) {
            let edge = &graph.edge;
            sheet.row([text(&edge.from), text(edge.kind), text(&edge.to)]);
        }
        heading("task_graph", sheet)?;
    }
    if let Some(attempts) = &all.attempts {
        heading("attempts", attempt_rows(&attempts.active, data.now, ""))?;
    }
    if let Some(blocked) = &all.blocked_tasks {
        let mut sheet = Sheet::new(&["TASK", "STATUS", "WAITS FOR"]);
        for task in blocked {
            let actions: Vec<&str> =
                task.required_action_ids.iter().map(|id| id.as_str()).collect();
            sheet.row([
                toned(&task.task_id, Tone::Strong),
                status::cell(task.status),
                text(human::cut(&actions.join(", "), 100)),
            ]);
        }
        heading("blocked_tasks", sheet)?;
    }
    if let Some(states) = &all.delivery_state {
        let mut sheet = Sheet::new(&["TASK", "DELIVERY"]);
        for (task, state) in states {
            sheet.row([toned(task, Tone::Strong), text(state)]);
        }
        heading("delivery_state", sheet)?;
    }
    Ok(())
}

/// Prints a view under its name, unless it is empty.
fn heading(name: &str, sheet: Sheet) -> Result<(), Failure> {
    match sheet.is_empty() {
        true => Ok(()),
        false => output::print(format_args!("{name}\n{}\n", sheet.render())),
    }
}
