//! Commands under a guard. The harness is this program's own, because guards are this program
//! started again, and only its `main` can make it act as one.
#![allow(clippy::unwrap_used)]

mod exec_scenarios;

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;

use exec_scenarios::bench::{Bench, children_of, is_alive, parent_of, until};
use exec_scenarios::{ends, for_all_scenarios, results, runner, start};
use libtest_mimic::{Arguments, Trial};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::json;
use tenure_sdk::worker::exec::{CommandEnd, ExecError, guard};

type Scenario = Pin<Box<dyn Future<Output = ()>>>;

macro_rules! shared {
    ($($module:ident::$name:ident,)+) => {
        vec![$(trial(stringify!($name), || Box::pin($module::$name()))),+]
    };
}

macro_rules! own {
    ($($name:ident,)+) => {
        vec![$(trial(stringify!($name), || Box::pin($name()))),+]
    };
}

fn main() -> ExitCode {
    guard::run_if_requested();
    runner::run_if_asked();
    let mut trials = for_all_scenarios!(shared);
    trials.extend(own! {
        a_daemon_that_escaped_ends_with_its_command,
        a_command_that_forks_without_end_is_killed,
        all_is_gone_when_the_outcome_is_told,
        the_group_keeps_its_grace_when_the_leader_has_ended,
        nothing_outlives_a_killed_runner,
        nothing_outlives_a_killed_group_of_the_runner,
        a_command_dies_with_its_guard,
        a_command_dies_with_its_guard_even_when_the_runner_cannot_act,
        a_guard_is_deaf_to_signals,
        a_command_has_no_terminal,
        no_guard_is_left_behind,
    });
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(name: &str, scenario: fn() -> Scenario) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(scenario());
        Ok(())
    })
}

/// Starts a daemon that has left group, session and parent behind, and waits until it runs.
const DAEMON: &str = "(setsid sh -c 'trap \"\" TERM HUP; touch $DIR/daemon; sleep 600; :' &); \
                      while ! [ -e $DIR/daemon ]; do sleep 0.01; done;";

async fn a_daemon_that_escaped_ends_with_its_command() {
    let bench = Bench::new();
    assert_eq!(bench.shell(&format!("{DAEMON} exit 3")).await.ended, CommandEnd::Exited(3));
    bench.assert_none_left();
}

async fn all_is_gone_when_the_outcome_is_told() {
    let bench = Bench::new();
    let line = "trap '' TERM; for i in 1 2 3 4 5; do sleep 600 & done; touch $DIR/ready; wait";
    let spec = json!({ "run": line, "grace_ms": 50 });
    let outcome = bench.run_and(spec, || bench.has("ready"), || bench.cancel.cancel()).await;
    assert_eq!(outcome.unwrap().ended, CommandEnd::Cancelled);
    bench.assert_none_left();
}

async fn a_command_that_forks_without_end_is_killed() {
    let bench = Bench::new();
    // Every process starts its successor in a new session and ends, as fast as it can.
    let line = "cat > $DIR/runaway <<'END'\nsetsid sh $DIR/runaway & exit\nEND\n\
                sh $DIR/runaway; sleep 0.3; touch $DIR/ready; sleep 600";
    let spec = json!({ "run": line, "grace_ms": 50 });
    let outcome = bench.run_and(spec, || bench.has("ready"), || bench.cancel.cancel()).await;
    assert_eq!(outcome.unwrap().ended, CommandEnd::Cancelled);
    bench.assert_none_left();
}

async fn the_group_keeps_its_grace_when_the_leader_has_ended() {
    let bench = Bench::new();
    // The leader dies of SIGTERM at once; its child takes its time to save something.
    let child = "trap 'sleep 0.3; touch $DIR/saved; exit' TERM; touch $DIR/ready; \
                 while :; do sleep 0.05; done";
    let spec = json!({ "run": format!("({child}) & wait"), "grace_ms": 60_000 });
    let outcome = bench.run_and(spec, || bench.has("ready"), || bench.cancel.cancel()).await;
    assert_eq!(outcome.unwrap().ended, CommandEnd::Cancelled);
    assert!(bench.has("saved"));
    bench.assert_none_left();
}

async fn nothing_outlives_a_killed_runner() {
    let bench = Bench::new();
    let line = format!("(trap '' TERM; sleep 600; :) & {DAEMON} sleep 600 & wait");
    let runner = runner::start(&bench, &[], &line);
    runner::kill_and_expect_nothing_left(&bench, runner, 6).await;
}

async fn nothing_outlives_a_killed_group_of_the_runner() {
    use std::os::unix::process::CommandExt;
    let bench = Bench::new();
    let mut runner = runner::command(&bench, &[], &format!("{DAEMON} sleep 600"));
    let mut runner = runner.process_group(0).spawn().unwrap();
    until("the daemon runs", || bench.alive().len() >= 4).await;
    killpg(Pid::from_raw(i32::try_from(runner.id()).unwrap()), Signal::SIGKILL).unwrap();
    runner.wait().unwrap();
    bench.until_none_left().await;
}

async fn a_command_dies_with_its_guard() {
    let bench = Bench::new();
    let spec = json!({ "run": "sleep 600 & echo $PPID; touch $DIR/ready; wait" });
    let kill_guard = || kill(guard_of(&bench), Signal::SIGKILL).unwrap();
    let error = bench.run_and(spec, || bench.has("ready"), kill_guard).await.unwrap_err();
    assert!(matches!(error, ExecError::GuardLost) && error.is_retryable(), "{error}");
    bench.until_none_left().await;
}

async fn a_command_dies_with_its_guard_even_when_the_runner_cannot_act() {
    let bench = Bench::new();
    let mut runner = runner::start(&bench, &[], "echo $PPID; touch $DIR/ready; exec sleep 600");
    until("the command runs", || bench.has("ready")).await;
    kill(Pid::from_raw(i32::try_from(runner.id()).unwrap()), Signal::SIGSTOP).unwrap();
    kill(guard_of(&bench), Signal::SIGKILL).unwrap();
    bench.until_none_left().await;
    runner.kill().unwrap();
    runner.wait().unwrap();
}

async fn a_guard_is_deaf_to_signals() {
    let bench = Bench::new();
    let line = "echo $PPID; touch $DIR/ready; while ! [ -e $DIR/go ]; do sleep 0.01; done; exit 5";
    let annoy_guard = || {
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
            kill(guard_of(&bench), signal).unwrap();
        }
        std::fs::write(bench.path("go"), "").unwrap();
    };
    let outcome = bench.run_and(json!({ "run": line }), || bench.has("ready"), annoy_guard).await;
    assert_eq!(outcome.unwrap().ended, CommandEnd::Exited(5));
}

/// The guard of a command that has printed the id of its parent.
fn guard_of(bench: &Bench) -> Pid {
    Pid::from_raw(bench.stdout().trim().parse().unwrap())
}

async fn a_command_has_no_terminal() {
    let outcome = Bench::new().shell(": < /dev/tty").await;
    assert_ne!(outcome.ended, CommandEnd::Exited(0));
}

async fn no_guard_is_left_behind() {
    let bench = Bench::new();
    bench.shell("echo $PPID").await;
    let guard = guard_of(&bench).as_raw();
    assert!(!is_alive(guard), "the guard still runs");
    let this = i32::try_from(std::process::id()).unwrap();
    assert!(
        !children_of(this).contains(&guard),
        "the guard is a zombie, its parent {}",
        parent_of(guard)
    );
}
