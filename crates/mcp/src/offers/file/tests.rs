//! What the section `[[tools]]` of a file may say.

use std::fs;
use std::path::Path;

use serde_json::json;
use tenure_core::command::create::CreateTask;
use tenure_core::patch::StepInput;

use super::*;

const RESIZE: &str = "[[tools]]\nname = \"resize\"\ndescription = \"Resizes an image.\"\n";

fn read(text: &str) -> Result<OfferTable, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agents.toml");
    fs::write(&path, text).unwrap();
    let step = |id: &str, after: &[&str]| -> StepInput {
        let step = json!({"step_id": id, "title": id, "depends_on_step_ids": after});
        serde_json::from_value(step).unwrap()
    };
    let template = |path: &Path| {
        assert!(path.ends_with("trip.yaml") && path.starts_with(dir.path()));
        let steps = vec![step("plan", &[]), step("book", &["plan"])];
        Ok(CreateTask { steps, ..CreateTask::default() })
    };
    OfferTable::read(&AgentsFile::read(&path).unwrap(), &template)
        .map_err(|error| error.to_string())
}

fn shown(text: &str) -> Json {
    let table = read(text).unwrap();
    serde_json::to_value(table.find("resize").unwrap().shown()).unwrap()
}

/// A tool needs a name and a description, and stands beside the agents of the same file.
#[test]
fn a_tool_is_what_its_entry_says() {
    let agents = "url = \"https://a\"\n[[agents]]\nname = \"echo\"\ndescription = \"Echo.\"\n";
    let plain = json!({
        "name": "resize",
        "description": "Resizes an image.",
        "inputSchema": {"type": "object", "properties": {}},
    });
    assert_eq!(shown(&format!("{agents}{RESIZE}")), plain);
    let more = "title = \"Resize\"\nhints = {read_only = true}\noutput_schema = '{\"type\": \"object\"}'\n\
                [tools.input_schema]\nproperties.width.type = \"integer\"\n";
    let whole = shown(&format!("{RESIZE}{more}"));
    assert_eq!(whole["inputSchema"]["properties"], json!({"width": {"type": "integer"}}));
    assert_eq!(whole["outputSchema"], json!({"type": "object", "properties": {}}));
    assert_eq!(whole["annotations"], json!({"readOnlyHint": true}));
    assert_eq!(whole["title"], "Resize");
    assert_eq!(read(agents).unwrap().names().count(), 0);
}

/// What runs the calls, and how often and how long.
#[test]
fn the_work_of_a_tool_is_a_handler_or_a_template() {
    let of = |more: &str| read(&format!("{RESIZE}{more}"));
    let work = |more: &str| of(more).unwrap().find("resize").unwrap().work.clone();
    let EntryWork::Handler { handler, pool, attempts, timeout_ms } = work("") else { panic!() };
    assert_eq!((handler.as_str(), pool, attempts, timeout_ms), ("resize", None, 1, None));
    let more = "handler = \"go\"\npool = \"gpu\"\nattempts = 3\ntimeout = \"2m\"\n";
    let EntryWork::Handler { handler, pool, attempts, timeout_ms } = work(more) else { panic!() };
    assert_eq!((handler.as_str(), attempts, timeout_ms), ("go", 3, Some(120_000)));
    assert_eq!(pool.unwrap().as_str(), "gpu");
    for (more, to) in [("", "plan"), ("input_to = \"book\"\n", "book")] {
        let EntryWork::Template { input_to, .. } =
            work(&format!("template = \"trip.yaml\"\n{more}"))
        else {
            panic!("{more}")
        };
        assert_eq!(input_to.as_str(), to);
    }
}

#[test]
fn what_is_misspelt_or_doubled_is_refused() {
    let labels: String = (0..15).map(|n| format!("l{n} = \"a\"\n")).collect();
    for (text, why) in [
        ("[[tools]]\nname = \"resize\"\n".into(), "description"),
        (RESIZE.replace("Resizes an image.", " "), "what the tool is for"),
        (format!("{RESIZE}titel = \"R\"\n"), "titel"),
        (format!("{RESIZE}{RESIZE}"), "same name"),
        (RESIZE.replace("resize", "Resize!"), "Resize!"),
        (RESIZE.replace("resize", &"r".repeat(65)), "64"),
        (RESIZE.replace("resize", "task_create"), "Tenure itself"),
        (format!("{RESIZE}attempts = 0\n"), "attempts"),
        (format!("{RESIZE}timeout = \"soon\"\n"), "timeout"),
        (format!("{RESIZE}timeout = \"0s\"\n"), "1ms"),
        (format!("{RESIZE}input_to = \"plan\"\n"), "template"),
        (format!("{RESIZE}template = \"trip.yaml\"\ninput_to = \"fly\"\n"), "no step fly"),
        (format!("{RESIZE}template = \"trip.yaml\"\npool = \"gpu\"\n"), "template"),
        (format!("{RESIZE}input_schema = '{{'\n"), "input_schema"),
        (format!("{RESIZE}output_schema = {{type = \"array\"}}\n"), "output_schema"),
        (format!("{RESIZE}hints = {{safe = true}}\n"), "safe"),
        (format!("{RESIZE}labels = {{mcp-tool = \"a\"}}\n"), "mcp-tool"),
        (format!("{RESIZE}[tools.labels]\n{labels}"), "15 labels"),
        (format!("{RESIZE}labels = {{a = \"{}\"}}\n", "b".repeat(129)), "too long"),
        ((0..257).map(|n| RESIZE.replace("resize", &format!("r{n}"))).collect(), "at most 256"),
    ] {
        let refused = read(&text).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
}
