//! `tenure a2a …`: a small client of agents elsewhere that speak A2A.

mod delegation;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use tenure_core::view::gateway::A2aState;
use tenure_core::{Code, Rejection};
use tenure_sdk::a2a::{
    A2aArtifact, A2aMessage, A2aPart, A2aReply, A2aRole, A2aSend, A2aSendConfiguration, A2aTask,
    A2aTaskStatus, A2aUpdate, PeerCard, PeerClient, PeerError, PeerFollower, PeerReason,
    PeerSettings, PeerVersion, has_ended, is_settled,
};
use tenure_sdk::http::HttpConnectError;
use uuid::Uuid;

pub(crate) use self::delegation::DelegationArgs;
use super::answer::human::{self, one_line};
use super::answer::{Exit, Failure, Format, Shape, Sheet, output};
use super::runtime::{one_thread, unless_stopped};

/// The variable that names the certificate of an authority.
const CA: &str = "TENURE_A2A_CA";

/// How much of the history of a task is shown.
const HISTORY: u32 = 100;

/// Speak to an agent elsewhere.
#[derive(Debug, Subcommand)]
pub(crate) enum A2aCommand {
    /// Show the card of an agent, and how it is spoken to
    Card(PeerArgs),
    /// Send a message, and wait for what comes of it
    Send(SendArgs),
    /// Show a task of an agent
    Get(PeerTaskArgs),
    /// Show what happens to a task of an agent, until it has ended or asks for something
    Watch(PeerTaskArgs),
}

/// Which agent, and how to answer.
#[derive(Debug, Clone, Args)]
pub(crate) struct PeerArgs {
    /// Address of the agent, or of its card
    url: String,

    /// The token that says to the agent who this is; safer in the environment
    #[arg(long, value_name = "TOKEN", env = "TENURE_A2A_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// The certificate of the authority that signed the agent's own, in PEM
    #[arg(long, value_name = "FILE", env = CA)]
    ca: Option<PathBuf>,

    /// Version of A2A, 1.0 or 0.3; by default the latest that both know
    #[arg(long, value_name = "VERSION")]
    a2a_version: Option<PeerVersion>,

    /// Another host to which the card may lead; may be given several times
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,

    /// How to write the answer
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT", default_value_t)]
    output: Format,
}

/// What to send.
#[derive(Debug, Clone, Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    agent: PeerArgs,

    /// What to say
    text: String,

    /// Task that the message belongs to, such as one that asks for something
    #[arg(long, value_name = "TASK")]
    task: Option<String>,

    /// Context that the message belongs to
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,

    /// Id of the message: an agent may take the same one only once
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,

    /// Do not wait for what comes of it
    #[arg(long)]
    no_wait: bool,
}

/// Which task.
#[derive(Debug, Clone, Args)]
pub(crate) struct PeerTaskArgs {
    #[command(flatten)]
    agent: PeerArgs,

    /// Id of the task
    task: String,
}

pub(crate) fn run(command: &A2aCommand) -> Result<Exit, Failure> {
    let works = async {
        match command {
            A2aCommand::Card(args) => card(args).await,
            A2aCommand::Send(args) => send(args).await,
            A2aCommand::Get(args) => {
                let client = args.agent.connect().await?;
                args.agent.show(&client.get(&args.task, Some(HISTORY)).await?)
            }
            A2aCommand::Watch(args) => watch(args).await,
        }
    };
    let left = || "what the agent has begun goes on".to_owned();
    one_thread()?.block_on(unless_stopped(left, works))
}

impl PeerArgs {
    async fn connect(&self) -> Result<PeerClient, Failure> {
        let settings = PeerSettings {
            token: self.token.clone(),
            ca: self.ca.clone(),
            version: self.a2a_version,
            hosts: self.hosts.clone(),
            ..PeerSettings::new(&*self.url)
        };
        let client = PeerClient::connect(&settings).await?;
        self.say_if_ca_is_unused(client.card());
        Ok(client)
    }

    /// Certificates count over TLS alone. Those that the environment names are for all agents, and may be unused.
    fn say_if_ca_is_unused(&self, card: &PeerCard) {
        let is_typed = |ca: &PathBuf| std::env::var_os(CA).is_none_or(|it| it != ca.as_os_str());
        let is_tls = [&card.url, &card.interface.url].iter().any(|url| url.starts_with("https:"));
        if self.ca.as_ref().is_some_and(is_typed) && !is_tls {
            output::warn("--ca is not used, as the agent is spoken to without TLS");
        }
    }

    /// The options with which the same agent is spoken to in the same way, for a command that is proposed.
    fn told(&self) -> String {
        let version = self.a2a_version.map(|version| format!(" --a2a-version {version}"));
        let hosts = self.hosts.iter().map(|host| format!(" --host {host}"));
        version.into_iter().chain(hosts).collect()
    }

