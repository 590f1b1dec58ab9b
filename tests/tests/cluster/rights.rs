//! A cluster under the rights that are shipped (`deploy/nats/roles.conf`): everybody does their work,
//! and a request whose answer is to go elsewhere changes nothing.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use async_nats::{Client, Subscriber};
use futures::StreamExt as _;
use serde_json::{Value as Json, json};
use tenure_tests::binary::{Running, tenure};
use tenure_tests::cluster::client::{Log, command, wait};
use tenure_tests::cluster::message::{Answer, list, number, text, write};
use tenure_tests::cluster::{PATIENCE, until};
use tenure_tests::wal;

use crate::fleet::{COMMANDS, Fleet, SESSION, ask, told, with_tails};

/// Reads the log of a Task.
fn log_of(client: &Client, task: &str) -> Result<Log> {
    let body = json!({"v": 1, "operation": "read_log", "task_id": task, "input": {"after": 0}});
    let page = told(client, COMMANDS, &body)?;
    let mut log = Log {
        status: text(&page, "status").context("no status")?.to_owned(),
        version: number(&page, "version").context("no version")?,
        ..Log::default()
    };
    for commit in list(&page, "commits") {
        log.lines.extend_from_slice(commit.as_slice().context("commits are bytes")?);
    }
    Ok(log)
}

/// PERM-02, CTRL-01: a Task is handed in, worked on and watched, each with the login that is theirs.
/// Workers of another pool get none of it, whatever pool they say they are of.
#[test]
fn everybody_does_their_work_under_the_rights_that_are_shipped() -> Result<()> {
    let mut fleet = Fleet::start()?;
    let done = work(&mut fleet);
    with_tails(&fleet, done)
}

/// PERM-02: the same on servers that are set up as they are shipped, over TLS, with the user of Redis that is
/// advised there. Who does not know the authority is not let in, nor does it say its password.
#[test]
fn everybody_does_their_work_on_servers_as_they_are_shipped() -> Result<()> {
    let mut fleet = Fleet::start_as_shipped()?;
    let done = work(&mut fleet).and_then(|()| {
        let mut stranger = Command::new(tenure()?);
        let at = fleet.url("orchestrator-1");
        stranger.args(["task", "list", "--name", "orchestrator-1", "--nats", &at]);
        let ended = Running::start(&mut stranger)?.end(PATIENCE)?;
        ensure!(ended.status.code() == Some(2), "{ended:?}");
        ensure!(ended.stderr.contains("UnknownIssuer"), "{ended:?}");
        Ok(())
    });
    with_tails(&fleet, done)
}

fn work(fleet: &mut Fleet) -> Result<()> {
    fleet.add_worker("other", "worker-2", "other")?;
    fleet.add_worker("thief", "worker-2", "default")?;
    let (_observer, mut events) = fleet.listen("observer-1", "tenure.v1.event.main.>")?;
    let steps: Vec<Json> = (0..40).map(|n| json!({"id": format!("s{n}"), "noop": true})).collect();
    fleet.submit("work", &json!({"task_id": "work", "steps": steps}))?;
    let elsewhere = json!({"task_id": "elsewhere", "defaults": {"pool": "other"},
        "steps": [{"id": "a", "run": "true"}]});
    fleet.submit("elsewhere", &elsewhere)?;
    let mut ended = BTreeSet::new();
    hear_end(&mut events, "elsewhere", &mut ended)?;
    // Whoever would take what is not theirs has had the time for it.
    fleet.add_worker("own", "worker-1", "default")?;
    hear_end(&mut events, "work", &mut ended)?;

    let looked = ["task", "get", "work", "-o", "json", "--role", "observer"];
    let seen: Json = serde_json::from_str(&fleet.tenure("observer-1", &looked)?.stdout)?;
    ensure!(seen["native_status"] == "completed" || seen["status"] == "completed", "{seen}");
    fleet.tenure("observer-1", &["wal", "export", "--all", "--to", "out", "--role", "observer"])?;
    fleet.tenure("operator", &["wal", "import", "out", "--all"])?;
    fleet.tenure("operator", &["worker", "drain", "--pool", "default", "--wait"])?;
    for (task, user, pool) in [("work", "worker-1", "default"), ("elsewhere", "worker-2", "other")]
    {
        let file = format!("out/tasks/{SESSION}/{task}.wal.jsonl");
        let summary = wal::check(&fleet.dir().join(file), false)?;
        ensure!(summary.ended.as_deref() == Some("task_completed"), "{summary:?}");
        for (worker, pools) in &summary.pools {
            let is_right = worker.split('.').next() == Some(user) && pools.iter().eq([pool]);
            ensure!(is_right, "{worker} has claimed in {pools:?}");
        }
    }
    Ok(())
}

