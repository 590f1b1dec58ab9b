//! Pools, workers and nodes, as the nodes of a cluster say, and what an autoscaler needs of pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use schemars::JsonSchema;
use serde::Serialize;
use tenure_core::id::{PoolId, SessionId};
use tenure_wire::bus::fleet::{self, PoolSums, WorkerSums};
use tenure_wire::bus::operate::{LeaseRow, NodeFacts};

use super::json_reply;
use super::read::{Inquiry, Place, check_accept};
use super::routes::SESSION;
use crate::described::{DescribedRoute, Parameter, ParameterForm, json_of};
use crate::identity::{Allowed, Identity};
use crate::problem::HttpProblem;
use crate::{Backend, Gateway, NodeAnswers};

/// The routes.
pub(super) fn routes<B: Backend>() -> Router<Arc<Gateway<B>>> {
    Router::new()
        .route("/v1/pools", get(pools))
        .route("/v1/pools/{pool}", get(pool))
        .route("/v1/workers", get(workers))
        .route("/v1/nodes", get(nodes))
        .route("/v1/stats/pools", get(stats))
        .route(&format!("{SESSION}/leases"), get(leases))
}

const SESSION_ASKED: Parameter = Parameter::query(
    "session",
    ParameterForm::NAME,
    "The session to ask in, of which longest waits are told.",
);

const ONE_POOL: Parameter =
    Parameter::query("pool", ParameterForm::NAME, "Only workers of this pool.");

/// These resources, for the document.
pub(super) const DESCRIBED: [DescribedRoute; 6] = [
    DescribedRoute::read(
        "/v1/pools",
        "list_pools",
        "Lists pools.",
        &[SESSION_ASKED],
        &[(200, Some(json_of::<PoolList<NamedPool>>()))],
    ),
    DescribedRoute::read(
        "/v1/pools/{pool}",
        "get_pool",
        "Reads a pool with its workers.",
        &[SESSION_ASKED],
        &[(200, Some(json_of::<PoolWithWorkers>()))],
    ),
    DescribedRoute::read(
        "/v1/workers",
        "list_workers",
        "Lists workers.",
        &[SESSION_ASKED, ONE_POOL],
        &[(200, Some(json_of::<WorkerList>()))],
    ),
    DescribedRoute::read(
        "/v1/nodes",
        "list_nodes",
        "Lists nodes, each with what it knows.",
        &[SESSION_ASKED],
        &[(200, Some(json_of::<NodeList>()))],
    ),
    DescribedRoute::read(
        "/v1/stats/pools",
        "pool_stats",
        "Reads the numbers of pools that an autoscaler needs.",
        &[SESSION_ASKED],
        &[(200, Some(json_of::<PoolList<PoolStats>>()))],
    ),
    DescribedRoute::read(
        "/v1/sessions/{session}/leases",
        "list_leases",
        "Lists leases and open Attempts of the session.",
        &[],
        &[(200, Some(json_of::<LeaseList>()))],
    ),
];

#[derive(Serialize, JsonSchema)]
struct NamedPool {
    pool: PoolId,
    #[serde(flatten)]
    sums: PoolSums,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "{T}List")]
struct PoolList<T> {
    pools: Vec<T>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

#[derive(Serialize, JsonSchema)]
struct PoolWithWorkers {
    #[serde(flatten)]
    pool: NamedPool,
    members: Vec<WorkerSums>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

#[derive(Serialize, JsonSchema)]
struct WorkerList {
    workers: Vec<WorkerSums>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

#[derive(Serialize, JsonSchema)]
struct NodeList {
    nodes: Vec<NodeFacts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing_partitions: Vec<u32>,
}

#[derive(Serialize, JsonSchema)]
struct LeaseList {
    leases: Vec<LeaseRow>,
}

/// What an autoscaler needs of a pool: numbers alone, 0 where there is nothing.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
struct PoolStats {
    pool: PoolId,
    /// Workers that there are.
    workers: usize,
    /// Steps and Runs that they would take now.
    free: u64,
    /// Open Attempts.
    running: u64,
    /// Steps and Runs that wait.
    waiting: u64,
    /// How many slots would be busy if there were enough: `running` and `waiting`.
    wanted: u64,
    /// How long that Step has been ready which has waited longest of those next in line.
    oldest_ms: u64,
}

async fn pools<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let heard = hear(&gateway, &mut asked).await?;
    let pools = all_pools(&heard).into_iter().map(|(pool, sums)| NamedPool { pool, sums });
    let list = PoolList { pools: pools.collect(), missing_partitions: heard.missing_partitions };
    Ok(json_reply(StatusCode::OK, &list))
}

async fn pool<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let named = asked.path.iter().find(|(name, _)| *name == "pool");
    let pool = PoolId::new(named.map_or("", |(_, value)| value))?;
    let heard = hear(&gateway, &mut asked).await?;
    let Some(sums) = all_pools(&heard).remove(&pool) else {
        return Err(HttpProblem::not_found(format!("no node knows of a pool {pool}")));
    };
    let members = fleet::workers(&heard.nodes).into_iter();
    let members = members.filter(|worker| worker.pool == pool).collect();
    let (pool, missing_partitions) = (NamedPool { pool, sums }, heard.missing_partitions);
    Ok(json_reply(StatusCode::OK, &PoolWithWorkers { pool, members, missing_partitions }))
}

async fn workers<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let pool = asked.query.take("pool")?.map(PoolId::new).transpose()?;
    let heard = hear(&gateway, &mut asked).await?;
    let mut workers = fleet::workers(&heard.nodes);
    workers.retain(|worker| pool.as_ref().is_none_or(|pool| worker.pool == *pool));
    let missing_partitions = heard.missing_partitions;
    Ok(json_reply(StatusCode::OK, &WorkerList { workers, missing_partitions }))
}

