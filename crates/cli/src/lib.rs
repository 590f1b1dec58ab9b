//! The command line: its commands, and which module runs each.
//!
//! A noun is a folder here, and a verb a file in it: `tenure worker list` is `worker/list.rs`.
//! Verbs that change a Task or a Step in the same way share one (`task/life.rs`, `step/change.rs`).
//! A command without a noun is a file or a folder of its own name. All of them use two modules:
//! [`place`] opens a directory or a cluster, and [`answer`] writes their output. Several commands
//! share the others: [`filter`] selects from lists, [`order`] sends a command to a Task, [`show`]
//! shows a running Task, [`request`] reads a task file, [`runtime`] and [`telemetry`] belong to the
//! process.

mod a2a;
mod agent;
mod answer;
mod attempt;
mod completions;
mod dev;
mod dispatch;
mod doctor;
mod filter;
mod gateway;
mod inbox;
mod instance;
mod lease;
mod line_limit;
mod logs;
mod man;
mod mcp;
mod metrics;
mod order;
mod place;
mod pool;
mod request;
mod run;
mod runs;
mod runtime;
mod schema;
mod secrets;
mod serve;
mod session;
mod show;
mod step;
mod submit;
mod task;
mod telemetry;
#[cfg(test)]
mod tests;
mod tools;
mod top;
mod wal;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use self::telemetry::TelemetryArgs;

/// Run DAGs of steps durably: every step that completed stays completed, whatever dies.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = AFTER_HELP)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 the task or run failed, 2 wrong usage or a bad file, 3 not found, 4 conflict,
5 not allowed, 6 timeout, storage or data directory unavailable, 130 interrupted.

Set TENURE_LOG to see what the scheduler does, for example TENURE_LOG=debug.";

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run a task file to its end, in this process, with no server
    Run(run::RunArgs),
    /// Run a scheduler on a directory, a worker and the HTTP API, with no server
    Dev(Box<dev::DevArgs>),
    /// Hand a task file to a cluster, or to what `tenure dev` runs
    Submit(submit::SubmitArgs),
    /// Run a scheduler node of a cluster: tasks in NATS JetStream, leases in Redis
    Serve(Box<serve::ServeArgs>),
    /// Let programs reach a cluster over HTTP
    Gateway(Box<gateway::GatewayRunArgs>),
    /// Run steps of a pool for a cluster, list workers, or tell some to leave
    Worker(worker::WorkerArgs),
    /// Dispatch a run: a licence for one worker to claim one step
    Dispatch(dispatch::DispatchArgs),
    /// Look at tasks
    #[command(subcommand)]
    Task(task::TaskCommand),
    /// Show what happens to a task, until it has ended: `task watch`
    Watch(task::WatchArgs),
    /// Look at the steps of a task
    #[command(subcommand)]
    Step(step::StepCommand),
    /// Look at the attempts of a task
    #[command(subcommand)]
    Attempt(attempt::AttemptCommand),
    /// Print what the commands of a task wrote, while they run too
    Logs(logs::LogsArgs),
    /// Look at the sessions of a directory
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Look at runs, the licences to claim a step, or cancel one
    #[command(subcommand)]
    Runs(runs::RunsCommand),
    /// Show what waits for somebody, with the command that answers it
    Inbox(inbox::InboxArgs),
    /// Look into the logs, the only truth
    #[command(subcommand)]
    Wal(wal::WalCommand),
    /// Look at the pools of a cluster
    #[command(subcommand)]
    Pool(pool::PoolCommand),
    /// Look at the leases of a cluster
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Look at the agents that a gateway lets speak A2A
    #[command(subcommand)]
    Agent(agent::AgentCommand),
    /// Serve models over MCP on the standard streams
    Mcp(Box<mcp::McpArgs>),
    /// Speak to an agent elsewhere over A2A
    #[command(subcommand)]
    A2a(a2a::A2aCommand),
    /// Look at what a cluster runs on, and say what to change
    Doctor(Box<doctor::DoctorArgs>),
    /// Watch a cluster: nodes, pools, workers, and what has run longest
    Top(Box<top::TopArgs>),
    /// Print the JSON Schema of task files, or of operations
    Schema {
        /// What it describes
        #[arg(value_enum, default_value = "task-file")]
        of: schema::Described,
    },
    /// Print the completions for a shell
    Completions { shell: Shell },
    /// Write the manual, a page for each command
    Man {
        /// Directory for the pages; it is made if need be
        dir: PathBuf,
    },
}

