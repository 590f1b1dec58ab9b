//! Puts a page of a list together from the Tasks of all partitions (LIST-06, OWN-08).
//!
//! No partition knows by itself how many of its Tasks are before a page. The client does not read
//! all those Tasks to find out. Each partition names one Task, the last of its next share of so
//! many; the Tasks of the share that ends first are all before the page, so the client skips them,
//! and asks that partition for the end of its next share. When few Tasks are left to skip, all
//! partitions name the last Task of a share half as large. So a page costs its own Tasks of each
//! partition, and of each at most three single ones for each doubling of the offset.

use std::collections::BTreeSet;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use smol_str::ToSmolStr as _;
use tenure_core::id::{Millis, TaskId};
use tenure_core::view::{ListInput, TaskPage, TaskSummary, fit};
use tenure_core::{Limits, Rejection};
use tenure_wire::bus::answer_bytes;
use tenure_wire::bus::request::Request;

use super::gathered::{GatheredPages, GatheringCapacity, too_long_list};
use super::{ClientShared, LISTED_AT_ONCE};

/// The position of a Task in a list: live ones first, the oldest of them; then ended ones, the
/// newest first.
type ListPosition = (bool, Millis, TaskId);

fn place(task: TaskSummary) -> ListPosition {
    match task.native_status.is_terminal() {
        false => (false, task.created_at, task.task_id),
        true => (true, task.updated_at.saturating_neg(), task.task_id),
    }
}

/// Finds out how many Tasks of each partition are before a page; `starts` has as many of them as
/// are known so far.
struct Search {
    starts: Vec<usize>,
    /// How many more Tasks are before the page.
    left: usize,
    /// With so few or fewer left, the search ends, and the client reads them together with the
    /// page.
    enough: usize,
    /// The share: how many Tasks of a partition to skip at a time.
    share: usize,
    /// The last Task of the next share of each partition that has so many.
    named: BTreeSet<(ListPosition, u32)>,
    /// The partition whose Tasks were skipped last.
    last: u32,
}

impl Search {
    fn new(partitions: u32, offset: usize, limit: usize) -> Self {
        let count = partitions as usize;
        let (starts, enough) = (vec![0; count], limit.max(2 * count));
        let (share, named) = (usize::MAX, BTreeSet::new());
        Self { starts, left: offset, enough, share, named, last: 0 }
    }

    fn pays(&self) -> bool {
        self.left > self.enough
    }

    /// Which partitions to ask next, each for the Task at this offset.
    fn asks(&mut self) -> Vec<(u32, usize)> {
        let count = self.starts.len();
        let are_all_asked = self.left / count < self.share;
        if are_all_asked {
            self.share = self.left / (2 * count);
            self.named.clear();
        }
        let offsets = (0..).zip(&self.starts).map(|(of, start)| (of, start + self.share - 1));
        offsets.filter(|(of, _)| are_all_asked || *of == self.last).collect()
    }

    /// Skips the share that ends first. At most `share` - 1 Tasks of each other partition are
    /// before that end; together with the share itself these are no more than are left.
    fn told(&mut self, named: impl Iterator<Item = (ListPosition, u32)>) {
        self.named.extend(named);
        let Some((_, partition)) = self.named.pop_first() else {
            self.enough = self.left; // The page begins after the last Task.
            return;
        };
        if let Some(start) = self.starts.get_mut(partition as usize) {
            *start += self.share;
        }
        (self.left, self.last) = (self.left - self.share, partition);
    }
}

/// What is read of each partition.
struct PartRead<'a> {
    input: &'a ListInput,
    /// How many Tasks at most.
    most: usize,
    gathered: &'a GatheredPages,
}

