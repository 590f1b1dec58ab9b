//! Somebody who keeps many requests under way.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Value as Json, json};
use tenure_tests::cluster::PATIENCE;
use tenure_tests::cluster::client::command;
use tenure_tests::cluster::message::{Answer, write};

use super::judge::{Going, Told};
use super::raw::{RawClient, frame};
use super::stage::Stage;

/// How long an answer is waited for before another request takes its place.
const SILENT: Duration = Duration::from_secs(5);

/// Requests and their answers over one connection, to the one partition.
pub(crate) struct ManyRequests {
    client: RawClient,
    subject: String,
    inbox: String,
    pub(crate) told: Told,
}

impl ManyRequests {
    /// As a user in the session `other`, such as `observer-2`.
    pub(crate) fn connect(stage: &Stage, user: &str) -> Result<Self> {
        let role = user.split('-').next().unwrap_or(user);
        let inbox = format!("_INBOX.{role}.{user}.asks");
        let mut client = stage.raw(user)?;
        client.subscribe(&format!("{inbox}.>"))?;
        let subject = format!("tenure.v1.{role}.other.{user}.cmd.0");
        Ok(Self { client, subject, inbox, told: Told::default() })
    }

    fn send(&mut self, body: &Json) -> Result<()> {
        let reply = format!("{}.{}", self.inbox, self.told.sent);
        let bytes = write(body)?;
        self.client.send(&frame(self.subject.as_bytes(), Some(reply.as_bytes()), None, &bytes))?;
        self.told.sent += 1;
        Ok(())
    }

    /// Notes the next answer. Answers whether one came in time.
    fn hear(&mut self, within: Duration) -> Result<bool> {
        let Some(message) = self.client.next(within)? else { return Ok(false) };
        match Answer::read(&message.payload)? {
            Answer::Refused(refusal) => self.told.note(refusal.code),
            _ => self.told.note("done"),
        }
        Ok(true)
    }

    /// Carries out a command, and repeats it until it is done.
    pub(crate) fn command(
        &mut self,
        operation: &str,
        task: Option<&str>,
        input: &Json,
    ) -> Result<()> {
        let (body, begun) = (command(operation, task, input), Instant::now());
        loop {
            ensure!(begun.elapsed() < PATIENCE, "{operation} is not carried out");
            self.send(&body)?;
            let Some(message) = self.client.next(SILENT)? else { continue };
            match Answer::read(&message.payload)? {
                Answer::Refused(refused) if refused.retryable => {}
                Answer::Refused(refused) => bail!("{operation}: {refused}"),
                _ => return Ok(()),
            }
        }
    }

    /// Keeps so many requests under way, one after another of these, until there are no more or the attack is over.
    pub(crate) fn flood(
        &mut self,
        going: &Going,
        at_once: u64,
        asks: impl Iterator<Item = Json>,
    ) -> Result<()> {
        let (mut open, mut heard) = (0, Instant::now());
        for body in asks {
            if !going.is_on() {
                break;
            }
            self.send(&body)?;
            open += 1;
            while open >= at_once && going.is_on() {
                if self.hear(Duration::from_millis(100))? {
                    (open, heard) = (open - 1, Instant::now());
                } else if heard.elapsed() > SILENT {
                    self.told.note("silence");
                    (open, heard) = (0, Instant::now());
                }
            }
        }
        Ok(())
    }
}

/// A query.
pub(crate) fn query(operation: &str, task: Option<&str>, input: &Json) -> Json {
    let mut body = json!({"v": 1, "operation": operation, "input": input});
    if let Some(task) = task {
        body["task_id"] = json!(task);
    }
    body
}

/// The creation of a Task whose only Step waits in this pool.
pub(crate) fn waiting(id: &str, pool: &str) -> Json {
    let step = json!({"step_id": "a", "title": "", "handler": "noop", "worker_pool_id": pool});
    command(
        "task_create",
        None,
        &json!({"task_id": id, "title": "", "summary": "", "steps": [step]}),
    )
}
