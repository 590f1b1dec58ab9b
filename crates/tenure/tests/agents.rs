//! `tenure agent`, and `tenure a2a` against the agents of `tenure dev --agents`.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

#[path = "support/http.rs"]
mod http;
#[path = "support/dev.rs"]
mod process;
mod support;

use nix::sys::signal::Signal;
use process::Dev;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use support::{Ended, Place, Running, wait_until};

const AGENTS: &str = r#"
# What a file says beside the agents stays.
[[agents]]
name = "works"
title = "Worker"
description = "Works, and has a result."
template = "works.yaml"

[[agents]]
name = "fails"
description = "Fails at once."
template = "fails.yaml"

[[agents]]
name = "waits"
description = "Has nobody who works for it."
handler = "nobody"
"#;

const WORKS: &str = "
title: works
output_from: work
steps: {take: {noop: true}, work: {needs: take, run: 'echo 42 > $TENURE_OUTPUT'}}
";

const FAILS: &str = "
title: fails
steps: {take: {noop: true}, work: {needs: take, run: 'exit 3', retries: 0}}
";

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A place with a file of agents, and the task files that it names.
fn place() -> Place {
    let place = Place::new();
    for (name, text) in [("agents.toml", AGENTS), ("works.yaml", WORKS), ("fails.yaml", FAILS)] {
        place.file(name, text);
    }
    place
}

/// The agents of a place at work.
struct Agents {
    dev: Dev,
    place: Place,
}

impl Agents {
    fn start(more: &[&str]) -> Self {
        let place = place();
        let dev = Dev::start(&place, &[&["--agents", "agents.toml"], more].concat());
        Self { dev, place }
    }

    /// The address of an agent.
    fn at(&self, name: &str) -> String {
        format!("{}/a2a/{name}", self.dev.url)
    }

    /// `tenure a2a VERB URL …` with this agent.
    fn ask(&self, verb: &str, name: &str, more: &[&str]) -> Ended {
        self.place.tenure(&[&["a2a", verb, &self.at(name)], more].concat())
    }

    /// Sends a message that nobody works for, and returns the id of its task.
    fn begin_waiting(&self) -> String {
        let told = self.ask("send", "waits", &["take me there", "--no-wait", "-o", "json"]);
        told.with(0).json()["id"].as_str().unwrap().to_owned()
    }

