//! Random sequences of messages, each judged by tenure-macp and by the state machine of the reference runtime
//! (macp-modes 0.13.0). They must accept the same messages, refuse with the same codes, and be in the same state after
//! each, live and built again from the records.
//!
//! `cargo run -- 10000 [SEED]` plays 10,000 sequences. A sequence that differs is printed with the command that plays
//! it alone.
//!
//! `cargo run -- fixtures FOLDER` has tenure-macp pass the fixtures of the protocol for Task mode, which macp-runtime
//! has in `tests/conformance`. `cargo run -- conform ARGUMENTS` is `macp-conform`, which tries a server.
//!
//! Four things differ on purpose, and only in them another answer is right (see `crates/macp/src/lib.rs`).

mod compare;
mod draw;
mod fixtures;
mod reference;

use std::collections::BTreeMap;
use std::process::ExitCode;

use compare::Pair;
use draw::{Draw, Rng};
use tenure_macp::MacpSession;

/// What has been seen, and how often.
pub type Counts = BTreeMap<String, u64>;

/// What must have been seen at the end: a run that never meets them compares nothing of worth.
const NEEDED: &[&str] = &[
    "accepted TaskRequest",
    "accepted TaskAccept",
    "accepted TaskReject",
    "accepted TaskUpdate",
    "accepted TaskComplete",
    "accepted TaskFail",
    "accepted Commitment",
    "effect Decline",
    "effect Return",
    "effect Noted",
    "committed negatively",
    "committed without a report",
    "duplicate",
    "duplicate of a long id",
    "refused FORBIDDEN",
    "refused INVALID_ENVELOPE",
    "refused SESSION_NOT_OPEN",
    "refused POLICY_DENIED",
    "refused UNSUPPORTED_PROTOCOL_VERSION",
    "start INVALID_SESSION_ID",
    "start MODE_NOT_SUPPORTED",
    "start INVALID_ENVELOPE",
    "start SESSION_ALREADY_EXISTS",
    "start UNKNOWN_POLICY_VERSION",
    "start INVALID_POLICY_DEFINITION",
    "start duplicate",
    "start accepted",
    "steer Suspend ok",
    "steer Resume ok",
    "steer Cancel ok",
    "steer Suspend SESSION_NOT_OPEN",
    "steer Resume SESSION_NOT_OPEN",
    "steer Cancel FORBIDDEN",
    "end Open",
    "end Suspended",
    "end Resolved",
    "end Expired",
    "end Cancelled",
    "on purpose: progress",
    "on purpose: duplicate of a stranger",
    "policy accepted",
    "policy refused",
    "session id accepted",
    "session id refused",
];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("fixtures") => fixtures::run_all(&words.next().expect("the folder with the fixtures")),
        Some("conform") => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime
                .expect("a runtime")
                .block_on(macp_conform::cli::main("macp-oracle conform", words))
        }
        _ => play(),
    }
}

fn play() -> ExitCode {
    let number = |at: usize, default: u64| match std::env::args().nth(at) {
        Some(text) => text.parse().expect("a number: cargo run -- SEQUENCES SEED"),
        None => default,
    };
    let (sequences, seed) = (number(1, 10_000), number(2, 1));
    let mut counts = Counts::new();
    for at in 0..sequences {
        let seed = seed.wrapping_add(at);
        if let Err(difference) = sequence(seed, &mut counts) {
            eprintln!("{difference}\n\ncargo run -- 1 {seed}");
            return ExitCode::FAILURE;
        }
    }
    for (what, count) in &counts {
        println!("{count:>9} {what}");
    }
    let missing: Vec<_> = NEEDED.iter().filter(|it| !counts.contains_key(**it)).collect();
    if sequences >= 1000 && !missing.is_empty() {
        eprintln!("never met: {missing:?}");
        return ExitCode::FAILURE;
    }
    println!("{sequences} sequences from seed {seed}: no difference");
    ExitCode::SUCCESS
}

fn sequence(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let mut draw = Draw { rng: Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)), next_id: 0 };
    compare::session_id(&draw.session_id(), counts)?;
    compare::policy(&draw.rules(), counts)?;
    let mut pair = Pair::new();
    // Starts until one is accepted, most often the first.
    while pair.session().is_none() {
        let start = draw.start();
        pair.start(&start, draw.now(pair.now_ms, pair.session()), counts)?;
    }
    for _ in 0..draw.rng.below(40) {
        // Of a session that has ended there is little to see.
        if pair.session().is_some_and(MacpSession::has_ended) && draw.rng.below(4) == 0 {
            break;
        }
        pair.now_ms = draw.now(pair.now_ms, pair.session());
        match draw.rng.below(20) {
            0 => {
                let start = draw.start();
                pair.start(&start, pair.now_ms, counts)?;
            }
            1 | 2 => {
                let (steer, sender) = draw.steer();
                pair.steer(steer, sender, counts)?;
            }
            _ => {
                let envelope = draw.message(pair.session().expect("it was started"));
                pair.send(&envelope, counts)?;
            }
        }
    }
    pair.replay()?;
    pair.count_end(counts);
    Ok(())
}
