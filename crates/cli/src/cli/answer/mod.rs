//! What a command leaves behind: text or JSON on stdout, words on stderr, an exit code.
//!
//! Every command ends in an [`Exit`] or a [`Failure`]. [`Format::answer`] writes what was asked for, in the
//! format that was asked for; nothing but [`output`] writes to the terminal, and the screen of `tenure top`.
//! [`sheet`], [`status`] and [`human`] are how tables, statuses, numbers and times look to people.

mod advice;
mod exit;
mod format;
pub(crate) mod human;
mod nearest;
pub(crate) mod output;
mod sheet;
pub(crate) mod status;

#[cfg(test)]
pub(crate) use self::advice::advice;
pub(crate) use self::exit::{Exit, Failure};
pub(crate) use self::format::{Format, Shape};
pub(crate) use self::nearest::did_you_mean;
pub(crate) use self::output::{Paint, Stream, Tone};
pub(crate) use self::sheet::{Sheet, number, section, text, toned};
