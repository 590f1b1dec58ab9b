//! The tools in the file of agents: its section `[[tools]]`, as TOML.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use smol_str::SmolStr;
use tenure_core::id::HandlerName;

use super::schema::ToolSchema;
use super::start::{CALLER, TOOL};
use super::tool::{OfferAnswers, OfferTable, OfferedTool, ToolHints};
use crate::file::{AgentsFile, AgentsFileError, EntryWork, ReadTemplate, WorkFields};
use crate::tools;

/// The most tools of a file: a model reads all of them before it does anything.
pub const OFFERS_MAX: usize = 256;

/// The most characters of a tool's name that all hosts take.
const NAME_CHARS_MAX: usize = 64;

/// The most labels of a tool: a Task has at most 16 (LABEL-01), and two of them say whose it is.
const LABELS_MAX: usize = 14;

/// The most characters of a label's key and of its value (LABEL-01).
const LABEL_CHARS_MAX: [usize; 2] = [63, 128];

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
    /// The tools in a file of agents.
    ///
    /// # Errors
    /// What is wrong with the file, or with a template that it names.
    pub fn read(
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
    ) -> Result<Self, AgentsFileError> {
        file.parse::<OffersFile>()?.into_table(file, read_template)
    }
}

impl OffersFile {
    fn into_table(
        self,
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
    ) -> Result<OfferTable, AgentsFileError> {
        let count = self.tools.len();
        if count > OFFERS_MAX {
            let why = format!("there are {count} tools; at most {OFFERS_MAX}");
            return Err(AgentsFileError::Tool { tool: OFFERS_MAX.to_string(), why });
        }
        let mut table = OfferTable::default();
        for entry in self.tools {
            let name = entry.name.clone();
            let wrong = |why| AgentsFileError::Tool { tool: name.clone(), why };
            let tool = entry.into_tool(file, read_template).map_err(wrong)?;
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
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
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
        let work = self.work(file, read_template)?;
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

    fn work(
        &self,
        file: &AgentsFile,
        read_template: ReadTemplate<'_>,
    ) -> Result<EntryWork, String> {
        let fields = WorkFields {
            name: &self.name,
            handler: self.handler.as_deref(),
            pool: self.pool.as_deref(),
            attempts: self.attempts,
            timeout: self.timeout.as_deref(),
            template: self.template.as_deref(),
            input_to: self.input_to.as_deref(),
            input_field: "input_to",
        };
        fields.work(file, read_template)
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
