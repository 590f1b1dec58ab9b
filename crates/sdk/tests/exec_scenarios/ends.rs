//! How commands are ended, and that nothing of them is left.

use std::time::Duration;

use serde_json::json;
use tenure_sdk::worker::exec::CommandEnd;

use super::bench::{Bench, until};

/// Ends on SIGTERM, with a trace that it could.
const LISTENS: &str = "trap 'touch $DIR/heard; exit 0' TERM; touch $DIR/ready; \
                       while :; do sleep 0.05; done";
/// Does not end on SIGTERM, nor do its children.
const DEAF: &str = "trap '' TERM; touch $DIR/ready; while :; do sleep 0.05; done";

pub async fn a_command_that_heeds_its_timeout_ends_at_once() {
    let bench = Bench::new();
    let spec = json!({ "run": LISTENS, "timeout_ms": 300, "grace_ms": 60_000 });
    let outcome = bench.run(spec).await.unwrap();
    assert_eq!(outcome.ended, CommandEnd::TimedOut);
    assert!(outcome.duration < Duration::from_secs(30), "{:?}", outcome.duration);
    assert!(bench.has("heard") || !bench.has("ready"));
    bench.until_none_left().await;
}

pub async fn a_command_that_ignores_sigterm_is_killed_after_its_grace() {
    let bench = Bench::new();
    let spec = json!({ "run": DEAF, "timeout_ms": 300, "grace_ms": 200 });
    let outcome = bench.run(spec).await.unwrap();
    assert_eq!(outcome.ended, CommandEnd::TimedOut);
    let has_outlasted = outcome.duration >= Duration::from_millis(500);
    assert!(has_outlasted || !bench.has("ready"), "{:?}", outcome.duration);
    bench.until_none_left().await;
}

pub async fn a_stopped_command_can_be_timed_out() {
    let bench = Bench::new();
    let line = "trap 'touch $DIR/heard; exit 0' TERM; touch $DIR/ready; kill -STOP $$; sleep 60";
    let spec = json!({ "run": line, "timeout_ms": 300, "grace_ms": 60_000 });
    let outcome = bench.run(spec).await.unwrap();
    assert_eq!(outcome.ended, CommandEnd::TimedOut);
    assert!(bench.has("heard") || !bench.has("ready"));
}

pub async fn without_a_grace_a_command_is_killed_at_once() {
    let bench = Bench::new();
    let spec = json!({ "run": LISTENS, "grace_ms": 0 });
    let outcome = bench.run_and(spec, || bench.has("ready"), || bench.cancel.cancel()).await;
    assert_eq!(outcome.unwrap().ended, CommandEnd::Cancelled);
    assert!(!bench.has("heard"));
    bench.until_none_left().await;
}

pub async fn a_cancelled_command_ends_by_itself() {
    let bench = Bench::new();
    let spec = json!({ "run": LISTENS, "grace_ms": 60_000 });
    let outcome = bench.run_and(spec, || bench.has("ready"), || bench.cancel.cancel()).await;
    assert_eq!(outcome.unwrap().ended, CommandEnd::Cancelled);
    assert!(bench.has("heard"));
    bench.until_none_left().await;
}

pub async fn a_cancelled_command_that_does_not_listen_is_killed() {
    let bench = Bench::new();
    let spec = json!({ "run": DEAF, "grace_ms": 100 });
    let outcome = bench.run_and(spec, || bench.has("ready"), || bench.cancel.cancel()).await;
    assert_eq!(outcome.unwrap().ended, CommandEnd::Cancelled);
    bench.until_none_left().await;
}

pub async fn a_command_cancelled_before_its_start_never_runs() {
    let bench = Bench::new();
    bench.cancel.cancel();
    let outcome = bench.shell("touch $DIR/ran").await;
    assert_eq!((outcome.ended, outcome.stdout_bytes), (CommandEnd::Cancelled, 0));
    assert!(!bench.has("ran"));
}

pub async fn the_children_of_a_command_end_with_it() {
    let bench = Bench::new();
    let deaf = "(trap '' TERM HUP; touch $DIR/deaf; while :; do sleep 0.05; done) &";
    let line =
        format!("{deaf} (sleep 60 &) ; while ! [ -e $DIR/deaf ]; do sleep 0.01; done; exit 7");
    assert_eq!(bench.shell(&line).await.ended, CommandEnd::Exited(7));
    bench.until_none_left().await;
}

pub async fn a_dropped_command_is_killed() {
    let bench = Bench::new();
    let spec = json!({ "run": "sleep 60 & touch $DIR/ready; wait" });
    tokio::select! {
        outcome = bench.run(spec) => panic!("it ended: {outcome:?}"),
        () = until("the command runs", || bench.has("ready")) => {}
    }
    bench.until_none_left().await;
}
