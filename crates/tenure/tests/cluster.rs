//! The command line against a cluster: real servers, a node and workers as processes.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/cluster.rs"]
mod cluster;
#[path = "support/redis.rs"]
mod redis_cli;
#[allow(dead_code)] // Other tests need more of it.
#[path = "../../cluster/tests/real/servers.rs"]
mod servers;
mod support;

use cluster::Cluster;
use futures::StreamExt as _;
use nix::sys::signal::Signal;
use serde_json::Value;
use support::Running;
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::request::{Ask, Request};

/// A Task of two Steps, one after the other.
const TWO: &str = "steps: {a: {run: echo one}, b: {run: echo two, needs: a}}";

/// A Task that runs until it is told to stop.
const LONG: &str = "steps: {a: {run: sleep 600}, b: {run: echo two, needs: a}}";

/// LIST-07: a list has what owners say of Tasks, ended ones too: the log of none is fetched for it.
#[test]
fn a_list_of_a_cluster_fetches_no_log() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    cluster.submit("two", TWO, &["--wait", "-o", "quiet"]).with(0);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut heard = runtime.block_on(async {
        let spy = async_nats::connect(cluster.url()).await.unwrap();
        let heard = spy.subscribe("tenure.v1.>").await.unwrap();
        spy.flush().await.unwrap();
        heard
    });
    let mut asks = |args: &[&str]| {
        let listed = cluster.tenure(args).with(0).json();
        assert_eq!(listed["tasks"][0]["task_id"], "two", "{args:?}");
        cluster.tenure(&["wal", "show", "two"]).with(0); // It asks for a log, behind all that the list asked.
        runtime.block_on(async {
            let mut before = 0;
            while let Some(message) = heard.next().await {
                match Request::read(&message.payload).map(|request| request.ask) {
                    Ok(Ask::ReadLog(_)) => return before,
                    Ok(Ask::Tasks(_)) => before += 1,
                    _ => {}
                }
            }
            before
        })
    };
    assert!(asks(&["task", "list", "--all", "-o", "json"]) >= 8, "each partition is asked");
    assert!(asks(&["task", "list", "--all", "--status", "completed", "-o", "json"]) >= 8);
}

#[test]
fn a_cluster_is_looked_into_as_a_directory_is() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    cluster.submit("two", TWO, &["--wait", "-o", "quiet"]).with(0);
    cluster.submit("long", LONG, &[]).with(0);
    cluster.is_at_work("long");

    let listed = cluster.tenure(&["task", "list", "-o", "json"]).with(0).json();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1, "ended ones are shown with --all");
    let listed = cluster.tenure(&["task", "list", "--all", "--limit", "1", "-o", "json"]).json();
    assert_eq!(listed["tasks"][0]["task_id"], "long");
    assert_eq!(listed["next_offset"], 1);
    let listed = cluster.tenure(&["task", "list", "--all", "--offset", "1", "-o", "json"]).json();
    assert_eq!(listed["tasks"][0]["task_id"], "two");

    let got = cluster.tenure(&["task", "get", "long"]).with(0);
    assert!(got.stdout.contains("host     a cluster at nats://127.0.0.1:"), "{got:#?}");
    assert!(!got.stdout.contains("--resume"), "{got:#?}");
    let got = cluster.tenure(&["task", "get", "default/two", "-o", "json"]).with(0).json();
    assert_eq!(got["status"], "completed");
    let key = TaskKey { session_id: "default".parse().unwrap(), task_id: "two".parse().unwrap() };
    let partition = key.partition(8);
    let log = format!("TENURE_WAL_{partition}/{partition}"); // 2.1: stream and partition.
    assert_eq!([&got["wal_path"], &listed["tasks"][0]["wal_path"]], [&*log; 2]);
    let why = cluster.tenure(&["task", "explain", "long"]).with(0);
    assert!(why.stdout.contains("lease valid"), "{why:#?}");
    let step = cluster.tenure(&["step", "get", "two", "b", "-o", "json"]).with(0).json();
    assert_eq!(step["step"]["status"], "completed");
    let attempts = cluster.tenure(&["attempt", "list", "two", "-o", "json"]).with(0).json();
    assert_eq!(attempts["attempts"].as_array().unwrap().len(), 2);
    let shown = cluster.tenure(&["wal", "show", "two", "-o", "json"]).with(0).lines();
    assert_eq!(shown.last().unwrap()["event_type"], "task_completed");
    cluster.tenure(&["wal", "replay", "two", "--until", "1"]).with(0);
    cluster.tenure(&["wal", "verify"]).with(0);
    cluster.tenure(&["task", "graph", "two"]).with(0);

    cluster.tenure(&["task", "get", "twoo"]).with(3).saying("did you mean `two`?");
    cluster.tenure(&["task", "list", "--data", "nowhere"]).with(3).saying("nowhere");
    let nobody = ["task", "list", "--nats", "nats://ann:s3cret@127.0.0.1:9"];
    let away = "cannot reach nats://127.0.0.1:9: Connection refused";
    let refused = cluster.tenure(&nobody).with(6).saying(away);
    assert!(!refused.stderr.contains("s3cret"), "{refused:#?}");
    let unread = cluster.tenure(&["task", "list", "--nats-creds", "no.creds"]).with(2);
    unread.saying("the credentials no.creds cannot be read").saying("--nats-creds");
    cluster.tenure(&["task", "list", "--patience", "50ms"]).with(2).saying("from `100ms`");
}

