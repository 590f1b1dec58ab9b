//! What the nodes say of themselves, as metrics. The names are those that the same numbers have when
//! schedulers send them by OTLP and a collector hands them to Prometheus.
//!
//! Every series names its node, so that the gateways of one cluster report the same series, and a
//! query takes the greatest of them. What nodes do not tell with these facts is not here: durations,
//! and counts by pool or by code.

use std::collections::BTreeMap;

use tenure_wire::bus::operate::{NodeFacts, PoolFacts};

use super::text::{Exposition, MetricKind};

/// How many pools are named. The others count together, as they do by OTLP.
const POOLS_MAX: usize = 240;

/// The name of those others.
const OTHER_POOLS: &str = "other";

/// A number of a pool: its metric, what it answers, and where it is read.
type PoolMetric = (&'static str, &'static str, fn(&PoolGauges) -> f64);

const POOL_METRICS: [PoolMetric; 8] = [
    ("tenure_pool_waiting", "How much work waits for workers of a pool?", |it| it.waiting),
    ("tenure_pool_running", "How many attempts of the pool's steps are open?", |it| it.running),
    ("tenure_pool_desired", "How many slots would be busy if there were enough?", |it| {
        it.running + it.waiting
    }),
    (
        "tenure_pool_oldest_wait_seconds",
        "How long has the step waited that is next in line?",
        |it| it.oldest_wait,
    ),
    ("tenure_pool_credits", "How many more steps would workers take now?", |it| it.credits),
    ("tenure_pool_workers", "How many workers are there?", |it| it.workers),
    ("tenure_pool_leaving", "How many of them were told to leave?", |it| it.leaving),
    (
        "tenure_pool_suspended",
        "How many of them are given nothing, as they fail what others complete?",
        |it| it.suspended,
    ),
];

/// A number of a node: its metric, its kind, what it answers, and where it is read.
type NodeMetric = (&'static str, MetricKind, &'static str, fn(&NodeFacts) -> Option<u64>);

const NODE_METRICS: [NodeMetric; 5] = [
    (
        "tenure_tasks_in_memory",
        MetricKind::Gauge,
        "How many tasks does this scheduler keep?",
        |node| node.tasks,
    ),
    (
        "tenure_partitions_served",
        MetricKind::Gauge,
        "Which share of the cluster does this scheduler serve?",
        |node| Some(node.owned.len() as u64),
    ),
    ("tenure_tasks_created_total", MetricKind::Counter, "How many tasks come in?", |node| {
        node.counts.map(|counts| counts.tasks_created)
    }),
    ("tenure_tasks_ended_total", MetricKind::Counter, "How many tasks end?", |node| {
        node.counts.map(|counts| counts.tasks_ended)
    }),
    ("tenure_claims_total", MetricKind::Counter, "How many steps are given to workers?", |node| {
        node.counts.map(|counts| counts.claims)
    }),
];

/// The numbers of a pool, or of those pools that count together.
#[derive(Debug, Default)]
struct PoolGauges {
    waiting: f64,
    running: f64,
    oldest_wait: f64,
    credits: f64,
    workers: f64,
    leaving: f64,
    suspended: f64,
}

impl PoolGauges {
    fn add(&mut self, pool: &PoolFacts, node: &NodeFacts) {
        let of_pool = || node.workers.iter().filter(|worker| worker.pool == pool.pool);
        self.waiting += number(pool.waiting);
        self.running += number(pool.running.unwrap_or_default());
        self.oldest_wait = self.oldest_wait.max(number(pool.oldest_ms.unwrap_or_default()) / 1e3);
        self.credits += number(pool.free);
        self.workers += number(pool.workers);
        self.leaving += number(of_pool().filter(|worker| worker.draining).count() as u64);
        self.suspended += number(of_pool().filter(|it| it.suspended.is_some()).count() as u64);
    }
}

/// The number as Prometheus has it. It is exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn number(count: u64) -> f64 {
    count as f64
}

/// Writes what the nodes said.
pub(super) fn write(nodes: &[NodeFacts], out: &mut Exposition) {
    write_pools(nodes, out);
    write_waits(nodes, out);
    NODE_METRICS.iter().for_each(|metric| write_node(nodes, out, metric));
    write_ends(nodes, out);
}

