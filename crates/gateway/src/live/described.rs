//! What the routes of this module are, for `/openapi.json`.

use super::tail::TAIL_MAX;
use super::{SINCE, log, sse, task};
use crate::described::{Content, DescribedRoute, Parameter, ParameterForm, json_of};

/// How a reader says what it knows.
const PLACE: [Parameter; 2] = [
    Parameter::query(
        SINCE,
        ParameterForm::PLACE,
        "Events behind this `wal_seq`, or behind the event with this id.",
    ),
    Parameter::header(
        "Last-Event-ID",
        ParameterForm::PLACE_IF_ANY,
        "The same, of a stream that broke off; it counts before `since`.",
    ),
];

/// Which bytes of an output.
const OUTPUT: [Parameter; 4] = [
    Parameter::query(
        "stream",
        ParameterForm::Word(&["stdout", "stderr"]),
        "`stdout`, which is the default, or `stderr`.",
    ),
    Parameter::query("from", ParameterForm::NUMBER, "From this byte on."),
    Parameter::query("tail", ParameterForm::Number(0, TAIL_MAX), "Only so many of the last lines."),
    Parameter::query(
        "follow",
        ParameterForm::Boolean,
        "Goes on with what comes, until the Attempt has ended.",
    ),
];

const TEXT: Content =
    Content::Either(&[Content::Other("text/plain"), Content::Other("application/octet-stream")]);
const EVENTS: Content =
    Content::Either(&[json_of::<task::EventsAnswer>(), Content::Other(sse::MEDIA_TYPE)]);

/// These resources, for the document.
const DESCRIBED: [DescribedRoute; 5] = [
    DescribedRoute::read(
        "/v1/sessions/{session}/events",
        "stream_session",
        "Streams hints that Tasks of the session have changed, without an end.",
        &[
            Parameter::query(
                "runtime",
                ParameterForm::Boolean,
                "Streams what happens around Runs, too.",
            ),
            Parameter::header(
                "Last-Event-ID",
                ParameterForm::Text,
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
            Parameter::query(
                "max_bytes",
                ParameterForm::NUMBER,
                "The longest page that is wanted.",
            ),
        ],
        &[(200, Some(EVENTS)), (204, None)],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/tasks/{task_id}/log",
        "read_log",
        "Reads the log of a Task as it is stored: a JSON object on each line.",
        &[Parameter::query(
            "after",
            ParameterForm::NUMBER,
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
