//! What `deploy` has for NATS and Redis, on the servers themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use redis::cmd;
use tempfile::TempDir;
use tenure_cluster::{RedisAt, RedisLeases};
use tenure_ports::Leases as _;

use crate::leases::{lease, owning, wait};
use crate::redis_at::Certificates;
use crate::servers::{Server, find, free_port, redis_of};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The configurations in a folder of `deploy`.
fn configurations(folder: &str) -> Vec<PathBuf> {
    let dir = root().join("deploy").join(folder).canonicalize().unwrap();
    let all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let all: Vec<PathBuf> = all.filter(|path| path.extension() == Some("conf".as_ref())).collect();
    assert!(!all.is_empty(), "{folder}");
    all
}

/// Variables that a configuration of NATS takes from the environment, also by what it includes.
fn variables(file: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let said = text(file);
    for line in said.lines().filter(|line| !line.trim_start().starts_with('#')) {
        if let Some(included) = line.strip_prefix("include ") {
            found.extend(variables(&file.with_file_name(included)));
        }
        for name in line.split("$TENURE_").skip(1) {
            let end = name.find(|c: char| !c.is_ascii_uppercase() && c != '_');
            found.insert(format!("TENURE_{}", &name[..end.unwrap_or(name.len())]));
        }
    }
    found
}

