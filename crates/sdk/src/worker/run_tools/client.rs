//! The command's end of the socket.

use std::path::PathBuf;

use serde_json::{Map, Value as Json};
use tenure_core::{Code, Rejection};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::ask::{RunReply, RunRequest, read_line, to_line};

/// Asks the worker of a Run, from its command.
#[derive(Debug)]
pub struct RunToolsClient {
    path: PathBuf,
    /// A connection on which no answer is due. A request takes it, and puts it back with the answer. A caller that
    /// does not wait for its answer does not put it back, so the next one gets no answer of another.
    idle: Mutex<Option<BufReader<UnixStream>>>,
}

impl RunToolsClient {
    /// A client of the socket with this path. It connects with its first request.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), idle: Mutex::default() }
    }

    /// Asks for an operation of a worker, on the Task of the Run or on the one that is named.
    ///
    /// # Errors
    /// `run_ended`: the worker does not listen there any more, or this process is none of its command; `unavailable`:
    /// it has broken off; else why the worker or its scheduler refuses it.
    pub async fn ask(
        &self,
        operation: &str,
        task_id: Option<String>,
        input: Map<String, Json>,
    ) -> Result<Json, Rejection> {
        let line = to_line(&RunRequest { operation: operation.to_owned(), task_id, input })?;
        let idle = self.idle.lock().await.take();
        let mut stream = match idle {
            Some(stream) => stream,
            None => BufReader::new(UnixStream::connect(&self.path).await.map_err(|error| {
                let message = format!("the worker of this run does not listen any more: {error}");
                Rejection::new(Code::RunEnded, message)
            })?),
        };
        let sent = stream.write_all(&line).await;
        let reply = match sent {
            Ok(()) => read_line(&mut stream).await,
            Err(_) => None,
        };
        let no_reply = || {
            let message = "the worker of this run has broken off: the command is to end, or this process is none of \
                           the command of its step";
            Rejection::new(Code::Unavailable, message)
        };
        let reply = serde_json::from_slice(&reply.ok_or_else(no_reply)?)
            .map_err(|error| Rejection::new(Code::Unavailable, error.to_string()))?;
        *self.idle.lock().await = Some(stream);
        match reply {
            RunReply::Ok(answer) => Ok(answer),
            RunReply::Error(refused) => Err(refused),
        }
    }
}
