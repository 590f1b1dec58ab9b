//! In which lane a request waits for its turn.

use tenure_core::command::Write;
use tenure_core::id::TaskId;
use tenure_core::{Context, Rejection};
use tenure_scheduler::Done;
use tenure_wire::bus::request::Ask;
use tenure_wire::bus::subject::Token;

use super::{Call, CallLink};
use crate::gate::SETTLES;
use crate::lanes::LaneKey;
use crate::rates::tasks_of;

/// About how many bytes a Step has in a create.
const STEP_BYTES: usize = 256;

/// The lane of a caller.
pub(in crate::gate) fn lane_of(link: &CallLink) -> LaneKey {
    let caller = link.caller();
    LaneKey::of(caller.role, caller.agent.as_str())
}

/// Whether a query reads a whole log, or all Tasks of a partition.
pub(super) fn reads_whole(query: &Ask) -> bool {
    match query {
        Ask::Inspect(_) | Ask::Replay(_) | Ask::ReadEvents(_) | Ask::Views(_) => true,
        Ask::Tasks(list) => list.include_terminal,
        Ask::List(list) => list.include_terminal,
        _ => false,
    }
}

impl Call<'_> {
    /// Carries out a command. One that makes an ended Task again is short, and the Task may be long: so a principal
    /// makes one such Task at a time, and is charged for its Steps as if it had sent them (LIVE-03).
    pub(super) async fn carry_out(
        &self,
        task: &TaskId,
        context: Context,
        what: Write,
    ) -> Result<Done, Rejection> {
        if self.is_of_node || !matches!(what, Write::RetryEnded(_)) {
            return self.link.carry_out(task, context, what).await;
        }
        let _turn = self.gate.whole.turn(lane_of(self.link), SETTLES).await?;
        let done = self.link.carry_out(task, context, what).await?;
        let key = self.key(task.clone());
        let steps = self.gate.scheduler.read(&key, |task| task.steps().count()).await;
        let tasks = tasks_of(steps.unwrap_or_default() * STEP_BYTES, false);
        let caller = self.link.caller();
        if let Ok(principal) = Token::new(caller.agent.as_str()) {
            // What it was charged with is refused of what it sends next.
            let _ = self.gate.rates.create(caller.role, &principal, tasks);
        }
        Ok(done)
    }
}
