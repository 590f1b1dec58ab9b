//! Redis as a cluster of its own, and servers with TLS.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use redis::{Connection, cmd};
use tempfile::TempDir;
use tenure_cluster::leases::RedisOpenError;
use tenure_cluster::{JetStreamJournal, LogSettings, Owned, RedisAt, RedisLeases};
use tenure_core::id::AttemptId;
use tenure_ports::Leases as _;
use tenure_testkit::conformance::leases_suite;

use crate::leases::{lease, owning, wait};
use crate::ownership::{node_at, until};
use crate::servers::{Server, free_port, nats, nats_with, redis};

const SERVERS: usize = 3;

/// Three servers that share all keys.
struct RedisCluster {
    servers: Vec<Server>,
    /// Their ports with TLS, if they have some.
    tls: Vec<String>,
}

impl RedisCluster {
    async fn start() -> Self {
        Self::start_with(None).await
    }

    /// With TLS for clients too, if there are certificates; the servers are known by name then.
    async fn start_with(certificates: Option<&Certificates>) -> Self {
        let one = |_| {
            let (bus, tls) = (free_port().to_string(), free_port().to_string());
            let more = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            let mut more = [&more[..], &["--cluster-node-timeout", "1000"]].concat();
            let paths = certificates.map(|it| it.paths());
            if let Some([ca, cert, key]) = &paths {
                more.extend([
                    "--tls-port",
                    &tls,
                    "--tls-cluster",
                    "yes",
                    "--tls-auth-clients",
                    "no",
                ]);
                more.extend(["--tls-ca-cert-file", ca, "--tls-cert-file", cert]);
                more.extend(["--tls-key-file", key, "--cluster-announce-hostname", "localhost"]);
                more.extend(["--cluster-preferred-endpoint-type", "hostname"]);
            }
            (redis(&more), (bus, certificates.map(|_| tls)))
        };
        type Ports = (String, Option<String>);
        let (servers, ports): (Vec<Server>, Vec<Ports>) = (0..SERVERS).map(one).unzip();
        let tls = ports.iter().filter_map(|(_, tls)| tls.clone()).collect();
        let cluster = Self { servers, tls };
        let slots = 16_384 / SERVERS;
        for at in 0..SERVERS {
            let last = if at + 1 == SERVERS { 16_383 } else { (at + 1) * slots - 1 };
            let mut add = cmd("CLUSTER");
            add.arg("ADDSLOTSRANGE").arg(at * slots).arg(last);
            let () = add.query(&mut cluster.plain(at)).unwrap();
        }
        for (server, (bus, tls)) in cluster.servers.iter().zip(&ports).skip(1) {
            let mut meet = cmd("CLUSTER");
            let port = tls.clone().unwrap_or_else(|| server.port.to_string());
            meet.arg("MEET").arg("127.0.0.1").arg(port).arg(bus);
            let () = meet.query(&mut cluster.plain(0)).unwrap();
        }
        wait(async || (0..SERVERS).all(|at| cluster.is_whole(at))).await;
        cluster
    }

    fn plain(&self, at: usize) -> Connection {
        let url = format!("redis://127.0.0.1:{}", self.servers[at].port);
        redis::Client::open(url).unwrap().get_connection().unwrap()
    }

    /// Whether a server knows of all others and of all slots.
    fn is_whole(&self, at: usize) -> bool {
        let mut plain = self.plain(at);
        let info: String = cmd("CLUSTER").arg("INFO").query(&mut plain).unwrap();
        let slots: Vec<redis::Value> = cmd("CLUSTER").arg("SLOTS").query(&mut plain).unwrap();
        info.contains("cluster_state:ok") && slots.len() == SERVERS
    }

    /// Two of its servers: the third is found.
    fn at(&self) -> RedisAt {
        let [first, second, ..] = &self.servers[..] else { panic!("some servers") };
        let url = format!("redis-cluster://127.0.0.1:{},127.0.0.1:{}", first.port, second.port);
        RedisAt::from(url)
    }

    fn keys_at(&self, at: usize) -> usize {
        cmd("DBSIZE").query(&mut self.plain(at)).unwrap()
    }
}

/// LEASE, mechanisms 6: the keys of a partition lie on one server of a Redis Cluster, whichever it is,
/// and leases there are what they are on one server.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_keeps_leases() {
    let cluster = Arc::new(RedisCluster::start().await);
    let number = std::sync::atomic::AtomicU64::new(0);
    leases_suite(|| {
        let cluster = Arc::clone(&cluster);
        let name = format!("n{}", number.fetch_add(1, std::sync::atomic::Ordering::SeqCst));
        async move {
            let leases = RedisLeases::open(&cluster.at(), &name, owning(1)).await.unwrap();
            (leases, cluster)
        }
    })
    .await;
    let spread: Vec<usize> = (0..SERVERS).map(|at| cluster.keys_at(at)).collect();
    assert!(spread.iter().filter(|keys| **keys > 0).count() > 1, "{spread:?}");
}

