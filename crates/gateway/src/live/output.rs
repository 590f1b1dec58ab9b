//! `GET …/attempts/{attempt_id}/logs`: the bytes that the command of an Attempt wrote.
//!
//! They are in files of the worker, which reads them page by page for whoever asks (ART-09). A caller that
//! follows an Attempt gets what comes until the Attempt has ended.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, stream};
use tenure_core::id::{AttemptId, SessionId, TaskId};
use tenure_core::{Code, Rejection};
use tenure_sdk::client::passes;
use tenure_wire::bus::output::{OutputPage, OutputStream, ReadOutput};

use super::call::LiveCall;
use super::permits::StreamPermit;
use super::stream::set_live;
use super::tail::{LAST_PLACE, TAIL_MAX, TailSearch};
use super::trail::{AttemptName, AttemptTrail};
use crate::Gateway;
use crate::api::bytes_reply;
use crate::backend::Backend;
use crate::guard::{AnswerShare, FollowingAnswer};
use crate::identity::Identity;
use crate::problem::HttpProblem;

/// The shortest and the longest time between two looks at an output that grows.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// What of an output is asked for.
#[derive(Debug, Clone, Copy)]
struct AskedOutput {
    stream: OutputStream,
    from: u64,
    tail: Option<u64>,
    follow: bool,
}

impl AskedOutput {
    fn read(call: &mut LiveCall) -> Result<Self, HttpProblem> {
        let stream = match call.query.take("stream")?.as_deref() {
            None | Some("stdout") => OutputStream::Stdout,
            Some("stderr") => OutputStream::Stderr,
            Some(_) => return Err(Rejection::invalid("stream", "stdout or stderr").into()),
        };
        let (from, tail) = (call.take("from")?, call.take("tail")?);
        let follow = call.take("follow")?.unwrap_or(false);
        call.query.end()?;
        if from.is_some() && tail.is_some() {
            return Err(Rejection::invalid("tail", "from or tail, not both").into());
        }
        if tail.is_some_and(|lines| lines > TAIL_MAX) {
            return Err(Rejection::invalid("tail", format!("at most {TAIL_MAX} lines")).into());
        }
        Ok(Self { stream, from: from.unwrap_or(0), tail, follow })
    }
}

/// What the Attempt with this id wrote.
pub(super) async fn of_attempt<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    call: LiveCall,
) -> Result<Response, HttpProblem> {
    let name = AttemptName::Id(call.at("attempt_id")?);
    answer(&gateway, call, name).await
}

/// What the Attempt with this number of a Step wrote.
pub(super) async fn of_step<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    call: LiveCall,
) -> Result<Response, HttpProblem> {
    let name = AttemptName::Nth(call.at("step_id")?, call.at("ordinal")?);
    answer(&gateway, call, name).await
}

async fn answer<B: Backend>(
    gateway: &Gateway<B>,
    mut call: LiveCall,
    name: AttemptName,
) -> Result<Response, HttpProblem> {
    let asked = AskedOutput::read(&mut call)?;
    let task = call.task()?;
    let client = call.client(gateway).await?;
    let permit = asked.follow.then(|| gateway.live.streams.open(&call.who)).transpose()?;
    let mut trail = None;
    let attempt = match name {
        AttemptName::Id(id) if !asked.follow => id,
        name => {
            let mut found = AttemptTrail::new(client, task.clone(), name);
            found.look().await?;
            let id = found.id().ok_or_else(|| no_attempt(&task))?;
            trail = Some(found).filter(|_| asked.follow);
            id
        }
    };
    let (backend, who, session) =
        (gateway.backend.clone(), call.who.clone(), call.place.session.clone());
    let (stream, answers) = (asked.stream, call.answers.clone());
    let output = OutputReader { backend, who, session, task, attempt, stream, answers };
    let begun = OutputStreaming::begin(output, asked, trail, permit).await?;
    let media_type = match call.asks_for("application/octet-stream") {
        true => HeaderValue::from_static("application/octet-stream"),
        false => HeaderValue::from_static("text/plain; charset=utf-8"),
    };
    let mut response = bytes_reply(StatusCode::OK, media_type, Body::from_stream(begun.bytes()));
    set_live(response.headers_mut());
    if asked.follow {
        response.extensions_mut().insert(FollowingAnswer);
    }
    Ok(response)
}

fn no_attempt(task: &TaskId) -> HttpProblem {
    HttpProblem::not_found(format!("task {task} has no such attempt"))
}

