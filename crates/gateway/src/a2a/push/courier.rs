//! The courier of a configuration: a Step that follows a task, and sends its updates.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tenure_core::Rejection;
use tenure_core::id::{AgentId, HandlerName, PoolId, Ref, SessionId, TaskId};
use tenure_core::status::Role;
use tenure_mcp::Shares;
use tenure_sdk::client::Client;
use tenure_sdk::nats::boot;
use tenure_sdk::worker::{HandlerError, Handlers, Options, StepContext, WorkerPool};
use tenure_wire::bus::subject::Token;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

use super::PushTarget;
use super::post::{UpdateBody, connector, post};
use crate::Backend;
use crate::a2a::ServedAgents;
use crate::a2a::dialect::A2aDialect;
use crate::a2a::map::TaskFold;
use crate::a2a::ops::{CommitUpdates, TaskFollower, TurnReader};
use crate::a2a::wire::{A2aPushConfig, A2aUpdate};
use crate::api::FoldTurns;
use crate::identity::{Allowed, Identity};
use crate::live::EventPlace;

/// The pool of the couriers, their handler, and as whom they join.
pub(crate) const COURIERS: &str = "a2a-push";

/// How many couriers a gateway runs, of all callers. One follows a task for as long as that lives.
pub(crate) const COURIERS_MAX: usize = 1_024;

/// How long a gateway that cannot join the pool waits before it tries again.
const JOINS_AGAIN: Duration = Duration::from_secs(5);

/// The first and the longest wait before an update is sent again.
const WAIT_FIRST: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);

/// After how long a courier gives up on a receiver.
const GIVES_UP: Duration = Duration::from_secs(24 * 3_600);

/// After how long a Step comes again whose caller has its share of couriers here.
const COMES_AGAIN: Duration = Duration::from_secs(30);

/// The longest view of the Task of a courier, which then has no lists: it may be any Task.
const VIEW_BYTES_MAX: usize = 512 << 10;

/// How a checkpoint begins: behind it stands the place of the last update that was taken.
const CHECKPOINT: &str = "a2a-place:";

/// What a courier is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PushOrder {
    /// The task to follow.
    pub(crate) task_id: TaskId,
    /// As whom to read it: the maker of the courier.
    pub(crate) caller: String,
    /// The version of the task behind which updates are sent.
    pub(crate) since: u64,
    /// The version of the protocol in which to write them.
    #[serde(default)]
    pub(crate) dialect: A2aDialect,
    /// Where to send them.
    pub(crate) config: A2aPushConfig,
}

/// What all couriers of a gateway share.
struct CourierShared<B> {
    backend: B,
    agents: ServedAgents,
    tls: TlsConnector,
    /// The couriers that run, by caller.
    running: Shares,
    /// Whose log is folded next.
    folds: Arc<FoldTurns>,
}

/// Runs the couriers of a gateway for as long as it is polled, as soon as a file of agents allows that updates are
/// sent. Without a way to the scheduler it tries again.
pub(crate) async fn run_couriers<B: Backend>(
    backend: B,
    agents: ServedAgents,
    running: Shares,
    folds: Arc<FoldTurns>,
) {
    agents.until_push().await;
    match tokio::task::spawn_blocking(connector).await {
        Ok(Ok(tls)) => {
            let shared = Arc::new(CourierShared { backend, agents, tls, running, folds });
            let _couriers = join_patiently(&shared).await;
            std::future::pending().await
        }
        Ok(Err(error)) => tracing::error!(%error, "no updates are sent: there is no TLS"),
        Err(error) => tracing::error!(%error, "no updates are sent: certificates cannot be read"),
    }
    std::future::pending().await
}

async fn join_patiently<B: Backend>(shared: &Arc<CourierShared<B>>) -> WorkerPool<B::Worker> {
    loop {
        match join(shared).await {
            Ok(couriers) => return couriers,
            Err(refused) => tracing::warn!(%refused, "no updates are sent yet"),
        }
        sleep(JOINS_AGAIN).await;
    }
}

async fn join<B: Backend>(
    shared: &Arc<CourierShared<B>>,
) -> Result<WorkerPool<B::Worker>, Rejection> {
    let pool = PoolId::new(COURIERS)?;
    let who = Identity {
        principal: Token::new(COURIERS)?,
        role: Role::Worker,
        sessions: Allowed::All,
        pools: Allowed::Only(vec![pool.clone()]),
    };
    let carried = Arc::clone(shared);
    let carry = move |step: StepContext| carry(step, Arc::clone(&carried));
    let handlers = Handlers::new().on(COURIERS, carry)?;
    let names = Some(vec![HandlerName::new(COURIERS)?]);
    let joined = shared.backend.join(&who, pool, Token::new(boot())?, names.into()).await?;
    let (port, deliveries) = joined;
    let most = NonZeroUsize::new(COURIERS_MAX).unwrap_or(NonZeroUsize::MIN);
    Ok(WorkerPool::start(port, deliveries, handlers, Options::new(most)))
}