async fn nodes<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let NodeAnswers { nodes, missing_partitions } = hear(&gateway, &mut asked).await?;
    Ok(json_reply(StatusCode::OK, &NodeList { nodes, missing_partitions }))
}

async fn stats<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    mut asked: Inquiry,
) -> Result<Response, HttpProblem> {
    let heard = hear(&gateway, &mut asked).await?;
    let pools = all_pools(&heard).into_iter().map(|(pool, sums)| PoolStats::of(pool, &sums));
    let list = PoolList { pools: pools.collect(), missing_partitions: heard.missing_partitions };
    Ok(json_reply(StatusCode::OK, &list))
}

async fn leases<B: Backend>(
    State(gateway): State<Arc<Gateway<B>>>,
    asked: Inquiry,
) -> Result<Response, HttpProblem> {
    check_accept(&asked.headers)?;
    asked.query.end()?;
    let place = Place::read(&asked.path)?;
    place.check(&asked.who)?;
    let leases = gateway.backend.leases(&asked.who, &place.session).await?;
    Ok(json_reply(StatusCode::OK, &LeaseList { leases }))
}

impl PoolStats {
    fn of(pool: PoolId, sums: &PoolSums) -> Self {
        let (running, waiting) = (sums.running.unwrap_or(0), sums.waiting);
        Self {
            pool,
            workers: sums.workers,
            free: sums.free,
            running,
            waiting,
            wanted: running.saturating_add(waiting),
            oldest_ms: sums.oldest_ms.unwrap_or(0),
        }
    }
}

fn all_pools(heard: &NodeAnswers) -> BTreeMap<PoolId, PoolSums> {
    fleet::pools(&heard.nodes)
}

/// Asks all nodes, in the session that the query names or one that the caller is let into.
async fn hear<B: Backend>(
    gateway: &Gateway<B>,
    asked: &mut Inquiry,
) -> Result<NodeAnswers, HttpProblem> {
    check_accept(&asked.headers)?;
    let given = asked.query.take("session")?.map(SessionId::new).transpose()?;
    asked.query.end()?;
    let session = given.unwrap_or_else(|| usual(&asked.who, &gateway.settings.session));
    if !asked.who.sessions.admits(&session) {
        return Err(HttpProblem::forbidden(format!(
            "this login is not let into session {session}"
        )));
    }
    Ok(gateway.backend.nodes(&asked.who, &session).await?)
}

/// The session in which a caller asks that names none: that of the gateway, if it is let into it.
fn usual(who: &Identity, default: &SessionId) -> SessionId {
    match &who.sessions {
        Allowed::Only(some) if !some.contains(default) => some.first().unwrap_or(default).clone(),
        _ => default.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_autoscaler_gets_numbers_for_a_pool_without_workers() {
        let pool: PoolId = "gpu".parse().unwrap();
        let nothing = PoolStats::of(pool.clone(), &PoolSums::default());
        assert_eq!((nothing.running, nothing.waiting, nothing.wanted), (0, 0, 0));
        assert_eq!(nothing.oldest_ms, 0);
        let sums = PoolSums { running: Some(3), waiting: 4, ..PoolSums::default() };
        assert_eq!(PoolStats::of(pool, &sums).wanted, 7);
    }
}
