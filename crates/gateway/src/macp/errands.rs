//! Steps of Tenure that participants of MACP do (MACP-20): a worker in the gateway takes them, and starts a session for
//! each.
//!
//! The session of a Step is named in a checkpoint before it begins. So a gateway that takes the Step after another one
//! that died goes on with the same session, and sends the same messages again.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Map, Value as Json};
use tenure_core::Rejection;
use tenure_core::id::{HandlerName, PoolId};
use tenure_core::record::{Progress, Value};
use tenure_core::status::Role;
use tenure_macp::pb::Envelope;
use tenure_macp::{
    ERRANDS, MacpErrand, MacpErrandEnd, MacpErrandStep, MacpKind, MacpRefusal, MacpSession,
    MacpSteer, PAYLOAD_BYTES_MAX, check_shape,
};
use tenure_sdk::nats::boot;
use tenure_sdk::worker::{HandlerError, Handlers, Options, StepContext, WorkerPool};
use tenure_wire::bus::subject::Token;
use tokio::time::sleep;
use uuid::Uuid;

use super::cached::task_of;
use super::caller::MacpCaller;
use super::serve::ServedSessions;
use super::status::{MacpFault, MacpResult};
use super::{MacpSettings, now_ms};
use crate::identity::{Allowed, Identity};
use crate::{Backend, Gateway};

/// The pool of such Steps, and as whom a gateway joins it.
const POOL: &str = "macp-steps";

/// Their handler.
const HANDLER: &str = "macp";

/// How many of them a gateway takes at a time. It waits for an agent with each.
const ERRANDS_MAX: usize = 1_024;

/// How long a gateway waits before it tries again what it cannot do now.
const AGAIN: Duration = Duration::from_secs(2);

/// How long one that cannot join the pool waits before it tries again.
const JOINS_AGAIN: Duration = Duration::from_secs(30);

/// How often a session is looked at of which nothing is heard: time alone may end it.
const LOOK: Duration = Duration::from_secs(10);

/// How a checkpoint begins: behind it stands the id of the session.
const CHECKPOINT: &str = "macp-session:";

/// What all errands of a gateway share.
struct SharedErrands<B: Backend> {
    gateway: Arc<Gateway<B>>,
    settings: Arc<MacpSettings>,
}

/// Takes Steps for participants for as long as it is polled.
pub(crate) async fn run_errands<B: Backend>(gateway: Arc<Gateway<B>>) {
    let Some(settings) = gateway.settings.macp.clone() else {
        return std::future::pending().await;
    };
    let shared = Arc::new(SharedErrands { gateway, settings: Arc::new(settings) });
    let _workers = loop {
        match join(&shared).await {
            Ok(workers) => break workers,
            Err(refused) => {
                tracing::warn!(%refused, "no steps are taken for agents that speak MACP yet");
            }
        }
        sleep(JOINS_AGAIN).await;
    };
    std::future::pending().await
}

async fn join<B: Backend>(
    shared: &Arc<SharedErrands<B>>,
) -> Result<WorkerPool<B::Worker>, Rejection> {
    let pool = PoolId::new(POOL)?;
    let who = Identity {
        principal: Token::new(POOL)?,
        role: Role::Worker,
        sessions: Allowed::All,
        pools: Allowed::Only(vec![pool.clone()]),
    };
    let taken = Arc::clone(shared);
    let handlers = Handlers::new().on(HANDLER, move |step| run(step, Arc::clone(&taken)))?;
    let names = Some(vec![HandlerName::new(HANDLER)?]);
    let joined = shared.gateway.backend.join(&who, pool, Token::new(boot())?, names.into()).await?;
    let (port, deliveries) = joined;
    let most = NonZeroUsize::new(ERRANDS_MAX).unwrap_or(NonZeroUsize::MIN);
    Ok(WorkerPool::start(port, deliveries, handlers, Options::new(most)))
}

/// Does a Step.
async fn run<B: Backend>(
    step: StepContext,
    shared: Arc<SharedErrands<B>>,
) -> Result<(), HandlerError> {
    let errand = match errand_of(&step) {
        Ok(errand) => errand,
        Err(wrong) => return Ok(step.reject(&wrong)?),
    };
    loop {
        match shared.pursue(&step, &errand).await {
            Ok(None) => return Ok(()), // It was asked to stop.
            Ok(Some(end)) => return end_with(&step, end),
            Err(ErrandFault::Step(refused)) => return Err(refused.into()),
            Err(ErrandFault::Session(MacpFault::Refused(refusal))) => {
                return Ok(step.reject(&refusal.to_string())?);
            }
            Err(ErrandFault::Session(MacpFault::Trouble(refused))) => {
                tracing::debug!(%refused, "a step for an agent goes on a little later");
            }
        }
        tokio::select! {
            () = sleep(AGAIN) => {}
            () = step.cancellation().cancelled() => return Ok(()),
        }
    }
}

/// Why an errand does not go on.
enum ErrandFault {
    /// The Step is not this worker's any more.
    Step(Rejection),
    /// The session is refused, or cannot be reached now.
    Session(MacpFault),
}

impl From<MacpFault> for ErrandFault {
    fn from(fault: MacpFault) -> Self {
        Self::Session(fault)
    }
}

impl From<Rejection> for ErrandFault {
    fn from(refused: Rejection) -> Self {
        Self::Session(refused.into())
    }
}

impl From<MacpRefusal> for ErrandFault {
    fn from(refusal: MacpRefusal) -> Self {
        Self::Session(refusal.into())
    }
}

