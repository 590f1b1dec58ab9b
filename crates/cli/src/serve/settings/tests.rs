//! What options, the environment and the file say, and what comes of it.

use super::*;

fn read(line: &str) -> Result<Settings, Failure> {
    toml::from_str::<GivenSettings>(line).unwrap().into_settings("b")
}

#[test]
fn numbers_are_taken_at_their_limits_and_refused_over_them() {
    for (name, least, most) in [
        ("partitions", 1, 1_024),
        ("replicas", 1, 5),
        ("lease_ms", LEASE_MS_MIN, 86_400_000),
        ("ownership_ms", OWNERSHIP_MS_MIN, 60_000),
        ("cancel_wait_ms", 100, 600_000),
        ("run_ttl_ms", 1_000, 604_800_000),
        ("steps_max", 1, 100_000),
        ("board_tokens", 100, 100_000),
        ("session_tasks", 1, 1 << 50),
        ("live_bytes", 1 << 20, 1 << 50),
        ("memory", 16 << 20, 1 << 50),
        ("rate_traffic", 64 << 10, 1 << 50),
        ("rate_reports", 1, 1 << 50),
    ] {
        for good in [least, most] {
            read(&format!("{name} = {good}")).unwrap();
        }
        for bad in [least - 1, most + 1] {
            let refused = read(&format!("{name} = {bad}")).unwrap_err();
            assert_eq!(refused.exit, Exit::Usage);
            let option = name.replace('_', "-");
            assert!(refused.message.contains(&format!("--{option} is {bad}")), "{name}");
        }
    }
}

/// OWN-01: a name that cannot stand in subjects, streams and keys is refused.
#[test]
fn the_name_of_the_cluster_is_taken_at_its_longest_and_refused_over_that() {
    let named = |name: &str| read(&format!("cluster = {name:?}"));
    let longest = "B".repeat(64);
    assert_eq!(named(&longest).unwrap().cluster.as_str(), longest);
    for bad in [&*format!("{longest}B"), "", "a.b", "a b", "a*", "ä"] {
        let refused = named(bad).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        let said = &refused.message;
        assert!(said.starts_with("--cluster: ") && said.contains("1 to 64 characters"), "{said}");
    }
}

const SHIPPED: &str = include_str!("../../../../../deploy/tenure.toml");

#[test]
fn the_file_that_is_shipped_shows_every_setting_with_its_default() {
    let as_it_is: GivenSettings = toml::from_str(SHIPPED).unwrap();
    as_it_is.into_settings("b").unwrap();
    for argument in GivenSettings::augment_args(clap::Command::new("serve")).get_arguments() {
        let name = argument.get_id().as_str();
        let is_a_file = name.ends_with("_creds"); // The file says in prose that there is one.
        assert!(is_a_file || SHIPPED.contains(&format!("{name} = ")), "{name} is not there");
    }
    let uncommented = |line: &'static str| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => setting,
        _ => line,
    };
    let all = SHIPPED.lines().map(uncommented).collect::<Vec<_>>().join("\n");
    let all: GivenSettings = toml::from_str(&all).unwrap();
    assert_eq!(all.telemetry.len(), 3);
    // These two have no default to show: a file, and as many bytes as the server has.
    let all = GivenSettings { redis_ca: None, max_bytes: None, ..all }.into_settings("b").unwrap();
    let default = GivenSettings::default().into_settings("b").unwrap();
    let numbers = |of: &Settings| (of.partitions, of.replicas, of.ownership, of.blob_quota);
    assert_eq!(numbers(&all), numbers(&default));
    assert_eq!(all.scheduler.limits, default.scheduler.limits);
    assert_eq!((all.scheduler.live, all.rates), (default.scheduler.live, default.rates));
    assert_eq!(all.cluster, default.cluster);
    assert!(all.node.to_string().starts_with("node-"), "{}", all.node);
}

#[test]
fn what_is_set_is_what_the_scheduler_gets() {
    let set = "cancel_wait_ms = 200\nrun_ttl_ms = 5000\nsteps_max = 7\nboard_tokens = 300";
    let limits = read(set).unwrap().scheduler.limits;
    assert_eq!((limits.cancel_wait_ms, limits.run_ttl_ms), (200, 5_000));
    assert_eq!((limits.steps_max, limits.board_tokens), (7, 300));
    assert!(toml::from_str::<GivenSettings>("bored_tokens = 1").is_err());
    let bounds =
        read("session_bytes = 2000000\nlive_tasks = 9\nrate_creates = 8\nrate_report_bytes = 2048");
    let bounds = bounds.unwrap();
    assert_eq!((bounds.scheduler.live.session_bytes, bounds.scheduler.live.tasks), (2_000_000, 9));
    assert_eq!((bounds.rates.creates, bounds.rates.report_bytes), (8, 2_048));
}

/// The HTTP API is there with an address alone, and has what the same options of `tenure gateway` say.
#[test]
fn a_node_serves_http_if_it_is_told_where() {
    let http = |set: &str| toml::from_str::<GivenSettings>(set).unwrap().http();
    assert!(http("http_cert = \"c\"").unwrap().is_none());
    let at = "http = \"127.0.0.1:8080\"\n";
    let found = http(at).unwrap().unwrap();
    assert_eq!(found.server.tcp, ["127.0.0.1:8080".parse().unwrap()]);
    assert!(matches!(found.login, Login::Address));
    let user = "gateway_user = \"gateway\"\n";
    assert_eq!(http(&format!("{at}{user}")).unwrap_err().exit, Exit::Usage);
    let found = http(&format!("{at}{user}gateway_password = \"s3cret\"")).unwrap().unwrap();
    assert!(matches!(&found.login, Login::Password { user, .. } if user == "gateway"));
    assert!(!format!("{found:?}").contains("s3cret"));
    let refused = http("grpc = \"127.0.0.1:50051\"").unwrap_err();
    let said = if cfg!(feature = "grpc") { "--http" } else { "built without gRPC" };
    assert!(refused.message.contains(said), "{}", refused.message);
    let refused = http(&format!("{at}http_cert = \"c\"")).unwrap_err();
    assert!(refused.message.contains("--http-key"), "{}", refused.message);
}
