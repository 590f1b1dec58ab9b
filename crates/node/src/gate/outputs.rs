//! Answers requests for what commands wrote: it asks the worker that has the files, and waits for its answer
//! (ART-09).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_core::features::OUTPUT;
use tenure_core::id::SessionId;
use tenure_core::task::Attempt;
use tenure_core::{Code, Rejection};
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::decode;
use tenure_wire::bus::output::{OutputAnswer, OutputPage, OutputRequest, ReadOutput};
use tenure_wire::bus::subject::WorkerName;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use super::{Gate, SETTLES};

/// How many requests the workers of a node may have to answer at a time: each page is in memory as a whole.
const OPEN_MAX: usize = 256;

/// How many of them one worker may have, which reads for one after another.
const OF_WORKER_MAX: usize = 8;

/// One session has so many times as many as are left to others, at most.
const SHARE: usize = 3;

/// How often to look whether the worker is still there.
const LOOK: Duration = Duration::from_millis(250);

/// The requests that workers have not answered yet.
#[derive(Default)]
pub(crate) struct OutputRequests(Mutex<PendingOutputs>);

#[derive(Default)]
struct PendingOutputs {
    /// The number of the last request.
    last: u64,
    open: HashMap<u64, PendingOutput>,
}

/// A request that a worker has not answered.
struct PendingOutput {
    worker: WorkerName,
    session: SessionId,
    waiter: oneshot::Sender<OutputPage>,
}

/// A request that is open until it is dropped.
struct OpenOutput<'a> {
    all: &'a OutputRequests,
    number: u64,
    page: oneshot::Receiver<OutputPage>,
}

impl Drop for OpenOutput<'_> {
    fn drop(&mut self) {
        self.all.0.lock().open.remove(&self.number);
    }
}

impl OutputRequests {
    /// Opens a request of a session to a worker, unless too many are open.
    fn open(&self, session: &SessionId, worker: &WorkerName) -> Result<OpenOutput<'_>, Rejection> {
        let mut all = self.0.lock();
        let of_worker = all.open.values().filter(|one| one.worker == *worker).count();
        let of_session = all.open.values().filter(|one| one.session == *session).count();
        let left = OPEN_MAX.saturating_sub(all.open.len());
        if of_worker >= OF_WORKER_MAX || of_session >= SHARE * left {
            return Err(tenure_scheduler::overloaded());
        }
        all.last += 1;
        let (number, (waiter, page)) = (all.last, oneshot::channel());
        let (session, worker) = (session.clone(), worker.clone());
        all.open.insert(number, PendingOutput { worker, session, waiter });
        Ok(OpenOutput { all: self, number, page })
    }

    /// Passes an answer to whoever waits for it, if it comes from the worker that was asked.
    fn take(&self, worker: &WorkerName, said: OutputAnswer) {
        let mut all = self.0.lock();
        if all.open.get(&said.request).is_some_and(|asked| asked.worker == *worker)
            && let Some(PendingOutput { waiter, .. }) = all.open.remove(&said.request)
        {
            let _ = waiter.send(said.page); // The caller may have gone.
        }
    }
}

impl Gate {
    /// Takes a page that a worker has read.
    pub(super) fn output(&self, name: &WorkerName, bytes: &[u8]) {
        self.links.acknowledge(name);
        match decode::<OutputAnswer>(bytes) {
            Ok(said) => self.outputs.take(name, said),
            Err(bad) => tracing::warn!(worker = %name, %bad, "a page of an output was dropped"),
        }
    }

    /// Has the worker of an Attempt read a page of what its command wrote.
    pub(super) async fn read_output(
        &self,
        task: TaskKey,
        attempt: &Attempt,
        asked: ReadOutput,
    ) -> Result<OutputPage, Rejection> {
        let found = self.links.called(&attempt.worker_id);
        let (name, link) = found.ok_or_else(|| gone(attempt))?;
        if !link.serves_output() {
            return Err(too_old(attempt));
        }
        let mut open = self.outputs.open(&task.session_id, &name)?;
        let TaskKey { session_id, task_id } = task;
        let ReadOutput { stream, from, .. } = asked;
        let request = OutputRequest {
            request: open.number,
            node: self.node.as_str().into(),
            session_id,
            task_id,
            step_id: attempt.step_id.clone(),
            ordinal: attempt.ordinal,
            stream,
            from,
        };
        link.ask_for_output(&self.links, request).await;
        let until = Instant::now() + SETTLES;
        while Instant::now() < until && self.links.has(&name, &link) {
            if let Ok(page) = timeout(LOOK, &mut open.page).await {
                return page.map_err(|_| silent(attempt));
            }
        }
        Err(silent(attempt))
    }
}

