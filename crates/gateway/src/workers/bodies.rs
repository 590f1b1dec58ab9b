//! What requests of workers say, and what they are answered: the messages of the bus as JSON, without
//! what the path says.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use smol_str::SmolStr;
use tenure_core::Rejection;
use tenure_core::id::{
    AgentId, AttemptId, CommandId, HandlerName, PoolId, RunId, SessionId, StepId, TaskId,
};
use tenure_core::sessions::WorkerSessions;
use tenure_core::view::{Look, RunOffer};
use tenure_ports::bus::{Credit, Holding};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::worker::{HANDLERS_MAX, Looking, Word};
use tenure_wire::bus::{BadMessage, VERSION, decode, decode_input, encode};

use super::CONCURRENCY_MAX;

/// The most Attempts in a heartbeat: those that run, and as many that have just come or ended.
pub(super) const HOLDINGS_MAX: usize = 2 * CONCURRENCY_MAX;

/// The body of a request: a JSON object.
pub(super) type Body = Map<String, Json>;

/// A worker joins a pool.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JoinBody {
    /// How many Steps it runs at a time, 1,024 at most.
    #[serde(default = "one")]
    #[schemars(range(max = CONCURRENCY_MAX))]
    pub(super) concurrency: usize,
    /// The handlers that it has; absent: all.
    #[serde(default)]
    #[schemars(length(max = HANDLERS_MAX))]
    pub(super) handlers: Option<Vec<HandlerName>>,
    /// The sessions that it serves, such as `["ci-*", "main"]`: names in which `*` stands for any text. Absent: all.
    #[serde(default)]
    pub(super) sessions: WorkerSessions,
    /// A name unlike that of any other process of this caller: 1 to 64 characters a-z, A-Z, 0-9, - or
    /// _. A worker that joins again under the same boot goes on with what it has in hand. Absent: the
    /// gateway makes one.
    #[serde(default)]
    #[schemars(regex(pattern = "^[a-zA-Z0-9_-]{1,64}$"))]
    pub(super) boot: Option<SmolStr>,
}

fn one() -> usize {
    1
}

/// Changes a worker.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangeBody {
    /// How many Steps it runs at a time from now on; 0 if it takes no more.
    #[serde(default)]
    #[schemars(range(max = CONCURRENCY_MAX))]
    pub(super) concurrency: Option<usize>,
    /// Its capacity, if it counts by itself: then `concurrency` counts for nothing.
    #[serde(default)]
    pub(super) room: Option<CapacityBody>,
}

/// The capacity of a worker that counts by itself, as on the bus. The counts begin with the link.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CapacityBody {
    /// Rises with every statement, so that an older one that comes later is ignored.
    number: u64,
    /// Steps and Runs that it would take now.
    free: u64,
    /// Steps and Runs that came on this link.
    seen: u64,
    /// Attempts in hand whose claims have `was_lost` set.
    #[serde(default)]
    lost: u64,
}

impl From<CapacityBody> for Credit {
    fn from(CapacityBody { number, free, seen, lost }: CapacityBody) -> Self {
        Self { free, seen, lost, number }
    }
}

/// Takes the capacity out of a report. If it cannot be read, the report still counts, as on the bus.
pub(super) fn take_room(body: &mut Body) -> Option<Credit> {
    let room = serde_json::from_value::<CapacityBody>(body.remove("room")?);
    room.ok().map(Credit::from)
}

/// A worker as its gateway knows it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JoinedWorker {
    /// The name of its link, which only this caller can use. It is a secret.
    pub(super) link: String,
    /// Its name in the log: the caller's principal and the boot.
    pub(super) worker_id: AgentId,
    /// Its pool.
    pub(super) worker_pool_id: PoolId,
    /// Its boot, for when it joins again.
    pub(super) boot: SmolStr,
    /// How many Steps it runs at a time.
    pub(super) concurrency: usize,
    /// Number of the last delivery that it has acknowledged: `after` of its next request.
    pub(super) after: u64,
    /// Whether an operator wants it to leave.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) drain: bool,
    /// It gets no work when it has not asked for deliveries for so long.
    pub(super) fetch_within_ms: u64,
    /// Its link ends when it was silent for so long, or for the longest lease in its hands.
    pub(super) silent_after_ms: u64,
}

/// The Attempt that a report is about, beside the one in the path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct HolderBody {
    /// The session.
    session_id: SessionId,
    /// The Task.
    task_id: TaskId,
    /// The Run.
    run_id: RunId,
    /// The token of the claim.
    fencing_token: u64,
}

