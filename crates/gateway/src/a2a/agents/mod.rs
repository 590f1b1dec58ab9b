//! What agents there are: their names and cards, and what becomes of a message to them. A file says it
//! ([`file`]), which stands beside each gateway.

mod file;
mod served;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use tenure_core::id::{Millis, SessionId};
use tenure_mcp::file::{AgentsFile, AgentsFileError, EntryWork, ReadTemplate};

use self::file::AgentsContent;
pub use self::served::ServedAgents;
use super::push::PushRules;
use super::wire::{A2aExtension, A2aProvider, A2aSkill};

/// The most agents of a gateway.
pub const AGENTS_MAX: usize = 1_000;

/// The agents of a gateway. Cheap to clone.
#[derive(Clone, Default)]
pub struct Agents(Arc<AgentTable>);

#[derive(Default)]
struct AgentTable {
    /// The address at which callers reach the gateway, if that of a request does not say it.
    url: Option<String>,
    /// The host and port at which callers reach it over gRPC, if that of a request does not say it.
    grpc: Option<String>,
    /// By their names.
    all: BTreeMap<String, Arc<Agent>>,
    /// To where updates may be sent; none: they are not.
    push: Option<PushRules>,
    /// Which file it was.
    mark: FileMark,
}

/// Which file the agents stood in.
#[derive(Default)]
struct FileMark {
    /// Its SHA-256, and that of the tasks that its agents have as templates.
    digest: String,
    /// When it was changed last, if the file system says so.
    changed_at: Option<Millis>,
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.all.keys()).finish()
    }
}

impl Agents {
    /// The agents in a file.
    ///
    /// # Errors
    /// What is wrong with it, or with a template that it names.
    pub fn read(
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
    ) -> Result<Self, AgentsFileError> {
        let said: AgentsContent = file.parse()?;
        Ok(Self(Arc::new(said.into_table(file, read_template)?)))
    }

    /// The names of all agents.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.all.keys().map(String::as_str)
    }

    /// The agent of this name.
    pub fn find(&self, name: &str) -> Option<&Arc<Agent>> {
        self.0.all.get(name)
    }

    /// The agent whose card stands at the root of the gateway: the only one.
    pub(crate) fn only(&self) -> Option<&Arc<Agent>> {
        let mut all = self.0.all.values();
        all.next().filter(|_| all.next().is_none())
    }

    /// The address at which callers reach the gateway, if the file says it.
    pub fn url(&self) -> Option<&str> {
        self.0.url.as_deref()
    }

    /// The host and port at which callers reach the gateway over gRPC, if the file says it.
    pub(crate) fn grpc(&self) -> Option<&str> {
        self.0.grpc.as_deref()
    }

    /// To where updates may be sent; none: they are not.
    pub(crate) fn push(&self) -> Option<&PushRules> {
        self.0.push.as_ref()
    }

    /// The SHA-256 of the file and of the tasks that its agents have as templates, in hexadecimal: gateways that say
    /// the same have the same agents.
    pub fn digest(&self) -> &str {
        &self.0.mark.digest
    }

    /// When the file was changed last, if that is known.
    pub(crate) fn changed_at(&self) -> Option<Millis> {
        self.0.mark.changed_at
    }
}

/// With what an agent answers (A2A-07).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentAnswers {
    /// With a task, unless its worker replies directly before anybody has seen one.
    #[default]
    Task,
    /// Always with a message: callers never see a task.
    Message,
}

/// An agent.
#[derive(Debug)]
pub struct Agent {
    /// Its name in addresses, which no other agent of the gateway has.
    pub(crate) name: String,
    /// What stands on its card.
    pub(crate) about: AgentAbout,
    /// The session in which its tasks are.
    pub(crate) session: SessionId,
    /// With what it answers.
    pub(crate) answers: AgentAnswers,
    /// Whether all its callers see the tasks of each other.
    pub(crate) shared: bool,
    /// What becomes of a message.
    pub(crate) work: EntryWork,
}

/// What stands on the card of an agent.
#[derive(Debug, Clone)]
pub(crate) struct AgentAbout {
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) version: String,
    pub(crate) provider: Option<A2aProvider>,
    pub(crate) documentation_url: Option<String>,
    pub(crate) icon_url: Option<String>,
    pub(crate) input_modes: Vec<String>,
    pub(crate) output_modes: Vec<String>,
    pub(crate) skills: Vec<A2aSkill>,
    /// Skills of which only callers that are let in learn.
    pub(crate) extended_skills: Vec<A2aSkill>,
    pub(crate) extensions: Vec<A2aExtension>,
}

impl AgentAbout {
    /// Whether those who are let in get more of the card.
    pub(crate) fn is_extended(&self) -> bool {
        !self.extended_skills.is_empty()
    }
}

impl Agent {
    /// Its name in addresses.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name for people.
    pub fn title(&self) -> &str {
        &self.about.title
    }

    /// The session in which its tasks are.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Whether its callers see tasks.
    pub(crate) fn shows_tasks(&self) -> bool {
        self.answers == AgentAnswers::Task
    }

    /// What runs its tasks, in words.
    pub fn runs(&self) -> String {
        self.work.runs("the message goes to")
    }
}

#[cfg(test)]
mod tests;