/// LIST-04 to LIST-07: pages of live Tasks, the oldest first, also where only their owners know the status.
#[test]
fn live_tasks_of_a_cluster_are_listed_by_pages() {
    let cluster = Cluster::start();
    for id in ["c", "b", "a"] {
        cluster.submit(id, BY_HAND, &[]).with(0);
    }
    cluster.submit("later", BY_HAND, &["--draft"]).with(0);
    let page = |args: &[&str]| {
        let all = [&["task", "list", "-o", "json"], args].concat();
        let page = cluster.tenure(&all).with(0).json();
        let tasks = page["tasks"].as_array().unwrap();
        let ids = tasks.iter().map(|task| task["task_id"].as_str().unwrap());
        (ids.collect::<Vec<_>>().join(" "), page["next_offset"].as_u64())
    };
    assert_eq!(page(&[]), ("c b a later".into(), None));
    assert_eq!(page(&["--limit", "2"]), ("c b".into(), Some(2)));
    assert_eq!(page(&["--limit", "2", "--offset", "2"]), ("a later".into(), None));
    assert_eq!(page(&["--status", "draft"]), ("later".into(), None));
    assert_eq!(page(&["--status", "queued"]).0, "c b a", "no native status");
    assert_eq!(page(&["--status", "queued", "--limit", "1"]), ("c".into(), Some(1)));
    let second = ["--status", "queued", "--limit", "1", "--offset", "1"];
    assert_eq!(page(&second), ("b".into(), Some(2)));
    assert_eq!(page(&["--status", "queued", "--offset", "2"]), ("a".into(), None));
    cluster.tenure(&["task", "list", "--status", "blocked"]).with(0).saying("no such task");
    cluster.tenure(&["task", "list", "--limit", "0"]).with(2).saying("limit");
    cluster.tenure(&["task", "list", "--limit", "0", "--status", "queued"]).with(2).saying("limit");
}

