//! `tenure agent add`: one more agent in a file.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use tenure_gateway::a2a::Agents;

use super::{AgentsArgs, print_agent, read_file};
use crate::answer::{Exit, Failure, output};

/// The new agent, and the file.
#[derive(Debug, Clone, Args)]
pub(crate) struct AddAgentArgs {
    /// Name of the agent in addresses
    name: String,

    /// What the agent does, for its card
    #[arg(long, value_name = "TEXT")]
    description: String,

    /// Name of the agent for people [default: NAME]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// Handler that does the work [default: NAME]
    #[arg(long, value_name = "HANDLER", conflicts_with = "template")]
    handler: Option<String>,

    /// Pool whose workers do the work [default: that of the scheduler]
    #[arg(long, value_name = "POOL", conflicts_with = "template")]
    pool: Option<String>,

    /// Task file that does the work instead of a handler; a relative path begins beside the file of agents
    #[arg(long, value_name = "TASKFILE")]
    template: Option<PathBuf>,

    /// Step of the task file that gets the message [default: the only one that waits for no other]
    #[arg(long, value_name = "STEP", requires = "template")]
    message_to: Option<String>,

    #[command(flatten)]
    of: AgentsArgs,
}

/// What is added to the file.
#[derive(Serialize)]
struct AddedAgent<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<&'a Path>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_to: Option<&'a str>,
}

impl AddAgentArgs {
    /// The agent as it stands in a file.
    fn entry(&self) -> Result<String, Failure> {
        let agent = AddedAgent {
            name: &self.name,
            title: self.title.as_deref(),
            description: &self.description,
            handler: self.handler.as_deref(),
            pool: self.pool.as_deref(),
            template: self.template.as_deref(),
            message_to: self.message_to.as_deref(),
        };
        let fields = toml::to_string(&agent);
        let fields = fields.map_err(|error| Failure::caused(Exit::Usage, &error))?;
        Ok(format!("[[agents]]\n{fields}"))
    }
}

/// Adds the agent behind all others. What is in the file stays as it is written there.
pub(super) fn add(args: &AddAgentArgs) -> Result<Exit, Failure> {
    let path = &args.of.agents;
    let before = text_of(path)?;
    if let Some(text) = &before {
        refuse_another(args, text)?;
    }
    let before = before.unwrap_or_default();
    let apart = match before.as_str() {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let added = format!("{apart}{}", args.entry()?);
    let agents = read_trial(path, &format!("{before}{added}"))?;
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(added.as_bytes()))
        .map_err(Failure::cannot(format_args!("write {}", path.display())))?;
    if let Some(agent) = agents.find(&args.name) {
        print_agent(args.of.output, agent)?;
    }
    output::say(format_args!("a gateway that runs reads {} again on SIGHUP", path.display()));
    Ok(Exit::Ok)
}

/// The text of the file, if there is one.
fn text_of(path: &Path) -> Result<Option<String>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::cannot(format_args!("read {}", path.display()))(error)),
    }
}

/// Refuses a name that another agent has, and a file that is wrong already.
fn refuse_another(args: &AddAgentArgs, text: &str) -> Result<(), Failure> {
    let path = &args.of.agents;
    if text.is_empty() || read_file(path)?.0.find(&args.name).is_none() {
        return Ok(());
    }
    let message = format!("{} has an agent {} already", path.display(), args.name);
    Err(Failure::new(Exit::Conflict, message).help("choose another name, or change it in the file"))
}

/// The agents of a text, read as if it stood in the file, with its tools.
fn read_trial(path: &Path, text: &str) -> Result<Agents, Failure> {
    let beside = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let beside = beside.unwrap_or(Path::new("."));
    let failed = || format!("write into {}", beside.display());
    let mut trial = tempfile::NamedTempFile::new_in(beside).map_err(Failure::cannot(failed()))?;
    trial.write_all(text.as_bytes()).map_err(Failure::cannot(failed()))?;
    Ok(read_file(trial.path())?.0)
}
