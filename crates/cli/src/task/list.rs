//! `tenure task list`: lists the Tasks of a session (LIST).

use std::collections::BTreeSet;

use clap::Args;
use serde::Serialize;
use smol_str::{SmolStr, ToSmolStr as _};
use tenure_core::Limits;
use tenure_core::id::SessionId;
use tenure_core::record::Labels;
use tenure_core::status::TaskStatus;
use tenure_core::view::{ListInput, Normal, TaskPage, TaskSummary};
use tenure_ports::client::Listing as Found;
use tenure_ports::journal::Entry;

use crate::answer::{
    Exit, Failure, Format, Shape, Sheet, Tone, human, number, output, status, text, toned,
};
use crate::filter::{Cut, StatusFilter, task_status};
use crate::place::scan::LogFile;
use crate::place::{TaskReader, ViewArgs, exit_without};
use crate::request::label;

/// List tasks.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Ended tasks too, newest first, after the live ones
    #[arg(long)]
    all: bool,

    /// Archived tasks too; only ended tasks are archived, so this implies --all
    #[arg(long)]
    archived: bool,

    /// Only tasks in this status, as tables have it or the native one (repeatable); the name of a
    /// status of ended tasks implies --all, and `archived` implies --archived
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = task_status)]
    status: Vec<StatusFilter<TaskStatus>>,

    /// Only tasks with this label (repeatable: with all of them)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(SmolStr, SmolStr)>,

    /// Only tasks that are for the eyes of a user: no internal and hidden ones
    #[arg(long)]
    user_facing: bool,

    #[command(flatten)]
    cut: Cut,

    #[command(flatten)]
    look: ViewArgs,
}

/// The answer: a page of `agent.task_list`, and the Tasks that could not be read.
#[derive(Serialize)]
struct TaskListing {
    #[serde(flatten)]
    page: TaskPage,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<Unreadable>,
}

impl TaskListing {
    /// The answer of the owners in a cluster.
    fn of(mut page: TaskPage, session: &SessionId) -> Self {
        let unreadable = std::mem::take(&mut page.unreadable).into_iter().map(|task| Unreadable {
            task_id: task.to_string(),
            session_id: session.to_string(),
            wal_name: None,
            wal_path: None,
            status: Normal::Unknown,
            status_reason: UnreadableReason::unread(
                "the owner cannot read its log, or not yet: ask again".into(),
            ),
        });
        Self { page, unreadable: unreadable.collect() }
    }
}

/// A Task of which only the name is known (VIEW-07, N01).
#[derive(Serialize)]
struct Unreadable {
    task_id: String,
    session_id: String,
    /// None if only its owner knows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    wal_name: Option<String>,
    /// Its file; none in a cluster, whose owners know where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    wal_path: Option<String>,
    status: Normal,
    status_reason: UnreadableReason,
}

#[derive(Serialize)]
struct UnreadableReason {
    code: &'static str,
    message: String,
}

impl UnreadableReason {
    fn unread(message: String) -> Self {
        Self { code: "storage_error", message }
    }
}

pub(super) fn run(args: &ListArgs) -> Result<Exit, Failure> {
    let data = TaskReader::open(&args.look.at)?;
    let archived = args.archived || StatusFilter::name(&args.status, Normal::Archived);
    let input = ListInput {
        include_archived: archived,
        include_terminal: args.all || archived || StatusFilter::name_ended(&args.status),
        labels: labels_of(&args.labels)?,
        limit: args.cut.limit,
        offset: args.cut.offset,
        statuses: StatusFilter::natives(&args.status),
        user_facing: args.user_facing,
    };
    let session = &args.look.at.session;
    let listing = match data.cluster() {
        Some(cluster) => {
            let page = |input| data.tasks(cluster, session, input);
            TaskListing::of(far(page, (&input, &args.status))?, session)
        }
        None => {
            let found = data.listing(Some(session), input.include_terminal)?;
            list(&data, found, (&input, &args.status))?
        }
    };
    let exit = exit_without(&listing.page.missing_partitions);
    if !listing.unreadable.is_empty() && args.look.output != Format::Table {
        let count = human::plural(listing.unreadable.len(), "task");
        output::warn(format_args!("{count} cannot be read: `tenure wal verify` says why"));
    }
    let shape = Shape::many("tasks", "task_id").before(listing.page.next_offset);
    args.look.output.answer(&listing, shape, || print(&data, &listing))?;
    if exit == Exit::Ok && listing.page.tasks.is_empty() && listing.unreadable.is_empty() {
        say_what_else(&data, args, &input)?;
    }
    Ok(exit)
}