    /// Says something of the one Step of such a task, in place of a worker.
    fn report(&self, task: &str, said: &Value) {
        let path = format!("/v1/sessions/a2a-waits/tasks/{task}/steps/answer");
        let answer = http::ask(&self.dev.url, "POST", &path, &[], &said.to_string());
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// Has the agent ask where to.
    fn report_question(&self, task: &str) {
        let reason = json!({"code": "question", "message": "where to?"});
        self.report(task, &json!({"status": "blocked", "wait_kind": "input", "reason": reason}));
    }
}

/// A file of agents says what a gateway would make of it, and how its cards look.
#[test]
fn a_file_of_agents_is_looked_at() {
    let place = place();
    let list = place.tenure(&["agent", "list"]).with(0).stdout;
    for word in ["works", "Worker", "a2a-works", "handler nobody", "goes to take"] {
        assert!(list.contains(word), "{word}: {list}");
    }
    let listed = place.tenure(&["agent", "list", "-o", "json"]).with(0).json();
    assert_eq!(listed["agents"].as_array().unwrap().len(), 3);
    place.file("works.yaml", WORKS.replace("42", "43"));
    let changed = place.tenure(&["agent", "list", "-o", "json"]).with(0).json();
    assert_ne!(listed["digest"], changed["digest"], "the task files are a part of it");
    let names = place.tenure(&["agent", "list", "-o", "quiet"]).with(0).stdout;
    assert_eq!(names, "fails\nwaits\nworks\n");
    let shown = place.tenure(&["agent", "show", "waits", "-o", "json"]).with(0).json();
    let expected = json!({
        "agent": "waits", "title": "waits", "session_id": "a2a-waits", "runs": "handler nobody",
    });
    assert_eq!(shown, expected);
    let card = ["agent", "card", "works", "--url", "https://agents.example.org"];
    let card = place.tenure(&card).with(0).json();
    assert_eq!(card["name"], "Worker");
    assert_eq!(card["supportedInterfaces"][0]["url"], "https://agents.example.org/a2a/works");
}

const TOOLS: &str = r#"
[[tools]]
name = "resize"
title = "Resize an image"
description = "Resizes an image."
handler = "resize"
pool = "images"
answers = "task"

[tools.input_schema]
properties.width = { type = "integer" }

[[tools]]
name = "works"
description = "Does what the agent of this name does."
template = "works.yaml"
"#;

/// The tools of a file are shown beside its agents, and a wrong one is told of before a gateway reads it.
#[test]
fn the_tools_of_a_file_are_looked_at() {
    let place = place();
    let listed = place.tenure(&["agent", "list", "-o", "json"]).with(0).json();
    assert_eq!(listed["tools"], json!([]));
    place.file("agents.toml", format!("{AGENTS}{TOOLS}"));
    let list = place.tenure(&["agent", "list"]).with(0).stdout;
    for word in ["handler nobody", "TOOL", "Resize an image", "handler resize in pool images"] {
        assert!(list.contains(word), "{word}: {list}");
    }
    let listed = place.tenure(&["agent", "list", "-o", "json"]).with(0).json();
    let work = "2 steps, the arguments go to take";
    let expected = json!([
        {"tool": "resize", "title": "Resize an image", "answers": "task",
         "runs": "handler resize in pool images"},
        {"tool": "works", "title": "works", "answers": "either", "runs": work},
    ]);
    assert_eq!((&listed["tools"], listed["agents"].as_array().unwrap().len()), (&expected, 3));

    let show = |more: &[&str]| place.tenure(&[&["agent", "show"], more].concat());
    let shown = show(&["resize", "-o", "json"]).with(0).json();
    assert_eq!((&shown["tool"], &shown["answers"]), (&json!("resize"), &json!("task")));
    let width = &shown["listed"]["inputSchema"]["properties"]["width"];
    assert_eq!(width, &json!({"type": "integer"}), "{shown}");
    assert_eq!(show(&["works", "-o", "json"]).with(0).json()["agent"], "works");
    assert_eq!(show(&["works", "--tool", "-o", "json"]).with(0).json()["runs"], work);
    assert!(show(&["works", "--tool"]).with(0).stdout.contains(work));
    show(&["waits", "--tool"]).with(3).saying("tenure agent list");
    show(&["resise"]).with(3).saying("did you mean `resize`?");

    let wrong = format!("{AGENTS}{}", TOOLS.replace("\"works.yaml\"", "\"absent.yaml\""));
    place.file("agents.toml", &wrong);
    let add = ["agent", "add", "new", "--description", "New."];
    for command in [&["agent", "list"][..], &["agent", "show", "waits"], &add] {
        place.tenure(command).with(2).saying("tool works: ").saying("docs/mcp.md");
    }
    assert_eq!(std::fs::read_to_string(place.path("agents.toml")).unwrap(), wrong);
}

/// What is not there, and what is wrong in a file, is told with what to do about it.
#[test]
fn what_is_wrong_with_a_file_of_agents_is_told() {
    let place = place();
    place.tenure(&["agent", "show", "work"]).with(3).saying("did you mean `works`?");
    place.tenure(&["agent", "card", "xyz"]).with(3).saying("tenure agent list");
    let absent = ["agent", "list", "--agents", "absent.toml", "-o", "json"];
    let absent = place.tenure(&absent).with(2).refusal();
    assert!(absent["message"].as_str().unwrap().contains("absent.toml"), "{absent}");
    assert!(absent["help"].as_str().unwrap().contains("--agents"), "{absent}");
    place.file("agents.toml", "[[agents]]\nname = \"a\"\n");
    place.tenure(&["agent", "list"]).with(2).saying("description").saying("docs/a2a.md");
    place.tenure(&["dev", "--agents", "agents.toml"]).with(2).saying("description");
}

/// An agent is added behind what the file says, and a gateway that runs serves it after SIGHUP. What would make the
/// file wrong is not added.
#[test]
fn an_agent_is_added() {
    let agents = Agents::start(&[]);
    let place = &agents.place;
    let add = |name: &str, more: &[&str]| {
        place.tenure(&[&["agent", "add", name, "--description", "\"New\"\n"], more].concat())
    };
    add("waits", &[]).with(4).saying("has an agent waits already");
    add("Not a name!", &[]).with(2);
    add("new", &["--template", "absent.yaml"]).with(2).saying("absent.yaml");
    add("new", &["--template", "works.yaml", "--message-to", "nowhere"]).with(2).saying("nowhere");
    add("new", &["--template", "works.yaml", "--handler", "exec"]).with(2).saying("--template");
    assert_eq!(std::fs::read_to_string(place.path("agents.toml")).unwrap(), AGENTS);

    let added = add("new", &["--handler", "noop", "-o", "json"]).with(0).saying("SIGHUP");
    assert_eq!(added.json()["runs"], "handler noop");
    add("newer", &["--template", "works.yaml", "--message-to", "take"]).with(0);
    let text = std::fs::read_to_string(place.path("agents.toml")).unwrap();
    assert!(text.starts_with(AGENTS), "{text}");
    agents.dev.process.signal(Signal::SIGHUP);
    let is_served = || agents.ask("card", "newer", &[]).code == Some(0);
    wait_until(is_served, &place.path("agents.toml"));
    agents.ask("send", "new", &["hello"]).with(0);
    agents.dev.stop();

    let empty = Place::new();
    empty.tenure(&["agent", "add", "first", "--description", "New."]).with(0);
    assert_eq!(empty.tenure(&["agent", "list", "-o", "quiet"]).with(0).stdout, "first\n");
}

/// A message is answered with its task, whose end is the exit code.
#[test]
fn a_message_is_sent_and_its_task_is_shown() {
    let agents = Agents::start(&[]);
    let card = agents.ask("card", "works", &["-o", "json"]).with(0).json();
    assert_eq!(
        (&card["card"]["name"], &card["interface"]["version"]),
        (&json!("Worker"), &json!("1.0"))
    );
    let sent = agents.ask("send", "works", &["hello"]).with(0).stdout;
    assert!(sent.contains("completed") && sent.contains("42"), "{sent}");
    let task = agents.ask("send", "works", &["hello", "-o", "json"]).with(0).json();
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["artifacts"][0]["parts"][0]["data"], 42);
    let id = task["id"].as_str().unwrap();
    assert_eq!(agents.ask("get", "works", &[id, "-o", "json"]).with(0).json(), task);
    assert_eq!(agents.ask("get", "works", &[id, "-o", "quiet"]).with(0).stdout, format!("{id}\n"));
    assert_eq!(agents.ask("watch", "works", &[id]).with(0).stdout, "completed\n");
    let told = agents.ask("watch", "works", &[id, "-o", "jsonl"]).with(0).lines();
    assert_eq!(told.last().unwrap()["task"], task);

