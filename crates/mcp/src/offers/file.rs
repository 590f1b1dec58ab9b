//! The tools in the file of agents: its section `[[tools]]`, as TOML.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use smol_str::SmolStr;
use tenure_core::command::create::CreateTask;
use tenure_core::id::{BadId, HandlerName, PoolId, StepId};

use super::schema::ToolSchema;
use super::start::{CALLER, TOOL};
use super::tool::{OfferAnswers, OfferTable, OfferedTool, OfferedWork, ToolHints};
use crate::tools;

/// The most tools of a file: a model reads all of them before it does anything.
pub const OFFERS_MAX: usize = 256;

/// The most bytes of a file of agents.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The most characters of a tool's name that all hosts take.
const NAME_CHARS_MAX: usize = 64;

/// The most labels of a tool: a Task has at most 16 (LABEL-01), and two of them say whose it is.
const LABELS_MAX: usize = 14;

/// The most characters of a label's key and of its value (LABEL-01).
const LABEL_CHARS_MAX: [usize; 2] = [63, 128];

/// Why the tools of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OffersError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// The file is longer than any that was written by hand.
    #[error("{} has more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// The file is not the TOML that it should be.
    #[error("{} cannot be understood: {why}", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// The entry of a tool is wrong.
    #[error("tool {tool}: {why}")]
    Tool {
        /// Its name, or its place in the file.
        tool: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Reads the file of a template: the Task that it describes, or why it describes none.
pub type ReadTaskFile<'a> = &'a dyn Fn(&Path) -> Result<CreateTask, String>;

/// What is read of the file. The rest of it is of agents.
#[derive(Debug, Deserialize)]
struct OffersFile {
    #[serde(default)]
    tools: Vec<OfferEntry>,
}

/// A tool as the file describes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfferEntry {
    name: String,
    title: Option<String>,
    description: String,
    handler: Option<String>,
    pool: Option<String>,
    attempts: Option<u32>,
    timeout: Option<String>,
    template: Option<PathBuf>,
    input_to: Option<String>,
    input_schema: Option<SchemaEntry>,
    output_schema: Option<SchemaEntry>,
    #[serde(default)]
    labels: BTreeMap<SmolStr, SmolStr>,
    #[serde(default)]
    answers: OfferAnswers,
    #[serde(default)]
    shared: bool,
    #[serde(default)]
    hints: ToolHints,
}

/// A schema: a table of TOML, or a text that is JSON.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SchemaEntry {
    Text(String),
    Table(Map<String, Json>),
}

impl OfferTable {
    /// Reads the tools in a file of agents. Files of templates are looked for beside it.
    ///
    /// # Errors
    /// What is wrong with the file, or with a template that it names.
    pub fn read(path: &Path, read_template: ReadTaskFile<'_>) -> Result<Self, OffersError> {
        let text = read_text(path)?;
        let form = |why: String| OffersError::Form { path: path.to_owned(), why };
        let file: OffersFile =
            toml::from_str(&text).map_err(|error| form(error.message().into()))?;
        file.into_table(path.parent().unwrap_or(Path::new("")), read_template)
    }
}

/// Reads a file that has a length at which it is certainly a mistake.
fn read_text(path: &Path) -> Result<String, OffersError> {
    let failed = |source| OffersError::Read { path: path.to_owned(), source };
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(OffersError::TooLong { path: path.to_owned() });
    }
    Ok(text)
}

impl OffersFile {
    fn into_table(
        self,
        beside: &Path,
        read_template: ReadTaskFile<'_>,
    ) -> Result<OfferTable, OffersError> {
        let count = self.tools.len();
        if count > OFFERS_MAX {
            let why = format!("there are {count} tools; at most {OFFERS_MAX}");
            return Err(OffersError::Tool { tool: OFFERS_MAX.to_string(), why });
        }
        let mut table = OfferTable::default();
        for entry in self.tools {
            let name = entry.name.clone();
            let wrong = |why| OffersError::Tool { tool: name.clone(), why };
            let tool = entry.into_tool(beside, read_template).map_err(wrong)?;
            if table.all.insert(name.clone(), tool).is_some() {
                return Err(wrong("another tool has the same name".into()));
            }
        }
        Ok(table)
    }
}