/// Reads the command line and runs the command.
pub fn main() -> ExitCode {
    let hidden = runtime::hide_environment();
    let given = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&given).unwrap_or_else(|error| error.exit());
    let telling = telemetry::start(cli.command.told());
    if let Err(error) = hidden {
        tracing::warn!(%error, "commands of steps can read the environment of this process");
    }
    let telemetry = telling.telemetry.as_ref();
    let ended = match cli.command {
        CliCommand::Run(args) => run::run(args, telemetry),
        CliCommand::Dev(args) => dev::run(&args, telemetry),
        CliCommand::Submit(args) => submit::run(args),
        CliCommand::Serve(args) => serve::run(*args, telemetry),
        CliCommand::Gateway(args) => gateway::run(&args),
        CliCommand::Worker(args) => worker::run(&args, telemetry),
        CliCommand::Dispatch(args) => dispatch::run(&args),
        CliCommand::Task(command) => task::run(command),
        CliCommand::Watch(args) => task::watch(&args),
        CliCommand::Step(command) => step::run(command),
        CliCommand::Attempt(command) => attempt::run(command),
        CliCommand::Logs(args) => logs::run(&args),
        CliCommand::Runs(command) => runs::run(command),
        CliCommand::Session(command) => session::run(command),
        CliCommand::Inbox(args) => inbox::run(&args),
        CliCommand::Wal(command) => wal::run(command),
        CliCommand::Pool(command) => pool::run(command),
        CliCommand::Lease(command) => lease::run(command),
        CliCommand::Agent(command) => agent::run(&command),
        CliCommand::Mcp(args) => mcp::run(&args, telemetry),
        CliCommand::A2a(command) => a2a::run(&command),
        CliCommand::Doctor(args) => doctor::run(*args),
        CliCommand::Top(args) => top::run(&args),
        CliCommand::Schema { of } => schema::run(of),
        CliCommand::Completions { shell } => completions::run(shell, Cli::command()),
        CliCommand::Man { dir } => man::run(&dir, Cli::command()),
    };
    let exit = match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            failure.tell(wants_json(&given));
            failure.exit.into()
        }
    };
    telling.end(); // Outside of every runtime.
    exit
}

/// Whether any command was given `-o json` or `jsonl`.
fn wants_json(given: &ArgMatches) -> bool {
    if let Some((_, below)) = given.subcommand() {
        return wants_json(below);
    }
    let format = given.try_get_raw("output").ok().flatten().and_then(|mut given| given.next());
    format.is_some_and(|format| format == "json" || format == "jsonl")
}

impl CliCommand {
    /// The log and telemetry of the command.
    fn told(&self) -> TelemetryArgs {
        match self {
            Self::Serve(args) => TelemetryArgs {
                log: Some("info"),
                format: args.log.log_format,
                serves: true,
                service: Some("tenure-scheduler"),
                instance: Some(args.node.boot_name()),
                name: args.node.name(),
                serves_metrics: true,
                metrics: args.node.metrics().metrics,
                variables: args.node.telemetry(),
                ..TelemetryArgs::default()
            },
            Self::Worker(args) => TelemetryArgs {
                log: Some("warn"),
                format: args.log_format(),
                serves: args.runs(),
                service: args.runs().then_some("tenure-worker"),
                instance: Some(args.id()),
                name: args.given_name(),
                serves_metrics: args.runs(),
                metrics: args.metrics().metrics,
                ..TelemetryArgs::default()
            },
            Self::Run(_) => {
                TelemetryArgs { service: Some("tenure-run"), ..TelemetryArgs::default() }
            }
            Self::Dev(_) => TelemetryArgs {
                log: Some("warn"),
                service: Some("tenure-dev"),
                ..TelemetryArgs::default()
            },
            Self::Mcp(_) => TelemetryArgs {
                log: Some("warn"),
                service: Some("tenure-mcp"),
                ..TelemetryArgs::default()
            },
            Self::Gateway(args) => TelemetryArgs {
                log: Some("info"),
                format: args.log.log_format,
                serves: true,
                service: Some("tenure-gateway"),
                name: args.given_name(),
                ..TelemetryArgs::default()
            },
            Self::Top(_) => TelemetryArgs { shows_silences: true, ..TelemetryArgs::default() },
            // All other commands print something, or do one thing, and end.
            _ => TelemetryArgs::default(),
        }
    }
}