#[test]
fn a_task_is_watched_waited_for_and_stopped() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    cluster.submit("long", LONG, &[]).with(0);
    cluster.is_at_work("long");
    cluster.tenure(&["task", "wait", "long", "--timeout", "1"]).with(6).saying("has not ended");
    cluster.tenure(&["task", "pause", "long", "--reason", "lunch"]).with(0);
    cluster.tenure(&["task", "resume", "long"]).with(0);
    let watching = cluster.begin(&["watch", "long", "-o", "jsonl"]);
    cluster.tenure(&["task", "cancel", "long", "--reason", "enough", "--wait"]).with(0);
    let watched = watching.end().with(1).lines();
    assert_eq!(watched.last().unwrap()["event"], "task.cancelled");
    let events = cluster.tenure(&["task", "events", "last"]).with(0).lines();
    assert_eq!(events.first().unwrap()["event"], "task.created");
    assert_eq!(events.last().unwrap()["event"], "task.cancelled");
    let after = events[2]["wal_seq"].to_string();
    cluster
        .tenure(&["task", "events", "long", "--after", "9999"])
        .with(2)
        .saying("ends with event");
    let rest = cluster.tenure(&["task", "events", "long", "--after", &after]).with(0).lines();
    assert!(!rest.is_empty() && rest.len() < events.len() && events.ends_with(&rest), "{rest:#?}");
    let ended = cluster.tenure(&["task", "wait", "long", "-o", "json"]).with(1).json();
    assert_eq!(ended["native_status"], "cancelled");
    cluster.tenure(&["task", "cancel", "long"]).with(4).saying("task_terminal");
    cluster.tenure(&["task", "cancel", "nope"]).with(3);
}

/// CTRL-11: whoever broke a wait off, or set it a limit, is told of which Task, and how to go on waiting. The
/// limit counts while no scheduler is there, too.
#[test]
fn a_wait_that_ends_early_names_its_task_and_says_how_to_go_on() {
    let mut cluster = Cluster::start();
    cluster.submit("held", BY_HAND, &[]).with(0);
    for waits in [&["task", "wait", "held"][..], &["task", "events", "held"], &["watch", "held"]] {
        let waiting = cluster.begin(waits);
        waiting.listens();
        waiting.stopped_saying("tenure task wait default/held");
    }
    let told = cluster.tenure(&["task", "wait", "held", "--timeout", "0"]).with(6);
    told.saying("to go on waiting: tenure task wait default/held");
    cluster.place.file("other.yaml", format!("task_id: other\n{BY_HAND}\n"));
    let mut waiting = cluster.begin(&["submit", "other.yaml", "--wait"]);
    waiting.hears("task other");
    waiting.stopped_saying(
        "task other goes on without this command; to wait for its end: tenure task wait",
    );

    drop(cluster.node.take());
    let told = cluster.tenure(&["task", "wait", "held", "--timeout", "1"]).with(6);
    let told = told.saying("no scheduler has told of task held");
    told.saying("to go on waiting: tenure task wait default/held");
}

#[test]
fn logs_go_out_as_files_and_come_back() {
    let cluster = Cluster::start();
    let worker = cluster.worker("w1");
    cluster.submit("two", TWO, &["--wait", "-o", "quiet"]).with(0);
    cluster.submit("long", LONG, &[]).with(0);
    cluster.is_at_work("long");
    let export = ["wal", "export", "--all", "--to", "out", "-o", "json"];
    let written = cluster.tenure(&export).with(0).json();
    assert_eq!(written["logs"].as_array().unwrap().len(), 2);
    let file = cluster.place.path("out/tasks/default/two.wal.jsonl");
    let lines = std::fs::read_to_string(&file).unwrap();
    cluster.tenure(&["wal", "verify", "--data", "out"]).with(0);
    let got = cluster.tenure(&["task", "get", "two", "--data", "out", "-o", "json"]).with(0).json();
    assert_eq!(got["status"], "completed");

    // What is there is as it is in the cluster, or grows, or is of another history.
    let again =
        cluster.tenure(&["wal", "export", "two", "--to", "out", "-o", "json"]).with(0).json();
    assert_eq!(again["logs"][0]["unchanged"], true);
    let half = lines.split_inclusive('\n').take(3).collect::<String>();
    std::fs::write(&file, half).unwrap();
    cluster.tenure(&["wal", "export", "two", "--to", "out"]).with(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), lines);
    std::fs::write(&file, lines.replace("\"two\"", "\"owt\"")).unwrap();
    cluster.tenure(&["wal", "export", "two", "--to", "out"]).with(4).saying("another history");
    std::fs::write(&file, &lines).unwrap();
    cluster.tenure(&["wal", "export", "nope", "--to", "out"]).with(3);
    cluster.tenure(&["wal", "export", "--all", "--to", "out", "--session", "new"]).with(0);
    // In the cluster that they came from they are there.
    cluster.tenure(&["wal", "import", "out", "two"]).with(0);
    worker.signal(Signal::SIGTERM);
    worker.end();
    drop(cluster.node);

    let other = Cluster::start();
    let _worker = other.worker("w2");
    let out = cluster.place.path("out");
    let out = out.to_str().unwrap();
    let brought = other.tenure(&["wal", "import", out, "--all", "-o", "json"]).with(0).json();
    assert_eq!(brought["tasks"].as_array().unwrap().len(), 2);
    let got = other.tenure(&["task", "get", "two", "-o", "json"]).with(0).json();
    assert_eq!(got["status"], "completed");
    other.tenure(&["wal", "verify"]).with(0);
    let again = other.tenure(&["wal", "import", out, "two", "-o", "json"]).with(0).json();
    assert_eq!(again["tasks"][0]["unchanged"], true);
    // A live Task goes on: what its lost worker held is still under a lease.
    let open = other.tenure(&["attempt", "list", "long", "-o", "json"]).with(0).json();
    assert!(open["attempts"][0]["worker_id"].as_str().unwrap().starts_with("w1."), "{open}");
    other.tenure(&["task", "cancel", "long"]).with(0);
    let torn = cluster.place.path("out/tasks/default/two.wal.jsonl");
    std::fs::write(&torn, lines.replace("\"crc\":", "\"crc\":1")).unwrap();
    other.tenure(&["wal", "import", out, "two"]).with(6).saying("bad checksum");
}

