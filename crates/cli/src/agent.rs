//! `tenure agent …`: the agents in a file, as a gateway reads it, and the tools that stand there, too.

mod add;
mod tool;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use tenure_core::command::create::CreateTask;
use tenure_embedded::plan::into_create;
use tenure_gateway::a2a::{Agent, Agents, ServedAgents, card};
use tenure_mcp::file::{AgentsFile, AgentsFileError};
use tenure_mcp::offers::{OfferTable, Offers};
use tenure_taskfile::ReadOptions;

use self::add::AddAgentArgs;
use self::tool::ListedTool;
use super::answer::{Exit, Failure, Format, Shape, Sheet, Tone, did_you_mean, output, text, toned};

/// Agents.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Add an agent to the file, which is made if there is none
    Add(AddAgentArgs),
    /// List the agents and the tools: what runs them, and in which session the tasks of an agent are
    List(AgentsArgs),
    /// Show an agent, or a tool
    Show {
        #[command(flatten)]
        agent: AgentArgs,

        /// Show the tool of this name if an agent has the same name
        #[arg(long)]
        tool: bool,
    },
    /// Print the card of an agent, as it is at this address
    Card {
        #[command(flatten)]
        agent: AgentArgs,

        /// Address of the gateway, if the file does not say it
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7677")]
        url: String,
    },
}

/// Which file, and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentsArgs {
    /// File of agents
    #[arg(long, value_name = "FILE", env = "TENURE_AGENTS", default_value = "agents.toml")]
    agents: PathBuf,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// Which agent.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentArgs {
    /// Name of the agent
    name: String,

    #[command(flatten)]
    of: AgentsArgs,
}

#[derive(Serialize)]
struct AgentListing<'a> {
    agents: Vec<ListedAgent<'a>>,
    tools: Vec<ListedTool<'a>>,
    /// Gateways with the same file say the same.
    digest: &'a str,
}

#[derive(Serialize)]
struct ListedAgent<'a> {
    agent: &'a str,
    title: &'a str,
    session_id: &'a str,
    runs: String,
}

impl<'a> ListedAgent<'a> {
    fn of(agent: &'a Agent) -> Self {
        Self {
            agent: agent.name(),
            title: agent.title(),
            session_id: agent.session().as_str(),
            runs: agent.runs(),
        }
    }
}

pub(crate) fn run(command: &AgentCommand) -> Result<Exit, Failure> {
    match command {
        AgentCommand::Add(args) => add::add(args),
        AgentCommand::List(args) => list(args),
        AgentCommand::Show { agent, tool } => show(agent, *tool),
        AgentCommand::Card { agent, url } => {
            let (agents, _) = read_file(&agent.of.agents)?;
            let card = card(&agents, &agent.name, url);
            output::print_json(&card.ok_or_else(|| absent(agents.names(), &agent.name))?)?;
            Ok(Exit::Ok)
        }
    }
}

fn list(args: &AgentsArgs) -> Result<Exit, Failure> {
    let (agents, tools) = read_file(&args.agents)?;
    let all = agents.names().filter_map(|name| agents.find(name));
    let all = all.map(|agent| ListedAgent::of(agent)).collect();
    let tools = tools.all().map(ListedTool::of).collect();
    let listing = AgentListing { agents: all, tools, digest: agents.digest() };
    args.output.answer(&listing, Shape::many("agents", "agent"), || {
        let mut sheet = Sheet::new(&["AGENT", "TITLE", "SESSION", "RUNS"]);
        for agent in &listing.agents {
            let name = toned(agent.agent, Tone::Strong);
            sheet.row([name, text(agent.title), text(agent.session_id), text(&agent.runs)]);
        }
        sheet.print()?;
        tool::print_all(&listing.tools)
    })
}

/// Shows what has the name: an agent, or else a tool; or the tool in any case.
fn show(args: &AgentArgs, wants_tool: bool) -> Result<Exit, Failure> {
    let (agents, tools) = read_file(&args.of.agents)?;
    match (agents.find(&args.name), tools.find(&args.name)) {
        (Some(agent), _) if !wants_tool => print_agent(args.of.output, agent),
        (_, Some(tool)) => tool::print(args.of.output, tool),
        (_, None) if wants_tool => Err(absent(tools.names(), &args.name)),
        (_, None) => Err(absent(agents.names().chain(tools.names()), &args.name)),
    }
}

