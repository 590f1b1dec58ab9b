//! Steps of Tenure that participants of MACP do (MACP-20): a worker in the gateway takes them, and starts a session for
//! each.
//!
//! The session of a Step is named in a checkpoint before it begins. So a gateway that takes the Step after another one
//! that died goes on with the same session, and sends the same messages again. If the session has failed, a checkpoint
//! in the report says so, and only then does the next Attempt begin another session.

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
    ERRANDS, MacpErrand, MacpErrandEnd, MacpErrandStep, MacpKind, MacpRefusal, MacpSteer,
    PAYLOAD_BYTES_MAX, check_shape,
};
use tenure_mcp::{Share, Shares};
use tenure_sdk::nats::boot;
use tenure_sdk::worker::{HandlerError, Handlers, Options, StepContext, WorkerPool};
use tenure_wire::bus::subject::Token;
use tokio::runtime::Handle;
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

/// The handler of such Steps.
const HANDLER: &str = "macp";

/// How many such Steps a gateway takes at a time. With each it waits for an agent. A session of Tenure has three times
/// as many as are free.
const ERRANDS_MAX: usize = 1_024;

/// How long a Step stays away for which its session has no place: so long for each of its tries, and so long at most.
const AWAY: Duration = Duration::from_secs(5);
const AWAY_MAX: Duration = Duration::from_secs(300);

/// How long a gateway waits before it tries again what it cannot do now.
const AGAIN: Duration = Duration::from_secs(2);

/// How long one that cannot join the pool waits before it tries again.
const JOINS_AGAIN: Duration = Duration::from_secs(30);

/// How often the gateway looks at a session of which no message comes, as its time may be over.
const LOOK: Duration = Duration::from_secs(10);

/// How often a gateway tries to cancel the session of a Step that is over: for a minute.
const SETTLED_TRIES: usize = 30;

/// How a checkpoint begins: behind it stands the id of the session.
const BEGUN: &str = "macp-session:";

/// How the checkpoint of a session that has failed begins.
const FAILED: &str = "macp-failed:";

/// What all errands of a gateway share.
struct SharedErrands<B: Backend> {
    gateway: Arc<Gateway<B>>,
    settings: Arc<MacpSettings>,
    /// The places for Steps, by their sessions of Tenure: a worker is not told who has made a Task.
    places: Shares,
}

