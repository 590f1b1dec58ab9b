//! Leases in Redis: they say which workers are alive.
//!
//! All keys of a partition share a hash tag, so that they lie on one server of a Redis Cluster. Only owners change
//! them: every call carries the caller's epoch, and Redis refuses an older one. Only Redis' own clock decides. All
//! changes that wait for a partition go in one script call. Calls are idempotent, as one that was not answered may
//! have been carried out. Step 6 of the walk in docs/architecture.md.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::future::join_all;
use parking_lot::Mutex;
use redis::{RedisError, Script};
use tenure_core::id::{AttemptId, SessionId, TaskId};
use tenure_ports::Leases;
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::{ExpiredLease, Lease, LeaseError, Scan};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::clock::TwoClocks;
use crate::owned::Owned;
use crate::redis_at::{RedisAt, RedisConnection};

mod usable;

pub use self::usable::RedisOpenError;
pub(crate) use self::usable::store_key;
use self::usable::{belong_to, refuse_eviction};

static CHANGE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("fence.lua"), include_str!("leases.lua"))));
static SCAN: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("fence.lua"), include_str!("scan.lua"))));
static LIST: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("list.lua")));

/// The error code of the scripts for a caller that no longer owns the partition.
const FENCED: &str = "FENCED";

/// How long Redis may take to answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// How many ended leases of a partition one scan answers: the next scan has the others.
const SCAN_MAX: usize = 1_000;

/// How many changes one script call has: such a call blocks Redis for about a millisecond.
const CHANGES_MAX: usize = 1_000;

/// The longest lease: a century, within the range of the clock.
const LEASE_MS_MAX: u64 = 100 * 365 * 24 * 3600 * 1000;

/// How many requests may wait for the writer of a partition.
const REQUESTS_MAX: usize = 4_096;

/// A store of leases in Redis.
#[derive(Debug)]
pub struct RedisLeases {
    /// Where Redis is, without the login.
    place: String,
    redis: RedisConnection,
    keys: Arc<[Keys]>,
    owned: Arc<Owned>,
    /// The leases that were set or found here: releases and questions name only the Attempt.
    places: Mutex<BTreeMap<AttemptId, LeaseRecord>>,
    /// For each partition, as they may lie on different servers.
    clocks: Mutex<HashMap<u32, TwoClocks>>,
    writers: Vec<mpsc::Sender<LeaseRequest>>,
}

/// A lease that was set here, or was found.
#[derive(Debug, Clone)]
struct LeaseRecord {
    partition: u32,
    /// The epoch in which this node owned the partition then.
    epoch: Option<u64>,
    /// Its name in Redis.
    member: Arc<str>,
    /// When it ends at the earliest by this node's clock, if that is known here. It serves only for
    /// display: Redis' clock decides.
    ends: Option<Instant>,
}

/// The keys of a partition.
#[derive(Debug, Clone)]
struct Keys {
    ends: String,
    epoch: String,
    scanned: String,
}

impl Keys {
    fn of(name: &str, partition: u32) -> Self {
        Self::under(name, &partition.to_string())
    }

    fn under(name: &str, tag: &str) -> Self {
        let key = |what: &str| format!("{name}:{{{tag}}}:{what}");
        Self { ends: key("ends"), epoch: key("epoch"), scanned: key("scanned") }
    }
}

/// A change to a lease.
#[derive(Debug)]
struct LeaseChange {
    member: Arc<str>,
    to: To,
}

