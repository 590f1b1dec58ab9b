//! `tenure wal …`: the logs themselves.

mod describe;
mod export;
mod failures;
mod import;
mod replay;
mod show;
mod verify;

use clap::Subcommand;

use crate::answer::{Exit, Failure};

/// Logs.
#[derive(Debug, Subcommand)]
pub(crate) enum WalCommand {
    /// Print the events of a task, as they happened
    Show(show::ShowArgs),
    /// Check a log, or all of them: every line, and that they can be replayed
    Verify(verify::VerifyArgs),
    /// Show a task as it was after one of its events
    Replay(replay::ReplayArgs),
    /// Write logs of a cluster into a data directory
    Export(export::ExportArgs),
    /// Bring tasks of a data directory into a cluster; live ones go on there at once
    Import(import::ImportArgs),
}

pub(crate) fn run(command: WalCommand) -> Result<Exit, Failure> {
    match command {
        WalCommand::Show(args) => show::run(&args),
        WalCommand::Verify(args) => verify::run(&args),
        WalCommand::Replay(args) => replay::run(&args),
        WalCommand::Export(args) => export::run(&args),
        WalCommand::Import(args) => import::run(&args),
    }
}
