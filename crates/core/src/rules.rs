//! Which edition of the contract a Task lives by (EVOLVE-01).

use core::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The edition of the contract by which a Task lives and ends: `task_created` carries it as a number, and
/// nothing changes it afterwards. What an event means never depends on it, only what is decided does.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "u16", into = "u16")]
pub enum Rules {
    /// The first edition: that of every Task whose `task_created` names none.
    #[default]
    First = 1,
    /// The second edition.
    Second = 2,
}

impl Rules {
    /// The newest edition that this code knows.
    pub const NEWEST: Self = Self::Second;

    #[allow(clippy::trivially_copy_pass_by_ref)] // The shape serde asks for.
    pub(crate) fn are_first(&self) -> bool {
        *self == Self::First
    }
}

impl From<Rules> for u16 {
    fn from(rules: Rules) -> Self {
        rules as Self
    }
}

impl TryFrom<u16> for Rules {
    type Error = UnknownRules;

    fn try_from(number: u16) -> Result<Self, UnknownRules> {
        match number {
            1 => Ok(Self::First),
            2 => Ok(Self::Second),
            other => Err(UnknownRules(other)),
        }
    }
}

/// A Task lives by an edition that this code does not know: newer code made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownRules(pub u16);

impl fmt::Display for UnknownRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rules {} are not known here: at most {}", self.0, Rules::NEWEST as u16)
    }
}

impl core::error::Error for UnknownRules {}