/// The refusal when the worker of an Attempt has no link.
fn gone(attempt: &Attempt) -> Rejection {
    let worker = &attempt.worker_id;
    let message =
        format!("worker {worker} is not connected, and it alone has what its commands wrote");
    let refused = Rejection::new(Code::WorkerGone, message).with("worker_id", worker.as_str());
    let host = attempt.origin.as_ref().and_then(|origin| origin.worker_host.as_deref());
    host.into_iter().fold(refused, |refused, host| refused.with("worker_host", host))
}

/// The refusal when the worker cannot be asked; its successor can (EVOLVE-02).
fn too_old(attempt: &Attempt) -> Rejection {
    let worker = &attempt.worker_id;
    let message = format!(
        "worker {worker} does not show what its commands write: it may be of an older version"
    );
    let refused = Rejection::new(Code::Unavailable, message).with("worker_id", worker.as_str());
    refused.with("feature", OUTPUT)
}

/// The refusal when the worker does not answer in time, or its link has ended meanwhile.
fn silent(attempt: &Attempt) -> Rejection {
    let worker = &attempt.worker_id;
    let message = format!("worker {worker} does not say what its command wrote");
    Rejection::new(Code::Unavailable, message).with("worker_id", worker.as_str())
}

#[cfg(test)]
mod tests {
    use tenure_wire::bus::V;
    use tenure_wire::bus::request::RawBytes;
    use tenure_wire::bus::subject::Token;

    use super::*;

    fn worker(principal: &str) -> WorkerName {
        let token = |text: &str| Token::new(text).unwrap();
        WorkerName {
            pool: "default".parse().unwrap(),
            principal: token(principal),
            boot: token("b"),
        }
    }

    fn answer(request: u64) -> OutputAnswer {
        let page = OutputPage { data: RawBytes(b"x".to_vec()), size_bytes: Some(1) };
        OutputAnswer { v: V, request, page }
    }

    fn session(name: &str) -> SessionId {
        name.parse().unwrap()
    }

    /// ART-09: one worker has eight requests at a time, and those of all a bound of their own.
    #[test]
    fn open_requests_are_bounded() {
        let all = OutputRequests::default();
        let ask = |n: usize, name: &str| all.open(&session(&format!("s{n}")), &worker(name));
        let mut open: Vec<_> = (0..OF_WORKER_MAX).map(|n| ask(n, "ann").unwrap()).collect();
        assert_eq!(ask(OF_WORKER_MAX, "ann").err().unwrap().code, Code::Unavailable);
        let others = OF_WORKER_MAX..OPEN_MAX;
        open.extend(others.map(|n| ask(n, &format!("w{n}")).unwrap()));
        assert_eq!(ask(OPEN_MAX, "bee").err().unwrap().code, Code::Unavailable);
        open.pop();
        drop(ask(OPEN_MAX, "bee").unwrap());
        drop(open);
        assert!(all.0.lock().open.is_empty());
    }

    /// Mechanisms 15: who reads in one session, of workers that say nothing, leaves room to other sessions.
    #[test]
    fn one_session_leaves_room_to_others() {
        let all = OutputRequests::default();
        let ask = |name: &str, of: usize| all.open(&session(name), &worker(&format!("w{of}")));
        let mut open = Vec::new();
        for of in 0..OPEN_MAX {
            open.extend(std::iter::from_fn(|| ask("eve", of).ok()));
        }
        assert_eq!(open.len(), OPEN_MAX * 3 / 4);
        drop(ask("bob", OPEN_MAX).unwrap());
    }

    /// ART-09: only the worker that was asked answers.
    #[test]
    fn an_answer_of_another_worker_is_passed_over() {
        let all = OutputRequests::default();
        let mut open = all.open(&session("s"), &worker("ann")).unwrap();
        all.take(&worker("eve"), answer(open.number));
        all.take(&worker("ann"), answer(open.number + 1));
        assert!(open.page.try_recv().is_err());
        all.take(&worker("ann"), answer(open.number));
        assert_eq!(open.page.try_recv().unwrap().size_bytes, Some(1));
    }
}
