//! The file of agents, as TOML.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::IgnoredAny;
use sha2::{Digest as _, Sha256};
use tenure_core::command::create::CreateTask;
use tenure_core::id::{BadId, HandlerName, Millis, PoolId, SessionId, StepId};

use super::super::dialect::json as to_json;
use super::super::push::PushRules;
use super::super::wire::{A2aExtension, A2aProvider, A2aSkill};
use super::{
    AGENTS_MAX, Agent, AgentAbout, AgentAnswers, AgentTable, AgentWork, AgentsError, FileMark,
    ReadTemplate,
};

/// What the session of an agent is called, if the file does not say it: this, and the name of the agent.
const SESSION_PREFIX: &str = "a2a-";

/// The media types that an agent takes and gives if the file names none.
const TEXT: &str = "text/plain";

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentsFile {
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

/// Reads a file that has a length at which it is certainly a mistake, and says when it was changed last, if the file
/// system does.
pub(super) fn read_text(path: &Path, most: u64) -> Result<(String, Option<Millis>), AgentsError> {
    let failed = |source| AgentsError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    let changed_at = file.metadata().and_then(|about| about.modified()).ok().and_then(millis);
    file.take(most + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > most {
        return Err(AgentsError::TooLong { path: path.to_owned() });
    }
    Ok((text, changed_at))
}

/// The SHA-256 of a file of agents, in hexadecimal, and of the tasks that its agents have as templates. Without a
/// template it is that of the text alone.
fn digest_of<'a>(text: &str, agents: impl Iterator<Item = &'a Arc<Agent>>) -> String {
    let mut digest = Sha256::new_with_prefix(text);
    for agent in agents {
        if let AgentWork::Template { task, .. } = &agent.work {
            digest.update([0]);
            digest.update(to_json(task).to_string());
        }
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A time of the system.
fn millis(at: SystemTime) -> Option<Millis> {
    let since = at.duration_since(UNIX_EPOCH).ok()?;
    Millis::try_from(since.as_millis()).ok()
}

impl AgentsFile {
    /// The agents of a file with this text. Files of templates are looked for beside the file.
    pub(super) fn into_table(
        self,
        text: &str,
        beside: &Path,
        read_template: ReadTemplate<'_>,
        changed_at: Option<Millis>,
    ) -> Result<AgentTable, AgentsError> {
        let count = self.agents.len();
        if count > AGENTS_MAX {
            let why = format!("there are {count} agents; at most {AGENTS_MAX}");
            return Err(AgentsError::Agent { agent: AGENTS_MAX.to_string(), why });
        }
        let mut all = BTreeMap::new();
        for entry in self.agents {
            let name = entry.name.clone();
            let wrong = |why| AgentsError::Agent { agent: name.clone(), why };
            let agent = entry.into_agent(beside, read_template).map_err(wrong)?;
            if all.insert(name.clone(), Arc::new(agent)).is_some() {
                return Err(wrong("another agent has the same name".into()));
            }
        }
        let url = self.url.map(|url| url.trim_end_matches('/').to_owned());
        let mark = FileMark { digest: digest_of(text, all.values()), changed_at };
        Ok(AgentTable { url, grpc: self.grpc, all, push: self.push, mark })
    }
}

impl AgentEntry {
    fn into_agent(self, beside: &Path, read_template: ReadTemplate<'_>) -> Result<Agent, String> {
        // The name is a part of addresses, so it has the form of other names.
        HandlerName::new(&self.name).map_err(|bad| bad.to_string())?;
        let session = self.session.clone();
        let session = session.unwrap_or_else(|| format!("{SESSION_PREFIX}{}", self.name));
        let session = SessionId::new(session).map_err(|bad| bad.to_string())?;
        let work = self.work(beside, read_template)?;
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

    fn work(&self, beside: &Path, read_template: ReadTemplate<'_>) -> Result<AgentWork, String> {
        let said = |bad: BadId| bad.to_string();
        let Some(template) = &self.template else {
            if self.message_to.is_some() {
                return Err("message_to goes with template".into());
            }
            let handler = self.handler.as_ref().unwrap_or(&self.name);
            let handler = HandlerName::new(handler).map_err(said)?;
            let pool = self.pool.as_ref().map(PoolId::new).transpose().map_err(said)?;
            let attempts = self.attempts.unwrap_or(1);
            if attempts == 0 {
                return Err("attempts counts from 1".into());
            }
            return Ok(AgentWork::Handler { handler, pool, attempts });
        };
        if self.handler.is_some() || self.pool.is_some() || self.attempts.is_some() {
            let why = "a template says itself which handlers and pools run it, and how often";
            return Err(why.into());
        }
        let task = read_template(&beside.join(template))?;
        let message_to = self.message_to.as_ref().map(StepId::new).transpose().map_err(said)?;
        let message_to = step_for_message(&task, message_to)?;
        Ok(AgentWork::Template { task: Box::new(task), message_to })
    }
}

/// The Step that gets the message: the one that is named, or the only one of the template that waits for no
/// other.
fn step_for_message(task: &CreateTask, named: Option<StepId>) -> Result<StepId, String> {
    if let Some(named) = named {
        let is_there = task.steps.iter().any(|step| step.step_id == named);
        return is_there
            .then_some(named.clone())
            .ok_or(format!("the template has no step {named}"));
    }
    let mut first = task.steps.iter().filter(|step| step.depends_on_step_ids.is_empty());
    match (first.next(), first.next()) {
        (Some(only), None) => Ok(only.step_id.clone()),
        _ => Err("message_to has to say which step of the template gets the message".into()),
    }
}

impl SkillEntry {
    fn into_skill(self) -> A2aSkill {
        let Self { id, name, description, tags, examples, input_modes, output_modes, .. } = self;
        A2aSkill { id, name, description, tags, examples, input_modes, output_modes }
    }
}
