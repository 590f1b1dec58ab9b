//! What a log says of Attempts, and a trace that has to say the same.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value as Json;
use tenure_tests::otlp::Span;

/// An Attempt, as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    pub(crate) step: String,
    pub(crate) ordinal: u64,
    pub(crate) worker: String,
    pub(crate) ready_ms: i64,
    pub(crate) claim_ms: i64,
    /// When its worker said that it had begun.
    pub(crate) begin_ms: Option<i64>,
    pub(crate) end_ms: i64,
    /// The event that ended it.
    pub(crate) end: String,
    /// Whether that is its worker's report.
    pub(crate) is_reported: bool,
}

/// A Task, as the log has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    pub(crate) created_ms: i64,
    pub(crate) ended_ms: i64,
    pub(crate) attempts: Vec<Attempt>,
}

/// Events that end an Attempt.
const ENDS: [&str; 5] = [
    "task_step_blocked",
    "task_step_completed",
    "task_step_failed",
    "task_step_cancelled",
    "task_step_lease_expired",
];

impl History {
    /// Of the events of a log, in their order.
    pub(crate) fn of(events: &[Json]) -> Result<Self> {
        let mut history = Self::default();
        let mut ready: BTreeMap<String, i64> = BTreeMap::new();
        for event in events {
            let at = event["created_at"].as_i64().context("an event without a time")?;
            let step = event["step_id"].as_str().unwrap_or_default().to_owned();
            let attempt = event["payload"]["attempt_id"].as_str().unwrap_or_default();
            match event["event_type"].as_str().unwrap_or_default() {
                "task_created" => history.created_ms = at,
                "task_completed" | "task_failed" | "task_cancelled" => history.ended_ms = at,
                "task_step_ready" => drop(ready.insert(step, at)),
                "task_step_claimed" => history.attempts.push(Attempt {
                    id: attempt.to_owned(),
                    ordinal: event["payload"]["ordinal"].as_u64().context("no ordinal")?,
                    worker: event["actor_agent_id"].as_str().unwrap_or_default().to_owned(),
                    ready_ms: *ready.get(&step).context("claimed and never ready")?,
                    step,
                    claim_ms: at,
                    begin_ms: None,
                    end_ms: 0,
                    end: String::new(),
                    is_reported: false,
                }),
                "task_step_started" => {
                    let of = history.attempts.iter_mut().find(|it| it.id == attempt);
                    of.context("begun and never claimed")?.begin_ms = Some(at);
                }
                kind if ENDS.contains(&kind) => {
                    let of = history.attempts.iter_mut().find(|it| it.id == attempt);
                    if let Some(of) = of {
                        (of.end_ms, of.end) = (at, kind.to_owned());
                        // One that was given back is its worker's word too, but no report.
                        of.is_reported = event["actor_agent_id"] == of.worker.as_str()
                            && kind != "task_step_lease_expired";
                    }
                }
                _ => {}
            }
        }
        ensure!(history.ended_ms > 0, "the task has not ended");
        Ok(history)
    }

    /// The spans are those of this log: one for the Task, and for each Attempt exactly one, with the
    /// log's times, linked to those of the same Step before and after it, and with its parts below.
    pub(crate) fn check(&self, spans: &[Span]) -> Result<()> {
        let roots: Vec<_> = spans.iter().filter(|span| span.is_task()).collect();
        let [root] = roots.as_slice() else { anyhow::bail!("{} spans of a task", roots.len()) };
        ensure!((root.start_ms, root.end_ms) == (self.created_ms, self.ended_ms), "{root:?}");
        let mut count = 1;
        for attempt in &self.attempts {
            let span = self.one(spans, attempt)?;
            ensure!(span.parent == root.id && span.trace == root.trace, "{span:?}");
            ensure!((span.start_ms, span.end_ms) == (attempt.ready_ms, attempt.end_ms), "{span:?}");
            count += 1 + attempt.check_parts(spans, span)?;
            ensure!(span.get("tenure.worker.id") == attempt.worker, "{span:?}");
            ensure!(span.get("tenure.step.id") == attempt.step, "{span:?}");
            let failed = attempt.end.ends_with("failed") || attempt.end.ends_with("expired");
            ensure!(span.error.is_some() == failed, "{span:?} ended with {}", attempt.end);
            self.check_links(spans, attempt, span)?;
            count += self.check_wait(spans, attempt, root)?;
        }
        let (runs, spans): (Vec<_>, Vec<_>) = spans.iter().partition(|span| span.is_run());
        for run in runs {
            let lease = spans.iter().find(|span| span.id == run.parent && span.name == "lease");
            ensure!(lease.is_some(), "{run:?} is below no lease");
        }
        ensure!(spans.len() == count, "{} spans, not {count}", spans.len());
        Ok(())
    }

