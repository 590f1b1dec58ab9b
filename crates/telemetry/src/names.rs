//! Every name of telemetry that leaves the process, in one place. docs/observability.md explains
//! them, and a test compares it with this table.

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only rises.
    Counter,
    /// A present value. The values of several processes may be added.
    UpDownCounter,
    /// A present value that is not to be added.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// The name.
    pub name: &'static str,
    /// How it is to be read.
    pub kind: Kind,
    /// The unit (UCUM).
    pub unit: &'static str,
    /// The attributes: none of them is an id.
    pub attributes: &'static [&'static str],
    /// The question that the metric answers.
    pub answers: &'static str,
}

/// Attribute: a pool.
pub const POOL: &str = "tenure.pool";
/// Attribute: how an Attempt ended.
pub const OUTCOME: &str = "tenure.outcome";
/// Attribute: the status of a Task.
pub const STATUS: &str = "tenure.status";
/// Attribute: the code of a refusal or of an error.
pub const CODE: &str = "tenure.code";
/// Attribute: a call to the store of leases.
pub const CALL: &str = "tenure.lease.call";
/// Attribute: the operation of a request.
pub const OPERATION: &str = "tenure.operation";
/// Attribute: why a Step waits, or a worker has gone.
pub const REASON: &str = "tenure.reason";
/// Attribute: an event of the log.
pub const EVENT: &str = "tenure.event";
/// Attribute: why something failed (semantic conventions).
pub const ERROR: &str = "error.type";
/// The [`ERROR`] of a call to a server that failed, for whatever reason.
pub const CALL_FAILED: &str = "failed";
/// Attribute: the number of a partition, from 0.
pub const PARTITION: &str = "tenure.partition";
/// Attribute: processor time of the program (`user`) or of the system for it (semantic conventions).
pub const CPU_MODE: &str = "cpu.mode";
/// Attribute: the version of Tenure (semantic conventions).
pub const VERSION: &str = "service.version";
/// Attribute: traces, metrics or logs.
pub const SIGNAL: &str = "tenure.signal";

/// Resource attribute: this start of the process, if `service.instance.id` is the same after a restart.
pub const BOOT: &str = "tenure.boot";

/// Span attribute: the session.
pub const SESSION_ID: &str = "tenure.session.id";
/// Span attribute: the Task.
pub const TASK_ID: &str = "tenure.task.id";
/// Span attribute: the kind of the Task, as its maker wrote it.
pub const TASK_KIND: &str = "tenure.task.kind";
/// Span attribute: how many Steps the Task has.
pub const STEPS: &str = "tenure.task.steps";
/// Span attribute: how many Attempts the Task has.
pub const ATTEMPTS: &str = "tenure.task.attempts";
/// Span attribute: the Step.
pub const STEP_ID: &str = "tenure.step.id";
/// Attribute: the Step's handler.
pub const HANDLER: &str = "tenure.handler";
/// Span attribute: the Attempt.
pub const ATTEMPT_ID: &str = "tenure.attempt.id";
/// Span attribute: the Attempt's number, from 1.
pub const ORDINAL: &str = "tenure.attempt.ordinal";
/// Span attribute: the worker.
pub const WORKER_ID: &str = "tenure.worker.id";
/// Span attribute: the system that delivers (semantic conventions of messaging, as the four below).
pub const MESSAGING_SYSTEM: &str = "messaging.system";
/// Span attribute: the source, a pool.
pub const MESSAGING_DESTINATION: &str = "messaging.destination.name";
/// Span attribute: the operation, in the terms of the system.
pub const MESSAGING_OPERATION: &str = "messaging.operation.name";
/// Span attribute: the operation, in the terms of the conventions.
pub const MESSAGING_OPERATION_TYPE: &str = "messaging.operation.type";
/// Span attribute: the message, an Attempt.
pub const MESSAGING_MESSAGE: &str = "messaging.message.id";
/// Span attribute: who consumes, a worker.
pub const MESSAGING_CLIENT: &str = "messaging.client.id";
/// Span attribute: how a handler ended, as its worker saw it.
pub const RUN_END: &str = "tenure.handler.end";
/// Attribute of a span or an event: why a worker gave the Step back.
pub const RELEASE_REASON: &str = "tenure.release.reason";
/// Link attribute: `previous` or `next`, for Attempts of one Step.
pub const LINK: &str = "tenure.link";

