//! What a worker says of its Attempts and Runs: the path and the body of each report.

use hyper::Method;
use serde::Serialize;
use serde_json::{Map, Value as Json};
use tenure_core::Rejection;
use tenure_core::id::RunId;
use tenure_ports::bus::Holding;
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::worker::Word;

use super::link::{SaidCapacity, json};
use crate::http::link::HttpRequest;

/// The longest body that a gateway takes from a worker.
const REPORT_MAX: usize = 2 << 20;

/// A report, but for the worker's capacity, which is that of the moment in which it is sent.
#[derive(Debug)]
pub(super) struct SaidReport {
    path: String,
    body: Map<String, Json>,
}

impl SaidReport {
    /// What is said of an Attempt.
    ///
    /// # Errors
    /// `validation_error`: it cannot be written as JSON.
    pub(super) fn on_attempt(held: &Holding, word: &Word) -> Result<Self, Rejection> {
        let what = match word {
            Word::TaskUpdateStep(_) => "report",
            Word::ReleaseStep { .. } => "release",
            Word::EndRun { .. } | Word::DeclineRun { .. } => "end",
        };
        let path = format!("/attempts/{}/{what}", held.attempt_id);
        let mut said = Self::new(path, &held.task, word)?;
        said.put("run_id", &held.run_id)?;
        said.put("fencing_token", &held.fencing_token)?;
        Ok(said)
    }

    /// What is said of a Run that has claimed nothing.
    ///
    /// # Errors
    /// As [`on_attempt`](Self::on_attempt).
    pub(super) fn on_run(task: &TaskKey, run: RunId, word: &Word) -> Result<Self, Rejection> {
        let what = if matches!(word, Word::DeclineRun { .. }) { "decline" } else { "end" };
        Self::new(format!("/runs/{run}/{what}"), task, word)
    }

    /// The body has the input of the operation, and beside it which Task it is about.
    fn new(path: String, task: &TaskKey, word: &Word) -> Result<Self, Rejection> {
        let body = match value(word)? {
            Json::Object(mut written) => match written.remove("input") {
                Some(Json::Object(input)) => input,
                _ => Map::new(),
            },
            _ => Map::new(),
        };
        let mut said = Self { path, body };
        said.put("session_id", &task.session_id)?;
        said.put("task_id", &task.task_id)?;
        Ok(said)
    }

    fn put(&mut self, name: &str, what: &impl Serialize) -> Result<(), Rejection> {
        self.body.insert(name.into(), value(what)?);
        Ok(())
    }

    /// The request, with the worker's capacity if it is to be said.
    ///
    /// # Errors
    /// `validation_error`: it is too long.
    pub(super) fn request(mut self, room: Option<SaidCapacity>) -> Result<HttpRequest, Rejection> {
        if let Some(room) = room {
            self.put("room", &room)?;
        }
        let request = json(Method::POST, self.path, &self.body)?;
        match request.body.len() {
            ..=REPORT_MAX => Ok(request),
            bytes => {
                let message = format!("a report has {bytes} bytes, and {REPORT_MAX} is the most");
                Err(Rejection::invalid("report", message))
            }
        }
    }
}

fn value(said: &impl Serialize) -> Result<Json, Rejection> {
    serde_json::to_value(said).map_err(|bad| Rejection::invalid("report", bad.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure_core::command::{RunOutcome, StepReport};
    use tenure_core::event::ReleaseReason;
    use tenure_core::id::{AttemptId, StepId};
    use tenure_core::record::Value;
    use tenure_core::status::StepStatus;
    use tenure_ports::bus::Credit;
    use uuid::Uuid;

    use super::super::double::linked;
    use super::*;

    fn held() -> Holding {
        let (session_id, task_id) = ("s".parse().unwrap(), "t".parse().unwrap());
        Holding {
            task: TaskKey { session_id, task_id },
            run_id: RunId(Uuid::from_u128(1)),
            attempt_id: AttemptId(Uuid::from_u128(2)),
            fencing_token: 3,
            lease_ms: 30_000,
            input_seen: None,
        }
    }

    fn sent(said: Result<SaidReport, Rejection>, room: Option<SaidCapacity>) -> (String, Json) {
        let request = said.unwrap().request(room).unwrap();
        (request.path, serde_json::from_slice(&request.body).unwrap())
    }

    /// A body is that of docs/http.md: the ids of the claim beside the input of the operation.
    #[tokio::test]
    async fn a_report_has_its_ids_and_its_input() {
        let (held, attempt) = (held(), Uuid::from_u128(2));
        let output = Value::inline("text/plain", b"hello".to_vec());
        let report = StepReport {
            status: Some(StepStatus::Completed),
            output: Some(output),
            ..StepReport::on(StepId::new("a").unwrap())
        };
        let credit = Credit { free: 2, seen: 5, lost: 0, number: 7 };
        let room = linked(5).await.room_of(credit);
        let said = SaidReport::on_attempt(&held, &Word::TaskUpdateStep(report));
        let (path, body) = sent(said, Some(room));
        assert_eq!(path, format!("/attempts/{attempt}/report"));
        assert_eq!((&body["session_id"], &body["task_id"]), (&json!("s"), &json!("t")));
        assert_eq!((&body["run_id"], &body["fencing_token"]), (&json!(held.run_id), &json!(3)));
        assert_eq!((&body["step_id"], &body["status"]), (&json!("a"), &json!("completed")));
        assert_eq!(body["output"]["data"], "hello");
        assert_eq!(body["room"], json!({ "number": 7, "free": 2, "seen": 0, "lost": 0 }));
        let word = Word::ReleaseStep {
            attempt_id: held.attempt_id,
            fencing_token: 3,
            reason: ReleaseReason::Surplus,
            retry_after_ms: None,
        };
        let (path, body) = sent(SaidReport::on_attempt(&held, &word), None);
        assert_eq!(
            (path, &body["reason"]),
            (format!("/attempts/{attempt}/release"), &json!("surplus"))
        );
        let word = Word::EndRun { outcome: RunOutcome::Finished, result: None };
        let (path, body) = sent(SaidReport::on_run(&held.task, held.run_id, &word), None);
        assert_eq!(path, format!("/runs/{}/end", held.run_id));
        assert!(body.get("room").is_none());
    }

    /// REPORT: what no gateway takes is refused here, so that nobody repeats it for ever.
    #[test]
    fn a_report_has_a_greatest_length() {
        let report = StepReport {
            output: Some(Value::inline("text/plain", vec![b'x'; REPORT_MAX])),
            ..StepReport::on(StepId::new("a").unwrap())
        };
        let said = SaidReport::on_attempt(&held(), &Word::TaskUpdateStep(report)).unwrap();
        let refused = said.request(None).unwrap_err();
        assert_eq!(refused.code, tenure_core::Code::ValidationError);
    }
}