impl HolderBody {
    /// The Attempt as the worker port names it.
    pub(super) fn of(self, attempt_id: AttemptId) -> Holding {
        let Self { session_id, task_id, run_id, fencing_token } = self;
        let task = TaskKey { session_id, task_id };
        Holding { task, run_id, attempt_id, fencing_token, lease_ms: 0, input_seen: None }
    }
}

/// A heartbeat.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct HeartbeatBody {
    /// The Attempts that the worker holds.
    #[schemars(length(max = HOLDINGS_MAX))]
    pub(super) holdings: Vec<HoldingBody>,
}

/// An open Attempt, with the fields of its claim.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct HoldingBody {
    /// The session.
    session_id: SessionId,
    /// The Task.
    task_id: TaskId,
    /// The Run.
    run_id: RunId,
    /// The Attempt.
    attempt_id: AttemptId,
    /// Its token.
    fencing_token: u64,
    /// How long its lease lasts.
    lease_ms: u64,
    /// Whether its Step was lost before.
    #[serde(default)]
    was_lost: bool,
    /// How many entries of the Task's `input_refs` it has seen.
    #[serde(default)]
    input_seen: Option<u64>,
}

impl HoldingBody {
    /// The Attempt as the worker port names it, and whether its Step was lost before.
    pub(super) fn of(self) -> (Holding, bool) {
        let Self { session_id, task_id, run_id, attempt_id, fencing_token, lease_ms, .. } = self;
        let task = TaskKey { session_id, task_id };
        let input_seen = self.input_seen;
        let held = Holding { task, run_id, attempt_id, fencing_token, lease_ms, input_seen };
        (held, self.was_lost)
    }
}

/// The Task of the Run in the path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RunBody {
    /// The session.
    session_id: SessionId,
    /// The Task.
    task_id: TaskId,
}

impl RunBody {
    /// The Run as far as it is known: all that the scheduler needs to find it.
    pub(super) fn of(self, worker_pool_id: PoolId, run_id: RunId) -> RunOffer {
        RunOffer {
            session_id: self.session_id,
            task_id: self.task_id,
            run_id,
            worker_pool_id,
            allowed_step_ids: None,
            instructions: None,
            bindings: None,
            expires_at: None,
        }
    }
}

/// What a query of ready Steps says beside the Task.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct QueryBody {
    /// How many Steps to skip.
    #[serde(default)]
    pub(super) offset: usize,
}

/// What a claim says beside the Task.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ClaimBody {
    /// The Step.
    pub(super) step_id: StepId,
    /// The same id again gives the same claim. Absent: the header `Idempotency-Key`, or a new one.
    #[serde(default)]
    pub(super) command_id: Option<CommandId>,
}

/// Reads a body; what it does not know it ignores, as everywhere in what workers say.
///
/// # Errors
/// `validation_error`, which names the wrong field.
pub(super) fn read<T: DeserializeOwned>(body: &Body) -> Result<T, Rejection> {
    Ok(decode(&encode(body)?)?)
}

/// Reads a body of which every field must be known.
///
/// # Errors
/// `validation_error`, which names the wrong field.
pub(super) fn read_all<T: DeserializeOwned>(body: &Body) -> Result<T, Rejection> {
    Ok(decode_input(&encode(body)?)?)
}

/// A report with its operation before its input, so that an error names the field of the input.
#[derive(Serialize)]
struct SaidWord<'a> {
    operation: &'a str,
    input: &'a Body,
}

/// Reads the input of a holder's report, as the bus has it.
///
/// # Errors
/// `validation_error`, which names the wrong field.
pub(super) fn read_word(operation: &str, input: &Body) -> Result<Word, Rejection> {
    let word = decode(&encode(&SaidWord { operation, input })?);
    word.map_err(|bad| {
        let field = bad.field.map(|field| match field.strip_prefix("input.") {
            Some(inner) => inner.to_owned(),
            None => field,
        });
        BadMessage { field, ..bad }.into()
    })
}