#[test]
fn workers_are_listed_and_leave_when_they_are_told() {
    let cluster = Cluster::start();
    let one = cluster.worker("w1");
    let _other = cluster.worker("w2");
    let both = |value: &Value| value["workers"].as_array().is_some_and(|all| all.len() == 2);
    let listed = cluster.until(&["worker", "list"], both);
    assert_eq!(listed["workers"][0]["principal"], "w1");
    assert!(listed["workers"][0]["nodes"][0].as_str().unwrap().starts_with("n1-"), "{listed}");
    let free = |value: &Value| value["pools"][0]["free"] == 8;
    let pools = cluster.until(&["pool", "list"], free);
    assert_eq!(pools["pools"][0]["workers"], 2);

    let told = cluster.tenure(&["worker", "drain", "w1", "-o", "json"]).with(0).json();
    assert!(told["workers"][0].as_str().unwrap().starts_with("w1."), "{told}");
    one.end().with(0).saying("no more steps are taken");
    let alone = |value: &Value| value["workers"].as_array().is_some_and(|all| all.len() == 1);
    cluster.until(&["worker", "list"], alone);
    cluster.tenure(&["worker", "drain", "w1"]).with(3).saying("worker list");
    cluster.tenure(&["worker", "drain"]).with(2);

    // A worker finishes what it has before it leaves.
    cluster.submit("slow", "steps: {a: {run: sleep 2}}", &[]).with(0);
    cluster.is_at_work("slow");
    cluster.tenure(&["worker", "drain", "--pool", "default"]).with(0);
    let none = |value: &Value| value["workers"].as_array().is_some_and(Vec::is_empty);
    cluster.until(&["worker", "list"], none);
    let ended = cluster.tenure(&["task", "wait", "slow", "-o", "json"]).with(0).json();
    assert_eq!(ended["native_status"], "completed");
    cluster.submit("late", TWO, &[]).with(0);
    let waits = |value: &Value| value["pools"][0]["waiting"] == 1;
    cluster.until(&["pool", "list"], waits);

    let observer =
        |args: &[&str]| Running::run_to_end(cluster.command(args).env("TENURE_ROLE", "observer"));
    observer(&["worker", "list", "-o", "json"]).with(0);
    observer(&["worker", "drain", "w2"]).with(5);
}

