//! `tenure session …`: the sessions of a data directory.

use std::collections::BTreeMap;

use clap::Subcommand;
use serde::Serialize;
use tenure_core::id::{Millis, SessionId};

use crate::answer::{Exit, Failure, Shape, Sheet, Tone, human, number, output, text, toned};
use crate::place::{TaskReader, ViewArgs};

/// Sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions of a directory that have tasks, with how many
    List(ViewArgs),
}

#[derive(Serialize)]
struct SessionListing {
    sessions: Vec<ListedSession>,
}

/// A session that has Tasks.
#[derive(Serialize)]
struct ListedSession {
    session_id: SessionId,
    live: usize,
    ended: usize,
    /// Time of the last event of its Tasks.
    updated_at: Millis,
}

pub(crate) fn run(command: SessionCommand) -> Result<Exit, Failure> {
    let SessionCommand::List(args) = command;
    if args.at.is_cluster() {
        let message = "a cluster has no list of its sessions";
        let help = "they are those that have users in the configuration of the NATS server; \
                    --data names a directory, whose sessions are listed";
        return Err(Failure::new(Exit::Usage, message).help(help));
    }
    let data = TaskReader::open(&args.at)?;
    let mut sessions: BTreeMap<SessionId, ListedSession> = BTreeMap::new();
    for entry in data.entries(None)? {
        let id = entry.key.session_id;
        let new = |session_id| ListedSession { session_id, live: 0, ended: 0, updated_at: 0 };
        let session = sessions.entry(id.clone()).or_insert_with(|| new(id));
        *if entry.ended.is_some() { &mut session.ended } else { &mut session.live } += 1;
        session.updated_at = session.updated_at.max(entry.updated_at);
    }
    let listing = SessionListing { sessions: sessions.into_values().collect() };
    let shape = Shape::many("sessions", "session_id");
    args.output.answer(&listing, shape, || print(&listing, &data))
}

fn print(listing: &SessionListing, data: &TaskReader) -> Result<(), Failure> {
    if listing.sessions.is_empty() {
        output::say(format_args!("no task, and so no session, in {}", data.place()));
        return Ok(());
    }
    let mut sheet = Sheet::new(&["SESSION", "LIVE", "ENDED", "CHANGED"]);
    for session in &listing.sessions {
        sheet.row([
            toned(&session.session_id, Tone::Strong),
            number(session.live),
            number(session.ended),
            text(human::local_and_ago(session.updated_at, data.now)),
        ]);
    }
    sheet.print()
}