fn print_agent(output: Format, agent: &Agent) -> Result<Exit, Failure> {
    let agent = ListedAgent::of(agent);
    output.answer(&agent, Shape::one("agent"), || {
        let mut sheet = Sheet::bare();
        sheet.field("agent", agent.agent);
        sheet.field("title", agent.title);
        sheet.field("session", agent.session_id);
        sheet.field("runs", &agent.runs);
        sheet.print()
    })
}

fn absent<'a>(names: impl Iterator<Item = &'a str>, name: &str) -> Failure {
    let help = did_you_mean(name, names);
    let help = help.unwrap_or_else(|| "`tenure agent list` names those that there are".to_owned());
    Failure::new(Exit::NotFound, format!("there is no {name} in the file of agents")).help(help)
}

/// A file of agents, and those of it that a gateway serves, with the tools that it offers. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentsOnFile {
    path: Option<PathBuf>,
    served: ServedAgents,
    offers: Offers,
}

impl AgentsOnFile {
    /// Reads the file; without one there are no agents.
    pub(crate) fn read(path: Option<PathBuf>) -> Result<Self, Failure> {
        let Some(path) = path else { return Ok(Self::default()) };
        let (agents, offers) = read_file(&path)?;
        Ok(Self { path: Some(path), served: agents.into(), offers: offers.into() })
    }

    /// The agents, for a gateway.
    pub(crate) fn served(&self) -> ServedAgents {
        self.served.clone()
    }

    /// The tools, for a server of MCP.
    pub(crate) fn offers(&self) -> Offers {
        self.offers.clone()
    }

    /// Whether there is a file that can be read again.
    pub(crate) const fn has_file(&self) -> bool {
        self.path.is_some()
    }

    /// Reads the file again. If it is wrong, agents and tools stay as they were.
    pub(crate) fn reload(&self) -> Result<(), Failure> {
        if let Some(path) = &self.path {
            let (agents, offers) = read_file(path)?;
            self.served.replace(agents);
            self.offers.replace(offers);
        }
        Ok(())
    }
}

/// Reads a file of agents, with the task files that it names: its agents and its tools.
fn read_file(path: &Path) -> Result<(Agents, OfferTable), AgentsFileError> {
    let file = AgentsFile::read(path)?;
    Ok((Agents::read(&file, &read_template)?, OfferTable::read(&file, &read_template)?))
}

/// The Task of a task file, without an id: each message makes one of its own.
fn read_template(path: &Path) -> Result<CreateTask, String> {
    let plan = tenure_taskfile::read(path, &ReadOptions::default());
    let plan = plan.map_err(|error| error.to_string().trim_start_matches("error: ").to_owned())?;
    let task = into_create(plan).map_err(|refused| refused.message)?;
    Ok(CreateTask { task_id: None, ..task })
}

impl From<AgentsFileError> for Failure {
    fn from(error: AgentsFileError) -> Self {
        let help = match &error {
            AgentsFileError::Read { .. } => "--agents, or TENURE_AGENTS, names the file of agents",
            AgentsFileError::Tool { .. } => "docs/mcp.md says what is in [[tools]] of that file",
            AgentsFileError::Form { .. } => {
                "docs/a2a.md says what is in a file of agents, docs/mcp.md what is in its [[tools]]"
            }
            _ => "docs/a2a.md says what is in a file of agents",
        };
        Self::caused(Exit::Usage, &error).help(help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that became wrong changes nothing, and one that is right again does.
    #[test]
    fn a_file_is_read_again_as_a_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.toml");
        let write = |name: &str| {
            let entry = format!("name = \"{name}\"\ndescription = \"Does it.\"\n");
            let text = format!("[[agents]]\n{entry}[[tools]]\n{entry}");
            std::fs::write(&path, text).unwrap();
        };
        write("one");
        let agents = AgentsOnFile::read(Some(path.clone())).unwrap();
        let names = || agents.served().now().names().map(str::to_owned).collect::<Vec<_>>();
        let tools = || agents.offers().names();
        for wrong in ["Not a name!", "task_create"] {
            write(wrong); // The second is the name of an agent, and no name of a tool.
            assert!(agents.reload().is_err() && agents.has_file());
            assert_eq!((names(), tools()), (vec!["one".to_owned()], vec!["one".to_owned()]));
        }
        write("two");
        agents.reload().unwrap();
        assert_eq!((names(), tools()), (vec!["two".to_owned()], vec!["two".to_owned()]));
        assert!(!AgentsOnFile::read(None).unwrap().has_file());
    }
}