/// Milliseconds, rounded up: a lease that has not ended has something left.
fn whole_ms(left: Duration) -> u64 {
    u64::try_from(left.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// What a lease becomes.
#[derive(Debug, Clone, Copy)]
enum To {
    /// It lasts so many milliseconds from now.
    Last(u64),
    /// It lasts at least half of them and at most all of them; all of them if it did not exist.
    LastHalf(u64),
    /// It lasts so many if it did not exist.
    BeThere(u64),
    /// It is dropped.
    Nothing,
}

impl To {
    /// When the lease then ends by this node's clock, if it was to end at `before`. It is the
    /// earliest possible time if another node has set the lease, and none if even that is not
    /// known.
    fn ends(self, now: Instant, before: Option<Instant>) -> Option<Instant> {
        let after = |ms: u64| now + Duration::from_millis(ms.min(LEASE_MS_MAX));
        match self {
            Self::Last(ms) => Some(after(ms)),
            Self::LastHalf(ms) => {
                Some(before.map_or(after(ms / 2), |before| before.clamp(after(ms / 2), after(ms))))
            }
            Self::BeThere(_) => before,
            Self::Nothing => Some(now),
        }
    }

    /// The argument for `leases.lua`.
    fn as_arg(self) -> String {
        match self {
            Self::Last(ms) => ms.to_string(),
            Self::LastHalf(ms) => format!(">{ms}"),
            Self::BeThere(ms) => format!("?{ms}"),
            Self::Nothing => String::new(),
        }
    }
}

#[derive(Debug)]
struct LeaseRequest {
    changes: Vec<LeaseChange>,
    reply: oneshot::Sender<Result<(), LeaseError>>,
}

impl RedisLeases {
    /// Connects, and makes sure that Redis never evicts a key. `name` is the prefix of all keys.
    ///
    /// # Errors
    /// See [`RedisOpenError`].
    pub async fn open(at: &RedisAt, name: &str, owned: Arc<Owned>) -> Result<Self, RedisOpenError> {
        let refused = |error| RedisOpenError::of(at, &error);
        let mut redis = at.client(TIMEOUT).map_err(refused)?.connect().await.map_err(refused)?;
        refuse_eviction(at, &mut redis).await?;
        let keys: Arc<[Keys]> = (0..owned.partitions()).map(|at| Keys::of(name, at)).collect();
        let writer = |partition: u32| {
            let (requests, waiting) = mpsc::channel(REQUESTS_MAX);
            let writing = Writing {
                redis: redis.clone(),
                keys: Arc::clone(&keys),
                owned: Arc::clone(&owned),
                partition,
            };
            tenure_ports::supervise::spawn("changes of leases", writing.run(waiting));
            requests
        };
        let writers = (0..owned.partitions()).map(writer).collect();
        let (place, places, clocks) = (format!("{at:?}"), Mutex::default(), Mutex::default());
        Ok(Self { place, redis, keys, owned, places, clocks, writers })
    }

    /// Makes sure that this Redis belongs to the store that the log is of. A Redis that belongs to none yet
    /// belongs to it from then on.
    ///
    /// # Errors
    /// See [`RedisOpenError`].
    pub async fn belong_to(
        &self,
        at: &RedisAt,
        name: &str,
        store: &str,
    ) -> Result<(), RedisOpenError> {
        belong_to(at, self.redis.clone(), name, store).await
    }

    async fn set(&self, leases: Vec<Lease>, to: fn(u64) -> To) -> Result<(), LeaseError> {
        let mut by_partition: BTreeMap<u32, Vec<LeaseChange>> = BTreeMap::new();
        {
            let (mut places, now) = (self.places.lock(), Instant::now());
            for Lease { task, attempt_id, duration_ms } in leases {
                let partition = task.partition(self.owned.partitions());
                let epoch = self.owned.epoch(partition);
                let place = places.entry(attempt_id).or_insert_with(|| LeaseRecord {
                    partition,
                    epoch,
                    member: member(&task, attempt_id),
                    ends: None,
                });
                let to = to(duration_ms);
                (place.epoch, place.ends) = (epoch, to.ends(now, place.ends));
                let change = LeaseChange { member: Arc::clone(&place.member), to };
                by_partition.entry(partition).or_default().push(change);
            }
        }
        self.change(by_partition).await
    }

    async fn change(&self, changes: BTreeMap<u32, Vec<LeaseChange>>) -> Result<(), LeaseError> {
        let asked = changes.into_iter().map(async |(partition, changes)| {
            let writer = self.writers.get(partition as usize);
            let writer = writer.ok_or_else(|| LeaseError("no such partition".into()))?;
            let (reply, answer) = oneshot::channel();
            let gone = || LeaseError("the writer of leases has gone".into());
            writer.send(LeaseRequest { changes, reply }).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())?
        });
        join_all(asked).await.into_iter().collect()
    }

    async fn scan(&self, partition: u32, epoch: u64) -> Result<ScanResult, LeaseError> {
        let Some(keys) = self.keys.get(partition as usize) else {
            return Ok(ScanResult::default());
        };
        let mut call = SCAN.prepare_invoke();
        call.key(&keys.ends).key(&keys.epoch).key(&keys.scanned).arg(epoch).arg(SCAN_MAX);
        let mut redis = self.redis.clone();
        let asked = Instant::now();
        let call = async {
            match call.invoke_async(&mut redis).await {
                Err(error) if error.code() == Some(FENCED) => Ok(None),
                answer => answer.map(Some),
            }
        };
        let found: Option<(u8, f64, Vec<String>)> = answered(call).await?;
        // Another node judges the leases of that partition, which says nothing of the other
        // partitions.
        let Some((forgot, now, rows)) = found else { return Ok(ScanResult::default()) };
        let has_jumped = self.clocks.lock().entry(partition).or_default().note(asked, now);
        let mut places = self.places.lock();
        let row = |row: &[String]| {
            let (task, attempt_id) = of_member(&row[0])?;
            // Whichever node set it, this one releases it.
            places.entry(attempt_id).or_insert_with(|| LeaseRecord {
                partition,
                epoch: Some(epoch),
                member: row[0].as_str().into(),
                ends: None,
            });
            let end: f64 = row[1].parse().ok()?;
            let late = Duration::try_from_secs_f64((now - end) / 1_000.0).unwrap_or_default();
            Some((end, ExpiredLease { task, attempt_id, late }))
        };
        let ended = rows.chunks_exact(2).filter_map(row).collect();
        Ok(ScanResult { doubtful: forgot != 0 || has_jumped, ended })
    }

    /// The leases of a session in a partition that are known here: those whose Attempts were
    /// claimed first, as ids of Attempts are in the order of their claims. Each has what is left of
    /// it by this node's clock. At most `most`, and only behind `after`. Does not ask Redis.
    pub fn oldest(
        &self,
        partition: u32,
        session: &SessionId,
        after: Option<AttemptId>,
        most: usize,
    ) -> Vec<Lease> {
        let (places, now) = (self.places.lock(), Instant::now());
        let of_session = format!("{session}/");
        let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
        let here = places.range((behind, Bound::Unbounded)).map(|(_, place)| place);
        let here = here.filter(|place| place.partition == partition);
        let kept = here.filter(|place| place.member.starts_with(&of_session)).filter_map(|place| {
            let (task, attempt_id) = of_member(&place.member)?;
            let duration_ms = whole_ms(place.ends?.saturating_duration_since(now));
            Some(Lease { task, attempt_id, duration_ms })
        });
        kept.take(most).collect()
    }

    /// How many leases are known here: set or found here, and not released since.
    pub fn known(&self) -> usize {
        self.places.lock().len()
    }

    /// All leases of a partition, with what is left of each: 0 for those that have ended. A lease
    /// that changes meanwhile may be missed or come twice.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn of_partition(&self, partition: u32) -> Result<Vec<Lease>, LeaseError> {
        let Some(keys) = self.keys.get(partition as usize) else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        let mut passed = 0;
        loop {
            let mut call = LIST.prepare_invoke();
            call.key(&keys.ends).arg(passed).arg(SCAN_MAX);
            let mut redis = self.redis.clone();
            let (now, rows): (f64, Vec<String>) = answered(call.invoke_async(&mut redis)).await?;
            let found = rows.chunks_exact(2);
            let count = found.len();
            all.extend(found.filter_map(|row| {
                let left = (row[1].parse::<f64>().ok()? - now).max(0.0);
                let duration_ms = Duration::try_from_secs_f64(left / 1000.0).ok()?.as_millis();
                let duration_ms = u64::try_from(duration_ms).unwrap_or(u64::MAX);
                let (task, attempt_id) = of_member(&row[0])?;
                Some(Lease { task, attempt_id, duration_ms })
            }));
            if count < SCAN_MAX {
                return Ok(all);
            }
            passed += count;
        }
    }
}