/// What the Step asks, with the results of the Steps before it.
fn errand_of(step: &StepContext) -> Result<MacpErrand, String> {
    let json = step.input().and_then(Value::data).unwrap_or(b"{}");
    let mut errand = MacpErrand::parse(json)?;
    let results: Map<String, Json> = step
        .dependencies()
        .iter()
        .filter_map(|it| {
            let data = it.output.as_ref()?.data()?;
            let read = serde_json::from_slice::<Json>(data);
            let read = read.unwrap_or_else(|_| String::from_utf8_lossy(data).into_owned().into());
            Some((it.step_id.to_string(), read))
        })
        .collect();
    if !results.is_empty() {
        let given = errand.input.take().unwrap_or(Json::Null);
        errand.input = Some(serde_json::json!({ "input": given, "dependencies": results }));
    }
    Ok(errand)
}

fn end_with(step: &StepContext, end: MacpErrandEnd) -> Result<(), HandlerError> {
    match end {
        MacpErrandEnd::Completed { output, summary } => {
            step.complete(super::effects::value(&output))?;
            if !summary.is_empty() {
                step.summarise(&summary)?;
            }
            Ok(())
        }
        MacpErrandEnd::Failed { code, message, retryable: true } => {
            Ok(step.fail(&code, &message, None)?)
        }
        MacpErrandEnd::Failed { code, message, retryable: false } => {
            Ok(step.reject(&format!("{code}: {message}"))?)
        }
    }
}

impl<B: Backend> SharedErrands<B> {
    /// Begins the session of a Step or goes on with it, to its end. None: the Step was asked to stop.
    async fn pursue(
        &self,
        step: &StepContext,
        errand: &MacpErrand,
    ) -> Result<Option<MacpErrandEnd>, ErrandFault> {
        let gateway = Arc::clone(&self.gateway);
        let sessions = ServedSessions::open(gateway, Arc::clone(&self.settings)).await?;
        let place = format!("{}/{}/{}", step.session_id(), step.task_id(), step.step_id());
        let mut of = MacpErrandStep {
            place,
            step_id: step.step_id().to_string(),
            title: step.title().to_owned(),
            summary: step.summary().to_owned(),
            retry_of: None,
        };
        let id = sessions.session_of_step(step, &mut of).await?;
        sessions.say(errand.start(&id, &of, now_ms())).await?;
        sessions.say(errand.request(&id, &of, now_ms())).await?;
        sessions.until_end(step, &id).await
    }
}

impl<B: Backend> ServedSessions<B> {
    /// The session of a Step: the one of its last checkpoint, if that has not failed, or a new one.
    async fn session_of_step(
        &self,
        step: &StepContext,
        of: &mut MacpErrandStep,
    ) -> Result<String, ErrandFault> {
        let mut begun = step.checkpoint_refs().iter().rev();
        let begun = begun.find_map(|it| it.as_str().strip_prefix(CHECKPOINT));
        if let Some(id) = begun {
            let before = self.shown(id).await?;
            let has_failed = before
                .as_ref()
                .and_then(MacpSession::errand_end)
                .is_some_and(|end| matches!(end, MacpErrandEnd::Failed { .. }));
            if !has_failed {
                return Ok(id.to_owned());
            }
            of.retry_of = Some(id.to_owned());
        }
        let id = Uuid::new_v4().to_string();
        step.checkpoint(&format!("{CHECKPOINT}{id}")).await.map_err(ErrandFault::Step)?;
        Ok(id)
    }

    /// Sends a message of Tenure itself, or the same again.
    async fn say(&self, envelope: Envelope) -> MacpResult<()> {
        match check_shape(&envelope, PAYLOAD_BYTES_MAX)? {
            MacpKind::Start => self.start(&envelope).await?,
            _ => match self.send(&envelope).await {
                // It has ended, which its end says.
                Err(MacpFault::Refused(refusal))
                    if refusal.code == tenure_macp::MacpCode::SessionNotOpen =>
                {
                    return Ok(());
                }
                sent => sent?,
            },
        };
        Ok(())
    }

    /// Waits for the end of a session, tells the Step what is reported meanwhile, and commits. None: the Step was asked
    /// to stop, and the session is cancelled.
    async fn until_end(
        &self,
        step: &StepContext,
        id: &str,
    ) -> Result<Option<MacpErrandEnd>, ErrandFault> {
        let mut commits = self.client.watch_live(&task_of(&self.settings.session, id), 0).boxed();
        let mut told = 0;
        loop {
            let Some(session) = self.shown(id).await? else {
                return Err(super::serve::not_found(id).into());
            };
            if let Some(end) = session.errand_end() {
                return Ok(Some(end));
            }
            if let Some(commitment) = session.errand_commitment(now_ms()) {
                self.say(commitment).await?;
                continue;
            }
            if session.updates() > told
                && let Some(update) = session.latest_update()
            {
                told = session.updates();
                let progress = Progress {
                    percent: Some((update.progress * 100.0).clamp(0.0, 100.0)),
                    phase: (!update.status.is_empty()).then(|| update.status.as_str().into()),
                    summary: (!update.message.is_empty()).then(|| update.message.clone()),
                    ..Progress::default()
                };
                step.send_status(progress).await.map_err(ErrandFault::Step)?;
            }
            tokio::select! {
                commit = commits.next() => match commit {
                    Some(commit) => drop(commit?),
                    None => sleep(LOOK).await,
                },
                () = sleep(LOOK) => {}
                () = step.cancellation().cancelled() => {
                    let me = MacpCaller::of_tenure(ERRANDS);
                    self.steer(MacpSteer::Cancel, id, "the step was cancelled", &me).await?;
                    return Ok(None);
                }
            }
        }
    }
}
