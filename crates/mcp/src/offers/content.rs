//! What a Task has made, as the result of a call.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject, Resource, ResourceContents};
use serde_json::{Map, Value as Json, json};
use tenure_core::record::{Reason, Value, ValueBody};
use tenure_core::status::{ArtifactKind, ArtifactState};
use tenure_core::view::TaskView;
use tenure_core::view::artifact::ArtifactView;
use tenure_core::{Code, Rejection};
use tenure_wire::json::read_bounded;

use super::schema::SchemaMismatch;
use super::state::in_short;
use super::tool::OfferedTool;
use crate::result;

/// The media type of an output that is a list of content blocks of MCP: how a worker says exactly what to show.
const CONTENT: &str = "application/vnd.tenure.mcp-content+json";

/// The most bytes of an output that a result shows.
pub(super) const OUTPUT_BYTES_MAX: u64 = 4 << 20;

/// The most artifacts that a result shows; the others are with the Task.
const ARTIFACTS_MAX: usize = 64;

/// The key of a reason in the metadata of a result, where its structured content is of another schema.
const REASON_META: &str = "dev.tenure/reason";

/// The same of a refusal.
const ERROR_META: &str = "dev.tenure/error";

/// The same of what is known of a Task that goes on.
const TASK_META: &str = "dev.tenure/task";

/// The code of a result that is not what its tool promises.
const OUTPUT_INVALID: &str = "output_invalid";

/// The result of a Task that has completed. `blob`: the bytes of its output, if they are in a blob.
pub(super) fn completed(
    tool: Option<&OfferedTool>,
    task: &TaskView,
    blob: Option<&[u8]>,
) -> CallToolResult {
    let mut made = ResultParts::default();
    made.content.extend(summary(task).map(ContentBlock::text));
    if let Some(output) = &task.output
        && let Err(why) = made.add_output(&address(task), output, blob)
    {
        return failed(tool, &Reason::new(OUTPUT_INVALID, &why));
    }
    for artifact in task.artifacts.iter().filter(|it| is_shown(it)).take(ARTIFACTS_MAX) {
        made.content.extend(block_of(artifact));
    }
    if let Some(Err(wrong)) = tool.and_then(|tool| made.check(tool)) {
        let why = match &*wrong.field {
            "" => wrong.why,
            field => format!("{field}: {}", wrong.why),
        };
        let why = format!("the handler's output is not as output_schema says: {why}");
        return failed(tool, &Reason::new(OUTPUT_INVALID, &why));
    }
    let mut result = CallToolResult::success(made.content);
    result.structured_content = made.structured;
    result
}

/// The address of the output of a Task.
fn address(task: &TaskView) -> String {
    format!("tenure://task/{}/{}#output", task.task.session_id, task.task.task_id)
}

/// What is said of the result in words.
fn summary(task: &TaskView) -> Option<&str> {
    let named = task.output_from.as_ref();
    let step = match (named, &task.steps[..]) {
        (Some(named), steps) => steps.iter().find(|step| step.spec.step_id == *named),
        (None, [only]) => Some(only),
        (None, _) => None,
    };
    let of_step = || step?.facts.as_ref()?.result_summary.as_deref();
    let said = task.task.result_summary.as_deref().or_else(of_step)?;
    Some(said).filter(|said| !said.trim().is_empty())
}

/// The result of a Task that has failed.
pub(super) fn failed(tool: Option<&OfferedTool>, reason: &Reason) -> CallToolResult {
    with_reason(tool, in_short(reason), json!(reason))
}

/// The result of a Task that was cancelled.
pub(super) fn cancelled(tool: Option<&OfferedTool>, reason: Option<&Reason>) -> CallToolResult {
    let code = Reason::code("task_cancelled");
    let reason = reason.unwrap_or(&code);
    with_reason(tool, format!("the call was cancelled: {}", in_short(reason)), json!(reason))
}

/// The result of a call that Tenure refuses.
pub(super) fn refused(tool: Option<&OfferedTool>, no: &Rejection) -> CallToolResult {
    let mut result = result::refused(no, None);
    if promises(tool) {
        let told = result.structured_content.take();
        result.meta = told.map(|mut told| about(ERROR_META, told["error"].take()));
    }
    result
}

/// The result of a call whose arguments are not what the tool takes.
pub(super) fn misfit(tool: &OfferedTool, wrong: &SchemaMismatch) -> CallToolResult {
    let field = match &*wrong.field {
        "" => "arguments".to_owned(),
        field => format!("arguments.{field}"),
    };
    let message = format!("{field}: {}", wrong.why);
    refused(Some(tool), &Rejection::new(Code::ValidationError, message).with("field", field))
}

