//! A page of the Tasks of all partitions (LIST-06, OWN-08).
//!
//! Only together do partitions know which Tasks are before a page. Those are not asked for one by one: each
//! partition names the Task at an equal share of what is still to be passed over, and all that the one
//! which names the earliest has up to there are before the page. So a page costs its own Tasks of each
//! partition, and single ones whose number grows with the logarithm of the offset.

use std::collections::BTreeSet;

use smol_str::ToSmolStr as _;
use tenure_core::id::{Millis, TaskId};
use tenure_core::view::{ListInput, TaskPage, TaskSummary, fit};
use tenure_core::{Limits, Rejection};
use tenure_wire::bus::answer_bytes;
use tenure_wire::bus::request::{Ask, Request};

use super::Shared;

/// Where a Task stands in a list: live ones first, the oldest of them; then ended ones, the newest first.
type Place = (bool, Millis, TaskId);

fn place(task: TaskSummary) -> Place {
    match task.native_status.is_terminal() {
        false => (false, task.created_at, task.task_id),
        true => (true, task.updated_at.saturating_neg(), task.task_id),
    }
}

impl Shared {
    pub(super) async fn page_of_tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        let limits = Limits::default(); // The largest page is no setting.
        let limit = input.limit(&limits)?;
        let starts = self.starts(&input, limit).await?;
        let passed: usize = starts.iter().sum();
        let rest = ListInput { offset: input.offset - passed, ..input.clone() };
        let most = rest.offset.saturating_add(limit).saturating_add(1);
        let ask = |partition: u32| {
            let start = starts.get(partition as usize).copied().unwrap_or_default();
            self.tasks_of(partition, start, &rest, most)
        };
        let (parts, missing) = self.everywhere(ask).await?;
        let mut all = TaskPage::default();
        for part in parts {
            all.tasks.extend(part.tasks);
            all.unreadable.extend(part.unreadable);
            all.truncated |= part.truncated;
        }
        // A page is a look of its own: what changed meanwhile may come twice.
        let mut seen = BTreeSet::new();
        all.tasks.retain(|task| seen.insert(task.task_id.clone()));
        all.unreadable.sort();
        all.unreadable.dedup();
        all.missing_partitions = missing.iter().map(|partition| partition.to_smolstr()).collect();
        let mut page = all.gathered(&rest, &limits)?;
        page.next_offset = page.next_offset.map(|next| next + passed);
        Ok(match self.max_bytes {
            Some(most) => fit(most, page, answer_bytes, |page| page.halve(input.offset)),
            None => page,
        })
    }

    /// How many Tasks of each partition are before the page, and need not be looked at: none where
    /// that does not pay, where it is not known without reading their logs, or not everybody answers.
    async fn starts(&self, input: &ListInput, limit: usize) -> Result<Vec<usize>, Rejection> {
        let count = self.partitions.max(1) as usize;
        let (none, mut starts, mut left) = (vec![0; count], vec![0; count], input.offset);
        while input.is_told_by_index(false) && left > limit.max(count) {
            let share = left / count;
            let ask = |partition: u32| {
                let before = starts.get(partition as usize).copied().unwrap_or_default();
                self.place_at(partition, before + share - 1, input)
            };
            let (named, missing) = self.everywhere(ask).await?;
            if !missing.is_empty() {
                return Ok(none);
            }
            // At most `share` - 1 of each other are before it: with its own no more than are left.
            let Some((_, partition)) = named.into_iter().flatten().min() else { break };
            if let Some(start) = starts.get_mut(partition as usize) {
                *start += share;
            }
            left -= share;
        }
        Ok(starts)
    }

    /// Where the Task at an offset in its partition stands in the list, if there is one.
    async fn place_at(
        &self,
        partition: u32,
        offset: usize,
        input: &ListInput,
    ) -> Result<Option<(Place, u32)>, Rejection> {
        let one = self.tasks_of(partition, offset, input, 1).await?;
        Ok(one.tasks.into_iter().next().map(|task| (place(task), partition)))
    }

    /// Tasks of a partition that belong into a list, from this one on, at most so many.
    async fn tasks_of(
        &self,
        partition: u32,
        start: usize,
        input: &ListInput,
        most: usize,
    ) -> Result<TaskPage, Rejection> {
        let (mut all, mut offset) = (TaskPage::default(), start);
        loop {
            let limit = Some((most - all.tasks.len()).min(Limits::default().page_max));
            let list = ListInput { limit, offset, ..input.clone() };
            let body = Request::new(None, None, Ask::Tasks(list)).write()?.into();
            let (verb, patience) = (format!("cmd.{partition}"), self.connection.request_timeout());
            let page: TaskPage = self.ask(verb, body, patience).await?;
            all.tasks.extend(page.tasks);
            all.unreadable.extend(page.unreadable);
            match page.next_offset.filter(|next| *next > offset && all.tasks.len() < most) {
                Some(next) => offset = next,
                None => {
                    // It has looked at as many as it does, and all of them were others.
                    all.truncated = page.next_offset == Some(offset);
                    return Ok(all);
                }
            }
        }
    }
}
