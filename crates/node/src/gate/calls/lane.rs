//! In which lane a request waits for its turn.

use std::sync::Arc;

use tenure_core::command::Write;
use tenure_core::id::TaskId;
use tenure_core::{Context, Rejection};
use tenure_scheduler::Done;
use tenure_wire::bus::request::Ask;
use tenure_wire::bus::subject::Token;

use super::{Call, CallLink};
use crate::gate::{READ_MAX, SETTLES, within};
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
    /// Makes an ended Task again. The command is short, and the Task may be long: so a principal makes one such Task at
    /// a time, and is charged for its Steps as if it had sent them (LIVE-03). That goes on, with the turn, though its
    /// caller is told that the outcome is not known.
    pub(super) async fn make_again(
        &self,
        task: TaskId,
        context: Context,
        what: Write,
    ) -> Result<Done, Rejection> {
        let turn = self.gate.whole.turn(lane_of(self.link), SETTLES / 2).await?;
        let (gate, link) = (Arc::clone(self.gate), self.link.clone());
        let key = self.key(task.clone());
        let made = tokio::spawn(async move {
            let _turn = turn;
            let done = within(READ_MAX, link.carry_out(&task, context, what)).await?;
            let caller = link.caller();
            if done.is_written
                && let Ok(principal) = Token::new(caller.agent.as_str())
            {
                let steps = gate.scheduler.read(&key, |task| task.steps().count()).await;
                let tasks = tasks_of(steps.unwrap_or_default() * STEP_BYTES, false);
                gate.rates.created(caller.role, &principal, tasks);
            }
            Ok(done)
        });
        let left = SETTLES.saturating_sub(self.asked.since.elapsed());
        within(left, async {
            made.await.unwrap_or_else(|error| {
                Err(Rejection::in_doubt(format!("what becomes of it is not known: {error}")))
            })
        })
        .await
    }
}