/// An error with its reason for programs. Clients hold structured content against the schema of the tool, if it has
/// one: there the reason is metadata.
fn with_reason(tool: Option<&OfferedTool>, said: String, reason: Json) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(said)]);
    if promises(tool) {
        result.meta = Some(about(REASON_META, reason));
    } else {
        result.structured_content = Some(json!({"reason": reason}));
    }
    result
}

/// The result of a call whose work goes on. Where a tool has promised a schema, no other result than an error may be
/// without it.
pub(super) fn goes_on(tool: Option<&OfferedTool>, said: String, facts: Json) -> CallToolResult {
    let content = vec![ContentBlock::text(said)];
    if promises(tool) {
        let mut result = CallToolResult::error(content);
        result.meta = Some(about(TASK_META, facts));
        return result;
    }
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(facts);
    result
}

/// Metadata with this entry.
fn about(key: &str, told: Json) -> MetaObject {
    Map::from_iter([(key.to_owned(), told)]).into()
}

fn promises(tool: Option<&OfferedTool>) -> bool {
    tool.is_some_and(|tool| tool.output.is_some())
}

/// A result in the making.
#[derive(Debug, Default)]
struct ResultParts {
    content: Vec<ContentBlock>,
    structured: Option<Json>,
}

impl ResultParts {
    /// Whether the output is what the tool promises; none if it promises nothing.
    fn check(&self, tool: &OfferedTool) -> Option<Result<(), SchemaMismatch>> {
        let schema = tool.output.as_ref()?;
        Some(schema.check(self.structured.as_ref().unwrap_or(&Json::Null)))
    }

    /// Adds the output of a Task.
    fn add_output(
        &mut self,
        address: &str,
        output: &Value,
        blob: Option<&[u8]>,
    ) -> Result<(), String> {
        let bytes = match &output.body {
            ValueBody::Data(data) => &**data,
            ValueBody::Blob(large) => {
                let bytes = large.size_bytes;
                blob.ok_or_else(|| {
                    format!("the output has {bytes} bytes, a result at most {OUTPUT_BYTES_MAX}: hand over its address")
                })?
            }
            ValueBody::Ref(to) => {
                let link = Resource::new(to.as_str(), "output");
                self.content.push(ContentBlock::resource_link(typed(link, &output.content_type)));
                return Ok(());
            }
        };
        let whole = output.content_type.as_str();
        let name = whole.split(';').next().unwrap_or_default().trim();
        // What is compressed or encrypted is for those who know how.
        if !output.encoding.names().is_empty() {
            self.content.push(embedded(address, bytes, whole));
        } else if name == CONTENT {
            let blocks: Result<Vec<ContentBlock>, _> = read_bounded(bytes);
            self.content.extend(blocks.map_err(|error| format!("{CONTENT}: {error}"))?);
        } else if name == Value::JSON || name.ends_with("+json") {
            let json = read_bounded(bytes).map_err(|error| format!("{name}: {error}"))?;
            self.add_json(json);
        } else {
            self.content.push(of_bytes(address, bytes, name, whole));
        }
        Ok(())
    }

    /// JSON is shown as text, too, for clients that know no structured content.
    fn add_json(&mut self, json: Json) {
        match json {
            Json::Null => {}
            Json::String(text) => self.content.push(ContentBlock::text(text)),
            json => {
                self.content.push(ContentBlock::text(json.to_string()));
                self.structured = Some(json);
            }
        }
    }
}

/// Bytes by their media type.
fn of_bytes(address: &str, bytes: &[u8], name: &str, whole: &str) -> ContentBlock {
    match (name.split_once('/').map(|(kind, _)| kind), str::from_utf8(bytes)) {
        (Some("text"), Ok(text)) => ContentBlock::text(text),
        (Some("image"), _) => ContentBlock::image(BASE64.encode(bytes), name),
        (Some("audio"), _) => ContentBlock::audio(BASE64.encode(bytes), name),
        _ => embedded(address, bytes, whole),
    }
}

/// Bytes as they are.
fn embedded(address: &str, bytes: &[u8], media_type: &str) -> ContentBlock {
    let contents = ResourceContents::blob(BASE64.encode(bytes), address);
    ContentBlock::resource(contents.with_mime_type(media_type))
}

/// Whether somebody outside may see an artifact: what a command printed and evidence is not for callers.
fn is_shown(artifact: &ArtifactView) -> bool {
    let is_inner = matches!(
        artifact.kind,
        ArtifactKind::Stdout | ArtifactKind::Stderr | ArtifactKind::Evidence
    );
    !is_inner && artifact.state == ArtifactState::Available
}