    /// Shows a task.
    fn show(&self, task: &A2aTask) -> Result<Exit, Failure> {
        self.output.answer(task, Shape::one("id"), || {
            let mut sheet = Sheet::bare();
            sheet.field("task", one_line(&task.id));
            sheet.field("context", one_line(&task.context_id));
            sheet.field("state", task.status.state.as_str());
            if let Some(said) = said(&task.status) {
                sheet.field("says", &said);
            }
            for artifact in &task.artifacts {
                let name = artifact.name.as_deref().unwrap_or(&artifact.artifact_id);
                sheet.field(&one_line(name), in_short(&artifact.parts));
            }
            sheet.print()
        })
    }

    /// Shows a task that nothing more happens to for now, and says in the exit code how it stands.
    fn settle(&self, task: &A2aTask) -> Result<Exit, Failure> {
        self.show(task)?;
        let state = task.status.state;
        if is_settled(state) && !has_ended(state) {
            let (url, options, id) = (&self.url, self.told(), one_line(&task.id));
            output::say(format_args!(
                "the agent asks: tenure a2a send {url}{options} --task {id} TEXT"
            ));
        }
        Ok(exit_of(state))
    }
}

/// The exit code for a task in this state.
const fn exit_of(state: A2aState) -> Exit {
    match state {
        A2aState::Failed | A2aState::Canceled | A2aState::Rejected => Exit::TaskFailed,
        _ => Exit::Ok,
    }
}

async fn card(args: &PeerArgs) -> Result<Exit, Failure> {
    let client = args.connect().await?;
    let card = client.card();
    let shown = json!({"url": card.url, "interface": card.interface, "card": card.text});
    args.output.answer(&shown, Shape::one("url"), || {
        let mut sheet = Sheet::bare();
        sheet.field("agent", one_line(&card.name));
        sheet.field("card", &card.url);
        sheet.field("address", one_line(&card.interface.url));
        sheet.field("speaks", shown["interface"]["binding"].as_str().unwrap_or_default());
        sheet.field("version", card.interface.version.as_str());
        sheet.field("streams", if card.streams { "yes" } else { "no" });
        sheet.print()
    })
}

async fn send(args: &SendArgs) -> Result<Exit, Failure> {
    let client = args.agent.connect().await?;
    let message = A2aMessage {
        message_id: args.message_id.clone().unwrap_or_else(|| Uuid::now_v7().to_string()),
        task_id: args.task.clone(),
        context_id: args.context.clone(),
        role: A2aRole::User,
        parts: vec![A2aPart::text(&*args.text)],
        ..A2aMessage::default()
    };
    let options =
        A2aSendConfiguration { return_immediately: true, ..A2aSendConfiguration::default() };
    let asked = A2aSend { message, configuration: Some(options), metadata: None };
    match client.send(&asked).await? {
        A2aReply::Message(message) => {
            args.agent.output.answer(&message, Shape::one("messageId"), || {
                output::print(human::indented(&message.text(), ""))
            })
        }
        A2aReply::Task(task) if args.no_wait => args.agent.show(&task),
        A2aReply::Task(task) => {
            let mut follower = PeerFollower::new(client, &*task.id);
            while !matches!(status_of(&follower.next().await?), Some(status) if is_settled(status.state))
            {
            }
            args.agent.settle(&follower.task().await?)
        }
    }
}

async fn watch(args: &PeerTaskArgs) -> Result<Exit, Failure> {
    let client = args.agent.connect().await?;
    let mut follower = PeerFollower::new(client, &*args.task);
    let mut last: Option<A2aUpdate> = None;
    loop {
        let update = follower.next().await?;
        if last.as_ref() != Some(&update) {
            tell(args.agent.output, &update)?;
        }
        if let Some(status) = status_of(&update).filter(|status| is_settled(status.state)) {
            return Ok(exit_of(status.state));
        }
        last = Some(update);
    }
}

/// The state of the task, if an update says it.
const fn status_of(update: &A2aUpdate) -> Option<&A2aTaskStatus> {
    match update {
        A2aUpdate::Task(task) => Some(&task.status),
        A2aUpdate::StatusUpdate(update) => Some(&update.status),
        A2aUpdate::ArtifactUpdate(_) | A2aUpdate::Message(_) => None,
    }
}

/// One update, as a line.
fn tell(format: Format, update: &A2aUpdate) -> Result<(), Failure> {
    if format.is_json() {
        return output::print(format!("{}\n", json!(update)));
    }
    match format {
        Format::Quiet => Ok(()),
        _ => output::print(format!("{}\n", line_of(update))),
    }
}

/// An update as a line, in which nothing of the agent would steer a terminal.
fn line_of(update: &A2aUpdate) -> String {
    match update {
        A2aUpdate::Message(message) => one_line(&message.text()),
        A2aUpdate::ArtifactUpdate(update) => {
            let A2aArtifact { artifact_id, parts, .. } = &update.artifact;
            format!("artifact {}: {}", one_line(artifact_id), in_short(parts))
        }
        A2aUpdate::Task(_) | A2aUpdate::StatusUpdate(_) => {
            status_of(update).map_or_else(String::new, |status| match said(status) {
                Some(said) => format!("{}: {said}", status.state),
                None => status.state.to_string(),
            })
        }
    }
}

