//! The tools in a file of agents, as the command line shows them.

use serde::Serialize;
use tenure_mcp::offers::OfferedTool;
use tenure_mcp::rmcp::model::Tool;

use crate::answer::{Exit, Failure, Format, Shape, Sheet, Tone, output, text, toned};

/// A tool in a list.
#[derive(Serialize)]
pub(super) struct ListedTool<'a> {
    tool: &'a str,
    title: &'a str,
    answers: &'static str,
    runs: String,
}

/// A tool alone.
#[derive(Serialize)]
struct ShownTool<'a> {
    #[serde(flatten)]
    about: ListedTool<'a>,
    /// What clients of MCP list of it.
    listed: Tool,
}

impl<'a> ListedTool<'a> {
    /// What a list says of it.
    pub(super) fn of(tool: &'a OfferedTool) -> Self {
        Self {
            tool: tool.name(),
            title: tool.title(),
            answers: tool.answers().as_str(),
            runs: tool.runs(),
        }
    }
}

/// Prints the tools for people, if there are any, below the agents.
pub(super) fn print_all(tools: &[ListedTool<'_>]) -> Result<(), Failure> {
    if tools.is_empty() {
        return Ok(());
    }
    output::print("\n")?;
    let mut sheet = Sheet::new(&["TOOL", "TITLE", "ANSWERS", "RUNS"]);
    for tool in tools {
        let name = toned(tool.tool, Tone::Strong);
        sheet.row([name, text(tool.title), text(tool.answers), text(&tool.runs)]);
    }
    sheet.print()
}

/// Prints a tool.
pub(super) fn print(output: Format, tool: &OfferedTool) -> Result<Exit, Failure> {
    let tool = ShownTool { about: ListedTool::of(tool), listed: tool.shown() };
    output.answer(&tool, Shape::one("tool"), || {
        let mut sheet = Sheet::bare();
        sheet.field("tool", tool.about.tool);
        sheet.field("title", tool.about.title);
        sheet.field("answers", tool.about.answers);
        sheet.field("runs", &tool.about.runs);
        sheet.print()
    })
}