/// Each master of a Redis Cluster is asked whether it evicts keys.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_of_which_one_evicts_is_refused() {
    let cluster = RedisCluster::start().await;
    let mut set = cmd("CONFIG");
    set.arg("SET").arg("maxmemory-policy").arg("allkeys-lfu");
    let () = set.query(&mut cluster.plain(2)).unwrap();
    let refused = RedisLeases::open(&cluster.at(), "tenure", owning(1)).await.unwrap_err();
    assert!(
        matches!(&refused, RedisOpenError::Evicts(policy) if policy == "allkeys-lfu"),
        "{refused}"
    );
}

/// Mechanisms 6: while a server is away the leases on the others are renewed, nothing is said to have
/// ended, and all is well again when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_a_redis_cluster_may_be_killed() {
    let mut cluster = RedisCluster::start().await;
    let stays = ["cluster-require-full-coverage", "no"];
    for at in 0..SERVERS {
        let () = cmd("CONFIG").arg("SET").arg(&stays).query(&mut cluster.plain(at)).unwrap();
    }
    let leases = RedisLeases::open(&cluster.at(), "tenure", owning(1)).await.unwrap();
    let renew = async |n| leases.renew(vec![lease(n, 60_000)]).await.is_ok();
    for n in 0..40 {
        assert!(renew(n).await);
    }
    cluster.servers[2].kill();
    let mut reached = 0;
    for n in 0..40 {
        let asked = Instant::now();
        reached += usize::from(renew(n).await);
        assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    }
    assert!((1..40).contains(&reached), "{reached}");
    assert!(leases.expired().await.is_err(), "what is not seen is not judged");
    cluster.servers[2].restart();
    wait(async || {
        let mut all = true;
        for n in 0..40 {
            all &= renew(n).await;
        }
        all
    })
    .await;
    // It kept nothing, and says so: what lives is made again from the log.
    assert!(leases.expired().await.unwrap().doubtful);
}

/// OWN-02 to OWN-05: partitions change hands over a Redis Cluster as over one server.
#[tokio::test(flavor = "multi_thread")]
async fn ownership_lies_on_a_redis_cluster() {
    let (nats, cluster) = (nats(), RedisCluster::start().await);
    let one = node_at(&nats, cluster.at(), "one").await;
    until(Duration::from_secs(10), "a lone node takes everything", || one.owns() == 8).await;
    let two = node_at(&nats, cluster.at(), "two").await;
    until(Duration::from_secs(20), "a second gets its share", || two.owns() >= 2).await;
    drop(one.keeper);
    until(Duration::from_secs(10), "the other takes over", || two.owns() == 8).await;
}

/// Certificates of a server, and of the authority that signed them.
pub(crate) struct Certificates {
    dir: TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two of the same name are taken for one that has signed itself.
        authority.distinguished_name.push(DnType::CommonName, "authority");
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let server = server.signed_by(&key, &authority).unwrap();
        let dir = TempDir::new().unwrap();
        let write = |name: &str, pem: &str| std::fs::write(dir.path().join(name), pem).unwrap();
        write("ca.pem", &authority.pem());
        write("cert.pem", &server.pem());
        write("key.pem", &key.serialize_pem());
        Self { dir }
    }

    /// Of the authority, the server's certificate, and its key.
    fn paths(&self) -> [String; 3] {
        ["ca.pem", "cert.pem", "key.pem"].map(|name| self.path(name))
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }
}

/// A Redis Cluster with TLS is reached by the names that its servers announce.
#[tokio::test(flavor = "multi_thread")]
async fn a_redis_cluster_is_reached_over_tls() {
    let certificates = Certificates::new();
    let cluster = RedisCluster::start_with(Some(&certificates)).await;
    let ca = std::fs::read(certificates.path("ca.pem")).ok();
    let url = format!("rediss-cluster://localhost:{},localhost:{}", cluster.tls[0], cluster.tls[1]);
    let at = RedisAt { url: url.clone(), ca };
    let leases = RedisLeases::open(&at, "tenure", owning(1)).await.unwrap();
    leases.acquire((1..=40).map(|n| lease(n, 60_000)).collect()).await.unwrap();
    let spread = (0..SERVERS).filter(|at| cluster.keys_at(*at) > 0).count();
    assert!(spread > 1, "{spread}");
    let strange = RedisAt::from(url);
    assert!(RedisLeases::open(&strange, "tenure", owning(1)).await.is_err());
}

