//! Logs of a cluster out and in: one that is damaged keeps no other from it, and one may be long.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/cluster.rs"]
mod cluster;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use cluster::Cluster;
use nix::sys::signal::Signal;
use serde_json::Value;
use tenure_ports::journal::TaskKey;
use tenure_wire::stored::frame::{CommitHead, FRAME_VERSION, Header, encode_header};

/// Partitions of a cluster of which nothing else is said.
const PARTITIONS: u32 = 8;

/// Bytes of the input of each Step of a long log, and how many of them take more than 64 MiB.
const INPUT: usize = 60_000;
const STEPS: usize = 1_200;

fn names<'a>(report: &'a Value, field: &str) -> Vec<&'a str> {
    let items = report[field].as_array().unwrap().iter();
    items.map(|item| item["task_id"].as_str().unwrap()).collect()
}

/// Writes a frame that leaves a gap in the history of a Task, while nobody owns its partition.
fn damage(cluster: &mut Cluster, task: &str) {
    let node = cluster.node.take().unwrap();
    node.signal(Signal::SIGTERM);
    node.end();
    let key = TaskKey { session_id: "default".parse().unwrap(), task_id: task.parse().unwrap() };
    let head = CommitHead {
        session_id: key.session_id.clone(),
        task_id: key.task_id.clone(),
        first_seq: 1_000,
        last_seq: 1_000,
        created_at: 0,
        prev: 1,
        len: 0,
        named: None,
        ended: None,
        failed_as: None,
        archived: false,
    };
    let header = Header::Commits { version: FRAME_VERSION, epoch: 1, commits: vec![head] };
    let frame = encode_header(&header, 0).unwrap();
    let subject = format!("tenure.wal.{}", key.partition(PARTITIONS));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let nats = async_nats::connect(cluster.url()).await.unwrap();
        let store = async_nats::jetstream::new(nats);
        store.publish(subject, frame.into()).await.unwrap().await.unwrap();
    });
    cluster.serve();
}

/// RECOVER-04, STORE-15: what is damaged is named, and everything else is written, checked and brought back.
/// The exit code is that of the worst.
#[test]
fn one_damaged_task_keeps_no_other_from_being_saved() {
    let mut cluster = Cluster::start();
    for task in ["first", "bad", "last"] {
        cluster.submit(task, "steps: {a: {noop: true}}", &[]).with(0);
    }
    damage(&mut cluster, "bad");
    let checking = cluster.begin(&["wal", "verify", "-o", "json"]);
    let export = cluster.tenure(&["wal", "export", "--all", "--to", "out", "-o", "json"]).with(6);
    let written = export.saying("error: default/bad: ").json();
    let mut there = names(&written, "logs");
    there.sort_unstable();
    assert_eq!((there, names(&written, "failed")), (vec!["first", "last"], vec!["bad"]));
    assert_eq!(written["failed"][0]["exit_code"], 6, "{written}");
    let checked = checking.end().with(6).json();
    assert_eq!((&checked["ok"], &checked["checked"]), (&false.into(), &2.into()), "{checked}");
    assert_eq!(names(&checked, "failed"), ["bad"], "{checked}");

    // A file that is damaged, beside one that is not.
    let file = cluster.place.path("out/tasks/default/first.wal.jsonl");
    let lines = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, lines.replace("\"crc\":", "\"crc\":1")).unwrap();
    let other = Cluster::start();
    let out = cluster.place.path("out");
    let import = ["wal", "import", out.to_str().unwrap(), "--all", "-o", "json"];
    let brought = other.tenure(&import).with(6).saying("bad checksum").json();
    assert_eq!(
        (names(&brought, "tasks"), names(&brought, "failed")),
        (vec!["last"], vec!["first"])
    );
    let import = ["wal", "import", out.to_str().unwrap(), "first", "last"];
    let told = other.tenure(&import).with(6);
    assert!(told.stdout.contains("default/last  was there already"), "{told:#?}");
    // In a directory that has another history of one, the others are written.
    std::fs::write(&file, lines.replace("\"first\"", "\"tsrif\"")).unwrap();
    let export = ["wal", "export", "first", "last", "--to", "out", "-o", "json"];
    let written = cluster.tenure(&export).with(4).saying("another history").json();
    assert_eq!(names(&written, "logs"), ["last"]);
}

/// LIVE-01: the log of a live Task is refused where its session has as many as it may; that of an ended one is not.
#[test]
fn a_session_that_has_its_tasks_takes_in_ended_ones() {
    let cluster = Cluster::start();
    for task in ["live", "other", "ended"] {
        cluster.submit(task, "steps: {a: {handler: work}}", &[]).with(0);
    }
    cluster.tenure(&["task", "cancel", "ended"]).with(0);
    cluster.tenure(&["wal", "export", "--all", "--to", "out"]).with(0);
    let (other, out) = (Cluster::start_with(&["--session-tasks", "1"]), cluster.place.path("out"));
    let import = |task: &str| other.tenure(&["wal", "import", out.to_str().unwrap(), task]);
    import("live").with(0);
    import("other").with(4).saying("quota_exceeded");
    import("ended").with(0);
    other.tenure(&["task", "get", "other"]).with(3);
}

