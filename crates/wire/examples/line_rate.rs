//! How many events a second one thread writes and reads: `cargo run --release --example line_rate`.
//!
//! Time is the thread's own on the processor, so that a busy machine does not change the figures.

#![allow(clippy::print_stdout, clippy::unwrap_used)] // A tool for the terminal.

use std::hint::black_box;

use tenure_core::Command;
use tenure_core::event::{Body, Commit, Event, Nothing, StepCompleted};
use tenure_core::id::{
    AgentId, AttemptId, CommandId, CommitId, Digest, DigestForm, RunId, SessionId, StepId, TaskId,
};
use tenure_core::record::Value;
use tenure_core::status::Outcome;
use tenure_wire::digest::digest_command;
use tenure_wire::stored::{Assembler, decode_line, encode};
use uuid::Uuid;

const ROUNDS: u64 = 200_000;

fn event(body: Body, actor: &str, run: Option<RunId>) -> Event {
    let step_id = Some(StepId::new("extract-pages-0017").unwrap());
    Event { actor: AgentId::new(actor).unwrap(), run, step_id, body }
}

fn commit(first_seq: u64) -> Commit {
    let run = RunId(Uuid::from_u128(7));
    let completed = Body::StepCompleted(StepCompleted {
        attempt_id: Some(AttemptId(Uuid::from_u128(9))),
        outcome: Some(Outcome::Completed),
        reason: None,
        output: Some(Value::json(b"{\"pages\":17}".to_vec())),
        reply: None,
        adopted: false,
        report: None,
    });
    Commit {
        commit_id: CommitId(Uuid::from_u128(u128::from(first_seq) << 64)),
        first_seq,
        created_at: 1_700_000_000_000,
        command_id: Some(CommandId::new("0190e2a4-7d3f-7c52-9f60-1d8b5e1c2a77").unwrap()),
        command_digest: Some(Digest::first([7; 32])),
        epoch: 0,
        trace: None,
        events: vec![
            event(completed, "worker-3", Some(run)),
            event(Body::StepReady(Nothing {}), "system", None),
        ],
    }
}

/// Time that this thread has been running.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
    nanoseconds / 1e9
}

fn main() {
    let session = SessionId::new("session-2024-11").unwrap();
    let task = TaskId::new("0190e2a4-7d3f-7c52-9f60-1d8b5e1c2a77").unwrap();
    let commits: Vec<Commit> = (0..ROUNDS).map(|n| commit(1 + 2 * n)).collect();
    let events = (2 * ROUNDS) as f64;

    let mut out = Vec::new();
    for pass in ["cold", "warm", "warm"] {
        out.clear();
        let start = cpu_seconds();
        for commit in &commits {
            encode(black_box(commit), &session, &task, &mut out).unwrap();
        }
        let seconds = cpu_seconds() - start;
        let bytes = out.len() as f64 / events;
        println!("encode, {pass}: {:.2} M events/s of {bytes:.0} bytes", events / seconds / 1e6);
    }

    let start = cpu_seconds();
    let mut assembler = Assembler::new(session, task);
    let mut read = 0;
    for line in out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let commit = assembler.push(decode_line(line).unwrap()).unwrap();
        read += u64::from(black_box(commit).is_some());
    }
    assert_eq!(read, ROUNDS);
    println!("decode: {:.2} M events/s", events / (cpu_seconds() - start) / 1e6);

    let mut report = tenure_core::command::StepReport::on(StepId::new("a").unwrap());
    report.attempt_id = Some(AttemptId(Uuid::from_u128(9)));
    report.fencing_token = Some(12);
    report.output = Some(Value::json(b"{\"pages\":17}".to_vec()));
    let report = Command::TaskUpdateStep(report);
    let actor = AgentId::new("worker-3").unwrap();
    let start = cpu_seconds();
    for _ in 0..ROUNDS {
        black_box(digest_command(DigestForm::NEWEST, &actor, black_box(&report)).unwrap());
    }
    println!("digest: {:.2} µs", (cpu_seconds() - start) * 1e6 / ROUNDS as f64);
}