/// An artifact: its text, or where it is.
fn block_of(artifact: &ArtifactView) -> Option<ContentBlock> {
    if let Some(data) = &artifact.data {
        return Some(ContentBlock::text(data));
    }
    let uri = artifact.uri.as_ref().filter(|uri| is_reachable(uri))?;
    let mut link = Resource::new(uri, &artifact.name);
    link.description.clone_from(&artifact.description);
    link.mime_type = artifact.media_type.as_ref().map(ToString::to_string);
    Some(ContentBlock::resource_link(link))
}

/// Whether somebody outside may read what is there: not a file of a worker's machine, nor a blob.
fn is_reachable(uri: &str) -> bool {
    let scheme = uri.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
    scheme.is_some_and(|scheme| !matches!(&*scheme, "file" | "blob" | "data"))
}

fn typed(mut link: Resource, media_type: &str) -> Resource {
    link.mime_type = Some(media_type.to_owned());
    link
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tenure_core::id::Ref;

    use super::super::tool::OfferTable;
    use super::*;
    use crate::file::AgentsFile;

    fn parts(output: &Value) -> Result<Json, String> {
        let mut made = ResultParts::default();
        made.add_output("tenure://task/s/t#output", output, Some(b"\"in a blob\""))?;
        Ok(json!([made.content, made.structured]))
    }

    fn text(said: &str) -> Json {
        json!({"type": "text", "text": said})
    }

    /// What a worker gives as its result is shown by its media type.
    #[test]
    fn an_output_is_shown_by_its_media_type() {
        let of = |media_type: &str, data: &[u8]| parts(&Value::inline(media_type, data)).unwrap();
        assert_eq!(of("application/json", b"\"a\""), json!([[text("a")], null]));
        assert_eq!(of("application/json", b"null"), json!([[], null]));
        let object = json!([[text("{\"a\":1}")], {"a": 1}]);
        assert_eq!(of("application/x+json; v=1", b"{ \"a\": 1 }"), object);
        assert_eq!(of("text/markdown", b"# a"), json!([[text("# a")], null]));
        let image = json!({"type": "image", "data": "YQ==", "mimeType": "image/png"});
        assert_eq!(of("image/png", b"a"), json!([[image], null]));
        assert_eq!(of("audio/wav", b"a")[0][0]["type"], "audio");
        let zip = of("application/zip", b"a");
        assert_eq!(zip[0][0]["resource"]["blob"], "YQ==");
        assert_eq!(of("text/plain", &[0xff])[0][0]["type"], "resource");
        let blocks = json!([text("a"), image]);
        assert_eq!(of(CONTENT, blocks.to_string().as_bytes())[0], blocks);
        let link = Value::of("text/html", ValueBody::Ref(Ref::new("https://a").unwrap()));
        assert_eq!(parts(&link).unwrap()[0][0]["uri"], "https://a");
        for (media_type, data) in [(CONTENT, "{}"), ("application/json", "{")] {
            let wrong = parts(&Value::inline(media_type, data.as_bytes())).unwrap_err();
            assert!(wrong.starts_with(media_type), "{wrong}");
        }
    }

    /// Clients hold structured content against the schema of the tool: an error does not bring any there.
    #[test]
    fn a_reason_stands_where_clients_take_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agents.toml");
        let tool = "[[tools]]\nname = \"a\"\ndescription = \"A.\"\n";
        let promise = tool.replace("\"a\"", "\"b\"");
        let file = format!("{tool}{promise}output_schema = {{required = [\"n\"]}}\n");
        std::fs::write(&path, file).unwrap();
        let table =
            OfferTable::read(&AgentsFile::read(&path).unwrap(), &|_: &Path| Err("none".into()))
                .unwrap();
        let reason = Reason::new("out_of_paper", "no paper");
        let plain = failed(table.find("a"), &reason);
        let told = json!({"code": "out_of_paper", "message": "no paper"});
        assert_eq!(plain.structured_content, Some(json!({"reason": told})));
        assert_eq!(
            (plain.is_error, json!(plain.content)),
            (Some(true), json!([text("no paper (out_of_paper)")]))
        );
        let promised = failed(table.find("b"), &reason);
        assert_eq!(promised.structured_content, None);
        assert_eq!(json!(promised.meta)[REASON_META], told);
        let later = |name| goes_on(table.find(name), "later".into(), json!({"task_id": "t"}));
        assert_eq!(later("a").structured_content, Some(json!({"task_id": "t"})));
        assert_eq!((later("b").structured_content, later("b").is_error), (None, Some(true)));
    }
}