/// Takes Steps for participants for as long as it is polled.
pub(crate) async fn run_errands<B: Backend>(gateway: Arc<Gateway<B>>) {
    let Some(settings) = gateway.settings.macp.clone() else {
        return std::future::pending().await;
    };
    let places = Shares::new(ERRANDS_MAX);
    let shared = Arc::new(SharedErrands { gateway, settings: Arc::new(settings), places });
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

/// Carries out one Step.
async fn run<B: Backend>(
    step: StepContext,
    shared: Arc<SharedErrands<B>>,
) -> Result<(), HandlerError> {
    let errand = match errand_of(&step) {
        Ok(errand) => errand,
        Err(wrong) => return Ok(step.reject(&wrong)?),
    };
    let Some(_place) = place_for(&step, &shared.places) else {
        return Ok(step.give_back_for_room(away(step.attempt()))?);
    };
    let mut begun = None;
    let ended = work(&step, &shared, &errand, &mut begun).await;
    if let Some(begun) = &mut begun {
        // One that was asked to stop does not know yet whether the Step goes to another gateway, or is over.
        begun.is_ended = !is_given_back(&step);
    }
    ended
}

/// A place for a Step, if its session has one. A Step whose session of MACP has begun, perhaps at another gateway, has
/// a place in any case.
fn place_for(step: &StepContext, places: &Shares) -> Option<Share> {
    match session_before(step) {
        (Some(_), _) => Some(places.hold(step.session_id())),
        _ => places.take(step.session_id()),
    }
}

/// How long a Step stays away that has no place, by its try.
fn away(attempt: u32) -> Duration {
    AWAY.saturating_mul(attempt).min(AWAY_MAX)
}

async fn work<B: Backend>(
    step: &StepContext,
    shared: &Arc<SharedErrands<B>>,
    errand: &MacpErrand,
    begun: &mut Option<BegunErrand<B>>,
) -> Result<(), HandlerError> {
    loop {
        match shared.pursue(step, errand, begun).await {
            Ok(None) => return Ok(()), // It was asked to stop.
            Ok(Some((id, end))) => return end_with(step, &id, end),
            // The scheduler that is to record a report may be away for a while.
            Err(ErrandFault::Step(refused)) if refused.code.is_retryable() => {
                tracing::debug!(%refused, "a step for an agent is reported on a little later");
            }
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
            () = step.cancellation().cancelled() => match is_given_back(step) {
                true => return Ok(()),
                false if begun.is_none() && session_before(step).0.is_none() => return Ok(()), // There is none.
                false => sleep(AGAIN).await, // Its session is to be cancelled, for as long as there is time.
            },
        }
    }
}

/// Whether the Step stops here because it goes to another gateway, and not because nobody wants it any more.
fn is_given_back(step: &StepContext) -> bool {
    step.is_cancelled() && step.time_left().is_none()
}

/// The session that an Attempt before has begun, or the one that has failed.
fn session_before(step: &StepContext) -> (Option<&str>, Option<&str>) {
    let marks = step.checkpoint_refs().iter().rev();
    marks
        .map(|at| (at.as_str().strip_prefix(BEGUN), at.as_str().strip_prefix(FAILED)))
        .find(|(begun, failed)| begun.is_some() || failed.is_some())
        .unwrap_or_default()
}

/// The session of a Step.
struct BegunErrand<B: Backend> {
    shared: Arc<SharedErrands<B>>,
    step: StepContext,
    id: String,
    /// The session before, which has failed.
    retry_of: Option<String>,
    /// Whether the handler has done with its session.
    is_ended: bool,
}

/// A handler that is ended by force, or that gives its Step back, sends nothing to its session. Either another gateway
/// goes on with that, or the Step is over, as somebody else has settled it: then nobody waits for the agent any more.
impl<B: Backend> Drop for BegunErrand<B> {
    fn drop(&mut self) {
        if !self.is_ended
            && let Ok(runtime) = Handle::try_current()
        {
            let (shared, step) = (Arc::clone(&self.shared), self.step.clone());
            let id = std::mem::take(&mut self.id);
            runtime.spawn(async move { shared.cancel_if_settled(&step, &id).await });
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

fn end_with(step: &StepContext, id: &str, end: MacpErrandEnd) -> Result<(), HandlerError> {
    let failed = matches!(end, MacpErrandEnd::Failed { .. });
    match end {
        MacpErrandEnd::Completed { output, summary } => {
            step.complete(super::effects::value(&output))?;
            if !summary.is_empty() {
                step.summarise(&summary)?;
            }
        }
        MacpErrandEnd::Failed { code, message, retryable: true } => {
            step.fail(&code, &message, None)?;
        }
        MacpErrandEnd::Failed { code, message, retryable: false } => {
            step.reject(&format!("{code}: {message}"))?;
        }
    }
    if failed {
        step.checkpoint_with_end(&format!("{FAILED}{id}"))?;
    }
    Ok(())
}

impl<B: Backend> SharedErrands<B> {
    /// Begins the session of a Step or goes on with it, to its end. It stays the one that has begun, however often this
    /// is tried. None: the Step was asked to stop.
    async fn pursue(
        self: &Arc<Self>,
        step: &StepContext,
        errand: &MacpErrand,
        begun: &mut Option<BegunErrand<B>>,
    ) -> Result<Option<(String, MacpErrandEnd)>, ErrandFault> {
        let gateway = Arc::clone(&self.gateway);
        let sessions = ServedSessions::open(gateway, Arc::clone(&self.settings)).await?;
        let place = format!("{}/{}/{}", step.session_id(), step.task_id(), step.step_id());
        let BegunErrand { id, retry_of, .. } = match begun {
            Some(begun) => begun,
            None => begun.insert(self.begin(step).await?),
        };
        let of = MacpErrandStep {
            place,
            step_id: step.step_id().to_string(),
            title: step.title().to_owned(),
            summary: step.summary().to_owned(),
            retry_of: retry_of.clone(),
        };
        sessions.say(errand.start(id, &of, now_ms())).await?;
        sessions.say(errand.request(id, &of, now_ms())).await?;
        Ok(sessions.until_end(step, id).await?.map(|end| (id.clone(), end)))
    }

    /// The session of a Step: the one that an Attempt before has begun and of which it has reported no failure, or a
    /// new one.
    async fn begin(self: &Arc<Self>, step: &StepContext) -> Result<BegunErrand<B>, ErrandFault> {
        let (begun, retry_of) = session_before(step);
        let id = begun.map_or_else(|| Uuid::new_v4().to_string(), str::to_owned);
        if begun.is_none() {
            step.checkpoint(&format!("{BEGUN}{id}")).await.map_err(ErrandFault::Step)?;
        }
        Ok(BegunErrand {
            shared: Arc::clone(self),
            step: step.clone(),
            id,
            retry_of: retry_of.map(str::to_owned),
            is_ended: false,
        })
    }

    /// Cancels the session of a Step that is over.
    async fn cancel_if_settled(self: Arc<Self>, step: &StepContext, id: &str) {
        for _ in 0..SETTLED_TRIES {
            match self.try_cancel(step, id).await {
                Ok(()) | Err(MacpFault::Refused(_)) => return,
                Err(MacpFault::Trouble(refused)) => {
                    tracing::debug!(session = id, %refused, "a session is looked at a little later");
                }
            }
            sleep(AGAIN).await;
        }
    }

    async fn try_cancel(&self, step: &StepContext, id: &str) -> MacpResult<()> {
        let task = step.task().await?;
        let own = task.steps.iter().flatten().find(|it| it.spec.step_id == *step.step_id());
        if task.native_status.is_terminal() || own.is_some_and(|it| it.status.is_settled()) {
            let gateway = Arc::clone(&self.gateway);
            let sessions = ServedSessions::open(gateway, Arc::clone(&self.settings)).await?;
            let me = MacpCaller::of_tenure(ERRANDS);
            sessions.steer(MacpSteer::Cancel, id, "the step is over", &me).await?;
        }
        Ok(())
    }
}

impl<B: Backend> ServedSessions<B> {
    /// Sends a message of Tenure itself, or the same again.
    async fn say(&self, envelope: Envelope) -> MacpResult<()> {
        match check_shape(&envelope, PAYLOAD_BYTES_MAX)? {
            MacpKind::Start => self.start(&envelope).await?,
            _ => match self.send(&envelope).await {
                // The session has ended, as its last message says.
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
    /// to stop, and the session is cancelled, unless another gateway is to go on with it.
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
                    if is_given_back(step) {
                        return Ok(None);
                    }
                    let me = MacpCaller::of_tenure(ERRANDS);
                    self.steer(MacpSteer::Cancel, id, "the step was cancelled", &me).await?;
                    return Ok(None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::id::TaskId;
    use tenure_core::view::{ListInput, Normal};
    use tenure_ports::ClientPort;
    use tenure_sdk::client::{Client, Step, Task};
    use tokio::time::timeout;

    use super::super::double::Fixture;
    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    /// A Task with so many Steps for an agent that does nothing.
    async fn asks<P: ClientPort>(client: &Client<P>, steps: usize) -> TaskId {
        let input = Value::json(br#"{"participants": ["x"], "ttl_ms": 60000}"#.to_vec());
        let step = |n| Step::new(&format!("s{n}")).pool(POOL).handler(HANDLER).input(input.clone());
        let task = (0..steps).map(step).fold(Task::new("errands"), Task::step);
        client.create(task).await.unwrap()
    }

    async fn until(holds: impl AsyncFn() -> bool) {
        let wait = async {
            while !holds().await {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(SOON, wait).await.unwrap();
    }

    /// Mechanisms 15, LEASE-18: a session whose Steps wait for agents leaves places to another. Those for which it has
    /// none go back for a while, and that is no fault.
    #[tokio::test(flavor = "multi_thread")]
    async fn steps_of_one_session_leave_places_to_others() {
        let fixture = Fixture::open().await;
        let (own, other) = (fixture.client("agents"), fixture.client("others"));
        let shared = Arc::new(SharedErrands {
            gateway: Arc::clone(&fixture.gateway),
            settings: Arc::clone(&fixture.settings),
            places: Shares::new(4),
        });
        let begun = async || {
            let tasks = own.tasks(ListInput::default()).await.unwrap().tasks;
            tasks.iter().filter(|task| task.title != "errands").count()
        };
        let _workers = join(&shared).await.unwrap();
        let task = asks(&own, 5).await;
        let given_back = async || {
            let attempts = own.get(&task).await.unwrap().attempts;
            attempts.iter().filter(|it| it.normalized_status == Normal::Released).count()
        };
        until(async || begun().await == 3 && given_back().await >= 2).await;
        asks(&other, 1).await;
        until(async || begun().await == 4).await;
        assert_eq!((away(1), away(u32::MAX)), (AWAY, AWAY_MAX));
    }
}
