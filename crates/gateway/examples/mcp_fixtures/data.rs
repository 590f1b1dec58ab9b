//! What the fixtures are, as `fixtures.json` lists them.

use std::collections::BTreeMap;
use std::error::Error;

use serde::Deserialize;
use tenure_mcp::rmcp::model::{
    CallToolResult, ElicitRequestParams, GetPromptResult, InputRequest, Prompt, Resource,
    ResourceContents, ResourceTemplate, Tool,
};

/// All of them.
#[derive(Deserialize)]
pub(crate) struct Fixtures {
    pub(crate) tools: Vec<ToolFixture>,
    pub(crate) prompts: Vec<PromptFixture>,
    pub(crate) resources: Vec<ResourceFixture>,
    pub(crate) templates: Vec<ResourceTemplate>,
}

/// A tool, and what it answers when it has asked all that it asks.
#[derive(Deserialize)]
pub(crate) struct ToolFixture {
    pub(crate) tool: Tool,
    pub(crate) result: CallToolResult,
    /// What it asks in answers, before it answers.
    #[serde(default)]
    pub(crate) rounds: Vec<Round>,
    /// What it asks by a request to the client, while it is called.
    pub(crate) asks: Option<ElicitRequestParams>,
}

/// A prompt, as a [`ToolFixture`]. `{name}` in it stands for the argument of that name.
#[derive(Deserialize)]
pub(crate) struct PromptFixture {
    pub(crate) prompt: Prompt,
    pub(crate) result: GetPromptResult,
    #[serde(default)]
    pub(crate) rounds: Vec<Round>,
}

/// What is asked at once.
#[derive(Deserialize)]
pub(crate) struct Round {
    pub(crate) requests: BTreeMap<String, InputRequest>,
    /// Whether the client carries a state from this round to the next.
    #[serde(default)]
    pub(crate) sealed: bool,
}

/// A resource with what is read there.
#[derive(Deserialize)]
pub(crate) struct ResourceFixture {
    pub(crate) resource: Resource,
    pub(crate) content: ResourceContents,
}

impl Fixtures {
    pub(crate) fn load() -> Result<Fixtures, Box<dyn Error>> {
        Ok(serde_json::from_str(include_str!("fixtures.json"))?)
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&ToolFixture> {
        self.tools.iter().find(|it| it.tool.name == name)
    }

    pub(crate) fn prompt(&self, name: &str) -> Option<&PromptFixture> {
        self.prompts.iter().find(|it| it.prompt.name == name)
    }

    pub(crate) fn content(&self, uri: &str) -> Option<ResourceContents> {
        let listed = self.resources.iter().find(|it| it.resource.uri == uri);
        if let Some(found) = listed {
            return Some(found.content.clone());
        }
        let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
        let text = serde_json::json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
        Some(ResourceContents::text(text.to_string(), uri).with_mime_type("application/json"))
    }
}