/// What the server has against a configuration with these variables, and with `others` as they are said.
fn refusal(
    file: &Path,
    variables: &BTreeSet<String>,
    certificates: &Certificates,
    others: &[(&str, &str)],
) -> Option<String> {
    let mut command = Command::new(find("TENURE_NATS_SERVER", "nats-server"));
    command.arg("-t").arg("-c").arg(file);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    for name in variables {
        let value = match name.strip_prefix("TENURE_NATS_") {
            Some("CERT") => certificates.path("cert.pem"),
            Some("KEY") => certificates.path("key.pem"),
            Some("CA") => certificates.path("ca.pem"),
            Some(route @ ("ROUTE_A" | "ROUTE_B" | "ROUTE_C")) => {
                format!("nats-route://route:secret@{}:6222", route.replace('_', "-"))
            }
            _ => format!("word-of-{name}"),
        };
        command.env(name, format!("\"{value}\""));
    }
    command.envs(others.iter().map(|(name, value)| (*name, *value)));
    let ended = command.output().unwrap();
    (!ended.status.success()).then(|| String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// Every configuration of NATS is one, with its variables set and with none of them missing.
#[test]
fn nats_takes_each_configuration_with_its_variables() {
    let certificates = Certificates::new();
    for file in configurations("nats") {
        let variables = variables(&file);
        assert_eq!(refusal(&file, &variables, &certificates, &[]), None, "{}", file.display());
    }
    // It includes all others but `local.conf`.
    let cluster = root().join("deploy/nats/cluster.conf").canonicalize().unwrap();
    let all = variables(&cluster);
    assert_eq!(all.len(), 17, "{all:?}");
    for missing in &all {
        let mut less = all.clone();
        less.remove(missing);
        let refused = refusal(&cluster, &less, &certificates, &[]);
        assert!(refused.is_some_and(|why| why.contains(missing)), "{missing} is not needed");
    }
}

/// PERM-02: a password that is empty would let everybody in, so the server does not start with it, however nothing is
/// written. Two roles with the same password are a mistake, too.
#[test]
fn nats_does_not_start_with_an_empty_password() {
    let certificates = Certificates::new();
    let file = root().join("deploy/nats/local.conf").canonicalize().unwrap();
    let all = variables(&file);
    let passwords: Vec<&String> = all.iter().filter(|it| it.ends_with("_PASSWORD")).collect();
    assert_eq!(passwords.len(), 8, "{passwords:?}");
    for name in &passwords {
        for empty in ["", "  ", "\"\"", "''", " \"\" # none"] {
            let refused = refusal(&file, &all, &certificates, &[(name.as_str(), empty)]);
            assert!(refused.is_some_and(|why| why.contains("requires a user")), "{name}={empty:?}");
        }
    }
    let same = [(passwords[0].as_str(), "\"same\""), (passwords[1].as_str(), "\"same\"")];
    assert!(refusal(&file, &all, &certificates, &same).is_some());
}

/// `deploy/passwords` prints a password for each role, and the compose file hands all on.
#[test]
fn passwords_and_the_compose_file_have_all_that_nats_takes() {
    let needed = variables(&root().join("deploy/nats/local.conf"));
    let printed = Command::new(root().join("deploy/passwords")).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let mut given: BTreeSet<String> = BTreeSet::new();
    for line in printed.lines() {
        let (name, secret) = line.split_once('=').unwrap();
        let (first, length) = match name {
            "TENURE_TOKEN" => ("t", 65),
            "TENURE_TOKEN_SHA256" | "TENURE_REDIS_SHA256" => ("", 64),
            _ => ("p", 33),
        };
        assert!(secret.starts_with(first) && secret.len() == length, "{name}");
        given.insert(name.to_owned());
    }
    let passwords = needed.iter().filter(|name| name.ends_with("_PASSWORD"));
    let others =
        ["TENURE_REDIS_PASSWORD", "TENURE_REDIS_SHA256", "TENURE_TOKEN", "TENURE_TOKEN_SHA256"];
    assert_eq!(passwords.cloned().chain(others.map(String::from)).collect::<BTreeSet<_>>(), given);
    let compose = text(&root().join("docker-compose.yml"));
    for name in &needed {
        assert!(compose.contains(&format!("\n      {name}: ")), "the compose file lacks {name}");
    }
}

/// The services of a compose file, each with the networks that it is in.
fn networks_of(compose: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (mut services, mut service) = (BTreeMap::new(), String::new());
    let lines = compose.lines().skip_while(|line| *line != "services:").skip(1);
    for line in lines.take_while(|line| line.is_empty() || line.starts_with(' ')) {
        let name = line.strip_prefix("  ").and_then(|line| line.strip_suffix(':'));
        if let Some(name) = name.filter(|name| !name.starts_with(' ')) {
            service = name.to_owned();
            services.insert(service.clone(), BTreeSet::from(["default".to_owned()]));
        } else if let Some(list) = line.strip_prefix("    networks: [") {
            let names = list.trim_end_matches(']').split(", ").map(str::to_owned);
            services.insert(service.clone(), names.collect());
        }
    }
    services
}

/// The commands of workers reach NATS and the collector, which ask who comes or take what anybody says, and neither
/// the leases nor what stores metrics, traces and logs.
#[test]
fn workers_of_the_compose_file_reach_no_store() {
    let mut services = networks_of(&text(&root().join("docker-compose.yml")));
    services.extend(networks_of(&text(&root().join("deploy/grafana/compose.yml"))));
    let near = services.iter().filter(|(_, networks)| !networks.is_disjoint(&services["worker"]));
    let near: Vec<&str> = near.map(|(name, _)| name.as_str()).collect();
    assert_eq!(near, ["collector", "gateway", "nats", "scheduler", "worker"]);
    assert_eq!(services.len(), 10, "{services:?}");
}

/// A file with passwords can be read by its owner alone, and one that is there is not written over.
#[test]
fn passwords_are_for_their_owner_alone() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join(".env");
    let make = || Command::new(root().join("deploy/passwords")).arg(&file).output().unwrap();
    let made = make();
    assert!(made.status.success() && made.stdout.is_empty(), "{made:?}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let first = text(&file);
    assert!(!make().status.success());
    assert_eq!(text(&file), first);
}

/// LEASE: Redis of the compose file lets in schedulers with their password, and nobody else, who could stop the
/// cluster.
#[tokio::test(flavor = "multi_thread")]
async fn redis_of_the_compose_file_lets_in_schedulers_alone() {
    let compose = text(&root().join("docker-compose.yml"));
    let users = compose.lines().skip_while(|line| *line != "  users.acl:").skip(2);
    let users: Vec<&str> = users.map_while(|line| line.strip_prefix("      ")).collect();
    let digest = "${TENURE_REDIS_SHA256:?run deploy/passwords .env}";
    let word = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"; // Of "password".
    let (etc, port) = (TempDir::new().unwrap(), free_port());
    let acl = etc.path().join("users.acl");
    std::fs::write(&acl, users.join("\n").replace(digest, word) + "\n").unwrap();
    let number = port.to_string();
    let arguments = ["--port", &number, "--bind", "127.0.0.1", "--aclfile", acl.to_str().unwrap()];
    let _server = redis_as_deployed(etc.path(), "redis.conf", port, &arguments);
    let url = |login: &str| format!("redis://{login}127.0.0.1:{port}");
    let at = RedisAt::from(url("tenure:password@"));
    let leases = RedisLeases::open(&at, "tenure", owning(1)).await.unwrap();
    leases.acquire(vec![lease(1, 600_000)]).await.unwrap();
    for stranger in ["", "tenure:wrong@", "default:password@"] {
        let refused = redis::Client::open(url(stranger)).unwrap().get_connection();
        let refused =
            refused.and_then(|mut it| cmd("SET").arg("tenure:x").arg(1).query::<()>(&mut it));
        assert!(refused.is_err(), "{stranger}");
    }
}

/// Starts Redis with a configuration of `deploy`, whose files are in `etc` instead of /etc/redis, and
/// which keeps its log where it is started.
fn redis_as_deployed(etc: &Path, file: &str, port: u16, more: &[&str]) -> Server {
    for path in configurations("redis") {
        let said = text(&path).replace("/etc/redis", etc.to_str().unwrap());
        let said = said.replace("dir /var/lib/redis", "dir .");
        std::fs::write(etc.join(path.file_name().unwrap()), said).unwrap();
    }
    redis_of(&etc.join(file), port, more)
}

/// LEASE: Redis as it is deployed evicts nothing, and keeps leases over a restart.
#[tokio::test(flavor = "multi_thread")]
async fn redis_keeps_leases_as_it_is_deployed() {
    let (etc, port) = (TempDir::new().unwrap(), free_port());
    let number = port.to_string();
    let arguments = ["--port", &number, "--bind", "127.0.0.1"];
    let mut server = redis_as_deployed(etc.path(), "redis.conf", port, &arguments);
    let url = format!("redis://127.0.0.1:{port}");
    let leases = RedisLeases::open(&RedisAt::from(url.clone()), "tenure", owning(1)).await.unwrap();
    leases.acquire(vec![lease(1, 600_000)]).await.unwrap();
    let keys = || {
        let mut plain = redis::Client::open(url.clone()).unwrap().get_connection().unwrap();
        cmd("DBSIZE").query::<usize>(&mut plain)
    };
    let before = keys().unwrap();
    assert!(before > 0);
    server.kill();
    server.restart();
    wait(async || keys().is_ok()).await; // It listens before it has read what it kept.
    assert_eq!(keys().unwrap(), before);
}

/// A server of a Redis Cluster, and a Sentinel, start as they are deployed, wherever they are started.
#[test]
fn redis_takes_the_configurations_of_a_cluster_and_of_sentinel() {
    let certificates = Certificates::new();
    let (port, bus) = (free_port(), free_port().to_string());
    let number = port.to_string();
    let arguments = ["--tls-port", &number, "--cluster-port", &bus, "--bind", "127.0.0.1"];
    redis_as_deployed(certificates.dir(), "cluster.conf", port, &arguments);

    let (etc, port) = (TempDir::new().unwrap(), free_port());
    redis_as_deployed(
        etc.path(),
        "sentinel.conf",
        port,
        &["--sentinel", "--port", &port.to_string()],
    );
}
