//! Reads the agents in the file of agents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};
use tenure_core::id::{HandlerName, SessionId};
use tenure_mcp::file::{AgentsFile, AgentsFileError, EntryWork, ReadTemplate, WorkFields};

use super::super::dialect::json as to_json;
use super::super::push::PushRules;
use super::super::wire::{A2aExtension, A2aProvider, A2aSkill};
use super::{AGENTS_MAX, Agent, AgentAbout, AgentAnswers, AgentTable, FileMark};

/// What the session of an agent is called, if the file does not say it: this, and the name of the agent.
const SESSION_PREFIX: &str = "a2a-";

/// The media types that an agent takes and gives if the file names none.
const TEXT: &str = "text/plain";

/// The part of the file that is about agents.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentsContent {
    url: Option<String>,
    grpc: Option<String>,
    push: Option<PushRules>,
    #[serde(default)]
    agents: Vec<AgentEntry>,
    /// The tools of MCP, which its server reads for itself.
    #[serde(default, rename = "tools")]
    _tools: Vec<IgnoredAny>,
}

/// An agent as the file describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentEntry {
    name: String,
    title: Option<String>,
    description: String,
    #[serde(default = "first_version")]
    version: String,
    session: Option<String>,
    handler: Option<String>,
    pool: Option<String>,
    attempts: Option<u32>,
    template: Option<PathBuf>,
    message_to: Option<String>,
    #[serde(default)]
    answers: AgentAnswers,
    #[serde(default)]
    shared: bool,
    provider: Option<A2aProvider>,
    documentation_url: Option<String>,
    icon_url: Option<String>,
    #[serde(default = "text_only")]
    input_modes: Vec<String>,
    #[serde(default = "text_only")]
    output_modes: Vec<String>,
    #[serde(default)]
    skills: Vec<SkillEntry>,
    #[serde(default)]
    extensions: Vec<A2aExtension>,
}

/// A skill as the file describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillEntry {
    id: String,
    name: String,
    description: String,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    examples: Vec<String>,
    #[serde(default)]
    input_modes: Vec<String>,
    #[serde(default)]
    output_modes: Vec<String>,
    #[serde(default)]
    extended: bool,
}

fn first_version() -> String {
    "1.0.0".into()
}

fn text_only() -> Vec<String> {
    vec![TEXT.into()]
}

/// The SHA-256 of a file of agents, in hexadecimal, and of the tasks that its agents have as templates. Without a
/// template it is that of the text alone.
fn digest_of<'a>(text: &str, agents: impl Iterator<Item = &'a Arc<Agent>>) -> String {
    let mut digest = Sha256::new_with_prefix(text);
    for agent in agents {
        if let EntryWork::Template { task, .. } = &agent.work {
            digest.update([0]);
            digest.update(to_json(task).to_string());
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl AgentsContent {
    /// The agents of a file with this text.
    pub(super) fn into_table(
        self,
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
    ) -> Result<AgentTable, AgentsFileError> {
        let count = self.agents.len();
        if count > AGENTS_MAX {
            let why = format!("there are {count} agents; at most {AGENTS_MAX}");
            return Err(AgentsFileError::Agent { agent: AGENTS_MAX.to_string(), why });
        }
        let mut all = BTreeMap::new();
        for entry in self.agents {
            let name = entry.name.clone();
            let wrong = |why| AgentsFileError::Agent { agent: name.clone(), why };
            let agent = entry.into_agent(file, read_template).map_err(wrong)?;
            if all.insert(name.clone(), Arc::new(agent)).is_some() {
                return Err(wrong("another agent has the same name".into()));
            }
        }
        let url = self.url.map(|url| url.trim_end_matches('/').to_owned());
        let mark = FileMark {
            digest: digest_of(file.text(), all.values()),
            changed_at: file.changed_at(),
        };
        Ok(AgentTable { url, grpc: self.grpc, all, push: self.push, mark })
    }
}

impl AgentEntry {
    fn into_agent(
        self,
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
    ) -> Result<Agent, String> {
        // The name is a part of addresses, so it has the form of other names.
        HandlerName::new(&self.name).map_err(|bad| bad.to_string())?;
        let session = self.session.clone();
        let session = session.unwrap_or_else(|| format!("{SESSION_PREFIX}{}", self.name));
        let session = SessionId::new(session).map_err(|bad| bad.to_string())?;
        let work = self.work(file, read_template)?;
        let (extended, open): (Vec<_>, Vec<_>) =
            self.skills.into_iter().partition(|it| it.extended);
        let about = AgentAbout {
            title: self.title.unwrap_or_else(|| self.name.clone()),
            description: self.description,
            version: self.version,
            provider: self.provider,
            documentation_url: self.documentation_url,
            icon_url: self.icon_url,
            input_modes: self.input_modes,
            output_modes: self.output_modes,
            skills: open.into_iter().map(SkillEntry::into_skill).collect(),
            extended_skills: extended.into_iter().map(SkillEntry::into_skill).collect(),
            extensions: self.extensions,
        };
        let (name, answers, shared) = (self.name, self.answers, self.shared);
        Ok(Agent { name, about, session, answers, shared, work })
    }

    fn work(
        &self,
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
    ) -> Result<EntryWork, String> {
        let fields = WorkFields {
            name: &self.name,
            handler: self.handler.as_deref(),
            pool: self.pool.as_deref(),
            attempts: self.attempts,
            timeout: None,
            template: self.template.as_deref(),
            input_to: self.message_to.as_deref(),
            input_field: "message_to",
        };
        fields.work(file, read_template)
    }
}

impl SkillEntry {
    fn into_skill(self) -> A2aSkill {
        let Self { id, name, description, tags, examples, input_modes, output_modes, .. } = self;
        A2aSkill { id, name, description, tags, examples, input_modes, output_modes }
    }
}
