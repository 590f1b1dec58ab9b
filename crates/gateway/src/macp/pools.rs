//! Keeps what workers of pools do with the Steps of sessions, as messages of their pools (MACP-19).
//!
//! A pool of which a task is requested gets the Step as it gets any other, and its worker knows nothing of MACP. Each
//! gateway that gets a hint of a change reads what the worker has done in the log of the Task, and keeps the message
//! that tells it. Its id follows from the place in the log, so that several gateways, or one that begins anew, tell it
//! once.

use tenure_macp::{MacpCode, MacpDecision, MacpPoolWork};
use tenure_ports::ClientPort as _;
use tenure_sdk::client::get_blob;

use super::cached::CachedSession;
use super::now_ms;
use super::serve::{ServedSessions, contended};
use super::status::{MacpFault, MacpResult};
use crate::Backend;

/// How often this tries to keep what it has read, when others have changed the Task meanwhile.
const TRIES_MAX: usize = 64;

impl<B: Backend> ServedSessions<B> {
    /// Keeps what workers of a pool have done as messages of the pool, as far as the session takes them now.
    pub(super) async fn tell_pool_work(&self, kept: &mut CachedSession) -> MacpResult<()> {
        for _ in 0..TRIES_MAX {
            self.read_pool_work(kept).await?;
            if self.keep_pool_work(kept).await? {
                return Ok(());
            }
            self.read_on(kept).await?;
            self.carry_out(kept).await?;
        }
        Err(contended())
    }

    /// Reads what workers have done, up to the version of the Task that is known.
    async fn read_pool_work(&self, kept: &mut CachedSession) -> MacpResult<()> {
        let (Some(session), Some(version)) = (&kept.session, kept.version) else { return Ok(()) };
        if session.requested_pool().is_none() || session.has_ended() {
            return Ok(());
        }
        while kept.work_through < version {
            let page = self.client.port().log(&kept.task, kept.work_through).await?;
            let Some(last) = page.commits.last().map(|commit| commit.last_seq()) else {
                return Ok(());
            };
            for commit in &page.commits {
                for (at, event) in (commit.first_seq..).zip(&commit.events) {
                    if at > version {
                        kept.work_through = version; // The rest is read when the records there are read.
                        return Ok(());
                    }
                    kept.untold.extend(MacpPoolWork::of(event).map(|work| (at, work)));
                }
            }
            kept.work_through = last;
        }
        Ok(())
    }

    /// Keeps what was read. False: the Task has changed meanwhile.
    async fn keep_pool_work(&self, kept: &mut CachedSession) -> MacpResult<bool> {
        while let (Some((at, work)), Some(session)) = (kept.untold.front(), &kept.session) {
            let now = now_ms();
            let said = session.said_by_pool(*at, work, now).is_some();
            let work = if said { self.with_bytes(kept, work.clone()).await? } else { work.clone() };
            let Some(envelope) = session.said_by_pool(*at, &work, now) else {
                kept.untold.pop_front();
                continue;
            };
            match session.decide(&envelope, now) {
                Ok(MacpDecision::Accept(accepted)) => {
                    match self.keep(kept, accepted.record, Some(&accepted.effect)).await {
                        Ok(true) => {}
                        Ok(false) => return Ok(false),
                        // Somebody has ended the Task.
                        Err(MacpFault::Refused(_)) if kept.is_cut_off => return Ok(true),
                        Err(fault) => return Err(fault),
                    }
                }
                Ok(MacpDecision::Duplicate(_)) => {}
                Ok(MacpDecision::Expire { record, .. }) => {
                    return self.keep(kept, *record, None).await;
                }
                // The message follows when the session is resumed.
                Err(refusal) if refusal.code == MacpCode::SessionNotOpen => return Ok(true),
                Err(refusal) => {
                    let task = &kept.task;
                    tracing::warn!(%task, %refusal, "the session does not take what a pool has done");
                }
            }
            kept.untold.pop_front();
        }
        Ok(true)
    }

    /// The work with the bytes of its result, if they fit into a message.
    async fn with_bytes(
        &self,
        kept: &CachedSession,
        work: MacpPoolWork,
    ) -> MacpResult<MacpPoolWork> {
        let MacpPoolWork::Completed { output: Some(output), summary } = work else {
            return Ok(work);
        };
        let most = self.settings.payload_bytes_max / 2;
        let fits = |bytes: u64| usize::try_from(bytes).is_ok_and(|bytes| bytes <= most);
        let output = match output.blob().filter(|blob| fits(blob.size_bytes)) {
            Some(blob) => {
                let bytes = get_blob(self.client.port(), &kept.task, blob.hash).await?;
                tenure_core::record::Value::inline(&output.content_type, bytes)
            }
            None => output,
        };
        Ok(MacpPoolWork::Completed { output: Some(output), summary })
    }
}