/// Reads pages of one output.
pub(super) struct OutputReader<B> {
    backend: B,
    who: Identity,
    session: SessionId,
    task: TaskId,
    attempt: AttemptId,
    stream: OutputStream,
    /// Where the bytes of a page count until they were sent.
    answers: AnswerShare,
}

impl<B: Backend> OutputReader<B> {
    /// The page that begins at a byte.
    pub(super) async fn page(&self, from: u64) -> Result<OutputPage, Rejection> {
        let asked = ReadOutput { attempt_id: self.attempt, stream: self.stream, from };
        self.backend.read_output(&self.who, &self.session, &self.task, asked).await
    }
}

/// An output on its way to a caller.
struct OutputStreaming<B: Backend> {
    reader: OutputReader<B>,
    /// The next byte.
    at: u64,
    /// How long the output was when the request came: a caller that does not follow it gets no more.
    until: u64,
    /// Learns whether the Attempt has ended, for a caller that follows it.
    trail: Option<AttemptTrail<B::Client>>,
    pause: Duration,
    _permit: Option<StreamPermit>,
}

impl<B: Backend> OutputStreaming<B> {
    /// Finds the first byte.
    async fn begin(
        reader: OutputReader<B>,
        asked: AskedOutput,
        trail: Option<AttemptTrail<B::Client>>,
        permit: Option<StreamPermit>,
    ) -> Result<Self, HttpProblem> {
        let is_awaited = trail.as_ref().is_some_and(|trail| !trail.has_ended());
        let size =
            reader.page(LAST_PLACE).await.map_err(|refused| problem_of(refused, &reader.task))?;
        let (at, until) = match (size.size_bytes, asked.tail) {
            (Some(size), Some(lines)) => (TailSearch::of(size, lines).start(&reader).await?, size),
            (Some(size), None) => (asked.from, size),
            (None, _) if is_awaited => (asked.from, 0),
            (None, _) => return Err(HttpProblem::not_found("there is no such output")),
        };
        Ok(Self { reader, at, until, trail, pause: LOOKS.0, _permit: permit })
    }

    /// The bytes from there on. An error, as the last item, breaks the answer off.
    fn bytes(self) -> impl Stream<Item = Result<Bytes, Rejection>> + Send {
        stream::unfold(Some(self), async |output| {
            let mut output = output?;
            let read = output.next().await.transpose()?;
            let output = read.is_ok().then_some(output);
            Some((read, output))
        })
    }

    /// The next bytes; none at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Rejection> {
        match self.trail.is_some() {
            true => self.followed().await,
            false if self.at >= self.until => Ok(None),
            false => {
                let mut data = self.reader.page(self.at).await?.data.0;
                data.truncate(usize::try_from(self.until - self.at).unwrap_or(usize::MAX));
                self.taken(data)
            }
        }
    }

    /// The next bytes of an output that may grow.
    async fn followed(&mut self) -> Result<Option<Bytes>, Rejection> {
        loop {
            match self.grown().await {
                Ok((data, is_over)) => {
                    let taken = self.taken(data)?;
                    if taken.is_some() || is_over {
                        return Ok(taken);
                    }
                }
                Err(refused) if passes(&refused) => {}
                Err(refused) => return Err(refused),
            }
            tokio::time::sleep(self.pause).await;
            self.pause = (2 * self.pause).min(LOOKS.1);
        }
    }

    /// What there is now, and whether nothing will follow it.
    async fn grown(&mut self) -> Result<(Vec<u8>, bool), Rejection> {
        // The events come first: what an Attempt that has ended there wrote is in its files.
        let mut is_over = true;
        if let Some(trail) = &mut self.trail {
            trail.look().await?;
            is_over = trail.has_ended();
        }
        Ok((self.reader.page(self.at).await?.data.0, is_over))
    }

    fn taken(&mut self, data: Vec<u8>) -> Result<Option<Bytes>, Rejection> {
        if data.is_empty() {
            return Ok(None);
        }
        self.at += data.len() as u64;
        self.pause = LOOKS.0;
        self.reader.answers.keep(data).map(Some)
    }
}

/// A refusal to read an output; an Attempt that the Task has not is a resource that is not there.
fn problem_of(refused: Rejection, task: &TaskId) -> HttpProblem {
    match refused.code {
        Code::ValidationError if refused.names_field("attempt_id") => no_attempt(task),
        _ => refused.into(),
    }
}