/// Redis with TLS is reached by who knows its authority, and by nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn redis_is_reached_over_tls() {
    let (certificates, port) = (Certificates::new(), free_port());
    let [ca, cert, key] = certificates.paths();
    let tls_port = port.to_string();
    let _server = redis(&[
        "--tls-port",
        &tls_port,
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        &ca,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
    ]);
    let pem = std::fs::read(&ca).unwrap();
    let open = async |url: String, ca: Option<Vec<u8>>| {
        let at = RedisAt { url, ca };
        RedisLeases::open(&at, "tenure", owning(1)).await
    };
    let with_tls = format!("rediss://localhost:{port}");
    let leases = open(with_tls.clone(), Some(pem.clone())).await.unwrap();
    leases.acquire(vec![lease(1, 60_000)]).await.unwrap();
    assert!(leases.left_ms(AttemptId(uuid::Uuid::from_u128(1))).is_some());
    for (url, ca) in [
        (with_tls.clone(), None),
        (with_tls.clone(), std::fs::read(Certificates::new().path("ca.pem")).ok()),
        (format!("rediss://127.0.0.1:{port}"), Some(pem.clone())), // Not the name in the certificate.
        (format!("redis://localhost:{port}"), None),
        (format!("redis://localhost:{port}"), Some(pem)),
    ] {
        let is_plain = url.starts_with("redis:") && ca.is_none();
        let refused = open(url, ca).await.unwrap_err();
        // What is told wrong, and what a server shows of itself, does not change with time.
        assert_eq!(refused.passes(), is_plain, "{refused:?}");
        assert_eq!(matches!(refused, RedisOpenError::Refused(_)), !is_plain, "{refused:?}");
    }
}

/// A Redis that does not let a node in is told from one that is away: no waiting helps.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_redis_refuses_does_not_pass() {
    let (one, bus) = (redis(&["--requirepass", "right"]), free_port().to_string());
    let cluster =
        redis(&["--requirepass", "right", "--cluster-enabled", "yes", "--cluster-port", &bus]);
    let open = async |url: String| {
        RedisLeases::open(&RedisAt::from(url), "tenure", owning(1)).await.unwrap_err()
    };
    for login in ["", ":wrong@", "ann:wrong@"] {
        for (scheme, port) in [("redis", one.port), ("redis-cluster", cluster.port)] {
            let refused = open(format!("{scheme}://{login}127.0.0.1:{port}")).await;
            assert!(matches!(refused, RedisOpenError::Refused(_)), "{scheme} {login}: {refused:?}");
        }
    }
    for scheme in ["redis", "redis-cluster"] {
        let away = open(format!("{scheme}://127.0.0.1:{}", free_port())).await;
        assert!(away.passes(), "{scheme}: {away:?}");
    }
}

/// NATS with `deploy/nats/tls.conf` is reached by who knows its authority, and by nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn nats_is_reached_over_tls() {
    let certificates = Certificates::new();
    let variables = [("CERT", "cert.pem"), ("KEY", "key.pem"), ("CA", "ca.pem")];
    let set =
        |(variable, file)| format!("TENURE_NATS_{variable}: \"{}\"\n", certificates.path(file));
    let variables: String = variables.into_iter().map(set).collect();
    let tls = include_str!("../../../../deploy/nats/tls.conf");
    let server = nats_with(&format!("{variables}{tls}"));
    let options = || async_nats::ConnectOptions::new().max_reconnects(1);
    let at = |name: &str| format!("tls://{name}:{}", server.port);
    let known = options().add_root_certificates(certificates.path("ca.pem").into());
    let client = known.connect(at("localhost")).await.unwrap();
    let journal = JetStreamJournal::open(client, LogSettings::default()).await.unwrap();
    assert_eq!(journal.owned().all(), Owned::none(8).all());
    let strange = options().add_root_certificates(Certificates::new().path("ca.pem").into());
    assert!(strange.connect(at("localhost")).await.is_err(), "another authority");
    assert!(options().connect(at("localhost")).await.is_err(), "no authority");
    let known = options().add_root_certificates(certificates.path("ca.pem").into());
    assert!(known.connect(at("127.0.0.1")).await.is_err(), "another name");
    let open_line = options().connect(format!("nats://localhost:{}", server.port)).await;
    assert!(open_line.is_err(), "no TLS");
}
