//! The conformance suite of stores of leases.

use std::future::Future;
use std::time::Duration;

use tenure_core::id::{AttemptId, SessionId, TaskId};
use tenure_ports::journal::TaskKey;
use tenure_ports::leases::{Lease, Leases};
use uuid::Uuid;

/// How long a lease of the suite lasts: much longer than a call takes.
const LEASE_MS: u64 = 600;

/// The contract of [`Leases`]. `make` gives an empty store and what must outlive it. Waits on
/// tokio's clock, so a store in memory may run the suite with the clock paused.
pub async fn leases_suite<L, G, F>(make: impl Fn() -> F)
where
    L: Leases,
    F: Future<Output = (L, G)>,
{
    macro_rules! run {
        ($($check:ident),+ $(,)?) => {$({
            let (leases, _guard) = make().await;
            $check(&leases).await;
        })+};
    }
    run!(
        a_lease_lasts_and_ends,
        a_renewed_lease_lasts_longer,
        a_renewal_may_shorten,
        what_is_not_there_is_made_by_a_renewal,
        acquiring_takes_over_what_was_left,
        a_raised_lease_lasts_at_least_half_and_at_most_all,
        what_is_there_is_left_as_it_is,
        a_released_lease_is_gone,
        ended_leases_stay_until_released,
        the_oldest_end_comes_first,
    );
}

fn lease(number: u128, duration_ms: u64) -> Lease {
    let task = TaskKey {
        session_id: SessionId::new("s").unwrap(),
        task_id: TaskId::new(format!("t{number}")).unwrap(),
    };
    Lease { task, attempt_id: AttemptId(Uuid::from_u128(number)), duration_ms }
}

fn attempt(number: u128) -> AttemptId {
    AttemptId(Uuid::from_u128(number))
}

async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn ended<L: Leases>(leases: &L) -> Vec<(AttemptId, TaskKey)> {
    let scan = leases.expired().await.unwrap();
    scan.ended.into_iter().map(|lease| (lease.attempt_id, lease.task)).collect()
}

fn named(numbers: &[u128]) -> Vec<(AttemptId, TaskKey)> {
    numbers.iter().map(|n| (attempt(*n), lease(*n, 0).task)).collect()
}

/// LEASE-02
async fn a_lease_lasts_and_ends<L: Leases>(leases: &L) {
    assert_eq!(leases.left_ms(attempt(1)), None);
    assert_eq!(ended(leases).await, []);
    leases.acquire(vec![lease(1, LEASE_MS)]).await.unwrap();
    let left = leases.left_ms(attempt(1)).unwrap();
    assert!(left > 0 && left <= LEASE_MS, "{left}");
    assert_eq!(ended(leases).await, []);
    pass(LEASE_MS + 100).await;
    assert_eq!(leases.left_ms(attempt(1)), Some(0));
    assert_eq!(ended(leases).await, named(&[1]));
}

/// LEASE-04
async fn a_renewed_lease_lasts_longer<L: Leases>(leases: &L) {
    leases.acquire(vec![lease(1, LEASE_MS), lease(2, LEASE_MS)]).await.unwrap();
    pass(LEASE_MS / 2).await;
    leases.renew(vec![lease(1, LEASE_MS)]).await.unwrap();
    pass(LEASE_MS / 2 + 100).await;
    assert_eq!(ended(leases).await, named(&[2]));
    pass(LEASE_MS).await;
    assert_eq!(ended(leases).await, named(&[2, 1]));
    leases.renew(vec![lease(2, LEASE_MS)]).await.unwrap();
    assert_eq!(ended(leases).await, named(&[1]), "an ended lease can be renewed");
}

async fn a_renewal_may_shorten<L: Leases>(leases: &L) {
    leases.acquire(vec![lease(1, 100 * LEASE_MS)]).await.unwrap();
    leases.renew(vec![lease(1, LEASE_MS)]).await.unwrap();
    pass(LEASE_MS + 100).await;
    assert_eq!(ended(leases).await, named(&[1]));
}

