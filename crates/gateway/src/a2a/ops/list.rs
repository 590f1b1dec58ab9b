//! `ListTasks`: the tasks of a caller with an agent, the newest first.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use futures::{StreamExt as _, stream};
use tenure_core::id::{Millis, TaskId};
use tenure_core::record::Labels;
use tenure_core::view::gateway::{A2aFacts, A2aState, a2a_state};
use tenure_core::view::{ListInput, TaskPage, TaskSummary};
use tenure_ports::ClientPort as _;

use super::AgentCall;
use crate::Backend;
use crate::a2a::agents::AgentAnswers;
use crate::a2a::error::{A2aError, A2aReason};
use crate::a2a::map::{AGENT, CALLER, CONTEXT};
use crate::a2a::wire::{A2aList, A2aTask, A2aTaskPage, from_timestamp, state_from_wire};

/// How many tasks a page has if the caller does not say it, and at most.
const PAGE_DEFAULT: u32 = 50;
const PAGE_MAX: u32 = 100;

/// How many Tasks are asked for at a time.
const STRIDE: usize = 500;

/// How many Tasks are looked at: a list over more begins with the live ones and the newest of the others.
const LOOKED_AT_MAX: usize = 10_000;

/// How many bytes the tasks of a page have at most, about. A page has at least one task all the same.
const PAGE_BYTES_MAX: usize = 16 << 20;

/// How many Tasks are read at a time.
const LOADS_MAX: usize = 8;

/// A place in a list that is sorted by time, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ListPlace {
    updated_at: Reverse<Millis>,
    task_id: TaskId,
}

/// What is listed.
#[derive(Debug)]
struct ListFilter {
    state: Option<A2aState>,
    after: Option<Millis>,
    behind: Option<ListPlace>,
    page_size: u32,
}

impl ListFilter {
    fn read(asked: &A2aList) -> Result<Self, A2aError> {
        let page_size = asked.page_size.unwrap_or(PAGE_DEFAULT);
        if !(1..=PAGE_MAX).contains(&page_size) {
            return Err(A2aError::invalid("pageSize", "a page has 1 to 100 tasks"));
        }
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let state = text(&asked.status).filter(|name| name != "TASK_STATE_UNSPECIFIED");
        let no_state = || A2aError::invalid("status", "there is no such state");
        let state = state.map(|name| state_from_wire(&name).ok_or_else(no_state)).transpose()?;
        let no_time = || A2aError::invalid("statusTimestampAfter", "this is no time of ISO 8601");
        let after = text(&asked.status_timestamp_after);
        let after = after.map(|time| from_timestamp(&time).ok_or_else(no_time)).transpose()?;
        let behind = text(&asked.page_token);
        let behind = behind.map(|token| ListPlace::from_token(&token)).transpose()?;
        Ok(Self { state, after, behind, page_size })
    }

    /// Whether a Task belongs to the list. A Task that was picked up and answered since may be listed as
    /// working while it is submitted.
    fn admits(&self, task: &TaskSummary) -> bool {
        self.after.is_none_or(|after| task.updated_at > after)
            && self.state.is_none_or(|state| state_of(task) == Some(state))
    }
}

impl ListPlace {
    fn of(task: &TaskSummary) -> Self {
        Self { updated_at: Reverse(task.updated_at), task_id: task.task_id.clone() }
    }

    fn to_token(&self) -> String {
        BASE64.encode(format!("{} {}", self.updated_at.0, self.task_id))
    }

    fn from_token(token: &str) -> Result<Self, A2aError> {
        let read = || {
            let text = String::from_utf8(BASE64.decode(token).ok()?).ok()?;
            let (time, task) = text.split_once(' ')?;
            let updated_at = Reverse(time.parse().ok()?);
            Some(Self { updated_at, task_id: task.parse().ok()? })
        };
        read().ok_or_else(|| A2aError::invalid("pageToken", "this is no token of a page"))
    }
}

