//! `tenure wal …`: the logs themselves.

mod describe;
mod export;
mod import;
mod replay;
mod show;
mod verify;

use clap::Subcommand;
use serde::Serialize;
use tenure_core::id::SessionId;
use tenure_ports::journal::TaskKey;

use crate::cli::answer::{Exit, Failure};

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

pub(super) fn run(command: WalCommand) -> Result<Exit, Failure> {
    match command {
        WalCommand::Show(args) => show::run(&args),
        WalCommand::Verify(args) => verify::run(&args),
        WalCommand::Replay(args) => replay::run(&args),
        WalCommand::Export(args) => export::run(&args),
        WalCommand::Import(args) => import::run(&args),
    }
}

/// A Task of several with which something did not work: the others are gone on with.
#[derive(Debug, Serialize)]
struct Failed {
    session_id: SessionId,
    task_id: String,
    /// What the command would end with if this were all.
    exit_code: u8,
    message: String,
}

/// What did not work.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
struct Failures {
    all: Vec<Failed>,
    #[serde(skip)]
    worst: Option<Exit>,
}

impl Failures {
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Says at once what is wrong, and notes it.
    fn add(&mut self, key: &TaskKey, failure: Failure) {
        let mut told = failure.clone();
        told.message = format!("{key}: {}", failure.message);
        told.tell(false);
        let (session_id, task_id) = (key.session_id.clone(), key.task_id.to_string());
        let (exit_code, message) = (failure.exit as u8, failure.message);
        self.all.push(Failed { session_id, task_id, exit_code, message });
        self.worst = self.worst.max(Some(failure.exit));
    }

    /// What the command ends with: the highest of all.
    fn exit(&self) -> Exit {
        self.worst.unwrap_or(Exit::Ok)
    }
}