fn write_pools(nodes: &[NodeFacts], out: &mut Exposition) {
    let mut sums: BTreeMap<(&str, &str), PoolGauges> = BTreeMap::new();
    for node in nodes {
        let mut pools: Vec<_> = node.pools.iter().collect();
        pools.sort_unstable_by_key(|pool| &pool.pool);
        for (i, pool) in pools.into_iter().enumerate() {
            let name = if i < POOLS_MAX { pool.pool.as_str() } else { OTHER_POOLS };
            sums.entry((node.node.as_str(), name)).or_default().add(pool, node);
        }
    }
    for (name, help, value) in POOL_METRICS {
        out.family(name, MetricKind::Gauge, help);
        for ((node, pool), sums) in &sums {
            out.sample(name, &[("tenure_node", node), ("tenure_pool", pool)], value(sums));
        }
    }
}

fn write_waits(nodes: &[NodeFacts], out: &mut Exposition) {
    const NAME: &str = "tenure_steps_waiting";
    out.family(NAME, MetricKind::Gauge, "How many steps of live tasks wait, and for what?");
    for node in nodes {
        for (reason, count) in node.waits.iter().flatten() {
            let labels = [("tenure_node", node.node.as_str()), ("tenure_reason", reason.as_str())];
            out.sample(NAME, &labels, count);
        }
    }
}

fn write_node(nodes: &[NodeFacts], out: &mut Exposition, metric: &NodeMetric) {
    let (name, kind, help, value) = metric;
    out.family(name, *kind, help);
    for node in nodes {
        if let Some(value) = value(node) {
            out.sample(name, &[("tenure_node", node.node.as_str())], value);
        }
    }
}

fn write_ends(nodes: &[NodeFacts], out: &mut Exposition) {
    const NAME: &str = "tenure_attempts_ended_total";
    let help = "How do attempts end? What took too long counts as failed.";
    out.family(NAME, MetricKind::Counter, help);
    for node in nodes {
        let Some(counts) = node.counts else { continue };
        for (outcome, count) in
            [("completed", counts.completed), ("failed", counts.failed), ("lost", counts.lost)]
        {
            let labels = [("tenure_node", node.node.as_str()), ("tenure_outcome", outcome)];
            out.sample(NAME, &labels, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn text(nodes: Json) -> String {
        let nodes: Vec<NodeFacts> = serde_json::from_value(nodes).unwrap();
        let mut out = Exposition::default();
        write(&nodes, &mut out);
        out.into_text()
    }

    fn node(pools: Vec<Json>) -> Json {
        json!({ "node": "n1", "partitions": 4, "owned": [0, 1], "workers": [], "pools": pools })
    }

    fn pool(name: &str) -> Json {
        json!({ "pool": name, "workers": 2, "free": 3, "waiting": 4, "oldest_ms": 1_500 })
    }

    #[test]
    fn a_node_and_its_pools_are_named_as_by_otlp() {
        let mut node = node(vec![pool("build")]);
        node["waits"] = json!({ "no_worker_in_pool": 7 });
        node["counts"] = json!({ "claims": 1, "completed": 2, "failed": 3, "lost": 4 });
        let text = text(json!([node]));
        for line in [
            "tenure_pool_waiting{tenure_node=\"n1\",tenure_pool=\"build\"} 4",
            "tenure_pool_oldest_wait_seconds{tenure_node=\"n1\",tenure_pool=\"build\"} 1.5",
            "tenure_pool_desired{tenure_node=\"n1\",tenure_pool=\"build\"} 4",
            "tenure_pool_credits{tenure_node=\"n1\",tenure_pool=\"build\"} 3",
            "tenure_steps_waiting{tenure_node=\"n1\",tenure_reason=\"no_worker_in_pool\"} 7",
            "tenure_partitions_served{tenure_node=\"n1\"} 2",
            "tenure_attempts_ended_total{tenure_node=\"n1\",tenure_outcome=\"lost\"} 4",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}\n{text}");
        }
        assert!(!text.contains("tenure_tasks_in_memory{"), "the node did not say it");
    }

    #[test]
    fn the_pools_over_the_limit_count_together() {
        let pools = (0..POOLS_MAX + 2).map(|i| pool(&format!("p{i:03}"))).collect();
        let text = text(json!([node(pools)]));
        let named = text.lines().filter(|line| line.starts_with("tenure_pool_waiting{")).count();
        assert_eq!(named, POOLS_MAX + 1);
        let others = "tenure_pool_waiting{tenure_node=\"n1\",tenure_pool=\"other\"} 8\n";
        assert!(text.contains(others));
        let oldest =
            "tenure_pool_oldest_wait_seconds{tenure_node=\"n1\",tenure_pool=\"other\"} 1.5\n";
        assert!(text.contains(oldest), "the oldest of several is the oldest, and no sum");
    }
}