/// Whether the scripts of leases may run, and write: sets a lease under keys of its own, and drops
/// it in the same call.
pub(crate) async fn rehearse(redis: &mut RedisConnection, name: &str) -> Result<(), LeaseError> {
    let keys = Keys::under(name, "doctor");
    let mut call = CHANGE.prepare_invoke();
    call.key(&keys.ends).key(&keys.epoch).arg(0);
    call.arg("doctor").arg(To::Last(1).as_arg()).arg("doctor").arg(To::Nothing.as_arg());
    let _: i64 = answered(call.invoke_async(redis)).await?;
    let mut call = LIST.prepare_invoke();
    call.key(&keys.ends).arg(0).arg(1);
    let _: (f64, Vec<String>) = answered(call.invoke_async(redis)).await?;
    // The key that an owner's scan leaves; here it expires at once.
    let mut call = redis::cmd("SET");
    call.arg(&keys.scanned).arg(0).arg("PX").arg(1);
    answered(call.query_async(redis)).await
}

/// What a scan of a partition found.
#[derive(Debug, Default)]
struct ScanResult {
    /// Redis knew nothing of the partition, or its clock was set.
    doubtful: bool,
    /// Leases that have ended, each with its end by Redis' clock.
    ended: Vec<(f64, ExpiredLease)>,
}

/// The name of a lease in Redis: `session/task/attempt`.
fn member(task: &TaskKey, attempt: AttemptId) -> Arc<str> {
    format!("{task}/{attempt}").into()
}

