//! Shows a Task while it runs, and when it has ended, for `tenure run`, `submit --wait` and
//! `task watch`.
//!
//! [`format`] chooses how: [`live`] on a terminal, [`plain`] in a log, [`jsonl`] for programs, and
//! at the end a [`table`] or a [`report`]. [`ended`] says which Steps failed and which were only
//! stopped. [`optional`] says that a Task only waits for optional Steps. [`to_end`] shows a Task that
//! another process runs, and says the [`reason`] where nothing of it runs.
//!
//! Step 11 of the walk in docs/architecture.md.

mod ended;
mod format;
mod jsonl;
mod live;
mod news;
mod optional;
mod plain;
mod reason;
mod replica;
mod report;
mod seen;
mod table;
#[cfg(test)]
mod tests;
mod to_end;
mod words;

pub(crate) use self::format::{OutputFormat, exit_of, print_end, show_as};
pub(crate) use self::reason::WaitReason;
pub(crate) use self::reason::{reason_from_log, reason_from_owner};
pub(crate) use self::replica::show_all;
pub(crate) use self::seen::Show;
pub(crate) use self::to_end::show_to_end;
pub(crate) use self::words::{printable, steps};