/// The operation of a lease, in the terms of messaging.
pub const OPERATION_SEND: &str = "send";
/// The operation of a handler in its worker, in the terms of messaging.
pub const OPERATION_PROCESS: &str = "process";

/// Event of a Task's span: it was paused.
pub const EVENT_PAUSED: &str = "paused";
/// Event of a Task's span: it was resumed.
pub const EVENT_RESUMED: &str = "resumed";
/// Event of a Task's span: it was blocked.
pub const EVENT_BLOCKED: &str = "blocked";
/// Event of a Task's span: it was reopened.
pub const EVENT_REOPENED: &str = "reopened";
/// Event of a Task's span: somebody asked for its end.
pub const EVENT_CANCEL_REQUESTED: &str = "cancel requested";
/// Event of a Task's span: a blocked or failed Step may run again.
pub const EVENT_STEP_REOPENED: &str = "step reopened";
/// Event of a Task's span: another scheduler has it now.
pub const EVENT_TAKEN_OVER: &str = "taken over";
/// Event of a Task's span: a Step was cancelled, and never had an Attempt.
pub const EVENT_STEP_CANCELLED: &str = "step cancelled";
/// Event of a Task's span: a Step failed, and never had an Attempt.
pub const EVENT_STEP_FAILED: &str = "step failed";
/// Event of a Task's span: a Step completed without an Attempt.
pub const EVENT_STEP_COMPLETED: &str = "step completed";
/// Event of an Attempt's span: its worker gave the Step back.
pub const EVENT_GIVEN_BACK: &str = "given back";
/// Event of the span of a lost lease: when it was renewed last.
pub const EVENT_HEARTBEAT: &str = "last heartbeat";
/// Every event of spans.
pub const SPAN_EVENTS: [&str; 12] = [
    EVENT_PAUSED,
    EVENT_RESUMED,
    EVENT_BLOCKED,
    EVENT_REOPENED,
    EVENT_CANCEL_REQUESTED,
    EVENT_STEP_REOPENED,
    EVENT_TAKEN_OVER,
    EVENT_STEP_CANCELLED,
    EVENT_STEP_FAILED,
    EVENT_STEP_COMPLETED,
    EVENT_GIVEN_BACK,
    EVENT_HEARTBEAT,
];

/// Spans: a Task from its creation to its end.
pub const SPAN_TASK: &str = "task";
/// Spans: an Attempt, from its Step being ready to its end.
pub const SPAN_ATTEMPT: &str = "attempt";
/// Spans: the part of an Attempt in which the Step waits for a worker, up to its claim.
pub const SPAN_QUEUE: &str = "queue";
/// Spans: the part of an Attempt in which its worker has the Step, from its claim to its end.
pub const SPAN_LEASE: &str = "lease";
/// Spans: the wait of a Step between two Attempts.
pub const SPAN_WAIT: &str = "wait";
/// Spans: a handler in its worker, as the worker measured it.
pub const SPAN_RUN: &str = "run";
/// Spans: the part of an Attempt in which its handler runs, from the worker's first report to its
/// last.
pub const SPAN_HANDLER: &str = "handler";

macro_rules! metrics {
    ($($name:ident = $text:literal, $kind:ident, $unit:literal, [$($attribute:expr),*], $answers:literal;)+) => {
        $(
            #[doc = $answers]
            pub const $name: Metric = Metric {
                name: $text,
                kind: Kind::$kind,
                unit: $unit,
                attributes: &[$($attribute),*],
                answers: $answers,
            };
        )+

        /// Every metric.
        pub const METRICS: &[Metric] = &[$($name),+];
    };
}