/// What an agent says about the state of its task, as one line.
fn said(status: &A2aTaskStatus) -> Option<String> {
    let text = status.message.as_ref().map(A2aMessage::text).filter(|text| !text.is_empty())?;
    Some(one_line(&text))
}

/// Parts as one line: texts as they are, everything else as JSON.
fn in_short(parts: &[A2aPart]) -> String {
    let each = parts.iter().map(|part| match part.as_text() {
        Some(text) => one_line(text),
        None => serde_json::to_value(part).unwrap_or(Json::Null).to_string(),
    });
    each.collect::<Vec<_>>().join(" ")
}

const ADDRESS: &str =
    "URL is the address of an agent, such as https://HOST/a2a/NAME, or of its card";

const REACH: &str =
    "see that the agent runs, and that URL names it; the same command may work later";

const OWN: &str = "see whether the id is right: agents show callers only their own tasks, and --token says who calls";

const ANOTHER: &str = "without --task a message begins a task; --context has it belong to others";

const VERSION: &str = "--a2a-version names the version to speak";

const OFFER: &str = "without --a2a-version the latest version that the card offers is spoken; an agent may have \
                     another card for another version, as those of Tenure have below URL/v0.3";

const HOST: &str = "if you trust it, allow it with --host";

const TRUST: &str =
    "--ca, or TENURE_A2A_CA, is the certificate of the authority that signed the agent's own";

const LOGIN: &str = "--token, or TENURE_A2A_TOKEN, is the token that the agent knows you by";

impl From<PeerError> for Failure {
    fn from(error: PeerError) -> Self {
        let failed = |exit| {
            let mut failure = Self::caused(exit, &error);
            failure.message = one_line(&failure.message);
            failure
        };
        match &error {
            PeerError::Address { .. } => failed(Exit::Usage).help(ADDRESS),
            PeerError::Host(_) => failed(Exit::NotAllowed).help(HOST),
            PeerError::Card { .. } => failed(Exit::NotFound).help(ADDRESS),
            PeerError::Offer { .. } => failed(Exit::Usage).help(OFFER),
            PeerError::Access(HttpConnectError::Token) => failed(Exit::Usage).help(LOGIN),
            PeerError::Access(_) => failed(Exit::Usage).help(TRUST),
            PeerError::Unreachable(_) | PeerError::Lost { .. } => {
                Self::from(Rejection::new(Code::Unavailable, error.to_string())).help(REACH)
            }
            PeerError::Redirect { .. } => failed(Exit::Usage).help(ADDRESS),
            PeerError::Malformed { .. } => failed(Exit::Unavailable).help(ADDRESS),
            PeerError::Refused { reason, .. } => match reason {
                PeerReason::TaskNotFound => failed(Exit::NotFound).help(OWN),
                PeerReason::Denied => failed(Exit::NotAllowed).help(LOGIN),
                PeerReason::Busy | PeerReason::Broken => failed(Exit::Unavailable).help(REACH),
                PeerReason::TaskNotCancelable | PeerReason::Unsupported => {
                    failed(Exit::Conflict).help(ANOTHER)
                }
                PeerReason::VersionNotSupported => failed(Exit::Usage).help(VERSION),
                PeerReason::Other => failed(Exit::Usage),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents are programs of others: what they say is shown, and does not steer the terminal.
    #[test]
    fn what_an_agent_says_steers_no_terminal() {
        let said =
            |text: &str| A2aMessage { parts: vec![A2aPart::text(text)], ..A2aMessage::default() };
        let status = A2aTaskStatus {
            state: A2aState::Working,
            message: Some(said("one\x1b[2J\ntwo")),
            timestamp: String::new(),
        };
        let task = json!({"taskId": "t", "status": status});
        let update: A2aUpdate = serde_json::from_value(json!({"statusUpdate": task})).unwrap();
        assert_eq!(line_of(&update), "working: one\\u{1b}[2J two");
        assert_eq!(line_of(&A2aUpdate::Message(said("\x07"))), "\\u{7}");
        let artifact = json!({"artifactId": "a\r", "parts": [{"text": "b\x1b"}]});
        let artifact = json!({"taskId": "t", "artifact": artifact});
        let update: A2aUpdate =
            serde_json::from_value(json!({"artifactUpdate": artifact})).unwrap();
        assert_eq!(line_of(&update), "artifact a : b\\u{1b}");
        let message = "no\x1b[2J".to_owned();
        let refused = PeerError::Refused { reason: PeerReason::Denied, message };
        assert!(!Failure::from(refused).message.contains('\x1b'));
    }
}
