//! Shows a Task while it runs, and when it has ended, for `tenure run`, `submit --wait` and
//! `task watch`.
//!
//! [`format`] chooses how: [`live`] on a terminal, [`plain`] in a log, [`jsonl`] for programs, and
//! at the end a [`table`] or a [`report`]. [`ended`] says which Steps failed and which were only
//! stopped. [`optional`] says that a Task only waits for optional Steps. [`to_end`] shows a Task that
//! another process runs.

mod ended;
mod format;
mod jsonl;
mod live;
mod news;
mod optional;
mod plain;
mod replica;
mod report;
mod seen;
mod table;
mod to_end;
mod words;

pub(crate) use self::format::{OutputFormat, exit_of, print_end, show_as};
pub(crate) use self::replica::show_all;
pub(crate) use self::seen::Show;
pub(crate) use self::to_end::show_to_end;
pub(crate) use self::words::steps;
