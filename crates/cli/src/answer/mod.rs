//! The output of commands: text or JSON on stdout, messages on stderr, and an exit code.
//!
//! Every command ends in an [`Exit`] or a [`Failure`]. [`Format::answer`] writes an answer in the
//! format of `-o`. Only [`output`] and the screen of `tenure top` write to the terminal, and [`harmless`] keeps
//! what others have written from steering it. [`sheet`], [`status`] and [`human`] lay out tables, statuses, numbers
//! and times for people.

mod advice;
mod exit;
mod format;
mod harmless;
pub(crate) mod human;
pub(crate) mod log_line;
mod nearest;
pub(crate) mod output;
mod sheet;
pub(crate) mod status;

#[cfg(test)]
pub(crate) use self::advice::advice;
pub(crate) use self::exit::{Exit, Failure};
pub(crate) use self::format::{Format, Shape};
pub(crate) use self::harmless::{harmless, steers};
pub(crate) use self::nearest::did_you_mean;
pub(crate) use self::output::{Paint, Stream, Tone};
pub(crate) use self::sheet::{Sheet, number, section, text, toned};
