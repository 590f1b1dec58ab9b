//! Commands of a program that cannot start guards, as any test under the usual harness is one.
#![allow(clippy::unwrap_used)]

mod exec_scenarios;

use exec_scenarios::bench::Bench;
use exec_scenarios::{ends, for_all_scenarios, results, runner, start};

macro_rules! tests {
    ($($module:ident::$name:ident,)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                $module::$name().await;
            }
        )+
    };
}

for_all_scenarios!(tests);

/// Not a test, but the way into the runner that the next test kills.
#[test]
fn runner_role() {
    runner::run_if_asked();
}

#[tokio::test]
async fn the_group_of_a_command_dies_with_a_killed_runner() {
    let bench = Bench::new();
    let line = "(trap '' TERM HUP INT; sleep 600; :) & sleep 600 & wait";
    let runner = runner::start(&bench, &["--exact", "runner_role", "--nocapture"], line);
    runner::kill_and_expect_nothing_left(&bench, runner, 4).await;
}
