//! Whoever is not who they say is told so by the command line, at once and with what to change.

use std::process::Command;

use anyhow::{Result, ensure};
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::PATIENCE;

use crate::fleet::{Fleet, with_tails};

/// What a command ends with that is not for its caller.
const NOT_ALLOWED: i32 = 5;

/// PERM-02: a password that is wrong, another's name, another's session, what is for operators, and a pool that is not
/// one's own are no matter of patience.
#[test]
fn whoever_is_not_let_in_is_told_why() -> Result<()> {
    let fleet = Fleet::start()?;
    let done = refused(&fleet);
    with_tails(&fleet, done)
}

fn refused(fleet: &Fleet) -> Result<()> {
    let own = fleet.url("orchestrator-1");
    let wrong = own.replace("secret", "guess");
    let worker = fleet.url("worker-1");
    let list =
        |name, session, at| ["task", "list", "--name", name, "--session", session, "--nats", at];
    let work = |name, pool| ["worker", "--name", name, "--pool", pool, "--nats", &worker];
    let name = ["--name", "orchestrator-1", "--session", "main", "--nats", &own];
    let drain = [&["worker", "drain", "--pool", "default"], &name[..]].concat();
    let told = [
        (list("orchestrator-1", "main", &wrong).to_vec(), "authorization violation"),
        (list("cli", "main", &own).to_vec(), "refuses \""),
        (list("orchestrator-1", "other", &own).to_vec(), "refuses \"tenure.v1.orchestrator.other."),
        (drain, "refuses \"tenure.v1.orchestrator.main.orchestrator-1.drain\""),
        (work("worker", "default").to_vec(), "refuses \""),
        (work("worker-1", "other").to_vec(), "refuses \"tenure.v1.worker.other.worker-1."),
    ];
    for (args, why) in told {
        let mut command = Command::new(tenure()?);
        command.args(&args).current_dir(fleet.dir());
        let ended = Running::start(&mut command)?.end(PATIENCE)?;
        ensure!(ended.status.code() == Some(NOT_ALLOWED), "{args:?}: {ended:?}");
        let says = [why, "--nats-creds", "--name"];
        ensure!(says.iter().all(|it| ended.stderr.contains(it)), "{args:?}: {ended:?}");
    }
    Ok(())
}