/// Follows a task to its end, and sends every update behind the last one that was taken.
async fn carry<B: Backend>(
    step: StepContext,
    shared: Arc<CourierShared<B>>,
) -> Result<(), HandlerError> {
    let order: PushOrder = step.input_json()?;
    if creator(&step, &shared.backend).await?.as_str() != order.caller {
        return Ok(step.reject(
            "this order names another caller than the one who made it: ask for callbacks by A2A",
        )?);
    }
    let Some(_place) = shared.running.take(&order.caller) else {
        return Ok(step.give_back_for_room(COMES_AGAIN)?); // Another gateway may have one, or this one later.
    };
    let since = reached(step.checkpoint_refs()).unwrap_or(EventPlace::behind(order.since));
    let client = reader(&step, &order.caller, &shared.backend).await?;
    let log = TurnReader::new(client, &shared.folds, &order.caller);
    let mut follower = TaskFollower::from_start(log, order.task_id.clone());
    while let Some(Some(next)) = unless_stopped(&step, follower.next()).await {
        let CommitUpdates { seq, updates, .. } = next.map_err(|error| error.message)?;
        let mut place = EventPlace::default();
        for body in bodies(order.dialect, &updates, follower.fold()) {
            place = place.next(seq);
            if place <= since {
                continue;
            }
            match unless_stopped(&step, deliver(&shared, &order.config, &body)).await {
                None => return Ok(()), // The configuration was deleted, or the gateway stops.
                Some(DeliveryEnd::Taken) => {
                    step.checkpoint(&format!("{CHECKPOINT}{place}")).await?
                }
                Some(DeliveryEnd::Unwanted) => return Ok(step.complete(None)?),
                Some(DeliveryEnd::Forbidden(why)) => return Ok(step.reject(&why)?),
                Some(DeliveryEnd::GivenUp) => {
                    return Ok(step.reject("the receiver has taken no update for a day")?);
                }
            }
        }
    }
    match step.is_cancelled() {
        true => Ok(()),
        false => Ok(step.complete(None)?),
    }
}

/// What is sent of the updates of a commit: in 1.0 each of them, and in 0.3 the task as it then is.
fn bodies(dialect: A2aDialect, updates: &[A2aUpdate], fold: Option<&TaskFold>) -> Vec<UpdateBody> {
    let media_type = dialect.push_media_type();
    let write = |json: serde_json::Value| UpdateBody { media_type, text: json.to_string() };
    match dialect {
        A2aDialect::V1 => updates.iter().map(|update| write(dialect.update(update))).collect(),
        A2aDialect::V03 => {
            let task = fold.filter(|_| !updates.is_empty()).map(|fold| dialect.task(fold.shown()));
            task.map(write).into_iter().collect()
        }
    }
}

/// Up to which place earlier couriers have come.
fn reached(checkpoints: &[Ref]) -> Option<EventPlace> {
    let places = checkpoints.iter().filter_map(|it| it.as_str().strip_prefix(CHECKPOINT));
    places.filter_map(|place| place.parse().ok()).max()
}

/// Who has made the Task of a courier, as the scheduler knows it: anybody may write anything in its input.
async fn creator<B: Backend>(step: &StepContext, backend: &B) -> Result<AgentId, HandlerError> {
    let client = reader(step, COURIERS, backend).await?;
    let made = client.within(VIEW_BYTES_MAX).get(&step.task_id().parse()?).await?;
    Ok(made.task.created_by_agent_id)
}

/// A client that reads the session of a courier as this principal may.
async fn reader<B: Backend>(
    step: &StepContext,
    principal: &str,
    backend: &B,
) -> Result<Client<B::Client>, HandlerError> {
    let session: SessionId = step.session_id().parse()?;
    let who = Identity {
        principal: Token::new(principal)?,
        role: Role::Observer,
        sessions: Allowed::Only(vec![session.clone()]),
        pools: Allowed::Only(Vec::new()),
    };
    Ok(backend.client(&who, &session).await?)
}

/// What becomes of an update.
enum DeliveryEnd {
    /// The receiver has it.
    Taken,
    /// The receiver wants no more of them.
    Unwanted,
    /// The receiver did not answer for too long.
    GivenUp,
    /// Nothing is sent to the address any more, for this reason.
    Forbidden(String),
}

/// Sends an update until it is taken. The file of agents may say at any time that nothing is sent there any more.
async fn deliver<B: Backend>(
    shared: &CourierShared<B>,
    config: &A2aPushConfig,
    body: &UpdateBody,
) -> DeliveryEnd {
    let (begun, mut wait) = (Instant::now(), WAIT_FIRST);
    loop {
        let rules = shared.agents.push();
        let target = rules.map(|rules| PushTarget::read(&config.url, &rules));
        let target = match target {
            Some(Ok(target)) => target,
            Some(Err(refused)) => return DeliveryEnd::Forbidden(refused.message),
            None => return DeliveryEnd::Forbidden("updates are not sent any more".into()),
        };
        match post(&target, config, body, &shared.tls).await {
            Ok(status) if status.is_success() => return DeliveryEnd::Taken,
            Ok(StatusCode::GONE) => return DeliveryEnd::Unwanted,
            Ok(status) => tracing::debug!(%status, host = target.host, "an update is refused"),
            Err(error) => tracing::debug!(%error, host = target.host, "an update is not taken"),
        }
        if begun.elapsed() >= GIVES_UP {
            return DeliveryEnd::GivenUp;
        }
        sleep(wait).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
}

/// The result, unless the Step is asked to stop first.
async fn unless_stopped<T>(step: &StepContext, does: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = does => Some(done),
        () = step.cancellation().cancelled() => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A courier goes on behind the last update that any earlier one has brought, in whatever order they are told.
    #[test]
    fn a_courier_goes_on_behind_all_earlier_ones() {
        let at = |places: &[&str]| {
            let told: Vec<Ref> = places.iter().map(|place| place.parse().unwrap()).collect();
            reached(&told).map(|place| place.to_string())
        };
        assert_eq!(at(&[]), None);
        let all = ["a2a-place:9.1", "a2a-place:9.2", "a2a-place:10.1", "a2a-place:7", "other:12"];
        assert_eq!(at(&all).as_deref(), Some("10.1"));
    }
}
