//! What a program can do that an older one cannot, by name (EVOLVE-02).

use alloc::collections::BTreeSet;
use alloc::string::String;
use core::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// A log may hold what the second edition of the contract added: Tasks of rules 2, and the new fields of
/// events.
pub const EDITION_2: &str = "edition-2";

/// A worker takes the delivery `input` (CTRL-12).
pub const INPUT: &str = "input";

/// A worker takes the delivery `read_output`: it serves what its commands write (ART-09).
pub const OUTPUT: &str = "output";

/// A node gives a worker only Steps and Runs of the sessions that the worker serves (DISP-20).
pub const SESSIONS: &str = "sessions";

/// Names of features, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Features(BTreeSet<SmolStr>);

impl Features {
    /// The features of this program, without those that its build hides: `TENURE_HIDDEN_FEATURES`, names with
    /// commas between them, is read when the program is compiled.
    pub fn of_program() -> Self {
        let hidden = Self::read(option_env!("TENURE_HIDDEN_FEATURES").unwrap_or_default());
        Self::of([EDITION_2, INPUT, OUTPUT, SESSIONS].into_iter().filter(|name| !hidden.has(name)))
    }

    /// Those of these that concern what a log holds: all nodes of a cluster must have them before one writes
    /// what needs them.
    #[must_use]
    pub fn of_logs(&self) -> Self {
        Self::of([EDITION_2].into_iter().filter(|name| self.has(name)))
    }

    /// These names.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(SmolStr::new).collect())
    }

    /// The names in a text, with commas between them, as [`Display`](fmt::Display) writes it.
    pub fn read(text: &str) -> Self {
        Self::of(text.split(',').map(str::trim).filter(|name| !name.is_empty()))
    }

    /// Whether this name is among them.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all those are among these.
    pub fn has_all(&self, those: &Self) -> bool {
        those.0.is_subset(&self.0)
    }

    /// Those that are not among these.
    #[must_use]
    pub fn lacking(&self, those: &Self) -> Self {
        Self(those.0.difference(&self.0).cloned().collect())
    }

    /// Those that both have.
    #[must_use]
    pub fn shared(&self, those: &Self) -> Self {
        Self(self.0.intersection(&those.0).cloned().collect())
    }

    /// Adds those to these.
    pub fn add(&mut self, those: &Self) {
        self.0.extend(those.0.iter().cloned());
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for name in &self.0 {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(name);
        }
        f.write_str(&text)
    }
}
