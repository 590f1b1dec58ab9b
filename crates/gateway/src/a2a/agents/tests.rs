//! What a file of agents may say.

use std::fs;

use tenure_core::command::create::CreateTask;
use tenure_core::patch::StepInput;

use super::*;

const ECHO: &str = "[[agents]]\nname = \"echo\"\ndescription = \"Says it again.\"\n";

fn read(text: &str) -> Result<Agents, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agents.toml");
    fs::write(&path, text).unwrap();
    let template = |path: &std::path::Path| {
        assert!(path.ends_with("trip.yaml") && path.starts_with(dir.path()));
        Ok(trip())
    };
    Agents::read(&AgentsFile::read(&path).unwrap(), &template).map_err(|error| error.to_string())
}

/// A Task of two Steps, the second of which waits for the first.
fn trip() -> CreateTask {
    let step = |id: &str, after: &[&str]| -> StepInput {
        let step = serde_json::json!({"step_id": id, "title": id, "depends_on_step_ids": after});
        serde_json::from_value(step).unwrap()
    };
    CreateTask { steps: vec![step("plan", &[]), step("book", &["plan"])], ..CreateTask::default() }
}

#[test]
fn an_agent_needs_a_name_and_a_description() {
    let agents = read(ECHO).unwrap();
    let echo = agents.find("echo").unwrap();
    assert_eq!((echo.title(), echo.session().as_str()), ("echo", "a2a-echo"));
    assert_eq!(echo.runs(), "handler echo");
    assert_eq!((echo.answers, echo.shared), (AgentAnswers::Task, false));
    assert_eq!(echo.about.input_modes, ["text/plain"]);
    assert!(agents.only().is_some() && agents.find("other").is_none());
    assert_eq!(agents.digest().len(), 64);
    assert!(read("[[agents]]\nname = \"echo\"\n").unwrap_err().contains("description"));
}

#[test]
fn a_template_gets_the_message_in_one_of_its_steps() {
    let of = |more: &str| read(&format!("{ECHO}template = \"trip.yaml\"\n{more}"));
    let runs = |more: &str| of(more).map(|agents| agents.find("echo").unwrap().runs());
    assert_eq!(runs("").unwrap(), "2 steps, the message goes to plan");
    assert_eq!(runs("message_to = \"book\"").unwrap(), "2 steps, the message goes to book");
    assert!(runs("message_to = \"fly\"").unwrap_err().contains("no step fly"));
    for wrong in ["pool = \"gpu\"", "handler = \"go\"", "attempts = 2"] {
        assert!(runs(wrong).unwrap_err().contains("template"), "{wrong}");
    }
    assert!(read(&format!("{ECHO}message_to = \"plan\"\n")).unwrap_err().contains("template"));
}

/// The digest says whether two gateways have the same agents: it changes with the file, and with the task of a
/// template while the file stays as it is.
#[test]
fn the_digest_covers_the_file_and_its_templates() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agents.toml");
    let digest = |text: &str, task: &CreateTask| {
        fs::write(&path, text).unwrap();
        Agents::read(&AgentsFile::read(&path).unwrap(), &|_| Ok(task.clone()))
            .unwrap()
            .digest()
            .to_owned()
    };
    let text = format!("{ECHO}template = \"trip.yaml\"\nmessage_to = \"plan\"\n");
    let mut other = trip();
    other.steps.pop();
    let first = digest(&text, &trip());
    assert_eq!(digest(&text, &trip()), first);
    assert_ne!(digest(&text, &other), first);
    assert_ne!(digest(&text.replace("Says", "Said"), &trip()), first);
    assert_eq!(digest(ECHO, &trip()), digest(ECHO, &other), "no agent has the template");
}

#[test]
fn what_is_misspelt_or_doubled_is_refused() {
    for (text, why) in [
        (format!("{ECHO}titel = \"Echo\"\n"), "titel"),
        (format!("{ECHO}{ECHO}"), "same name"),
        (ECHO.replace("\"echo\"", "\"Echo!\""), "Echo!"),
        (format!("{ECHO}session = \"a b\"\n"), "session_id"),
        (format!("{ECHO}answers = \"both\"\n"), "both"),
        (format!("{ECHO}attempts = 0\n"), "attempts"),
    ] {
        let refused = read(&text).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    assert!(read(&format!("{ECHO}{}", ECHO.replace("echo", "other"))).unwrap().only().is_none());
    assert!(read("").unwrap().only().is_none());
}
