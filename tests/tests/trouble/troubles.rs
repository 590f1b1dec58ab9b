//! The troubles, and what has to be told of each.

use anyhow::Result;

use crate::scene::Scene;

/// A trouble.
pub(crate) struct Trouble {
    pub(crate) name: &'static str,
    /// Whether it takes place where nobody says for how long.
    pub(crate) is_in_short: bool,
    pub(crate) breaks: fn(&mut Scene) -> Result<()>,
    /// The alerts that fire, in the order of their names.
    pub(crate) alerts: &'static [&'static str],
    /// What `tenure doctor` finds bad, in the order of names, and its exit code.
    pub(crate) doctor: (&'static [&'static str], i32),
    /// The Task of whose Step is asked why it waits.
    pub(crate) task: &'static str,
    /// The first reason that `tenure task explain` has for it; none: nobody can be asked.
    pub(crate) explain: Option<&'static str>,
    /// What Steps wait for, as `tenure top` and `tenure pool list` say it; none: nobody answers.
    pub(crate) waits: Option<&'static str>,
    /// Whether `tenure top` shows a node that is silent.
    pub(crate) has_silent_node: bool,
    /// Whether a clock is set, which takes libfaketime.
    pub(crate) sets_clock: bool,
}

/// Nothing is wrong: one Step runs, and another waits for the only worker.
const SOUND: Trouble = Trouble {
    name: "nothing",
    is_in_short: false,
    breaks: |_| Ok(()),
    alerts: &[],
    doctor: (&[], 0),
    task: "wait",
    explain: Some("pool_saturated"),
    waits: Some("1 pool_saturated"),
    has_silent_node: false,
    sets_clock: false,
};

const NOBODY: Trouble = Trouble { explain: None, waits: None, ..SOUND };

/// All of them.
pub(crate) const TROUBLES: &[Trouble] = &[
    SOUND,
    Trouble {
        name: "Redis killed",
        breaks: |scene| scene.cluster.redis.process.kill(),
        alerts: &["TenureLeasesFail", "TenureRedisAway"],
        doctor: (&["redis", "steps.waiting"], 6),
        explain: Some("leases_unavailable"),
        waits: Some("1 leases_unavailable"),
        ..SOUND
    },
    Trouble {
        name: "Redis hung",
        breaks: |scene| scene.cluster.redis.process.pause(),
        alerts: &["TenureLeasesFail", "TenureRedisAway"],
        doctor: (&["redis", "steps.waiting"], 6),
        explain: Some("leases_unavailable"),
        waits: Some("1 leases_unavailable"),
        ..SOUND
    },
    Trouble {
        name: "NATS killed",
        breaks: |scene| scene.cluster.nats.process.kill(),
        alerts: &["TenureNatsAway"],
        doctor: (&["nats"], 6),
        ..NOBODY
    },
    Trouble {
        name: "NATS hung",
        breaks: |scene| scene.cluster.nats.process.pause(),
        alerts: &["TenureNatsAway"],
        doctor: (&["nats"], 6),
        ..NOBODY
    },
    Trouble {
        name: "the log is full",
        breaks: Scene::fill_log,
        // The one says that work stands still, the other which place is full.
        alerts: &["TenureAppendsFail", "TenureLogRoomShort"],
        doctor: (&["log.room", "steps.waiting"], 1),
        explain: Some("log_unavailable"),
        waits: Some("1 log_unavailable"),
        ..SOUND
    },
    Trouble {
        name: "one of two schedulers killed",
        is_in_short: true,
        breaks: |scene| scene.cluster.schedulers[1].kill(),
        alerts: &["TenureSchedulerSilent"],
        doctor: (&["nodes.silent"], 1),
        has_silent_node: true,
        ..SOUND
    },
    Trouble {
        name: "one of two schedulers hung",
        breaks: |scene| scene.cluster.schedulers[1].pause(),
        alerts: &["TenureSchedulerSilent"],
        doctor: (&["nodes.silent"], 1),
        has_silent_node: true,
        ..SOUND
    },
    Trouble {
        name: "all schedulers killed",
        breaks: |scene| scene.cluster.schedulers.iter_mut().try_for_each(|one| one.kill()),
        alerts: &["TenureIsSilent"],
        doctor: (&["nodes", "nodes.silent", "partitions.owners"], 1),
        ..NOBODY
    },
    Trouble {
        name: "the only worker killed",
        breaks: |scene| scene.cluster.workers[0].kill(),
        alerts: &["TenureNoWorkers"],
        doctor: (&["workers.missing"], 1),
        explain: Some("no_worker_in_pool"),
        waits: Some("2 no_worker_in_pool"),
        ..SOUND
    },
    Trouble {
        name: "the only worker hung",
        breaks: |scene| scene.cluster.workers[0].pause(),
        alerts: &["TenureNoWorkers"],
        doctor: (&["workers.missing"], 1),
        explain: Some("no_worker_in_pool"),
        waits: Some("2 no_worker_in_pool"),
        ..SOUND
    },
    Trouble {
        name: "no worker in a pool",
        is_in_short: true,
        breaks: |scene| scene.submit("deserted", "{a: {run: 'true', pool: gpu}}"),
        alerts: &["TenureNoWorkers"],
        doctor: (&["workers.missing"], 1),
        task: "deserted",
        explain: Some("no_worker_in_pool"),
        waits: Some("1 no_worker_in_pool, 1 pool_saturated"),
        ..SOUND
    },
    Trouble {
        name: "no worker with the handler",
        breaks: |scene| scene.submit("mail", "{a: {handler: send}}"),
        alerts: &["TenureNoWorkerFits"],
        doctor: (&["workers.missing"], 1),
        task: "mail",
        explain: Some("no_worker_with_handler"),
        waits: Some("1 no_worker_with_handler, 1 pool_saturated"),
        ..SOUND
    },
    Trouble {
        name: "the collector dead",
        breaks: Scene::end_collector,
        alerts: &["TenureIsSilent"],
        ..SOUND
    },
    Trouble {
        name: "a scheduler begins by a clock that is a minute ahead",
        breaks: Scene::begin_ahead,
        doctor: (&["clock.nodes"], 1),
        sets_clock: true,
        ..SOUND
    },
];
