//! What readers see: views of one Task, and pure functions from views to answers.
//!
//! A [`View`] is the only way to read a Task from outside the core. [`Task::durable`] gives every
//! reader the last durable state, even while commits are in flight. It costs as much as is pending,
//! not as much as the Task holds.
//!
//! | Question | Function |
//! |---|---|
//! | a Task for `agent.task_get` | [`get_task`] |
//! | a line of `agent.task_list`; the page | [`list_entry`], [`page_tasks`], [`worker_page`] |
//! | Steps for `agent.task_query_steps` | [`query_steps`] |
//! | a worker's query within its Run | [`look()`] |
//! | the answer to a write | [`write_summary`] |
//! | the content of a claim for its worker | [`claim_result`] |
//! | a Run that a worker may take | [`RunOffer`] |
//! | why a Step is not running; all Steps of a Task, in groups | [`explain()`]; [`explain_task()`] |
//! | public events of a commit | [`public_events`], with the stages of [`Task::replay_traced`] |
//! | what happens to Runs and changes no Task | [`RuntimeEvent`] |
//! | normalized status | [`Facts::of`], [`Facts::status`] |
//! | A2A state, MACP phase, gateway codes | [`gateway`] |
//! | the snapshot of many Tasks (`task_views`) | [`snapshot::Snapshot`] |
//! | `task_board_summary`, `task_template` | [`board`] |
//! | `inspect_task`; `replay_task` | [`timeline()`], [`inspect`]; [`TaskView::as_it_was`] |
//! | the DAG as a picture | [`graph()`] |
//! | what a patch would do | [`plan_patch`] |
//! | an answer within a budget | [`fit`] |
//!
//! What a reader knows beside the log (the time, the leases, whether the owner is up to date) comes
//! in as [`Known`].
//!
//! [`Task::durable`]: crate::Task::durable
//! [`Task::replay_traced`]: crate::Task::replay_traced

pub mod artifact;
mod blobs;
pub mod board;
pub mod budget;
pub mod claim;
pub mod explain;
pub mod facts;
pub mod gateway;
pub mod graph;
pub mod list;
pub mod look;
pub mod normal;
pub mod plan;
pub mod public;
pub mod query;
pub mod run;
pub mod scope;
pub mod snapshot;
pub mod step;
pub mod summary;
pub mod task;
pub mod timeline;
mod view_name;
pub mod views;
pub mod write;

/// Whether a `spec_version` is not told: to workers, which may not see the changes of other Steps (OCC-06).
#[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
pub(crate) const fn is_unknown(spec_version: &u64) -> bool {
    *spec_version == 0
}

pub use crate::read::{StepRef, View};
pub use crate::runtime::{RuntimeEvent, RuntimeName};
pub use board::{Board, BoardInput, TaskLines, TemplateInput};
pub use budget::{Reference, fit};
pub use claim::{ClaimResult, claim_result};
pub use explain::{
    ExplainInput, ExplainTaskInput, Explanation, TaskExplanation, explain, explain_task,
};
pub use facts::{FactsInput, FactsPage};
pub use graph::{Graph, graph};
pub use list::{ListInput, TaskPage, list_entry, page_tasks, worker_page};
pub use look::{Look, Looked, look};
pub use normal::{Facts, Normal, Stage};
pub use plan::{PatchPlan, Premises, plan_patch};
pub use public::{PublicEvent, public_events};
pub use query::{QueryInput, StepPage, query_ready, query_steps};
pub use run::{AttemptView, RunEnd, RunOffer, RunView};
pub use scope::Scope;
pub use snapshot::Snapshot;
pub use step::StepView;
pub use summary::{Diagnostics, TaskSummary};
pub use task::{GetInput, TaskRead, TaskView, WorkerTask, get_task};
pub use timeline::{InspectInput, Inspection, ReplayInput, TimelineEntry, inspect, timeline};
pub use view_name::ViewName;
pub use views::ViewsInput;
pub use write::{WriteSummary, write_summary};

/// Passes every query of the core to a macro, with its type and its name as an operation of the bus, and beside them
/// the queries that the caller adds. There are queries that read a Task as it stands, queries about a Task's
/// past, requests for a part of something of a Task that is too long for one answer, and all others, which an owner
/// answers each in its own way. Whatever carries, answers or describes queries is generated from this list.
#[macro_export]
macro_rules! queries {
    ($then:ident parts { $($part:tt)* } other { $($other:tt)* }) => {
        $then! {
            task {
                Get($crate::view::task::GetInput)
                Steps($crate::view::query::QueryInput)
                Board($crate::view::board::BoardInput)
                Explain($crate::view::explain::ExplainInput)
                ExplainTask($crate::view::explain::ExplainTaskInput)
                Facts($crate::view::facts::FactsInput)
            }
            history {
                Inspect($crate::view::timeline::InspectInput)
                Replay($crate::view::timeline::ReplayInput)
            }
            parts {
                $($part)*
            }
            other {
                Tasks($crate::view::list::ListInput)
                Template($crate::view::board::TemplateInput)
                $($other)*
            }
        }
    };
}

use crate::eligibility::{Wanted, WorkerCounts};
use crate::id::{AttemptId, Millis};

/// What the lease store says of an open Attempt (LEASE-05).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseFact {
    /// When the lease ends unless renewed.
    pub expires_at: Millis,
    /// Whether the lease is shown to be in force now. If not, the Attempt is "unconfirmed" (7.2).
    pub valid: bool,
}

/// What a reader knows beside the log.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The owner's clock.
    pub now: Millis,
    /// Whether the owner has confirmed this state within the staleness limit (N08).
    pub confirmed: bool,
    /// Leases as of the last tick; `None`: nothing is known, so nothing is confirmed.
    pub leases: &'a dyn Fn(AttemptId) -> Option<LeaseFact>,
    /// Where the log is, as the journal computes it (2.1 `wal_path`).
    pub wal_path: Option<&'a str>,
    /// What a claim needs beside the Task; `None`: the reader does not know it.
    pub means: Option<Means<'a>>,
}

/// What the owner of a Task knows of what a claim needs beside the Task.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// The workers that may take a Step.
    pub workers: &'a dyn Fn(Wanted<'_>) -> WorkerCounts,
    /// Why the log takes no writes; `None` while it takes them.
    pub log_trouble: Option<&'a str>,
    /// Whether the store of leases does not answer.
    pub lacks_leases: bool,
}

impl core::fmt::Debug for Means<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { log_trouble, lacks_leases, workers: _ } = self;
        write!(f, "Means {{ log_trouble: {log_trouble:?}, lacks_leases: {lacks_leases} }}")
    }
}

impl core::fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { now, confirmed, wal_path, means, leases: _ } = self;
        f.debug_struct("Known")
            .field("now", now)
            .field("confirmed", confirmed)
            .field("wal_path", wal_path)
            .field("means", means)
            .finish_non_exhaustive()
    }
}

impl<'a> Known<'a> {
    /// What an owner that is up to date knows, with these leases.
    pub fn new(now: Millis, leases: &'a dyn Fn(AttemptId) -> Option<LeaseFact>) -> Self {
        Self { now, confirmed: true, leases, wal_path: None, means: None }
    }
}
