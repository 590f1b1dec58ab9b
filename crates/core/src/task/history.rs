//! Checks a log that comes from elsewhere. This node has not decided its commits, so it checks more than when it opens
//! a Task.

use core::borrow::Borrow;

use alloc::format;
use alloc::string::ToString as _;

use super::Task;
use super::apply::{Contradiction, Illegal};
use crate::event::Commit;

/// Up to this event the invariants are checked after each commit, then whenever the log has become twice as long, and
/// at its end. So the cost of checking a log grows only in proportion to its length.
const CHECKED_EACH: u64 = 64;

/// How many bytes of the message of a broken invariant are passed on.
const WHY_MAX: usize = 300;

/// Folds the commits of a whole log by the reducer that opens Tasks, and checks that times do not go back and that the
/// state agrees with itself.
///
/// # Errors
/// The first event that contradicts what is before it. In a log, its number is the number of its line.
pub fn fold_history<C: Borrow<Commit>>(commits: &[C]) -> Result<Task, Illegal> {
    let (first, rest) = commits.split_first().ok_or_else(|| illegal(1, "the log is empty"))?;
    let mut task = Task::restore(first.borrow())?;
    let (mut sound, mut due) = (0, CHECKED_EACH);
    check(&task).map_err(|why| illegal(task.version(), &why))?;
    let mut time = first.borrow().created_at;
    for (at, commit) in (1..).zip(rest) {
        let commit: &Commit = commit.borrow();
        if commit.created_at < time {
            return Err(illegal(
                commit.first_seq,
                "its time is before that of the event before it",
            ));
        }
        time = commit.created_at;
        task.replay(commit)?;
        let version = task.version();
        let is_due = version <= CHECKED_EACH || version >= due || at == rest.len();
        if is_due {
            if check(&task).is_err() {
                return Err(first_broken(commits, sound, at));
            }
            (sound, due) = (at, version.saturating_mul(2));
        }
    }
    Ok(task)
}

/// The first commit after which the state contradicts itself. The log is known to be right up to `sound`, and wrong at
/// `broken`.
fn first_broken<C: Borrow<Commit>>(commits: &[C], mut sound: usize, mut broken: usize) -> Illegal {
    let state_at = |last: usize| {
        let mut task = Task::restore(commits[0].borrow())?;
        commits[1..=last].iter().try_for_each(|commit| task.replay(commit.borrow()))?;
        check(&task).map_err(|why| illegal(task.version(), &why))
    };
    while broken - sound > 1 {
        let middle = sound + (broken - sound) / 2;
        match state_at(middle) {
            Ok(()) => sound = middle,
            Err(_) => broken = middle,
        }
    }
    match state_at(broken) {
        Err(illegal) => illegal,
        Ok(()) => {
            illegal(commits[broken].borrow().last_seq(), "the state does not agree with itself")
        }
    }
}

fn check(task: &Task) -> Result<(), alloc::string::String> {
    task.check_invariants().map_err(|why: Contradiction| {
        let why = why.to_string();
        let end = (0..=WHY_MAX.min(why.len())).rev().find(|end| why.is_char_boundary(*end));
        format!("after it, the state does not agree with itself: {}", &why[..end.unwrap_or(0)])
    })
}

fn illegal(wal_seq: u64, why: &str) -> Illegal {
    Illegal { wal_seq, why: why.into() }
}