#[test]
fn leases_are_held_against_the_logs() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    cluster.submit("long", LONG, &[]).with(0);
    cluster.is_at_work("long");
    let listed = cluster.tenure(&["lease", "list", "-o", "json"]).with(0).json();
    let [lease] = &listed["leases"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!((&lease["task_id"], &lease["open"]["step_id"]), (&"long".into(), &"a".into()));
    assert!(lease["left_ms"].as_u64().unwrap() > 0, "{listed}");
    cluster.tenure(&["lease", "audit"]).with(0);

    // Somebody meddles with Redis: a lease of nobody.
    let redis_says = |words: &[&str]| redis_cli::says(cluster.redis.port, words);
    let stray = "01a20000-0000-7000-8000-000000000001";
    let key = |what: &str| -> String {
        let keys = redis_says(&["KEYS", &format!("*{{[0-9]*}}{what}")]);
        keys.lines().next().unwrap_or_else(|| panic!("no {what} in redis")).to_owned()
    };
    let member = format!("default/long/{stray}");
    redis_says(&["ZADD", &key(":ends"), "9999999999999", &member]);
    let found = cluster.tenure(&["lease", "audit", "-o", "json"]).with(1).json();
    assert_eq!(found["without_attempt"][0]["attempt_id"], stray);
    assert_eq!(found["without_lease"], serde_json::json!([]));
}

/// A Task whose Steps are given out one by one.
const BY_HAND: &str = "dispatch: manual
completion: manual
steps: {a: {noop: true}, b: {noop: true, needs: a}}";

const PATCH: &str = "
- op: add_step
  step: {step_id: c, title: Look at it, summary: '', depends_on_step_ids: [], required: false}
- op: update_step
  step_id: b
  fields: {title: The second}
- {op: update_task, owner: ann, requested_by: bob}
";

/// A plan is refused as the patch is, by what the node was given.
#[test]
fn a_plan_is_judged_by_the_limits_of_the_owner() {
    let mut cluster = Cluster::start();
    cluster.submit("small", BY_HAND, &[]).with(0);
    cluster.node = None;
    let redis = format!("redis://127.0.0.1:{}", cluster.redis.port);
    let mut node = cluster.begin(&["serve", "--redis", &redis, "--steps-max", "2"]);
    node.hears(" serves");
    cluster.place.file("patch.yaml", PATCH);
    let patch = ["task", "patch", "small", "patch.yaml", "-o", "json"];
    let refused = cluster.tenure(&patch).with(2).saying("at most 2 fit a task");
    let plan = cluster.tenure(&[&patch[..], &["--plan"]].concat()).with(2);
    assert_eq!((plan.refusal(), plan.stdout), (refused.refusal(), refused.stdout));
}

