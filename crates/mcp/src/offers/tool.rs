//! [`OfferedTool`]: a tool whose calls are Tasks.

use std::collections::BTreeMap;

use rmcp::model::{Tool, ToolAnnotations};
use serde::Deserialize;
use tenure_core::record::Labels;

use super::schema::ToolSchema;
use crate::file::EntryWork;

/// A tool whose calls are Tasks.
#[derive(Debug)]
pub struct OfferedTool {
    /// Its name, which no other tool of the server has.
    pub(super) name: String,
    /// For people.
    pub(super) title: Option<String>,
    /// For the model that chooses it.
    pub(super) description: String,
    /// What its arguments have to be.
    pub(super) input: ToolSchema,
    /// What its result is, if it says so.
    pub(super) output: Option<ToolSchema>,
    /// Labels of its Tasks.
    pub(super) labels: Labels,
    /// With what its calls are answered.
    pub(super) answers: OfferAnswers,
    /// Whether all callers see the Tasks of each other.
    pub(super) shared: bool,
    /// What its calls do, for hosts that ask people before they call.
    pub(super) hints: ToolHints,
    /// What becomes of a call.
    pub(super) work: EntryWork,
}

/// With what the calls of a tool are answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferAnswers {
    /// With a task for clients that know the extension Tasks, and with the result for others.
    #[default]
    Either,
    /// With the result for all: the work is short.
    Result,
    /// With a task. Clients that do not know the extension are refused: the work is long.
    Task,
    /// With the result if it comes in time. What it asks before is asked by the answer to the call, and
    /// with the answers the call becomes a task for clients that know these.
    Late,
}

/// What the calls of a tool do, as its owner says: hosts go by it when they ask people for their approval.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolHints {
    read_only: Option<bool>,
    destructive: Option<bool>,
    idempotent: Option<bool>,
    open_world: Option<bool>,
}

impl OfferAnswers {
    /// As the file has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Either => "either",
            Self::Result => "result",
            Self::Task => "task",
            Self::Late => "late",
        }
    }
}

impl OfferedTool {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name for people.
    pub fn title(&self) -> &str {
        self.title.as_deref().unwrap_or(&self.name)
    }

    /// With what its calls are answered.
    pub const fn answers(&self) -> OfferAnswers {
        self.answers
    }

    /// What runs its calls, in words.
    pub fn runs(&self) -> String {
        self.work.runs("the arguments go to")
    }

    /// The tool as clients list it.
    pub fn shown(&self) -> Tool {
        let (name, about) = (self.name.clone(), self.description.clone());
        let mut tool = Tool::new(name, about, self.input.shown());
        tool.title.clone_from(&self.title);
        tool.output_schema = self.output.as_ref().map(ToolSchema::shown);
        tool.annotations = self.hints.annotations();
        tool
    }
}

impl ToolHints {
    fn annotations(self) -> Option<ToolAnnotations> {
        let Self { read_only, destructive, idempotent, open_world } = self;
        let any = [read_only, destructive, idempotent, open_world].iter().any(Option::is_some);
        any.then(|| ToolAnnotations::from_raw(None, read_only, destructive, idempotent, open_world))
    }
}

/// The tools of a file, by their names.
#[derive(Debug, Default)]
pub struct OfferTable {
    pub(super) all: BTreeMap<String, OfferedTool>,
}

impl OfferTable {
    /// The names of all tools.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    /// All tools, in the order of their names.
    pub fn all(&self) -> impl Iterator<Item = &OfferedTool> {
        self.all.values()
    }

    /// The tool of this name.
    pub fn find(&self, name: &str) -> Option<&OfferedTool> {
        self.all.get(name)
    }
}
