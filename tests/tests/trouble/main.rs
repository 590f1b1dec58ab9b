//! What operators are told in trouble: which alerts fire, and what `tenure doctor`, `tenure top`, `tenure pool list`
//! and `tenure task explain` say, is held against what is true.
//!
//! Each trouble takes place on a cluster of its own. `./check trouble` has all of them, beside a real Prometheus with
//! the rules of `deploy/grafana/alerts.yaml`, whose times are shortened ([`rules`]); each is watched for
//! `TENURE_TROUBLE_SECONDS`. Whatever else fires is a fault. `TENURE_WRITE_GOLDEN=1` writes the table of
//! docs/observability.md anew, and without it the table must say the same. `TENURE_TROUBLE_ONLY` names one trouble.
//! Without `TENURE_TROUBLE_SECONDS` two troubles take place, and nobody asks for alerts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod alerts;
mod bridge;
mod report;
mod rules;
mod scene;
mod troubles;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tenure_tests::random::said;

use crate::report::Row;
use crate::scene::Scene;
use crate::troubles::{TROUBLES, Trouble};

/// How long a trouble may take to be told where nobody waits for alerts.
const SOON: Duration = Duration::from_secs(40);

/// VIEW-17: in each trouble all that operators look at leads them to what is sick, and nothing else is accused.
#[test]
fn operators_are_told_what_is_sick() -> Result<()> {
    let watched = said("TENURE_TROUBLE_SECONDS")?.map(Duration::from_secs);
    let only = std::env::var("TENURE_TROUBLE_ONLY").ok();
    let is_wanted = |trouble: &&Trouble| match &only {
        Some(name) => trouble.name == name,
        None => watched.is_some() || trouble.is_in_short,
    };
    let wanted: Vec<&Trouble> = TROUBLES.iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "there is no such trouble");
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for trouble in wanted {
        let seen = match watched {
            Some(watched) => see_with_alerts(trouble, watched),
            None => see_soon(trouble).map(|()| None),
        };
        match seen {
            Ok(row) => rows.extend(row),
            Err(error) => failed.push(format!("{}: {error:#}", trouble.name)),
        }
    }
    let documented = report::is_documented(&rows); // Written even if others fail.
    ensure!(failed.is_empty(), "\n{}", failed.join("\n"));
    documented
}

/// Watches a trouble for a while, with a Prometheus.
fn see_with_alerts(trouble: &Trouble, watched: Duration) -> Result<Option<Row>> {
    let Some(mut scene) = Scene::start(trouble, true)? else {
        println!(
            "{}: left out, as TENURE_TROUBLE_FAKETIME names no libfaketime.so.1",
            trouble.name
        );
        return Ok(None);
    };
    let seen = (|| {
        let alerts = scene.alerts()?;
        (trouble.breaks)(&mut scene)?;
        let alerts = alerts.watch(watched);
        let told = scene.until_told(trouble, watched)?;
        let fired = alerts.join().ok().context("the watch has panicked")??;
        Ok::<_, anyhow::Error>(Row { name: trouble.name, told, fired })
    })();
    let row = seen.inspect_err(|_| scene.print_tails()).context("it could not be seen")?;
    println!("{}", row.line());
    let wrong = row.wrong(trouble);
    if !wrong.is_empty() {
        scene.print_tails();
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(Some(row))
}

/// Awaits that a trouble is told, without alerts.
fn see_soon(trouble: &Trouble) -> Result<()> {
    let Some(mut scene) = Scene::start(trouble, false)? else { return Ok(()) };
    let seen = (trouble.breaks)(&mut scene).and_then(|()| scene.until_told(trouble, SOON));
    let told = seen.inspect_err(|_| scene.print_tails())?;
    let wrong = told.wrong(trouble);
    ensure!(wrong.is_empty(), "{}", wrong.join("; "));
    Ok(())
}
