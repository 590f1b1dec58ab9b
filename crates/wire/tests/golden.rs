//! Lines of record version 1 that were once written are read for ever (contract 2.5, P02).
//!
//! A file holds the log of an event type: a commit with every field of envelope and payload, a
//! commit with as few as there can be, and a commit of both. Files are never written again: a
//! change of the form is a new record version, with files of its own.

#![allow(clippy::unwrap_used)] // A test that cannot go on has failed.

mod samples;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use samples::{commit, event, full, least, session, task};
use tenure_core::creation::Creation;
use tenure_core::event::{Body, Commit, LeaseEnd, ReleaseReason, StepLeaseExpired};
use tenure_core::id::Digest;
use tenure_wire::stored::{Assembler, decode_line, encode};

fn dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

/// The log of each event type.
fn logs() -> Vec<(&'static str, Vec<Commit>)> {
    let pairs = full().into_iter().zip(least());
    let log = |(full, least): (Body, Body)| {
        let name = full.event_type();
        let mut bare = event(least);
        bare.run = None;
        bare.actor = tenure_core::id::system_agent();
        let full = event(full);
        let commits = vec![
            commit(1, vec![full.clone()], true),
            commit(2, vec![bare.clone()], false),
            commit(3, vec![full, bare], true),
        ];
        (name, commits)
    };
    pairs.map(log).collect()
}

fn written(commits: &[Commit]) -> Vec<u8> {
    let mut out = Vec::new();
    for commit in commits {
        encode(commit, &session(), &task(), &mut out).unwrap();
    }
    out
}

fn read(text: &[u8]) -> Vec<Commit> {
    let mut assembler = Assembler::new(session(), task());
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let commits = lines.filter_map(|line| {
        let line = decode_line(line.strip_suffix(b"\n").unwrap()).unwrap();
        assembler.push(line).unwrap()
    });
    commits.collect()
}

/// WAL-03, WAL-12, WAL-13
#[test]
fn every_event_type_reads_and_writes_as_it_once_did() {
    for (name, commits) in logs() {
        let text = fs::read(dir().join(format!("{name}.jsonl"))).unwrap();
        let read = read(&text);
        assert_eq!(read, commits, "{name}");
        assert_eq!(String::from_utf8(written(&read)), String::from_utf8(text), "{name}");
    }
}

/// IDEM-07, WAL-12: what a creation in parts adds to its `task_created`.
#[test]
fn a_creation_in_parts_reads_and_writes_as_it_once_did() {
    let mut created = full().remove(0);
    let Body::TaskCreated(made) = &mut created else { panic!("{created:?}") };
    made.creation = Some(Creation { digest: Digest([0xab; 32]), draft: true, steps: 6_000 });
    let commits = vec![commit(1, vec![event(created)], true)];
    let text = fs::read(dir().join("../created-in-parts-v1.jsonl")).unwrap();
    assert_eq!(String::from_utf8(written(&commits)), String::from_utf8(text.clone()));
    assert_eq!(read(&text), commits);
}

/// What a worker's reason, and the wait that follows, add to the end of a lease.
fn given_back() -> Vec<Commit> {
    let mut bodies = full();
    let at = bodies.iter().position(|body| matches!(body, Body::StepLeaseExpired(_))).unwrap();
    let Body::StepLeaseExpired(end) = bodies.swap_remove(at) else { panic!("it was just found") };
    let ends = ReleaseReason::ALL.iter().map(|&why| {
        let (release_reason, reason) = (Some(why), LeaseEnd::Released);
        let not_before = why.is_unsaid().then_some(samples::TIME + 1_000);
        let end = StepLeaseExpired { reason, release_reason, not_before, ..end.clone() };
        event(Body::StepLeaseExpired(end))
    });
    vec![commit(1, ends.collect(), true)]
}

fn given_back_file() -> PathBuf {
    dir().join("../given-back-v1.jsonl")
}

/// LEASE-18, WAL-12
#[test]
fn a_step_given_back_reads_and_writes_as_it_once_did() {
    let text = fs::read(given_back_file()).unwrap();
    assert_eq!(String::from_utf8(written(&given_back())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), given_back());
}

/// Steps that were lost together.
fn lost_together() -> Vec<Commit> {
    let mut commits = given_back();
    let Body::StepLeaseExpired(end) = &mut commits[0].events[0].body else { panic!("as above") };
    let (lost_with, reason) =
        (vec![samples::step("read"), samples::step("check")], LeaseEnd::LeaseExpired);
    *end = StepLeaseExpired {
        lost_with,
        reason,
        release_reason: None,
        not_before: None,
        ..end.clone()
    };
    commits[0].events.truncate(1);
    commits
}

fn lost_together_file() -> PathBuf {
    dir().join("../lost-together-v1.jsonl")
}

/// LEASE-19, WAL-12
#[test]
fn steps_lost_together_read_and_write_as_they_once_did() {
    let text = fs::read(lost_together_file()).unwrap();
    assert_eq!(String::from_utf8(written(&lost_together())), String::from_utf8(text.clone()));
    assert_eq!(read(&text), lost_together());
}

/// WAL-12: there is a file for each event type and for nothing else.
#[test]
fn every_event_type_has_its_file() {
    let types: BTreeSet<String> = Body::TYPES.iter().map(|name| format!("{name}.jsonl")).collect();
    let files = fs::read_dir(dir()).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(types, files);
    assert_eq!(types.len(), 29);
    assert_eq!(logs().len(), 29);
}

/// Writes the files that are missing; those that are there stay as they are.
#[test]
#[ignore = "run by hand when an event type is added"]
fn write_missing_files() {
    fs::create_dir_all(dir()).unwrap();
    for (name, commits) in logs() {
        let path = dir().join(format!("{name}.jsonl"));
        if !path.exists() {
            fs::write(path, written(&commits)).unwrap();
        }
    }
    let others = [(given_back_file(), given_back()), (lost_together_file(), lost_together())];
    for (path, commits) in others.iter().filter(|(path, _)| !path.exists()) {
        fs::write(path, written(commits)).unwrap();
    }
}