/// Each Task once, as it was seen last: one that ends between two pages moves, and so comes on both.
fn once_each(all: Vec<TaskSummary>) -> Vec<TaskSummary> {
    let by_id: BTreeMap<TaskId, TaskSummary> =
        all.into_iter().map(|task| (task.task_id.clone(), task)).collect();
    by_id.into_values().collect()
}

/// Refuses a page that lacks Tasks because a part of the cluster does not answer.
pub(super) fn check_whole(page: &TaskPage) -> Result<(), A2aError> {
    if page.missing_partitions.is_empty() {
        return Ok(());
    }
    let message = "a part of the cluster does not answer now";
    Err(A2aError::new(A2aReason::Unavailable, message))
}

/// The state of a Task, by its summary.
fn state_of(task: &TaskSummary) -> Option<A2aState> {
    let rejected = task.status_reason.as_ref().is_some_and(|reason| reason.code == "rejected");
    let picked_up = task.started_at.is_some();
    let facts = A2aFacts { native: task.native_status, picked_up, rejected };
    a2a_state(task.status, facts)
}

impl<B: Backend> AgentCall<B> {
    /// A page of tasks.
    ///
    /// # Errors
    /// A parameter is wrong, or a part of the cluster does not answer.
    pub(crate) async fn list(&self, asked: &A2aList) -> Result<A2aTaskPage, A2aError> {
        let filter = ListFilter::read(asked)?;
        let mut all = self.summaries(asked.context_id.as_deref()).await?;
        all.retain(|task| filter.admits(task));
        let total_size = all.len();
        let mut places: Vec<ListPlace> = all.iter().map(ListPlace::of).collect();
        places.sort_unstable();
        places.retain(|place| filter.behind.as_ref().is_none_or(|behind| place > behind));
        let size = usize::try_from(filter.page_size).unwrap_or(usize::MAX);
        let left = places.split_off(size.min(places.len()));
        let (tasks, read) = self.shown(&places, asked).await?;
        let has_more = read < places.len() || !left.is_empty();
        let last = places[..read].last().filter(|_| has_more);
        let next_page_token = last.map(ListPlace::to_token).unwrap_or_default();
        Ok(A2aTaskPage { tasks, next_page_token, page_size: filter.page_size, total_size })
    }

    /// The Tasks of the caller with this agent, live ones and ended ones.
    async fn summaries(&self, context: Option<&str>) -> Result<Vec<TaskSummary>, A2aError> {
        if self.agent.answers == AgentAnswers::Message {
            return Ok(Vec::new());
        }
        let mut input = ListInput {
            include_archived: true,
            include_terminal: true,
            labels: self.labels(context),
            limit: Some(STRIDE),
            ..ListInput::default()
        };
        let mut all = Vec::new();
        loop {
            let page = self.client.port().tasks(input.clone()).await?;
            check_whole(&page)?;
            all.extend(page.tasks);
            match page.next_offset {
                Some(next) if all.len() < LOOKED_AT_MAX => input.offset = next,
                _ => return Ok(once_each(all)),
            }
        }
    }

    fn labels(&self, context: Option<&str>) -> Labels {
        let mut labels = Labels::from([(AGENT.into(), (&*self.agent.name).into())]);
        if let Some(context) = context.filter(|context| !context.is_empty()) {
            labels.insert(CONTEXT.into(), context.into());
        }
        if !self.agent.shared {
            labels.insert(CALLER.into(), self.caller().into());
        }
        labels
    }

