//! What a worker warns of is so: an Attempt whose end it has reported is not lost.

use std::fmt;
use std::future::pending;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::channel::mpsc::unbounded;
use parking_lot::Mutex;
use tenure_ports::bus::Delivery;
use tenure_sdk::worker::{Handlers, Options, StepContext, WorkerPool};
use tokio::time::sleep;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::fence::{Cut, Mood};
use crate::node::grant;

/// Keeps the messages of warnings.
#[derive(Debug, Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    async fn until_any(&self) {
        let begun = Instant::now();
        while self.0.lock().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody warns");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, line: &Metadata<'_>) -> bool {
        *line.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&self.0));
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message<'a>(&'a Mutex<Vec<String>>);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.lock().push(format!("{value:?}"));
        }
    }
}

/// A worker with one Attempt of this handler.
fn worker(cut: &Cut, handler: &str) -> WorkerPool<Cut> {
    let (to_worker, deliveries) = unbounded();
    let done = |ctx: StepContext| async move { Ok(ctx.complete(None)?) };
    let handlers = Handlers::new().on("done", done).unwrap().on("wait", |_| pending()).unwrap();
    let pool =
        WorkerPool::start(cut.clone(), deliveries, handlers, Options::new(NonZeroUsize::MIN));
    to_worker.unbounded_send(Delivery::Grant(grant(handler, 600).grant.unwrap())).unwrap();
    std::mem::forget(to_worker); // A worker whose deliveries end goes on.
    pool
}

/// What was seen: each of 37 warnings that an attempt was lost was about one whose report had just been recorded.
#[tokio::test]
async fn an_attempt_that_the_worker_has_reported_is_not_called_lost() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let cut = Cut::new(Mood::Behind);
    let _pool = worker(&cut, "done");
    let begun = Instant::now();
    while cut.beats() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} heartbeats", cut.beats());
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_millis(50)).await; // The last answer is seen.
    assert_eq!(warnings.all(), [""; 0]);
}

#[tokio::test]
async fn an_attempt_that_somebody_else_has_is_called_lost_once() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let cut = Cut::new(Mood::Elsewhere);
    let pool = worker(&cut, "wait");
    warnings.until_any().await;
    pool.drain().await;
    assert_eq!(warnings.all(), ["the attempt is lost"]);
}

/// The one whose work was for nothing is told, though heartbeats are not believed any more.
#[tokio::test]
async fn a_report_that_comes_too_late_is_warned_of() {
    let warnings = Warnings::default();
    let _log = tracing::subscriber::set_default(warnings.clone());
    let cut = Cut::new(Mood::Refuses);
    let pool = worker(&cut, "done");
    warnings.until_any().await;
    pool.drain().await;
    assert_eq!(warnings.all(), ["the attempt was lost before its report"]);
}
