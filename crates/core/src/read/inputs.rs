//! What a heartbeat adds to what is known of the input that its holder has seen (CTRL-12).

use super::View;
use crate::id::AttemptId;

impl View<'_> {
    /// Whether the owner does not know yet that the holder of this open Attempt has seen so many entries of the Task's
    /// `input_refs`: neither its log says so, nor did an earlier heartbeat.
    pub fn is_news_of_input(&self, attempt: AttemptId, seen: u64) -> bool {
        let Some(pos) = self.task.attempts.find(&attempt) else { return false };
        let Some(known) = self.attempt(attempt).filter(|it| it.ended_at.is_none()) else {
            return false;
        };
        let heard = self.task.volatile.input_seen.get(&pos).copied().unwrap_or(0);
        let seen = seen.min(u64::from(self.head().input_count()));
        seen > u64::from(known.input_seen.max(heard))
    }
}