/// The labels that are asked for. No Task has two values of one key.
fn labels_of(given: &[(SmolStr, SmolStr)]) -> Result<Labels, Failure> {
    let labels: Labels = given.iter().cloned().collect();
    match given.iter().find(|(key, value)| labels.get(key) != Some(value)) {
        None => Ok(labels),
        Some((key, _)) => {
            let message = format!("--label gives two values of {key}, and a task has one");
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

/// The page in a cluster, whose owners know the state of their Tasks, so that no log is fetched. If
/// native statuses do not select the Tasks, it reads page by page and filters here.
fn far(
    ask: impl Fn(ListInput) -> Result<TaskPage, Failure>,
    (input, asked): (&ListInput, &[StatusFilter<TaskStatus>]),
) -> Result<TaskPage, Failure> {
    if input.statuses.is_some() || asked.is_empty() {
        return ask(input.clone());
    }
    let limit = input.limit(&Limits::default())?;
    let (most, mut seen) = (input.offset.saturating_add(limit), BTreeSet::new());
    let (mut all, mut from) = (TaskPage::default(), Some(0));
    while let Some(offset) = from.filter(|_| all.tasks.len() <= most) {
        let page = ask(ListInput { limit: None, offset, ..input.clone() })?;
        // Each page is of its own moment: a Task that changed meanwhile may come twice.
        let fits = |task: &TaskSummary| {
            StatusFilter::any(asked, task.native_status, task.status)
                && seen.insert(task.task_id.clone())
        };
        all.tasks.extend(page.tasks.into_iter().filter(fits));
        all.unreadable.extend(page.unreadable);
        all.missing_partitions.extend(page.missing_partitions);
        from = page.next_offset;
        all.truncated = page.truncated && from.is_none();
    }
    all.unreadable.sort();
    all.unreadable.dedup();
    all.missing_partitions.sort();
    all.missing_partitions.dedup();
    all.tasks.drain(..input.offset.min(all.tasks.len()));
    if all.tasks.len() > limit {
        all.cut(input.offset, limit);
    }
    all.truncated |= !all.missing_partitions.is_empty();
    Ok(all)
}

/// The page in a directory. It folds only logs of Tasks that may be on the page (LIST-07): of ended
/// Tasks the index knows enough to leave them out.
fn list(
    data: &TaskReader,
    found: Found,
    (input, asked): (&ListInput, &[StatusFilter<TaskStatus>]),
) -> Result<TaskListing, Failure> {
    let limit = input.limit(&Limits::default())?;
    let asked = if input.statuses.is_some() { &[][..] } else { asked };
    let (tasks, unreadable) = Default::default();
    let mut rows = PageRows { data, input, asked, passed: 0, tasks, unreadable };
    let mut more = false;
    for entry in Entry::in_order(found.entries, input) {
        more = rows.take(data.log(&entry), limit);
        if more {
            break;
        }
    }
    let missing = found.missing_partitions.iter();
    let page = TaskPage {
        tasks: rows.tasks,
        next_offset: more.then_some(input.offset + limit),
        truncated: more,
        missing_partitions: missing.map(|partition| partition.to_smolstr()).collect(),
        unreadable: Vec::new(), // The listing has more about them.
    };
    Ok(TaskListing { page, unreadable: rows.unreadable })
}

/// Collects the rows of a page.
struct PageRows<'a> {
    data: &'a TaskReader,
    input: &'a ListInput,
    /// Statuses that native ones do not select; empty if all Tasks match.
    asked: &'a [StatusFilter<TaskStatus>],
    passed: usize,
    tasks: Vec<TaskSummary>,
    unreadable: Vec<Unreadable>,
}

impl PageRows<'_> {
    /// Takes the next Task, if it belongs on the page; returns whether the page was full before.
    fn take(&mut self, log: LogFile, limit: usize) -> bool {
        match self.data.fold(log.clone()) {
            Ok(loaded) => {
                let summary = self.data.look(&loaded, TaskSummary::of);
                let (native, normal) = (summary.native_status, summary.status);
                let fits = self.asked.is_empty() || StatusFilter::any(self.asked, native, normal);
                if !fits || !self.input.admits(summary.listed()) {
                    return false;
                }
                self.passed += 1;
                if self.passed <= self.input.offset {
                    return false;
                }
                if self.tasks.len() == limit {
                    return true;
                }
                self.tasks.push(summary);
            }
            Err(broken) => self.note_unreadable(&log, broken.to_string()),
        }
        false
    }

    fn note_unreadable(&mut self, log: &LogFile, message: String) {
        self.unreadable.push(Unreadable {
            task_id: log.key.task_id.to_string(),
            session_id: log.key.session_id.to_string(),
            wal_name: Some(log.wal_name.to_string()),
            wal_path: Some(log.path.display().to_string()),
            status: Normal::Unknown,
            status_reason: UnreadableReason::unread(message),
        });
    }
}

fn print(data: &TaskReader, listing: &TaskListing) -> Result<(), Failure> {
    let mut sheet = Sheet::new(&["TASK", "STATUS", "STEPS", "CREATED", "TOOK", "TITLE"]);
    for task in &listing.page.tasks {
        let steps = task.progress.counters.get("steps").copied();
        let steps = steps.map_or(String::new(), |c| format!("{}/{}", c.done, c.total.unwrap_or(0)));
        let took = task.started_at.map(|at| human::between(at, task.ended_at.unwrap_or(data.now)));
        sheet.row([
            toned(&task.task_id, Tone::Strong),
            status::cell(task.status),
            number(steps),
            text(human::local(task.created_at)),
            number(took.unwrap_or_default()),
            text(human::cut(&human::one_line(&task.title), 60)),
        ]);
    }
    for task in &listing.unreadable {
        let status = status::cell(task.status);
        let title = human::cut(&human::one_line(&task.status_reason.message), 160);
        let nothing = [text(""), text(""), text("")];
        let [steps, created, took] = nothing;
        sheet.row([toned(&task.task_id, Tone::Strong), status, steps, created, took, text(title)]);
    }
    if !sheet.is_empty() {
        sheet.print()?;
    }
    Ok(())
}

/// If there is nothing to show, says where there are Tasks: in other sessions, or ended ones.
fn say_what_else(data: &TaskReader, args: &ListArgs, input: &ListInput) -> Result<(), Failure> {
    let session = &args.look.at.session;
    let here = data.entries(Some(session))?;
    output::say(format_args!("no such task in session {session} of {}", data.place()));
    let ended = here.iter().filter(|entry| entry.ended.is_some()).count();
    if ended > 0 && !input.include_terminal {
        let tasks = human::plural(ended, "ended task");
        output::say(format_args!("{tasks} there: tenure task list --all"));
    } else if here.is_empty() && data.cluster().is_none() {
        let mut others: Vec<String> =
            data.entries(None)?.iter().map(|entry| entry.key.session_id.to_string()).collect();
        others.sort_unstable();
        others.dedup();
        if !others.is_empty() {
            output::say(format_args!("sessions with tasks: {}", others.join(", ")));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use super::*;

    /// OWN-08, LIST-07: a partition that did not answer for one of the pages is named once.
    #[test]
    fn pages_that_are_looked_through_keep_what_is_missing() {
        let page = |missing: &[&str], unreadable: &str, next_offset: Option<usize>| TaskPage {
            next_offset,
            truncated: next_offset.is_some(),
            missing_partitions: missing.iter().map(|at| at.to_smolstr()).collect(),
            unreadable: vec![unreadable.parse().unwrap()],
            ..TaskPage::default()
        };
        let ask = |input: ListInput| {
            Ok(match input.offset {
                0 => page(&["3", "1"], "b", Some(500)),
                500 => page(&["1"], "a", Some(900)),
                _ => page(&[], "b", None),
            })
        };
        let asked = [task_status("queued").unwrap()];
        let all = far(ask, (&ListInput::default(), &asked)).unwrap();
        assert_eq!(all.missing_partitions, ["1", "3"]);
        assert_eq!(all.unreadable.iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((all.truncated, all.next_offset), (true, None));
    }
}
