//! `task_facts`: what gateways keep with a Task (FACT-01).

use alloc::vec::Vec;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::Known;
use super::query::{PAGE_DEFAULT, Page, page_limit};
use crate::command::{Caller, Operator};
use crate::limits::Limits;
use crate::operation::{Query, TaskQuery};
use crate::read::View;
use crate::record::Fact;
use crate::reject::Rejection;
use crate::status::FactKind;

/// The input of `task_facts`: which facts to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FactsInput {
    /// Only facts behind this `wal_seq`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only facts with this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<SmolStr>,
    /// Only facts of this kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FactKind>,
    /// How many facts at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// How many facts to skip.
    pub offset: usize,
}

/// A page of facts, in their order: of a kind whose last counts the last of each key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactsPage {
    /// The facts.
    pub facts: Vec<Fact>,
    /// Where the next page begins, if there is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<usize>,
    /// Whether there is more.
    pub truncated: bool,
    /// Version of the Task that was read.
    pub version: u64,
}

impl Query for FactsInput {
    const NAME: &'static str = "task_facts";
    const TOOL: Operator = Operator::InspectTask;
    type Output = FactsPage;

    fn shorten(&self, page: &mut FactsPage) -> bool {
        let kept = page.facts.len() / 2;
        if kept == 0 {
            return false;
        }
        page.facts.truncate(kept);
        (page.next_offset, page.truncated) = (Some(self.offset + kept), true);
        true
    }
}

impl TaskQuery for FactsInput {
    fn check(&self, limits: &Limits) -> Result<(), Rejection> {
        page_limit(self.limit, PAGE_DEFAULT, limits).map(drop)
    }

    fn read(
        &self,
        task: &View<'_>,
        _: &Caller,
        _: &Known<'_>,
        limits: &Limits,
    ) -> Result<FactsPage, Rejection> {
        let limit = page_limit(self.limit, PAGE_DEFAULT, limits)?;
        let is_asked_for = |fact: &&Fact| {
            self.kind.is_none_or(|kind| fact.kind == kind)
                && self.key.as_ref().is_none_or(|key| fact.key == *key)
        };
        let page = {
            let facts = task.facts_behind(self.after.unwrap_or(0));
            Page::cut(facts.filter(is_asked_for), self.offset, limit)
        };
        Ok(FactsPage {
            facts: page.rows.into_iter().cloned().collect(),
            next_offset: page.more.then(|| self.offset + limit),
            truncated: page.more,
            version: task.version(),
        })
    }
}