/// LEASE-15
async fn what_is_not_there_is_made_by_a_renewal<L: Leases>(leases: &L) {
    leases.renew(vec![lease(1, LEASE_MS)]).await.unwrap();
    assert!(leases.left_ms(attempt(1)).is_some_and(|left| left > 0));
    pass(LEASE_MS + 100).await;
    assert_eq!(ended(leases).await, named(&[1]));
}

async fn acquiring_takes_over_what_was_left<L: Leases>(leases: &L) {
    leases.acquire(vec![lease(1, LEASE_MS)]).await.unwrap();
    pass(LEASE_MS + 100).await;
    for _ in 0..2 {
        leases.acquire(vec![lease(1, LEASE_MS)]).await.unwrap();
        assert_eq!(ended(leases).await, []);
    }
}

/// LEASE-15
async fn a_raised_lease_lasts_at_least_half_and_at_most_all<L: Leases>(leases: &L) {
    leases.acquire(vec![lease(1, LEASE_MS / 3), lease(2, 10 * LEASE_MS)]).await.unwrap();
    leases.raise(vec![lease(1, LEASE_MS), lease(2, LEASE_MS), lease(3, LEASE_MS)]).await.unwrap();
    assert!(leases.left_ms(attempt(2)).unwrap() <= LEASE_MS);
    pass(LEASE_MS / 2 + 100).await;
    assert_eq!(ended(leases).await, named(&[1]), "half of it for what was there");
    pass(LEASE_MS / 2).await;
    let mut all = ended(leases).await;
    all.sort();
    assert_eq!(all, named(&[1, 2, 3]), "all of it for what was not, or was to last longer");
}

/// LEASE-15
async fn what_is_there_is_left_as_it_is<L: Leases>(leases: &L) {
    leases.acquire(vec![lease(1, LEASE_MS / 3), lease(2, 10 * LEASE_MS)]).await.unwrap();
    leases.ensure(vec![lease(1, LEASE_MS), lease(2, LEASE_MS), lease(3, LEASE_MS)]).await.unwrap();
    pass(LEASE_MS / 2).await;
    assert_eq!(ended(leases).await, named(&[1]));
    leases.ensure(vec![lease(1, LEASE_MS)]).await.unwrap();
    assert_eq!(ended(leases).await, named(&[1]), "it has ended, and is there");
    pass(LEASE_MS / 2 + 100).await;
    assert_eq!(ended(leases).await, named(&[1, 3]), "made with all of it");
    assert!(leases.left_ms(attempt(2)).unwrap() > 5 * LEASE_MS);
}

async fn a_released_lease_is_gone<L: Leases>(leases: &L) {
    leases.acquire(vec![lease(1, LEASE_MS), lease(2, LEASE_MS)]).await.unwrap();
    for _ in 0..2 {
        leases.release(vec![attempt(1), attempt(9)]).await.unwrap();
    }
    assert_eq!(leases.left_ms(attempt(1)), None);
    pass(LEASE_MS + 100).await;
    assert_eq!(ended(leases).await, named(&[2]));
}

async fn ended_leases_stay_until_released<L: Leases>(leases: &L) {
    leases.acquire(vec![lease(1, LEASE_MS)]).await.unwrap();
    pass(LEASE_MS + 100).await;
    for _ in 0..3 {
        assert_eq!(ended(leases).await, named(&[1]));
    }
    leases.release(vec![attempt(1)]).await.unwrap();
    assert_eq!(ended(leases).await, []);
}

async fn the_oldest_end_comes_first<L: Leases>(leases: &L) {
    let spread = [(1, 3), (2, 1), (3, 4), (4, 2)];
    let all = spread.map(|(number, nth)| lease(number, LEASE_MS + 50 * nth));
    leases.acquire(all.to_vec()).await.unwrap();
    pass(LEASE_MS + 500).await;
    assert_eq!(ended(leases).await, named(&[2, 4, 1, 3]));
}