/// Waits until it is said that a Task has completed.
fn hear_end(events: &mut Subscriber, task: &str, ended: &mut BTreeSet<String>) -> Result<()> {
    while !ended.contains(task) {
        let next = wait(async { tokio::time::timeout(PATIENCE, events.next()).await });
        let message = next.with_context(|| format!("no end of {task}"))?.context("no events")?;
        let hint = rmpv::decode::read_value(&mut message.payload.as_ref())?;
        if text(&hint, "ended") == Some("completed") {
            ended.extend(message.subject.split('.').nth(4).map(str::to_owned));
        }
    }
    Ok(())
}

/// Where answers are not to go: into the log, to the store, to others, to everybody.
const ELSEWHERE: [&str; 8] = [
    "tenure.wal.0",
    "tenure.index.0",
    "$JS.API.STREAM.PURGE.TENURE_WAL_0",
    "_INBOX.scheduler.n1.journal.1",
    "_INBOX.worker.worker-2.test.r.1",
    "_INBOX.observer.observer-1.test.1",
    "tenure.v1.event.main.held",
    "tenure.v1.node.n1.alive",
];

/// Mechanisms 15, PERM-02: with the login of the very worker that holds a Step, and of the very
/// orchestrator, what would be carried out is not if its answer is to go to anybody else.
#[test]
fn a_request_with_a_crafted_reply_subject_changes_nothing() -> Result<()> {
    let mut fleet = Fleet::start()?;
    let done = attack(&mut fleet);
    with_tails(&fleet, done)
}

fn attack(fleet: &mut Fleet) -> Result<()> {
    fleet.add_worker("own", "worker-1", "default")?;
    fleet
        .submit("held", &json!({"task_id": "held", "steps": [{"id": "a", "run": "sleep 600"}]}))?;
    let (orchestrator, worker) =
        (wait(fleet.connect("orchestrator-1"))?, wait(fleet.connect("worker-1"))?);
    until("the step is claimed", PATIENCE, || {
        Ok(!log_of(&orchestrator, "held")?.claims("a").is_empty())
    })?;
    let victim = fleet.listen("worker-2", "_INBOX.worker.worker-2.>")?;
    let observer = fleet.listen("observer-1", "_INBOX.observer.observer-1.>")?;
    let (written, before) = (fleet.written()?, log_of(&orchestrator, "held")?);

    let progress = json!({"progress": {"summary": "never said"}});
    let look = json!({"v": 1, "operation": "task_get", "task_id": "held"});
    let words = words_of_holder(&before)?;
    for reply in ELSEWHERE {
        let said = command("append_task_progress", Some("held"), &progress);
        let cancel = command("task_cancel", Some("held"), &json!({"wait": false}));
        for body in [&said, &cancel, &look] {
            send(&orchestrator, COMMANDS, reply, body)?;
        }
        for (subject, crafted, _) in &words {
            send(&worker, subject, reply, crafted)?;
        }
    }
    // What is asked behind them, where they went, is answered: they were heard before.
    told(&orchestrator, COMMANDS, &look)?;
    for (subject, _, harmless) in &words {
        let answer = wait(ask(&worker, subject, harmless))?;
        ensure!(matches!(answer, Answer::Done(_) | Answer::Refused(_)), "{subject}: {answer:?}");
    }
    ensure!(fleet.written()? == written, "something was written");
    let after = log_of(&orchestrator, "held")?;
    ensure!(after.lines == before.lines, "{}", String::from_utf8_lossy(&after.lines));
    let nothing = json!({"v": 1, "reports": []});
    hears_its_own(victim, "tenure.v1.worker.other.worker-2.test.report.0", &nothing)?;
    hears_its_own(observer, "tenure.v1.observer.main.observer-1.cmd.0", &look)?;

    // The same words are carried out if whoever says them wants to hear of it.
    let (subject, report, _) = words.first().context("no words")?;
    told(&worker, subject, report)?;
    until("the task completes", PATIENCE, || Ok(log_of(&orchestrator, "held")?.has_ended()))?;
    let log = log_of(&orchestrator, "held")?;
    let summary = wal::check_bytes(&log.lines, false)?;
    ensure!(summary.ended.as_deref() == Some("task_completed"), "{summary:?}");
    ensure!(log.lines.starts_with(&before.lines), "{}", String::from_utf8_lossy(&log.lines));
    Ok(())
}