/// The Task and the Attempt of a lease.
fn of_member(member: &str) -> Option<(TaskKey, AttemptId)> {
    let (task, attempt) = member.rsplit_once('/')?;
    let (session, id) = task.split_once('/')?;
    let (session_id, task_id) = (SessionId::new(session).ok()?, TaskId::new(id).ok()?);
    let attempt_id = AttemptId(Uuid::try_parse(attempt).ok()?);
    Some((TaskKey { session_id, task_id }, attempt_id))
}

impl Leases for RedisLeases {
    async fn acquire(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.set(leases, To::Last).await
    }

    async fn renew(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.set(leases, To::Last).await
    }

    async fn raise(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.set(leases, To::LastHalf).await
    }

    async fn ensure(&self, leases: Vec<Lease>) -> Result<(), LeaseError> {
        self.set(leases, To::BeThere).await
    }

    async fn release(&self, attempts: Vec<AttemptId>) -> Result<(), LeaseError> {
        let mut by_partition: BTreeMap<u32, Vec<LeaseChange>> = BTreeMap::new();
        {
            let mut places = self.places.lock();
            // A lease that is not known here was never set, or a scan finds it; so it does if this
            // call fails.
            for place in attempts.iter().filter_map(|attempt| places.remove(attempt)) {
                let change = LeaseChange { member: place.member, to: To::Nothing };
                by_partition.entry(place.partition).or_default().push(change);
            }
        }
        let changed = self.change(by_partition).await;
        // A renewal under way may have brought one back. Where the call failed, a scan finds the lease.
        let mut places = self.places.lock();
        attempts.iter().for_each(|attempt| drop(places.remove(attempt)));
        changed
    }

    async fn expired(&self) -> Result<Scan, LeaseError> {
        // Leases of a partition that another node owns now are that node's to release.
        self.places.lock().retain(|_, place| {
            place.epoch.is_some() && self.owned.epoch(place.partition) == place.epoch
        });
        let scans = self.owned.all().into_iter().map(|(at, epoch)| self.scan(at, epoch));
        let scanned: Result<Vec<ScanResult>, LeaseError> =
            join_all(scans).await.into_iter().collect();
        let scanned = scanned?;
        let doubtful = scanned.iter().any(|found| found.doubtful);
        let ended = scanned.into_iter().flat_map(|found| found.ended);
        let mut ended: Vec<(f64, ExpiredLease)> = ended.collect();
        ended.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Ok(Scan { ended: ended.into_iter().map(|(_, ended)| ended).collect(), doubtful })
    }

    fn left_ms(&self, attempt: AttemptId) -> Option<u64> {
        let ends = self.places.lock().get(&attempt)?.ends?;
        Some(whole_ms(ends.saturating_duration_since(Instant::now())))
    }

    fn place(&self) -> Option<&str> {
        Some(&self.place)
    }
}

/// The answer of Redis, within a timeout of our own.
async fn answered<T>(call: impl Future<Output = Result<T, RedisError>>) -> Result<T, LeaseError> {
    match timeout(TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|error| LeaseError(error.to_string())),
        Err(_) => Err(LeaseError("redis does not answer".into())),
    }
}

/// Writes the changes to the leases of a partition, one call at a time.
struct Writing {
    redis: RedisConnection,
    keys: Arc<[Keys]>,
    owned: Arc<Owned>,
    partition: u32,
}

impl Writing {
    async fn run(mut self, mut requests: mpsc::Receiver<LeaseRequest>) {
        while let Some(first) = requests.recv().await {
            let mut count = first.changes.len();
            let mut batch = vec![first];
            while count < CHANGES_MAX
                && let Ok(next) = requests.try_recv()
            {
                count += next.changes.len();
                batch.push(next);
            }
            let result = self.call(&batch).await;
            for request in batch {
                let _ = request.reply.send(result.clone()); // The caller may have gone.
            }
        }
    }

    async fn call(&mut self, batch: &[LeaseRequest]) -> Result<(), LeaseError> {
        let epoch = self.owned.epoch(self.partition);
        let epoch = epoch.ok_or_else(|| LeaseError("the partition is not owned here".into()))?;
        let changes: Vec<&LeaseChange> =
            batch.iter().flat_map(|request| &request.changes).collect();
        for changes in changes.chunks(CHANGES_MAX) {
            let keys = &self.keys[self.partition as usize];
            let mut call = CHANGE.prepare_invoke();
            call.key(&keys.ends).key(&keys.epoch).arg(epoch);
            for change in changes {
                call.arg(&*change.member).arg(change.to.as_arg());
            }
            let _: i64 = answered(call.invoke_async(&mut self.redis)).await?;
        }
        Ok(())
    }
}