metrics! {
    WAITING = "tenure.pool.waiting", UpDownCounter, "{step}", [POOL],
        "How much work waits for workers of a pool?";
    READY = "tenure.pool.ready", UpDownCounter, "{step}", [POOL],
        "How much of that may any worker of the pool be given?";
    RUNNING = "tenure.pool.running", UpDownCounter, "{attempt}", [POOL],
        "How many attempts of the pool's steps are open?";
    DESIRED = "tenure.pool.desired", UpDownCounter, "{step}", [POOL],
        "How many slots would be busy if there were enough?";
    OLDEST = "tenure.pool.oldest_wait", Gauge, "s", [POOL],
        "How long has the step waited that is next in line?";
    CREDITS = "tenure.pool.credits", UpDownCounter, "{step}", [POOL],
        "How many more steps would workers take now?";
    WORKERS = "tenure.pool.workers", Gauge, "{worker}", [POOL],
        "How many workers are there?";
    LEAVING = "tenure.pool.leaving", Gauge, "{worker}", [POOL],
        "How many of them were told to leave?";
    SUSPENDED = "tenure.pool.suspended", Gauge, "{worker}", [POOL],
        "How many of them are given nothing, as they fail what others complete?";
    WORKER_SLOTS = "tenure.worker.slots", UpDownCounter, "{slot}", [POOL],
        "How many steps does this worker run at a time at most?";
    WORKER_RUNNING = "tenure.worker.running", UpDownCounter, "{slot}", [POOL],
        "How many of these are in use?";
    WORKER_HELD = "tenure.worker.held", UpDownCounter, "{attempt}", [POOL],
        "How many attempts and runs has it in hand, with those that wait for a slot?";
    WORKER_FILES = "tenure.worker.files", Gauge, "{file}", [POOL],
        "How many files are below the directory where this worker's commands write?";
    WORKER_FILES_SIZE = "tenure.worker.files.size", Gauge, "By", [POOL],
        "How long are these together?";
    STEPS_WAITING = "tenure.steps.waiting", UpDownCounter, "{step}", [REASON],
        "How many steps of live tasks wait, and for what?";
    TASKS = "tenure.tasks.in_memory", UpDownCounter, "{task}", [],
        "How many tasks does this scheduler keep?";
    LIVE_TASKS = "tenure.tasks.live", UpDownCounter, "{task}", [],
        "How many tasks that have not ended does this scheduler have?";
    LIVE_SIZE = "tenure.tasks.live.size", UpDownCounter, "By", [],
        "How long are the logs of these?";
    TASK_MEMORY = "tenure.tasks.memory", UpDownCounter, "By", [],
        "How much of these logs is in memory?";
    UNPLACED = "tenure.tasks.unplaced", Counter, "{task}", [],
        "How often was there no place in memory for a task?";
    OVER_RATE = "tenure.rate.refusals", Counter, "{message}", [],
        "How much was refused, as one principal had sent too much?";
    PARTITIONS = "tenure.partitions.served", UpDownCounter, "{partition}", [],
        "Which share of the cluster does this scheduler serve?";
    PARTITIONS_TOTAL = "tenure.partitions", Gauge, "{partition}", [],
        "How many partitions has the cluster, each of which needs a scheduler?";
    PARTITION_SERVED = "tenure.partition.served", Gauge, "{partition}", [PARTITION],
        "Does this scheduler serve the partition (1) or not (0)?";
    SCHEDULER_RUNNING = "tenure.scheduler.running", UpDownCounter, "{scheduler}", [],
        "Does this scheduler run (1), or has it ended by itself (0)?";
    NATS_CONNECTED = "tenure.nats.connected", Gauge, "{connection}", [],
        "Does this scheduler reach NATS (1) or not (0)?";
    REDIS_CONNECTED = "tenure.redis.connected", Gauge, "{connection}", [],
        "Did the store of leases answer when this scheduler last asked it (1) or not (0)?";
    CREATED = "tenure.tasks.created", Counter, "{task}", [],
        "How many tasks come in?";
    ENDED = "tenure.tasks.ended", Counter, "{task}", [STATUS],
        "How many tasks end, and how?";
    TASK_TIME = "tenure.task.duration", Histogram, "s", [STATUS],
        "How long does a task take from its creation to its end?";
    CLAIMS = "tenure.claims", Counter, "{claim}", [POOL],
        "How many steps are given to workers?";
    ATTEMPTS_ENDED = "tenure.attempts.ended", Counter, "{attempt}", [POOL, OUTCOME],
        "How do attempts end: what fails, what is lost?";
    HANDLER_ATTEMPTS = "tenure.handler.attempts", Counter, "{attempt}", [HANDLER, OUTCOME],
        "How do attempts end, by handler?";
    HANDLER_TIME = "tenure.handler.time", Counter, "s", [HANDLER],
        "How long did attempts of a handler take together, from their claims to their ends?";
    FAILURES = "tenure.attempts.failures", Counter, "{attempt}", [HANDLER, ERROR],
        "With which codes do attempts fail?";
    QUEUE_TIME = "tenure.step.queue.duration", Histogram, "s", [POOL],
        "How long does a ready step wait for a worker?";
    RUN_TIME = "tenure.step.run.duration", Histogram, "s", [POOL, OUTCOME],
        "How long does an attempt take from its claim to its end?";
    EVENTS = "tenure.log.events", Counter, "{event}", [EVENT],
        "What happens, by event of the log?";
    REFUSALS = "tenure.refusals", Counter, "{command}", [CODE],
        "Which commands are refused?";
    OVERLOADED = "tenure.admission.refusals", Counter, "{command}", [],
        "How many requests find no room?";
    REQUEST_TIME = "tenure.requests.duration", Histogram, "s", [OPERATION, ERROR],
        "How long does a request take from its arrival at a scheduler to its answer?";
    APPEND_TIME = "tenure.journal.append.duration", Histogram, "s", [ERROR],
        "How long does the log take to make an append durable?";
    APPEND_SIZE = "tenure.journal.append.commits", Histogram, "{commit}", [],
        "How many commits of a task share an append?";
    LEASE_TIME = "tenure.leases.call.duration", Histogram, "s", [CALL, ERROR],
        "How long does the store of leases take to answer?";
    LEASES = "tenure.leases.items", Counter, "{lease}", [CALL],
        "How many leases are taken, renewed and dropped?";
    LATE = "tenure.leases.expiry.lateness", Histogram, "s", [],
        "How many leases end without a word, and how long after is that in the log?";
    FRAME_TIME = "tenure.journal.frame.duration", Histogram, "s", [ERROR],
        "How long does JetStream take to store a message of the log?";
    FRAME_SIZE = "tenure.journal.frame.commits", Histogram, "{commit}", [],
        "How many commits, of any tasks, share a message of the log?";
    LOG_SIZE = "tenure.log.size", UpDownCounter, "By", [],
        "How much do the logs take that this scheduler serves?";
    LOG_LIMIT = "tenure.log.limit", Gauge, "By", [],
        "How much has the place for logs that is closest to full: a stream, an account, a disk?";
    LOG_ROOM = "tenure.log.room", Gauge, "By", [],
        "How much of that is left?";
    HEARTBEAT = "tenure.worker.heartbeat.duration", Histogram, "s", [ERROR],
        "How long does a worker wait for the answers to a heartbeat?";
    PARTED = "tenure.workers.parted", Counter, "{worker}", [REASON],
        "How many workers have gone, and why?";
    TAKEOVERS = "tenure.partitions.takeover.duration", Histogram, "s", [],
        "How often does a scheduler take a partition, and how long until it has its live tasks?";
    DROPPED = "tenure.telemetry.dropped", Counter, "{item}", [SIGNAL],
        "What did the collector not get?";
    MEMORY = "process.memory.usage", UpDownCounter, "By", [],
        "How much memory does the process take?";
    CPU = "process.cpu.time", Counter, "s", [CPU_MODE],
        "How much processor time does the process take?";
    THREADS = "process.thread.count", UpDownCounter, "{thread}", [],
        "How many threads does the process have?";
    FILES = "process.unix.file_descriptor.count", UpDownCounter, "{file_descriptor}", [],
        "How many files does the process keep open?";
    UPTIME = "process.uptime", Gauge, "s", [],
        "How long has the process run?";
    BUILD = "tenure.build.info", Gauge, "{build}", [VERSION],
        "Which version of Tenure is it? The value is 1.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_no_attribute_of_a_metric_is_an_id() {
        for (at, metric) in METRICS.iter().enumerate() {
            assert!(METRICS[..at].iter().all(|other| other.name != metric.name), "{}", metric.name);
            for attribute in metric.attributes {
                assert!(!attribute.ends_with(".id"), "{}: {attribute}", metric.name);
            }
            assert!(metric.answers.contains('?'), "{}", metric.answers);
        }
    }
}