    /// The only span of an Attempt.
    fn one<'a>(&self, spans: &'a [Span], of: &Attempt) -> Result<&'a Span> {
        let is_its = |span: &&Span| span.get("tenure.attempt.id") == of.id && !span.is_run();
        let mut its = spans.iter().filter(is_its);
        let one = its.next().with_context(|| format!("no span of {of:?}"))?;
        ensure!(its.next().is_none(), "more than one span of {of:?}");
        Ok(one)
    }

    /// Between an Attempt and the next of its Step there is a span if that took a time. Answers how many.
    fn check_wait(&self, spans: &[Span], attempt: &Attempt, root: &Span) -> Result<usize> {
        let mut same = self.attempts.iter().filter(|it| it.step == attempt.step);
        let next = same.find(|it| it.ordinal == attempt.ordinal + 1);
        let Some(next) = next.filter(|next| next.ready_ms > attempt.end_ms) else { return Ok(0) };
        let times = (attempt.end_ms, next.ready_ms);
        let is_it = |span: &&Span| {
            span.name.starts_with("wait ")
                && span.get("tenure.step.id") == attempt.step
                && (span.start_ms, span.end_ms) == times
        };
        let wait =
            spans.iter().find(is_it).with_context(|| format!("no wait after {attempt:?}"))?;
        ensure!(wait.parent == root.id, "{wait:?}");
        Ok(1)
    }

    fn check_links(&self, spans: &[Span], attempt: &Attempt, span: &Span) -> Result<()> {
        let others = [("previous", attempt.ordinal.wrapping_sub(1)), ("next", attempt.ordinal + 1)];
        let mut expected = Vec::new();
        for (which, ordinal) in others {
            let mut same = self.attempts.iter().filter(|it| it.step == attempt.step);
            if let Some(other) = same.find(|it| it.ordinal == ordinal) {
                expected.push((self.one(spans, other)?.id.clone(), which.to_owned()));
            }
        }
        let link = |(id, says): &(String, BTreeMap<String, String>)| {
            (id.clone(), says.get("tenure.link").cloned().unwrap_or_default())
        };
        let links: Vec<_> = span.links.iter().map(link).collect();
        ensure!(links == expected, "{links:?} of {attempt:?}, not {expected:?}");
        Ok(())
    }
}

impl Attempt {
    /// Below its span are its parts, each once, with the log's times. Answers how many.
    fn check_parts(&self, spans: &[Span], of: &Span) -> Result<usize> {
        let mut expected =
            vec![("queue", self.ready_ms, self.claim_ms), ("lease", self.claim_ms, self.end_ms)];
        if let Some(begin_ms) = self.begin_ms.filter(|_| self.is_reported) {
            expected.push(("handler", begin_ms, self.end_ms));
        }
        let below = spans.iter().filter(|span| span.parent == of.id && span.trace == of.trace);
        let mut parts: Vec<_> =
            below.map(|span| (span.name.as_str(), span.start_ms, span.end_ms)).collect();
        parts.sort_by_key(|part| expected.iter().position(|it| it.0 == part.0));
        ensure!(parts == expected, "{parts:?} below {of:?}, not {expected:?}");
        Ok(parts.len())
    }
}