/// Reads a worker's query of the Task of its Run: `operation` and `input`.
///
/// # Errors
/// `validation_error`, which names the wrong field.
pub(super) fn read_look(body: &Body, run: RunId) -> Result<Look, Rejection> {
    let look = ["operation", "input"].iter().filter_map(|name| {
        let value = body.get(*name)?;
        Some(((*name).to_owned(), value.clone()))
    });
    let mut message: Body = ["session_id", "task_id"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), body.get(*name)?.clone())))
        .collect();
    message.insert("v".into(), VERSION.into());
    message.insert("run_id".into(), run.to_string().into());
    message.insert("look".into(), Json::Object(look.collect()));
    Ok(Looking::read(&encode(&message)?)?.look)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::status::StepStatus;
    use uuid::Uuid;

    use super::*;

    fn body(json: Json) -> Body {
        let Json::Object(body) = json else { panic!("an object") };
        body
    }

    fn field(refused: Rejection) -> Json {
        refused.details["field"].clone()
    }

    #[test]
    fn a_worker_joins_with_fields_that_are_known() {
        let JoinBody { concurrency, handlers, sessions, boot } =
            read_all(&body(json!({}))).unwrap();
        assert_eq!((concurrency, handlers, sessions.is_all(), boot), (1, None, true, None));
        for sessions in [json!([]), json!(["A"]), json!("ci-*"), json!(vec!["a"; 65])] {
            let wrong = read_all::<JoinBody>(&body(json!({ "sessions": sessions }))).unwrap_err();
            assert!(
                field(wrong).as_str().is_some_and(|it| it.starts_with("sessions")),
                "{sessions}"
            );
        }
        let misspelt = read_all::<JoinBody>(&body(json!({ "handler": ["echo"] }))).unwrap_err();
        assert_eq!(field(misspelt), "handler");
        let wrong = json!({ "handlers": ["echo", "sendEmail"] });
        assert_eq!(field(read_all::<JoinBody>(&body(wrong)).unwrap_err()), "handlers[1]");
    }

    /// A client sends the whole claim, or as much of it as is needed.
    #[test]
    fn what_a_report_does_not_know_is_passed_over() {
        let said = json!({
            "session_id": "s", "task_id": "t", "run_id": Uuid::nil(), "fencing_token": 3,
            "lease_ms": 5, "step_id": "a", "status": "completed", "output": { "data": "1" },
        });
        let attempt = AttemptId(Uuid::nil());
        let held = read::<HolderBody>(&body(said.clone())).unwrap().of(attempt);
        assert_eq!((held.fencing_token, held.task.task_id.as_str()), (3, "t"));
        let Word::TaskUpdateStep(report) = read_word("task_update_step", &body(said)).unwrap()
        else {
            panic!("a report")
        };
        assert_eq!(report.status, Some(StepStatus::Completed));
        assert_eq!(report.output.unwrap().data(), Some(&b"1"[..]));
    }

    #[test]
    fn a_capacity_that_cannot_be_read_spoils_no_report() {
        let said =
            json!({ "step_id": "a", "room": { "number": 3, "free": 2, "seen": 1, "more": 1 } });
        let mut said = body(said);
        let room = Credit { free: 2, seen: 1, lost: 0, number: 3 };
        assert_eq!((take_room(&mut said), said.len()), (Some(room), 1));
        let mut said = body(json!({ "step_id": "a", "room": "much" }));
        assert_eq!((take_room(&mut said), said.len()), (None, 1));
        assert_eq!(take_room(&mut said), None);
    }

    /// REPORT-04: content of a Step in a report is noted, for the scheduler to refuse it.
    #[test]
    fn an_error_names_the_field_as_the_body_has_it() {
        let refused = |said| field(read_word("task_update_step", &body(said)).unwrap_err());
        assert_eq!(refused(json!({ "step_id": "a", "status": "done" })), "status");
        let wrong = json!({ "step_id": "a", "output": { "data": "1", "content_type": 5 } });
        assert_eq!(refused(wrong), "output.content_type");
        let content = json!({ "step_id": "a", "title": "other" });
        let Ok(Word::TaskUpdateStep(report)) = read_word("task_update_step", &body(content)) else {
            panic!("a report")
        };
        assert_eq!(report.content_fields, ["title"]);
    }

    #[test]
    fn a_look_has_its_operation_and_its_input() {
        let run = RunId(Uuid::nil());
        let asked = |more: Json| {
            let mut it = body(json!({ "session_id": "s", "task_id": "t" }));
            it.extend(body(more));
            read_look(&it, run)
        };
        assert_eq!(asked(json!({ "operation": "task_get" })).unwrap(), Look::TaskGet);
        let steps = asked(json!({ "operation": "task_query_steps", "input": { "limit": 5 } }));
        assert!(matches!(steps, Ok(Look::TaskQuerySteps(input)) if input.limit == Some(5)));
        let wrong = asked(json!({ "operation": "task_query_steps", "input": { "limits": 5 } }));
        assert_eq!(field(wrong.unwrap_err()), "limits");
    }
}