    /// The tasks at these places, in their order, and at how many of the places they were: the first ones, as long as
    /// all together are not too large. A task that was swept meanwhile is left out.
    async fn shown(
        &self,
        places: &[ListPlace],
        asked: &A2aList,
    ) -> Result<(Vec<A2aTask>, usize), A2aError> {
        let ids: Vec<TaskId> = places.iter().map(|place| place.task_id.clone()).collect();
        let loads = stream::iter(ids).map(|task| {
            let reader = self.reader();
            async move { reader.load(&task).await }
        });
        let mut loads = loads.buffered(LOADS_MAX);
        let (mut all, mut read, mut bytes) = (Vec::new(), 0, 0);
        while bytes < PAGE_BYTES_MAX
            && let Some(fold) = loads.next().await
        {
            read += 1;
            let fold = match fold {
                Ok(fold) => fold,
                Err(error) if error.reason == A2aReason::TaskNotFound => continue,
                Err(error) => return Err(error),
            };
            let mut task = fold.shown().clone().with_history(asked.history_length);
            if !asked.include_artifacts {
                task.artifacts.clear();
            }
            bytes += task.weight();
            all.push(task);
        }
        Ok((all, read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::double::waiting_task;

    /// CORE-LIST-002: a task that comes on two pages of the scheduler is one task.
    #[tokio::test]
    async fn a_task_is_listed_once() {
        let (client, task, _) = waiting_task().await;
        let seen = async || {
            let which = ListInput { include_terminal: true, ..ListInput::default() };
            client.port().tasks(which).await.unwrap().tasks
        };
        let mut all = seen().await;
        client.cancel(&task, "test").await.unwrap();
        client.wait_for_end(&task).await.unwrap();
        all.extend(seen().await);
        assert_eq!(all.len(), 2);
        let once = once_each(all);
        assert!(once.len() == 1 && once[0].native_status.is_terminal(), "{once:?}");
    }

    #[test]
    fn a_token_says_a_place() {
        let place = ListPlace { updated_at: Reverse(12), task_id: "t-1".parse().unwrap() };
        assert_eq!(ListPlace::from_token(&place.to_token()).unwrap(), place);
        let earlier = ListPlace { updated_at: Reverse(11), ..place.clone() };
        let other = ListPlace { task_id: "t-2".parse().unwrap(), ..place.clone() };
        assert!(place < earlier && place < other && other < earlier, "the newest comes first");
        for wrong in ["", "x", &BASE64.encode("12"), &BASE64.encode("a t")] {
            let refused = ListPlace::from_token(wrong).unwrap_err();
            assert_eq!(refused.reason, A2aReason::InvalidParams, "{wrong:?}");
        }
    }

    /// OWN-08: who needs all Tasks is told when some of them are missing.
    #[test]
    fn a_page_that_lacks_tasks_is_refused() {
        assert!(check_whole(&TaskPage::default()).is_ok());
        let missing_partitions = vec!["7".into()];
        let refused = check_whole(&TaskPage { missing_partitions, ..TaskPage::default() });
        assert_eq!(refused.unwrap_err().reason, A2aReason::Unavailable);
    }

    #[test]
    fn what_cannot_be_listed_is_refused() {
        let read = |change: fn(&mut A2aList)| {
            let mut asked = A2aList::default();
            change(&mut asked);
            ListFilter::read(&asked)
        };
        let usual = read(|_| {}).unwrap();
        assert_eq!((usual.page_size, usual.state, usual.after), (PAGE_DEFAULT, None, None));
        let one = read(|it| {
            it.status = Some("TASK_STATE_WORKING".into());
            it.status_timestamp_after = Some("1970-01-01T00:00:01Z".into());
        });
        let one = one.unwrap();
        assert_eq!((one.state, one.after), (Some(A2aState::Working), Some(1_000)));
        for wrong in [
            |it: &mut A2aList| it.page_size = Some(0),
            |it: &mut A2aList| it.page_size = Some(101),
            |it: &mut A2aList| it.status = Some("working".into()),
            |it: &mut A2aList| it.status_timestamp_after = Some("soon".into()),
            |it: &mut A2aList| it.page_token = Some("?".into()),
        ] {
            assert_eq!(read(wrong).unwrap_err().reason, A2aReason::InvalidParams);
        }
    }
}