/// Mechanisms 10: a Task may have 100,000 Steps; its log is taken in however it was written.
#[test]
fn a_log_of_more_than_64_mebibytes_goes_out_and_in() {
    // On a busy machine it takes longer than most may.
    let tenure = |cluster: &Cluster, args: &[&str]| cluster.begin(args).end().with(0);
    let cluster = Cluster::start();
    let input = "x".repeat(INPUT);
    let step = format!("{{repeat: {STEPS}, handler: work, input: {{text: {input}}}}}");
    cluster.place.file("long.yaml", format!("task_id: long\nsteps: {{w: {step}}}\n"));
    tenure(&cluster, &["submit", "long.yaml"]);
    let export = ["wal", "export", "long", "--to", "out", "-o", "json"];
    let written = tenure(&cluster, &export).json();
    assert!(written["bytes"].as_u64().unwrap() > 64 << 20, "{}", written["bytes"]);
    let out = cluster.place.path("out");
    let other = Cluster::start();
    let import = ["wal", "import", out.to_str().unwrap(), "long", "-o", "json"];
    // On a machine with slow memory the first answer may be lost: then it is there already when asked again.
    let brought = tenure(&other, &import).json();
    assert_eq!(brought["tasks"][0]["version"], brought["events"], "{brought}");
    tenure(&other, &["task", "get", "long"]);
    let again = tenure(&other, &import).json();
    assert_eq!(again["tasks"][0]["unchanged"], true, "{again}");
}

/// VALUE-01: what is too large for a log goes out and in with it. A log whose blob is not there is not taken
/// in.
#[test]
fn large_values_go_out_and_in() {
    let cluster = Cluster::start();
    let input = "x".repeat(100_000);
    let file =
        format!("task_id: large\nsteps: {{a: {{handler: work, input: {{text: {input}}}}}}}\n");
    cluster.place.file("large.yaml", file);
    cluster.tenure(&["submit", "large.yaml"]).with(0);
    let shows = |cluster: &Cluster| {
        let shown = cluster.tenure(&["step", "get", "large", "a", "-o", "json"]).with(0).json();
        let data = shown["step"]["input"]["data"].as_str().unwrap().to_owned();
        assert_eq!(data, format!("{{\"text\":\"{input}\"}}"));
    };
    shows(&cluster);
    cluster.tenure(&["wal", "export", "large", "--to", "out"]).with(0);
    let blobs = cluster.place.path("out/blobs/default/large");
    assert_eq!(std::fs::read_dir(&blobs).unwrap().count(), 1);
    let out = cluster.place.path("out");
    let other = Cluster::start();
    let import = ["wal", "import", out.to_str().unwrap(), "large"];
    let kept = cluster.place.path("kept");
    std::fs::rename(&blobs, &kept).unwrap();
    other.tenure(&import).with(4).saying("is not there, or is damaged");
    std::fs::rename(&kept, &blobs).unwrap();
    other.tenure(&import).with(0);
    shows(&other);
    let again = other.tenure(&import).with(0);
    assert!(again.stdout.contains("was there already"), "{again:#?}");
}

/// A data directory may come from elsewhere: no log is written or read behind a link in it.
#[test]
fn no_log_goes_out_or_in_through_a_link() {
    use std::os::unix::fs::symlink;
    let cluster = Cluster::start();
    cluster.submit("t", "steps: {a: {noop: true}}", &[]).with(0);
    cluster.tenure(&["wal", "export", "t", "--to", "real"]).with(0);
    for level in ["tasks", "tasks/default"] {
        let precious = tempfile::tempdir().unwrap();
        let link = cluster.place.path("out").join(level);
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(precious.path(), &link).unwrap();
        let said = format!("{level} is no regular directory");
        cluster.tenure(&["wal", "export", "t", "--to", "out"]).with(6).saying(&said);
        assert_eq!(std::fs::read_dir(precious.path()).unwrap().count(), 0, "{level}");

        std::fs::remove_file(&link).unwrap();
        symlink(cluster.place.path("real").join(level), &link).unwrap();
        let out = cluster.place.path("out");
        for what in ["t", "--all"] {
            let import = ["wal", "import", out.to_str().unwrap(), what];
            cluster.tenure(&import).with(6).saying(&said);
        }
        std::fs::remove_dir_all(out).unwrap();
    }
}
