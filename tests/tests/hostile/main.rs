//! What one principal does costs that principal: others keep their service, their leases and their latency.
//!
//! Each file is an attack of somebody who has a login of their own and nothing else: the worker of one pool, an
//! orchestrator or observer of one session, a caller of a gateway. A victim with another login measures meanwhile
//! how long its Tasks take. `./check hostile` carries out all attacks, each for `TENURE_HOSTILE_SECONDS`; without
//! that variable some of them take place for some seconds. `TENURE_HOSTILE_ONLY` names one attack. With the cargo
//! feature `grpc` there is one over MACP too.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod again;
mod agents;
mod bodies;
mod calls;
mod common;
mod drafts;
mod hellos;
mod hosts;
mod links;
mod listeners;
mod lists;
mod malformed;
mod nodes;
mod pools;
mod priorities;
mod reads;
mod repeats;
mod reports;
#[cfg(feature = "grpc")]
mod starts;
mod strangers;
mod streams;
mod waiting;

use std::time::Duration;

use anyhow::{Result, ensure};
use tenure_tests::random::said;

use crate::common::judge::{Attack, Scale, judge};

/// All of them.
const ATTACKS: &[&Attack] = &[
    &malformed::ATTACK,
    &hellos::ATTACK,
    &bodies::ATTACK,
    &links::ATTACK,
    &streams::ATTACK,
    &reads::ATTACK,
    &lists::ATTACK,
    &drafts::ATTACK,
    &repeats::ATTACK,
    &reports::ATTACK,
    &pools::ATTACK,
    &waiting::ATTACK,
    &agents::ATTACK,
    &hosts::ATTACK,
    &again::ATTACK,
    &nodes::ATTACK,
    &priorities::ATTACK,
    &strangers::ATTACK,
    &calls::ATTACK,
    &listeners::ATTACK,
    #[cfg(feature = "grpc")]
    &starts::ATTACK,
];

/// Mechanisms 15: each attack costs the attacker alone.
#[test]
fn what_one_principal_does_costs_that_principal() -> Result<()> {
    let seconds = said("TENURE_HOSTILE_SECONDS")?;
    let only = std::env::var("TENURE_HOSTILE_ONLY").ok();
    let is_wanted = |attack: &&&Attack| match &only {
        Some(name) => attack.name == name,
        None => seconds.is_some() || attack.is_in_short,
    };
    let scale = seconds.map_or(Scale::short(), |it| Scale::long(Duration::from_secs(it)));
    let wanted: Vec<_> = ATTACKS.iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "there is no such attack");
    let failed: Vec<String> = wanted
        .into_iter()
        .filter_map(|attack| judge(attack, scale).err())
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(failed.is_empty(), "\n{}", failed.join("\n"));
    Ok(())
}
