//! Threads that may block: disks are waited for here and nowhere else.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// Work, given the thread's buffer, empty.
type Job = Box<dyn FnOnce(&mut Vec<u8>) + Send>;

/// What a thread's buffer may keep between jobs: a huge create must not hold memory for ever.
const BUFFER_KEPT_MAX: usize = 1 << 20;

/// A fixed number of threads over one queue.
///
/// The queue has no bound of its own: the port allows one write in flight per Task, so it holds at
/// most one job per busy Task, and those are bounded where requests come in.
#[derive(Debug)]
pub(crate) struct Pool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.state.lock().jobs.len())
    }
}

impl Pool {
    pub(crate) fn start(name: &str, threads: usize) -> std::io::Result<Self> {
        let mut pool = Self { queue: Arc::default(), threads: Vec::new() };
        for number in 0..threads.max(1) {
            let queue = pool.queue.clone();
            let builder = std::thread::Builder::new().name(format!("{name}-{number}"));
            pool.threads.push(builder.spawn(move || queue.work())?);
        }
        Ok(pool)
    }

    /// Queues work. On a closed pool it is dropped, with whatever it would have answered.
    pub(crate) fn run(&self, job: impl FnOnce(&mut Vec<u8>) + Send + 'static) {
        let mut state = self.queue.state.lock();
        if !state.closed {
            state.jobs.push_back(Box::new(job));
            self.queue.wake.notify_one();
        }
    }

    /// Finishes what is queued, and ends the threads.
    pub(crate) fn close(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.wake.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // Its panics were caught and told.
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn work(&self) {
        let mut buffer = Vec::new();
        while let Some(job) = self.next() {
            // A panic is a bug in one job. Its caller sees the answer missing and reads the log;
            // the thread goes on for the other Tasks.
            if catch_unwind(AssertUnwindSafe(|| job(&mut buffer))).is_err() {
                tracing::error!("a journal thread panicked; the log it wrote will be read again");
            }
            buffer.clear();
            buffer.shrink_to(BUFFER_KEPT_MAX);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            match state.jobs.pop_front() {
                Some(job) => return Some(job),
                None if state.closed => return None,
                None => self.wake.wait(&mut state),
            }
        }
    }
}