    let failed = agents.ask("send", "fails", &["hello", "-o", "json"]).with(1).json();
    assert_eq!(failed["status"]["state"], "TASK_STATE_FAILED");
    let failed = failed["id"].as_str().unwrap();
    let watched = agents.ask("watch", "fails", &[failed]).with(1).stdout;
    assert_eq!(watched, "failed: the command exited with 3\n");
    agents.ask("send", "works/v0.3", &["hello"]).with(0);
    agents.dev.stop();
}

/// A question ends a wait and a watch, and says how it is answered. The answer goes on with the same task.
#[test]
fn a_question_is_answered_from_the_command_line() {
    let agents = Agents::start(&[]);
    let (url, task) = (agents.at("waits"), agents.begin_waiting());
    let watch = agents.place.start(&["a2a", "watch", &url, &task]);
    agents.report_question(&task);
    let told = watch.end().with(0).stdout;
    assert!(told.ends_with("input_required: where to?\n"), "{told}");
    let asks = agents.ask("send", "waits", &["east", "--task", &task, "--no-wait", "-o", "json"]);
    assert_eq!(asks.with(0).json()["id"], *task, "the answer goes to the same task");

    agents.report_question(&task);
    let url = format!("{url}/v0.3");
    let more = ["--task", &task, "--a2a-version", "0.3", "--host", "localhost"];
    let answer = agents.place.start(&[&["a2a", "send", &url, "north"], &more[..]].concat());
    let has_come = || {
        let shown = agents.ask("get", "waits", &[&task, "-o", "json"]).with(0).json();
        shown["history"].as_array().unwrap().last().unwrap()["parts"][0]["text"] == "north"
    };
    wait_until(has_come, &agents.place.path("the answer"));
    agents.report_question(&task);
    let told = answer.end().with(0);
    assert!(told.stdout.contains("where to?"), "{told:#?}");
    let options = "--a2a-version 0.3 --host localhost";
    told.saying(&format!("the agent asks: tenure a2a send {url} {options} --task {task} TEXT"));

    agents.ask("send", "waits", &["west", "--task", &task, "--no-wait"]).with(0);
    agents.report(&task, &json!({"status": "completed"}));
    assert_eq!(agents.ask("watch", "waits", &[&task]).with(0).stdout, "completed\n");
    agents.dev.stop();
}

