//! Tests of [`super`].

use std::time::Instant;

use futures::channel::mpsc::unbounded;
use tenure_core::sessions::WorkerSessions;
use tenure_ports::bus::Credit;
use tenure_ports::journal::TaskKey;

use super::super::left::TOLD_APART;
use super::super::{Left, PoolState};
use super::*;
use crate::task::address::Address;

fn name(n: usize) -> HandlerName {
    format!("handler-{n}").parse().unwrap()
}

/// A worker with capacity for so many Steps.
fn join(pool: &Pool, id: &str, sessions: &str, handlers: Option<Vec<HandlerName>>, free: u64) {
    let ((inbox, _), (origin, hand)) = (unbounded(), (None, Arc::default()));
    let (id, sessions) = (id.parse().unwrap(), WorkerSessions::read(sessions).unwrap());
    let worker = Worker { id, pool: pool.id.clone(), origin, handlers, sessions, inbox, hand };
    let worker = Arc::new(worker);
    pool.join(Arc::clone(&worker)).unwrap();
    pool.note_credit(&worker, Credit { free, seen: 0, lost: 0, number: 1 });
}

/// A Task that has so many Steps of each of these handlers.
fn put(pool: &Pool, session: &str, task: usize, handlers: &[HandlerName], each: usize) {
    let task_id = format!("t{task}").parse().unwrap();
    let key = TaskKey { session_id: session.parse().unwrap(), task_id };
    let steps = HandlerSteps::of(handlers.iter().map(|handler| (handler, each)));
    let ready = handlers.len() * each;
    let left = Left { ready, steps, ..Left::nothing(&Address::nowhere()) };
    let PoolState { members, turns, .. } = &mut *pool.state.lock();
    turns.put(key, left, members);
}

/// VIEW-17: Steps are counted by what keeps them from the pool's workers, also those whose handlers are not told apart.
#[tokio::test]
async fn steps_are_counted_by_their_obstacle() {
    let pool = Pool::new("p".parse().unwrap());
    put(&pool, "s", 0, &[name(0)], 2);
    assert_eq!(pool.sample(0).waits, [(Obstacle::NoWorkerInPool, 2)]);
    join(&pool, "ci.1", "ci", None, 1);
    assert_eq!(pool.sample(0).waits, [(Obstacle::NoWorkerServesSession, 2)]);
    join(&pool, "a.1", "s", Some(vec![name(1), name(2)]), 0);
    put(&pool, "s", 1, &[name(1), name(3)], 5);
    let (none, busy) = (Obstacle::NoWorkerWithHandler, Obstacle::PoolSaturated);
    assert_eq!(pool.sample(0).waits, [(none, 7), (busy, 5)]);
    join(&pool, "a.2", "s", Some(vec![name(1)]), 1);
    put(&pool, "ci", 2, &[name(9)], 1);
    let sample = pool.sample(0);
    assert_eq!((sample.waits, sample.ready), (vec![(none, 7)], 13));
    let many: Vec<HandlerName> = (0..TOLD_APART + 10).map(name).collect();
    put(&pool, "s", 3, &many, 1);
    let sample = pool.sample(0);
    let told = TOLD_APART as u64;
    assert_eq!(sample.waits, [(none, 7 + told - 2), (busy, 1)], "the others may be taken");
    assert_eq!(sample.ready, 13 + told + 10);
}

/// Mechanisms 15: a Task with very many handlers and workers with very many handlers do not hold up a pool when it is
/// looked at.
#[tokio::test]
async fn handlers_do_not_hold_up_a_pool() {
    let pool = Pool::new("p".parse().unwrap());
    let names: Vec<HandlerName> = (0..100_000).map(name).collect();
    for worker in 0..1_000 {
        let own = names[worker..worker + 100].to_vec();
        join(&pool, &format!("eve.{worker}"), "*", Some(own), 1);
    }
    put(&pool, "s", 0, &names, 1);
    let begun = Instant::now();
    let sample = pool.sample(0);
    assert_eq!(sample.ready, 100_000);
    let workers = pool.workers_of(&"s".parse().unwrap());
    let session = "s".parse().unwrap();
    let able = |handler: &HandlerName| workers.facts(Wanted::any(&pool.id, handler, &session)).able;
    assert_eq!(names.iter().map(able).sum::<u32>(), 100_000, "1,000 workers with 100 each");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// However often it is asked, the workers are those that a claim admits.
#[tokio::test]
async fn who_may_take_a_step_is_counted_once() {
    let pool = Pool::new("p".parse().unwrap());
    let handlers = [None, Some(vec![name(0), name(1)]), Some(vec![name(1)]), Some(vec![])];
    let ids = ["a", "a.1", "a.2", "a.b.1", "b.1", "b.2", "c"];
    for (n, id) in ids.into_iter().cycle().take(28).enumerate() {
        let sessions = ["s", "*", "other"][n % 3];
        join(&pool, id, sessions, handlers[n % 4].clone(), n as u64 % 3);
    }
    let (session, state) = ("s".parse().unwrap(), pool.state.lock());
    let (links, serving) = (state.members.seen_links(), state.members.serving(&session));
    drop(state);
    let workers = pool.workers_of(&session);
    let names: Vec<AgentId> =
        ["a", "a.1", "a.b", "a.b.1", "b", "d"].map(|it| it.parse().unwrap()).into();
    let alone = [None].into_iter().chain(names.iter().map(Some));
    for (only, by) in alone.clone().flat_map(|only| alone.clone().map(move |by| (only, by))) {
        for _ in 0..2 * GONE_OVER {
            for handler in [0, 1, 2].map(name) {
                let wanted = Wanted::any(&pool.id, &handler, &session).by(by).of_principal(only);
                let mut facts = WorkerCounts::default();
                for link in links.iter().filter(|link| wanted.admits(&link.worker.id)) {
                    let has = has_handler(link.worker.handlers.as_deref(), &handler);
                    facts.add(serving.has(link.group), has, link.left);
                }
                assert_eq!(workers.facts(wanted), facts, "{wanted:?}");
            }
        }
    }
}
