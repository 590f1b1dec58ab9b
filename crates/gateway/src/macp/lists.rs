//! Which sessions there are.

use std::collections::BTreeSet;

use tenure_core::Rejection;
use tenure_core::id::TaskId;
use tenure_core::record::Labels;
use tenure_core::view::ListInput;
use tenure_macp::MacpPage;
use tenure_macp::pb::ListSessionsResponse;
use tenure_ports::ClientPort as _;

use super::cached::session_of;
use super::caller::MacpCaller;
use super::facts;
use super::serve::ServedSessions;
use super::start::{PROTOCOL, SESSION};
use super::status::{MacpFault, MacpResult};
use crate::Backend;

/// How many Tasks are asked for at a time, and how many sessions a list knows at most.
const PAGE: usize = 500;
const SESSIONS_MAX: usize = 20_000;

impl<B: Backend> ServedSessions<B> {
    /// A page of the sessions that the caller may read, in the order of their ids.
    ///
    /// # Errors
    /// They cannot be read now.
    pub(super) async fn list(
        &self,
        page: &MacpPage,
        caller: &MacpCaller,
    ) -> MacpResult<ListSessionsResponse> {
        let mut found = ListSessionsResponse::default();
        for id in self.ids(true).await? {
            if page.after.as_ref().is_some_and(|after| id <= *after) {
                continue;
            }
            let Some(session) = self.listed(&id, caller).await? else { continue };
            if found.sessions.len() == page.most {
                let last = found.sessions.last().map(|last| last.session_id.as_str());
                found.next_page_token = last.map(MacpPage::token).unwrap_or_default();
                break;
            }
            found.sessions.push(session.metadata());
        }
        Ok(found)
    }

    /// The ids of the sessions, without or with those whose Tasks have ended.
    ///
    /// # Errors
    /// They cannot be read now.
    pub(super) async fn ids(&self, with_ended: bool) -> MacpResult<BTreeSet<String>> {
        let mut ids = BTreeSet::new();
        let labels = Labels::from([(PROTOCOL.into(), SESSION.into())]);
        let mut offset = 0;
        while ids.len() < SESSIONS_MAX {
            let input = ListInput {
                include_archived: with_ended,
                include_terminal: with_ended,
                labels: labels.clone(),
                limit: Some(PAGE),
                offset,
                ..ListInput::default()
            };
            let page = self.client.port().tasks(input).await?;
            if !page.missing_partitions.is_empty() {
                let message = "a part of the cluster does not answer";
                let refused = Rejection::new(tenure_core::Code::Unavailable, message);
                return Err(MacpFault::Trouble(refused));
            }
            for task in &page.tasks {
                ids.extend(self.id_of(&task.task_id).await?);
            }
            match page.next_offset {
                Some(next) => offset = next,
                None => break,
            }
        }
        Ok(ids)
    }

    /// The session of a Task, if it has one.
    ///
    /// # Errors
    /// It cannot be read now.
    pub(super) async fn id_of(&self, task: &TaskId) -> MacpResult<Option<String>> {
        if let Some(id) = session_of(task) {
            return Ok(Some(id.to_owned()));
        }
        let Some(page) = facts::read(&self.client, task, 0).await? else { return Ok(None) };
        let Some((_, first)) = page.records.first() else { return Ok(None) };
        Ok(first.envelope()?.map(|envelope| envelope.session_id))
    }
}
