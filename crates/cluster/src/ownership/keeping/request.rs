//! What a node asks for in a poll.

use std::time::Duration;

/// A change to ask for in a poll.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PollRequest {
    Take(u32),
    LetGo(u32),
    /// Release it, as it cannot be taken here. For so long, other nodes come first.
    Avoid(u32, Duration),
    Give(u32, String),
}

impl PollRequest {
    /// The partition that it concerns.
    pub(super) fn of(&self) -> u32 {
        match self {
            Self::Take(at) | Self::LetGo(at) | Self::Avoid(at, _) | Self::Give(at, _) => *at,
        }
    }
}