#[test]
fn an_orchestrator_steers_a_task_from_the_command_line() {
    let cluster = Cluster::start();
    let _worker = cluster.worker("w1");
    let json = |args: &[&str]| cluster.tenure(&[args, &["-o", "json"]].concat()).with(0).json();
    cluster.submit("steer", BY_HAND, &[]).with(0);

    // A scope is hard: the Run takes `a` and leaves the rest.
    let scope = ["dispatch", "steer", "--step", "a", "--instructions", "with care", "--wait"];
    let dispatched = json(&scope);
    assert_eq!(dispatched["run_end"]["end_reason"], "completed", "{dispatched:#}");
    let run = dispatched["run_id"].as_str().unwrap().to_owned();
    let steps = json(&["step", "list", "steer", "--all"]);
    assert_eq!(steps["steps"][0]["status"], "completed", "{steps:#}");
    assert_eq!(steps["steps"][1]["status"], "ready");
    assert_eq!(json(&["runs", "list", "steer"])["runs"].as_array().unwrap().len(), 0);
    let runs = json(&["runs", "list", "steer", "--all"]);
    assert_eq!(runs["runs"][0]["run_id"], *run);
    let told = json(&["runs", "get", "steer", &run]);
    assert_eq!((&told["claimed_step_id"], &told["state"]), (&"a".into(), &"ended".into()));
    let shown = cluster.tenure(&["runs", "show", "steer", &run]).with(0).stdout;
    assert!(shown.contains("with care"), "{shown}");
    let nobody = "00000000-0000-0000-0000-000000000000";
    cluster.tenure(&["runs", "get", "steer", nobody]).with(3).saying("no run");
    cluster.tenure(&["runs", "cancel", "steer", nobody]).with(3);
    cluster.tenure(&["dispatch", "steer", "--step", "nothing"]).with(3);

    // A plan changes nothing, and says what it was judged at.
    cluster.place.file("patch.yaml", PATCH);
    let plan = json(&["task", "patch", "steer", "patch.yaml", "--plan"]);
    assert_eq!((&plan["added"], &plan["ready"]), (&["c"][..].into(), &["c"][..].into()));
    let shown = cluster.tenure(&["task", "patch", "steer", "patch.yaml", "--plan"]).with(0);
    assert!(shown.stdout.contains("would become ready: c"), "{shown:#?}");
    let version = plan["version"].to_string();
    assert_eq!(json(&["task", "get", "steer"])["version"].to_string(), version);
    let patch = ["task", "patch", "steer", "patch.yaml", "--expected-version", &version];
    json(&patch);
    cluster.tenure(&patch).with(4).saying("version_conflict");
    cluster.tenure(&["task", "patch", "steer", "patch.yaml", "--plan"]).with(2).saying("c");
    cluster.place.file("bad.json", r#"{"operations": [{"op": "fly"}]}"#);
    let bad = cluster.tenure(&["task", "patch", "steer", "bad.json"]).with(2);
    assert!(bad.stderr.contains("bad.json: operations[0]"), "{bad:#?}");

    // What waits for somebody is in the inbox, with what to type.
    cluster.tenure(&["task", "block", "steer", "--reason", "which branch?"]).with(0);
    cluster.tenure(&["dispatch", "steer"]).with(4).saying("task_not_dispatchable");
    let inbox = json(&["inbox"]);
    let waiting = inbox["waiting"].as_array().unwrap();
    assert_eq!(waiting.len(), 1, "{inbox:#}");
    assert_eq!(waiting[0]["reason"]["message"], "which branch?");
    assert_eq!(["owner", "requested_by"].map(|field| &waiting[0][field]), ["ann", "bob"]);
    let shown = cluster.tenure(&["inbox"]).with(0).stdout;
    assert!(shown.contains("ann") && !shown.contains("bob"), "{shown}");
    let answer: Vec<&str> = waiting[0]["answer"].as_str().unwrap().split(' ').skip(1).collect();
    cluster.tenure(&answer).with(0);
    cluster.tenure(&["inbox"]).with(0).saying("nothing in session default waits");
    cluster.tenure(&["step", "answer", "steer", "b", "yes"]).with(4).saying("invalid_transition");

    cluster.tenure(&["task", "complete", "steer"]).with(4).saying("required_steps_incomplete");
    cluster.tenure(&["step", "cancel", "steer", "c", "--reason", "not now"]).with(0);
    let shown = cluster.tenure(&["dispatch", "steer", "--step", "b", "--wait"]).with(0).stdout;
    assert!(shown.ends_with("  completed\n"), "{shown}");
    let done = ["task", "complete", "steer", "--result", "shipped", "--command-id", "once"];
    let first = json(&done);
    assert_eq!(json(&done)["event_ids"], first["event_ids"], "the same command, the same answer");
    cluster
        .tenure(&["task", "link", "steer", "blocks", "https://example.org/1"])
        .with(4)
        .saying("task_terminal");
    cluster.tenure(&["task", "archive", "steer"]).with(0);
    let got = json(&["task", "get", "steer"]);
    assert_eq!((&got["native_status"], &got["archived"]), (&"completed".into(), &true.into()));
    assert_eq!(got["result_summary"], "shipped");
    a_run_that_ends_badly_is_told_from_others(&cluster);
}

/// DISP-12: whoever waits for a Run learns from the exit code whether it ended well.
fn a_run_that_ends_badly_is_told_from_others(cluster: &Cluster) {
    cluster.submit("idle", BY_HAND, &[]).with(0);
    // The second time nothing is left to claim.
    for end in ["completed", "no_step_claimed"] {
        let shown = cluster.tenure(&["dispatch", "idle", "--step", "a", "--wait"]).with(0).stdout;
        assert!(shown.contains(&format!("  {end}\n")), "{shown}");
    }
    let dispatch = ["dispatch", "idle", "--pool", "nobody", "--wait", "-o", "json"];
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cluster.tenure(&dispatch));
        // The log knows nothing of one that ended with nothing claimed.
        let of_nobody = |value: &Value| {
            let mut runs = value["runs"].as_array().into_iter().flatten();
            runs.find(|run| run["worker_pool_id"] == "nobody").cloned()
        };
        let runs = cluster.until(&["runs", "list", "idle"], |runs| of_nobody(runs).is_some());
        let run = of_nobody(&runs).unwrap();
        cluster.tenure(&["runs", "cancel", "idle", run["run_id"].as_str().unwrap()]).with(0);
        let ended = waiting.join().unwrap().with(1).json();
        assert_eq!(ended["run_end"]["end_reason"], "cancelled", "{ended:#}");
    });
}