impl OfferEntry {
    fn into_tool(
        self,
        beside: &Path,
        read_template: ReadTaskFile<'_>,
    ) -> Result<OfferedTool, String> {
        HandlerName::new(&self.name).map_err(|bad| bad.to_string())?;
        if self.name.len() > NAME_CHARS_MAX {
            return Err(format!("a name has at most {NAME_CHARS_MAX} characters"));
        }
        if tools::named(&self.name).is_some() {
            return Err("a tool of Tenure itself has this name".into());
        }
        if self.description.trim().is_empty() {
            return Err("description has to say what the tool is for".into());
        }
        check_labels(&self.labels)?;
        let work = self.work(beside, read_template)?;
        let input = schema("input_schema", self.input_schema)?.map_or_else(ToolSchema::any, Ok)?;
        let output = schema("output_schema", self.output_schema)?;
        let (name, title, description) = (self.name, self.title, self.description);
        let (labels, answers, shared, hints) = (self.labels, self.answers, self.shared, self.hints);
        Ok(OfferedTool {
            name,
            title,
            description,
            input,
            output,
            labels,
            answers,
            shared,
            hints,
            work,
        })
    }

    fn work(&self, beside: &Path, read_template: ReadTaskFile<'_>) -> Result<OfferedWork, String> {
        let said = |bad: BadId| bad.to_string();
        let Some(template) = &self.template else {
            if self.input_to.is_some() {
                return Err("input_to goes with template".into());
            }
            let handler = self.handler.as_ref().unwrap_or(&self.name);
            let handler = HandlerName::new(handler).map_err(said)?;
            let pool = self.pool.as_ref().map(PoolId::new).transpose().map_err(said)?;
            let attempts = self.attempts.unwrap_or(1);
            if attempts == 0 {
                return Err("attempts counts from 1".into());
            }
            let timeout_ms = self.timeout.as_deref().map(millis).transpose()?;
            return Ok(OfferedWork::Handler { handler, pool, attempts, timeout_ms });
        };
        let says_itself = [self.handler.is_some(), self.pool.is_some()];
        if says_itself.contains(&true) || self.attempts.is_some() || self.timeout.is_some() {
            let why = "a template says itself which handlers and pools run it, how often, how long";
            return Err(why.into());
        }
        let task = read_template(&beside.join(template))?;
        let input_to = self.input_to.as_ref().map(StepId::new).transpose().map_err(said)?;
        let input_to = step_for_input(&task, input_to)?;
        Ok(OfferedWork::Template { task: Box::new(task), input_to })
    }
}

/// The Step that gets the arguments: the one that is named, or the only one of the template that waits for no other.
fn step_for_input(task: &CreateTask, named: Option<StepId>) -> Result<StepId, String> {
    if let Some(named) = named {
        let is_there = task.steps.iter().any(|step| step.step_id == named);
        return is_there
            .then_some(named.clone())
            .ok_or(format!("the template has no step {named}"));
    }
    let mut first = task.steps.iter().filter(|step| step.depends_on_step_ids.is_empty());
    match (first.next(), first.next()) {
        (Some(only), None) => Ok(only.step_id.clone()),
        _ => Err("input_to has to say which step of the template gets the arguments".into()),
    }
}

fn check_labels(labels: &BTreeMap<SmolStr, SmolStr>) -> Result<(), String> {
    if labels.len() > LABELS_MAX {
        return Err(format!("there are {} labels; at most {LABELS_MAX}", labels.len()));
    }
    for (key, value) in labels {
        if [TOOL, CALLER].contains(&key.as_str()) {
            return Err(format!("label {key} is set for each call"));
        }
        let [key_max, value_max] = LABEL_CHARS_MAX;
        if key.is_empty() || key.chars().count() > key_max || value.chars().count() > value_max {
            let why = format!(
                "label {key:?} is too long: at most {key_max} characters, and {value_max} behind it"
            );
            return Err(why);
        }
    }
    Ok(())
}

fn millis(text: &str) -> Result<u64, String> {
    let wrong = |why: String| format!("timeout {text:?}: {why}");
    let time: Duration =
        humantime::parse_duration(text).map_err(|error| wrong(error.to_string()))?;
    match u64::try_from(time.as_millis()) {
        Ok(0) | Err(_) => Err(wrong("at least 1ms".into())),
        Ok(millis) => Ok(millis),
    }
}

fn schema(field: &str, entry: Option<SchemaEntry>) -> Result<Option<ToolSchema>, String> {
    let wrong = |why: String| format!("{field}: {why}");
    let words = match entry {
        None => return Ok(None),
        Some(SchemaEntry::Table(words)) => words,
        Some(SchemaEntry::Text(text)) => {
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?
        }
    };
    ToolSchema::new(words).map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests;
