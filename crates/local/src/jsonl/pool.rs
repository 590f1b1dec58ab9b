//! The threads that wait for disks: no other code of the journal blocks on one.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// A piece of work. It gets the thread's buffer, empty.
type ThreadJob = Box<dyn FnOnce(&mut Vec<u8>) + Send>;

/// How large a thread's buffer may stay between jobs, so that a huge create does not hold memory for ever.
const BUFFER_KEPT_MAX: usize = 1 << 20;

/// Up to a given number of threads over one queue, started as they are needed. The thread that
/// became idle last works next: its caches and its buffer are warm.
///
/// The queue has no limit of its own: the port allows one write in flight per Task, so the queue
/// holds at most one job per busy Task, and the scheduler limits those where requests come in.
#[derive(Debug)]
pub(crate) struct ThreadPool {
    name: &'static str,
    queue: Arc<Queue>,
}

struct Queue {
    state: Mutex<ThreadPoolState>,
    /// One for each thread that may be started.
    wakes: Box<[Condvar]>,
}

#[derive(Default)]
struct ThreadPoolState {
    jobs: VecDeque<ThreadJob>,
    threads: Vec<JoinHandle<()>>,
    /// The numbers of idle threads, the last one on top.
    idle: Vec<usize>,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({})", self.state.lock().jobs.len())
    }
}

impl ThreadPool {
    /// Starts the first thread; there will be at most `threads`.
    pub(crate) fn start(name: &'static str, threads: usize) -> std::io::Result<Self> {
        let wakes = (0..threads.max(1)).map(|_| Condvar::new()).collect();
        let pool = Self { name, queue: Arc::new(Queue { state: Mutex::default(), wakes }) };
        pool.add_thread(&mut pool.queue.state.lock())?;
        Ok(pool)
    }

    /// Queues work. A closed pool drops it, together with its reply channel.
    pub(crate) fn run(&self, job: impl FnOnce(&mut Vec<u8>) + Send + 'static) {
        let mut state = self.queue.state.lock();
        if state.closed {
            return;
        }
        state.jobs.push_back(Box::new(job));
        if let Some(number) = state.idle.pop() {
            self.queue.wakes[number].notify_one();
        } else if state.threads.len() < self.queue.wakes.len()
            && let Err(error) = self.add_thread(&mut state)
        {
            // The running threads will do the work.
            tracing::warn!(%error, "no further thread for {}", self.name);
        }
    }

    fn add_thread(&self, state: &mut ThreadPoolState) -> std::io::Result<()> {
        let (queue, number) = (Arc::clone(&self.queue), state.threads.len());
        let builder = std::thread::Builder::new().name(format!("{}-{number}", self.name));
        state.threads.push(builder.spawn(move || queue.work(number))?);
        Ok(())
    }

    /// Finishes the queued work, and ends the threads.
    pub(crate) fn close(&mut self) {
        let threads = {
            let mut state = self.queue.state.lock();
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.queue.wakes.iter().for_each(|wake| {
            wake.notify_one();
        });
        for thread in threads {
            let _ = thread.join(); // Its panics were caught and logged.
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.close();
    }
}

impl Queue {
    fn work(&self, number: usize) {
        let mut buffer = Vec::new();
        while let Some(job) = self.next(number) {
            // A panic is a bug in one job. Its caller gets no answer and reads the log; the thread
            // goes on for the other Tasks.
            if catch_unwind(AssertUnwindSafe(|| job(&mut buffer))).is_err() {
                tracing::error!("a journal thread panicked; the log it wrote will be read again");
            }
            buffer.clear();
            buffer.shrink_to(BUFFER_KEPT_MAX);
        }
    }

    fn next(&self, number: usize) -> Option<ThreadJob> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            if !state.idle.contains(&number) {
                state.idle.push(number);
            }
            self.wakes[number].wait(&mut state);
        }
    }
}