#[test]
fn tasks_are_related_and_drafts_submitted_from_the_command_line() {
    let cluster = Cluster::start();
    let json = |args: &[&str]| cluster.tenure(&[args, &["-o", "json"]].concat()).with(0).json();
    cluster.submit("one", BY_HAND, &[]).with(0);
    cluster.submit("two", BY_HAND, &[]).with(0);
    cluster.tenure(&["task", "link", "one", "likes", "two"]).with(2).saying("one of:");
    json(&["task", "link", "one", "blocks", "two"]);
    let view = json(&["task", "get", "one"]);
    let edge = view["relationships"][0]["edge_id"].as_str().unwrap_or_else(|| panic!("{view:#}"));
    json(&["task", "unlink", "one", edge]);
    let view = json(&["task", "get", "one"]);
    assert_eq!(view["relationships"][0]["status"], "removed");
    cluster.tenure(&["task", "submit", "one"]).with(4).saying("invalid_transition");
    cluster.tenure(&["task", "cancel", "one", "--wait"]).with(0);

    let native = |task: &str| json(&["task", "get", task])["native_status"].clone();
    cluster.submit("sketch", BY_HAND, &["--draft"]).with(0);
    assert_eq!(native("sketch"), "draft");
    cluster.tenure(&["dispatch", "sketch"]).with(4).saying("task_not_dispatchable");
    json(&["task", "submit", "sketch", "--reason", "agreed"]);
    assert_eq!(native("sketch"), "running");

    a_step_is_asked_about_and_tried_again(&cluster, "two");
    cluster.tenure(&["task", "fail", "two", "--reason", "in vain", "--wait"]).with(0);
    let got = json(&["task", "get", "two"]);
    assert_eq!(
        (&got["native_status"], &got["status_reason"]["message"]),
        (&"failed".into(), &"in vain".into())
    );
}

/// S18, S20, S21: a Step is blocked, answered and reopened, and it fails and is tried again while its Task
/// is live.
fn a_step_is_asked_about_and_tried_again(cluster: &Cluster, task: &str) {
    let done = |args: &[&str]| cluster.tenure(args).with(0);
    let status =
        || done(&["step", "get", task, "a", "-o", "json"]).json()["step"]["status"].clone();
    done(&["step", "block", task, "a", "--waits-for", "input", "--reason", "which one?"]);
    let inbox = done(&["inbox", "-o", "json"]).json();
    assert_eq!(inbox["waiting"][0]["answer"], format!("tenure step answer {task} a TEXT"));
    done(&["step", "answer", task, "a", "the second"]);
    assert_eq!(status(), "ready");
    let reopened = done(&["wal", "show", task, "--type", "step_reopened", "-o", "json"]).stdout;
    assert!(reopened.contains("input_received") && reopened.contains("input_refs"), "{reopened}");
    done(&["inbox"]).saying("nothing in session default waits");

    done(&["step", "block", task, "a"]);
    assert_eq!(status(), "blocked");
    done(&["step", "reopen", task, "a", "--reason", "go on"]);
    assert_eq!(status(), "ready");
    for only in [&["--step", "a"][..], &[]] {
        done(&["step", "fail", task, "a", "--reason", "no luck"]);
        assert_eq!(status(), "failed");
        done(&[&["task", "retry", task], only].concat());
        assert_eq!(status(), "ready");
    }
}
