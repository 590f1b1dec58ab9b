//! What the routes of this module are, for `/openapi.json`.

use super::{SINCE, log, sse, task};
use crate::described::{Content, DescribedRoute, Parameter, json_of};

/// How a reader says what it knows.
const PLACE: [Parameter; 2] = [
    Parameter::query(
        SINCE,
        "string",
        "Events behind this `wal_seq`, or behind the event with this id.",
    ),
    Parameter::header(
        "Last-Event-ID",
        "The same, of a stream that broke off; it counts before `since`.",
    ),
];

/// Which bytes of an output.
const OUTPUT: [Parameter; 4] = [
    Parameter::query("stream", "string", "`stdout`, which is the default, or `stderr`."),
    Parameter::query("from", "integer", "From this byte on."),
    Parameter::query("tail", "integer", "Only so many of the last lines, at most 100000."),
    Parameter::query("follow", "boolean", "Goes on with what comes, until the Attempt has ended."),
];

const TEXT: Content = Content::Other("text/plain");

/// These resources, for the document.
const DESCRIBED: [DescribedRoute; 5] = [
    DescribedRoute::read(
        "/v1/sessions/{session}/events",
        "stream_session",
        "Streams hints that Tasks of the session have changed, without an end.",
        &[
            Parameter::query("runtime", "boolean", "Streams what happens around Runs, too."),
            Parameter::header(
                "Last-Event-ID",
                "Of a stream that broke off: this one begins with a gap.",
            ),
        ],
        &[(200, Some(Content::Other(sse::MEDIA_TYPE)))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/events",
        "read_events",
        "Reads the public events of a Task: a page, or a stream to whoever accepts text/event-stream.",
        &[
            PLACE[0],
            PLACE[1],
            Parameter::query("max_bytes", "integer", "The longest page that is wanted."),
        ],
        &[(200, Some(json_of::<task::EventsAnswer>())), (204, None)],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/log",
        "read_log",
        "Reads the log of a Task as it is stored: a JSON object on each line.",
        &[Parameter::query(
            "after",
            "integer",
            "Behind this event, which is the last of a commit.",
        )],
        &[(200, Some(Content::Other(log::MEDIA_TYPE)))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/attempts/{attempt_id}/logs",
        "read_output",
        "Reads what the command of an Attempt wrote.",
        &OUTPUT,
        &[(200, Some(TEXT))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/steps/{step_id}/attempts/{ordinal}/logs",
        "read_output_of_step",
        "Reads what the command of an Attempt wrote, by its number among those of its Step.",
        &OUTPUT,
        &[(200, Some(TEXT))],
    ),
];

/// The resources of this module, for the document.
pub(crate) fn described() -> impl Iterator<Item = DescribedRoute> {
    DESCRIBED.into_iter()
}