/// Each way in which an agent cannot be asked has its exit code, and says what to do.
#[test]
fn why_an_agent_does_not_answer_is_told() {
    let agents = Agents::start(&[]);
    let place = &agents.place;
    place.tenure(&["a2a", "card", "nonsense"]).with(2).saying("https://HOST/a2a/NAME");
    agents.ask("send", "works", &["hi", "--a2a-version", "2.0"]).with(2).saying("1.0 and 0.3");
    agents.ask("card", "nobody", &[]).with(3).saying("no card").saying("https://HOST/a2a/NAME");
    let other = agents.ask("card", "works", &["--a2a-version", "0.3"]).with(2);
    other.saying("offers 1.0 over HTTP+JSON, 1.0 over JSONRPC").saying("without --a2a-version");
    let token = agents.ask("card", "works", &["--token", "a\nb"]).with(2);
    token.saying("a header cannot carry").saying("TENURE_A2A_TOKEN");
    agents.ask("card", "works", &["--ca", "ca.pem"]).with(0).saying("--ca is not used");
    for verb in ["get", "watch"] {
        let absent = agents.ask(verb, "works", &["absent", "-o", "json"]).with(3).refusal();
        assert!(absent["message"].as_str().unwrap().contains("no task"), "{absent}");
        assert!(absent["help"].as_str().unwrap().contains("--token"), "{absent}");
    }
    let ended = agents.ask("send", "works", &["hi", "-o", "quiet"]).with(0).stdout;
    let again = ["again", "--task", ended.trim()];
    agents.ask("send", "works", &again).with(4).saying("has ended").saying("without --task");
    let away = ["a2a", "send", "http://127.0.0.1:9/a2a/works", "hi"];
    let away = place.tenure(&away).with(6).saying("cannot reach").saying("see that the agent runs");
    assert!(!away.stderr.contains("command_id"), "{away:#?}");
    agents.dev.stop();

    place.file("agents.toml", format!("url = \"http://localhost:9\"\n{AGENTS}"));
    let dev = Dev::start(place, &["--agents", "agents.toml"]);
    let url = format!("{}/a2a/works", dev.url);
    let elsewhere = ["a2a", "card", &url];
    place.tenure(&elsewhere).with(5).saying("localhost").saying("--host");
    place.tenure(&[&elsewhere[..], &["--host", "localhost"]].concat()).with(0);
    dev.stop();
}

/// A gateway that asks for a login shows its cards to everybody, and lets in whoever has a token for the session.
#[test]
fn who_has_no_token_is_told_so() {
    let (mut callers, sessions) = (String::new(), ["a2a-works", "a2a-fails"]);
    for (name, session) in ["ann", "bob"].into_iter().zip(sessions) {
        callers.push_str(&format!(
            "[[tokens]]\nsha256 = \"{}\"\nprincipal = \"{name}\"\nrole = \"orchestrator\"\n\
             sessions = [\"{session}\"]\n",
            sha256(name)
        ));
    }
    let place = place();
    place.file("callers.toml", callers);
    let more = ["--agents", "agents.toml", "--http-callers", "callers.toml"];
    let agents = Agents { dev: Dev::start(&place, &more), place };
    agents.ask("card", "works", &[]).with(0);
    agents.ask("send", "works", &["hi"]).with(5).saying("TENURE_A2A_TOKEN");
    for wrong in ["bob", "eve"] {
        agents.ask("send", "works", &["hi", "--token", wrong]).with(5).saying("--token");
    }
    let url = agents.at("works");
    let mut send = agents.place.command(&["a2a", "send", &url, "hi"]);
    Running::run_to_end(send.env("TENURE_A2A_TOKEN", "ann")).with(0);
    agents.dev.stop();
}