impl ClientShared {
    pub(super) async fn page_of_tasks(&self, input: ListInput) -> Result<TaskPage, Rejection> {
        let limits = Limits::default(); // The size of the largest page is not configurable.
        let limit = input.limit(&limits)?;
        let starts = self.starts(&input, limit).await?;
        let passed: usize = starts.iter().sum();
        let rest = ListInput { offset: input.offset - passed, ..input.clone() };
        let most = rest.offset.saturating_add(limit).saturating_add(1);
        let gathered = GatheredPages::new(&self.capacity, too_long_list);
        let read = PartRead { input: &rest, most, gathered: &gathered };
        let ask = |partition: u32| {
            let start = starts.get(partition as usize).copied().unwrap_or_default();
            self.tasks_of(partition, start, &read)
        };
        let (parts, missing) = self.everywhere(ask).await?;
        gathered.check()?;
        let mut all = TaskPage::default();
        for part in parts {
            all.tasks.extend(part.tasks);
            all.unreadable.extend(part.unreadable);
            all.truncated |= part.truncated;
        }
        // Each page is of its own moment: a Task that changed meanwhile may come twice.
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

    /// How many Tasks of each partition are before the page and need not be read. None if the
    /// search does not pay, if only the logs tell which Tasks belong in the list, or if a partition
    /// does not answer.
    async fn starts(&self, input: &ListInput, limit: usize) -> Result<Vec<usize>, Rejection> {
        let mut search = Search::new(self.partitions.max(1), input.offset, limit);
        while input.is_settled_by_index(false) && search.pays() {
            let asks = search.asks().into_iter();
            let asked = stream::iter(asks.map(|(partition, at)| self.named(partition, at, input)));
            match asked.buffer_unordered(LISTED_AT_ONCE).try_collect::<Vec<_>>().await {
                Ok(named) => search.told(named.into_iter().flatten()),
                Err(refused) if refused.code.is_retryable() => return Ok(Vec::new()),
                Err(refused) => return Err(refused),
            }
        }
        Ok(search.starts)
    }

    /// The Task at an offset in its partition, if there is one.
    async fn named(
        &self,
        partition: u32,
        offset: usize,
        input: &ListInput,
    ) -> Result<Option<(ListPosition, u32)>, Rejection> {
        let gathered = &GatheredPages::new(&GatheringCapacity::default(), too_long_list); // It stays for a moment.
        let read = PartRead { input, most: 1, gathered };
        let one = self.tasks_of(partition, offset, &read).await?;
        Ok(one.tasks.into_iter().next().map(|task| (place(task), partition)))
    }

    /// Tasks of a partition that belong in the list, from this offset on.
    async fn tasks_of(
        &self,
        partition: u32,
        start: usize,
        read: &PartRead<'_>,
    ) -> Result<TaskPage, Rejection> {
        let PartRead { input, most, gathered } = *read;
        let (mut all, mut offset) = (TaskPage::default(), start);
        loop {
            let limit = Some((most - all.tasks.len()).min(Limits::default().page_max));
            let list = ListInput { limit, offset, ..input.clone() };
            let body = self.within(Request::new(None, None, list)).write()?.into();
            let (verb, patience) = (format!("cmd.{partition}"), self.connection.request_timeout());
            let page: TaskPage = self.ask(verb, body, patience).await?;
            gathered.add(&page)?;
            all.tasks.extend(page.tasks);
            all.unreadable.extend(page.unreadable);
            match page.next_offset.filter(|next| *next > offset && all.tasks.len() < most) {
                Some(next) => offset = next,
                None => {
                    // The owner has checked as many as it does at a time, and none of them belongs
                    // in the list.
                    all.truncated = page.next_offset == Some(offset);
                    return Ok(all);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks of each partition, in order.
    type Tasks = Vec<Vec<ListPosition>>;

    /// Rows of the page, and how many Tasks the partitions named for it.
    fn page(tasks: &Tasks, offset: usize, limit: usize) -> (Vec<ListPosition>, usize) {
        let count = u32::try_from(tasks.len()).unwrap();
        let (mut search, mut asked) = (Search::new(count, offset, limit), 0);
        while search.pays() {
            let asks = search.asks();
            asked += asks.len();
            let name = |(of, at): (u32, usize)| Some((tasks[of as usize].get(at)?.clone(), of));
            search.told(asks.into_iter().filter_map(name));
        }
        assert_eq!(search.starts.iter().sum::<usize>() + search.left, offset);
        let rest = tasks
            .iter()
            .zip(&search.starts)
            .flat_map(|(own, start)| own.iter().skip(*start).take(search.left + limit).cloned());
        let rest: BTreeSet<ListPosition> = rest.collect();
        (rest.into_iter().skip(search.left).take(limit).collect(), asked)
    }

    /// LIST-06, LIST-07: each Task is on one page, however the Tasks are spread over the
    /// partitions; and a page with a large offset needs few named Tasks.
    #[test]
    fn what_is_before_a_page_is_found_by_few_names() {
        let all: Vec<ListPosition> = (0..2_000)
            .map(|number| (number >= 1_500, number / 3, format!("t{number:04}").parse().unwrap()))
            .collect();
        for count in [1, 2, 3, 8, 64] {
            // Evenly, at random, most in one, one partition after another, all in the last.
            let ways: [fn(usize, usize) -> usize; 5] = [
                |number, count| number % count,
                |number, count| number * 48_271 % 65_537 % count,
                |number, count| if number % 10 == 0 { number / 10 % count } else { 0 },
                |number, count| number * count / 2_000,
                |_, count| count - 1,
            ];
            for (way, of) in ways.iter().enumerate() {
                let mut tasks: Tasks = vec![Vec::new(); count];
                for (number, task) in all.iter().enumerate() {
                    tasks[of(number, count)].push(task.clone());
                }
                for limit in [1, 10, 100] {
                    for offset in (0..2_100).step_by(150) {
                        let (rows, asked) = page(&tasks, offset, limit);
                        let right: Vec<ListPosition> =
                            all.iter().skip(offset).take(limit).cloned().collect();
                        assert_eq!(rows, right, "{count} {way} {offset} {limit}");
                        let doublings = (offset / limit).max(1).ilog2() as usize + 1;
                        assert!(
                            asked <= 3 * count * doublings,
                            "{asked}: {count} {offset} {limit}"
                        );
                    }
                }
            }
        }
    }
}
