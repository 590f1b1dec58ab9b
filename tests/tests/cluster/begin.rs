//! A scheduler node begins before the servers that it needs, or with servers that it cannot use.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::process::Process;
use tenure_tests::cluster::servers::{Server, free_port};
use tenure_tests::cluster::{PATIENCE, until};

/// What is said of a server that is not there.
const WAITS: &str = "this node waits for ";

fn serve(nats: &str, redis: u16, more: &[&str]) -> Result<Command> {
    let mut command = Command::new(tenure()?);
    let redis = format!("redis://127.0.0.1:{redis}");
    command.args(["serve", "--nats", nats, "--redis", &redis]).args(more);
    command.envs([("TENURE_LOG", "info"), ("TENURE_PARTITIONS", "1")]);
    Ok(command)
}

fn until_said(node: &mut Process, what: &str) -> Result<()> {
    let said = until(what, PATIENCE, || {
        ensure!(node.ended()?.is_none(), "it has ended");
        Ok(node.has_said(what) > 0)
    });
    said.map(|_| ()).with_context(|| node.tail())
}

/// OWN-09: whoever starts a node may start its servers beside it: it waits for each, says so once, and serves
/// as soon as all are there. One that is stopped meanwhile ends at once.
#[test]
fn a_node_that_begins_first_waits_for_its_servers() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let (nats, redis) = (free_port(), free_port());
    let url = format!("nats://127.0.0.1:{nats}");
    let mut node = Process::start("n0", dir.path(), serve(&url, redis, &[])?)?;
    let mut stopped = Process::start("n1", dir.path(), serve(&url, redis, &[])?)?;
    for node in [&mut node, &mut stopped] {
        until_said(node, &format!("{WAITS}nats"))?;
    }
    stopped.signal(Signal::SIGINT)?;
    let status = stopped.end(PATIENCE)?;
    ensure!(status.code() == Some(130), "{status}: {}", stopped.tail());
    let _nats = Server::nats_at(dir.path(), nats)?;
    until_said(&mut node, &format!("{WAITS}redis"))?;
    let _redis = Server::redis_at(dir.path(), redis, &["--save", ""])?;
    until_said(&mut node, "partition served")?;
    ensure!(node.has_said(WAITS) == 2, "{}", node.tail());
    node.signal(Signal::SIGTERM)?;
    let status = node.end(PATIENCE)?;
    ensure!(status.success(), "{status}: {}", node.tail());
    Ok(())
}

/// OWN-09: servers of NATS that are too few to elect a leader are waited for too.
#[test]
fn a_node_waits_for_an_election() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut servers = Server::nats_of_three(dir.path())?;
    let redis = Server::redis(dir.path())?;
    for server in &mut servers[1..] {
        server.process.kill()?;
    }
    let url = format!("nats://127.0.0.1:{}", servers[0].port);
    let command = serve(&url, redis.port, &["--replicas", "3"])?;
    let mut node = Process::start("n0", dir.path(), command)?;
    until_said(&mut node, &format!("{WAITS}the log"))?;
    for server in &mut servers[1..] {
        server.process.restart()?;
    }
    until_said(&mut node, "partition served")?;
    ensure!(node.has_said(WAITS) == 1, "{}", node.tail());
    Ok(())
}

/// What no waiting mends ends the node at once, with what to change.
#[test]
fn a_node_does_not_wait_for_what_cannot_pass() -> Result<()> {
    let dirs = [(); 5].map(|()| tempfile::tempdir());
    let [plain, closed, off, evicts, guarded] = dirs;
    let (plain, closed, off, evicts, guarded) = (plain?, closed?, off?, evicts?, guarded?);
    let login = "authorization { user: ann, password: right }";
    let (good, closed) =
        (Server::nats(plain.path(), "", &[])?, Server::nats(closed.path(), login, &[])?);
    let port = free_port();
    let off = Server::nats_of(off.path(), port, &format!("listen: 127.0.0.1:{port}\n"), &[])?;
    let redis = Server::redis(plain.path())?;
    let evicts = Server::redis_of(evicts.path(), &["--maxmemory-policy", "allkeys-lru"])?;
    let guarded = Server::redis_of(guarded.path(), &["--requirepass", "right"])?;
    let at = |server: &Server| format!("nats://127.0.0.1:{}", server.port);
    let wrong = format!("nats://ann:wrong@127.0.0.1:{}", closed.port);
    for (nats, redis, more, code, says) in [
        (wrong, redis.port, [].as_slice(), 5, "authorization violation"),
        (at(&off), redis.port, &[], 6, "JetStream must be on"),
        (at(&good), evicts.port, &[], 6, "set maxmemory-policy to noeviction"),
        (at(&good), guarded.port, &[], 6, "see that --redis"),
        (
            at(&good).replace("nats:", "tls:"),
            redis.port,
            &["--nats-ca", "nowhere.pem"],
            2,
            "nats at",
        ),
        (at(&good), redis.port, &["--partitions", "2"], 4, "give --partitions 1"),
    ] {
        let ended = run(serve(&nats, redis, more)?, plain.path())?;
        let told = ended.status.code() == Some(code) && ended.stderr.contains(says);
        ensure!(told && !ended.stderr.contains(WAITS), "{says}, {code}: {ended:?}");
    }
    Ok(())
}

fn run(mut command: Command, dir: &Path) -> Result<tenure_tests::binary::Ended> {
    Running::start(command.current_dir(dir))?.end(PATIENCE)
}