/// Has a listener ask something: the answer comes behind all that it was sent before, and is to be the
/// first that it hears.
fn hears_its_own(listener: (Client, Subscriber), subject: &str, body: &Json) -> Result<()> {
    let (client, mut heard) = listener;
    let answer = wait(ask(&client, subject, body))?;
    ensure!(matches!(answer, Answer::Done(_) | Answer::Refused(_)), "{subject}: {answer:?}");
    let first = wait(async { tokio::time::timeout(PATIENCE, heard.next()).await });
    let first = first.context("the listener hears nothing")?.context("the listener is closed")?;
    ensure!(!ELSEWHERE.contains(&first.subject.as_str()), "{} was written to", first.subject);
    Ok(())
}

fn send(client: &Client, subject: &str, reply: &'static str, body: &Json) -> Result<()> {
    let bytes = write(body)?;
    wait(client.publish_with_reply(subject.to_owned(), reply, bytes.into()))?;
    Ok(())
}

/// What the holder of the Step may say, by where it goes: with each what it would like to have
/// answered elsewhere, the report of its end first, and something harmless.
fn words_of_holder(log: &Log) -> Result<Vec<(String, Json, Json)>> {
    let claim = log.claims("a").pop().context("nobody holds it")?;
    let held = &claim["payload"];
    let holder = held["worker_id"].as_str().context("no worker_id")?;
    let subject = |verb: &str| format!("tenure.v1.worker.default.{holder}.{verb}");
    let of_run =
        json!({"v": 1, "session_id": SESSION, "task_id": "held", "run_id": held["run_id"]});
    let with = |more: Json| {
        let mut body = of_run.clone();
        let fields = more.as_object().into_iter().flatten();
        fields.for_each(|(key, value)| body[key] = value.clone());
        body
    };
    let input = json!({"step_id": "a", "attempt_id": held["attempt_id"],
        "fencing_token": held["fencing_token"], "status": "completed"});
    let mut report = with(json!({"word": {"operation": "task_update_step", "input": input}}));
    report.as_object_mut().context("a report is a map")?.remove("v");
    let mut holding =
        with(json!({"attempt_id": held["attempt_id"], "fencing_token": held["fencing_token"]}));
    holding.as_object_mut().context("a holding is a map")?.remove("v");
    let beat = json!({"v": 1, "holdings": [holding]});
    let (query, claim) = (of_run.clone(), with(json!({"command_id": "again", "step_id": "a"})));
    Ok(vec![
        (subject("report.0"), json!({"v": 1, "reports": [report]}), json!({"v": 1, "reports": []})),
        (subject("hb"), beat.clone(), beat),
        (subject("query.0"), query.clone(), query),
        (subject("claim.0"), claim.clone(), claim),
    ])
}
