//! Tasks for which there are no lines left.

use ractor::Actor;

use super::*;

/// So many looks are few.
const FEW: usize = 64;

/// So many Tasks, each with another list of workers that do not fit. No worker with a number from 12 on fits any.
fn overflowing(turns: &mut Turns, supply: &impl Supply, tasks: usize, others: &[usize]) {
    for task in 0..tasks {
        turns.put(key("s", task), ready(1), supply);
        let listed = (0..12).filter(|group| task & (1 << group) != 0);
        for group in listed.chain(others.iter().copied()) {
            turns.put_unfit(key("s", task), ready(1), &id(group), supply);
        }
    }
}

/// Serves until nobody is left to look at, at most so often. Answers who was served.
fn passes(turns: &mut Turns, workers: &mut Asked, most: usize) -> Vec<TaskKey> {
    let mut all = Vec::new();
    for _ in 0..most {
        match turns.serve(workers) {
            Some((key, _, _)) => all.push(key),
            None if turns.is_to_look(workers) => {}
            None => return all,
        }
    }
    panic!("{most} passes are too few");
}

/// Mechanisms 15: thousands of Tasks that each need a line of their own, and that no worker fits, cost the others a few
/// looks in each pass. One of them that a worker fits is found within a bounded number of passes.
#[tokio::test(start_paused = true)]
async fn a_pass_looks_at_few_of_many_tasks() {
    let (mut turns, mut workers) = (Turns::new(), Asked::default());
    let (most, one) = (4_000, workers.join(12, 0));
    overflowing(&mut turns, &workers, most, &[12]);
    let lines = turns.lines.len();
    assert!(lines >= LINES_MAX && turns.waiting() == 4_000, "{lines}");
    let mut number = 1;
    let mut frees = |workers: &mut Asked, free| {
        number += 1;
        workers.members.note(&one, Credit { free, seen: u64::MAX, lost: 0, number });
    };
    for _ in 0..200 {
        frees(&mut workers, 1);
        turns.put(key("s", 9_999), ready(1), &workers);
        workers.looks.set(0);
        let (of, ..) = turns.serve(&mut workers).unwrap();
        let looks = workers.looks.get();
        assert!(of == key("s", 9_999) && looks <= 4 * lines + FEW, "{looks}");
    }
    assert_eq!(workers.asked, 200, "none is tried in vain");
    frees(&mut workers, 1);
    let rounds = most.div_ceil(FEW);
    assert_eq!(passes(&mut turns, &mut workers, rounds + 1), []);
    assert!(!turns.has_next(&workers), "none is looked at twice");
    workers.join(13, 1);
    turns.put_unfit(key("s", 3_999), ready(1), &id(13), &workers);
    let first = passes(&mut turns, &mut workers, rounds + 3);
    assert!(first.len() == 1 && workers.asked <= 202, "one is tried in vain at most");
    workers.join(14, 0);
    for task in 0..3_999 {
        turns.put_unfit(key("s", task), ready(1), &id(14), &workers);
    }
    let fourteen = workers.join(14, 1);
    assert_eq!(passes(&mut turns, &mut workers, rounds + 2), [key("s", 3_999)]);
    assert_eq!(workers.members.left(&fourteen), 0);
}

/// A Task that is looked at takes its turn: others do not get the credits at once that are for it, and its priority
/// counts.
#[tokio::test(start_paused = true)]
async fn who_is_found_takes_its_turn() {
    let (mut turns, mut workers) = (Turns::new(), Asked::default());
    let worker = workers.join(12, 0);
    overflowing(&mut turns, &workers, 600, &[]);
    for (task, priority) in [(1_001, 1), (1_009, 9)] {
        for group in (0..10).chain([task]) {
            let has = Left { priority, ..ready(2) };
            turns.put_unfit(key("s", task), has, &id(group), &workers);
        }
    }
    let mut served = Vec::new();
    for number in 2..=20 {
        workers.members.note(&worker, Credit { free: 1, seen: u64::MAX, lost: 0, number });
        assert!(turns.has_next(&workers));
        let at_once = turns.serve_at_once(&key("s", 5_000), 1, &mut workers);
        assert!(at_once.is_empty(), "others wait for this credit");
        served.extend(passes(&mut turns, &mut workers, 30).into_iter().map(|it| it.task_id));
    }
    let at = |task: usize| served.iter().filter(|it| **it == key("s", task).task_id).count();
    assert_eq!((served.len(), at(1_009), at(1_001)), (19, 2, 2), "{served:?}");
}

/// Whatever happens in whatever order, some passes later nobody waits whom a free worker fits.
#[tokio::test(start_paused = true)]
async fn nobody_without_a_line_is_lost() {
    let mut overflowed = 0;
    for seed in 1..=5_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % n as u64).unwrap()
        };
        let (mut turns, mut workers) = (Turns::new(), workers_of_s(10));
        let mut tasks = vec![Expected::default(); 700];
        for round in 0..8_000 {
            let (task, group) = (random(700), random(10));
            match random(16) {
                0 | 1 => {
                    tasks[task] = Expected { ready: random(4), unfit: Vec::new() };
                    turns.put(key("s", task), ready(tasks[task].ready), &workers);
                }
                2 => {
                    tasks[task] = Expected::default();
                    turns.remove(&key("s", task));
                }
                3 if random(100) == 0 => {
                    tasks.iter_mut().for_each(|task| task.unfit.retain(|other| *other != group));
                    turns.may_fit(&id(group));
                }
                4 if random(10) == 0 => {
                    workers.free[group] = random(3);
                    workers.arrivals += 1;
                }
                _ => {
                    tasks[task].ready = tasks[task].ready.max(1);
                    if !tasks[task].unfit.contains(&group) {
                        tasks[task].unfit.push(group);
                    }
                    let has = ready(tasks[task].ready);
                    turns.put_unfit(key("s", task), has, &id(group), &workers);
                }
            }
            if random(10) > 0 {
                continue;
            }
            let mut left = 700;
            while workers.arrivals > 0 && left > 0 {
                let free = workers.free.clone();
                match turns.serve(&mut workers) {
                    Some((of, _, given)) => {
                        let at = (0..700).find(|task| key("s", *task) == of).unwrap();
                        let mut used = (0..10).filter(|at| workers.free[*at] < free[*at]);
                        assert!(used.all(|group| !tasks[at].unfit.contains(&group)), "seed {seed}");
                        assert!(given > 0 && given <= tasks[at].ready, "seed {seed}");
                        tasks[at].ready -= given;
                    }
                    None if turns.is_to_look(&workers) => left -= 1,
                    None => break,
                }
            }
            let is_served = tasks.iter().any(|task| task.is_served_by(&workers));
            assert!(!is_served && left > 0, "seed {seed}, round {round}");
            overflowed += usize::from(turns.lines.keys().any(|line| line.is_overflow));
            let waiting: usize = tasks.iter().map(|task| task.ready).sum();
            assert_eq!(turns.waiting(), waiting as u64, "seed {seed}");
        }
    }
    assert!(overflowed > 500, "{overflowed}");
}

/// The pool goes on by itself until it has looked at all of them, although nothing happens meanwhile.
#[tokio::test(start_paused = true)]
async fn the_pool_goes_on_until_it_has_looked_at_all() {
    let pool = Arc::new(Pool::new("p".parse().unwrap()));
    let (actor, _) = Actor::spawn(None, PoolActor, Arc::clone(&pool)).await.unwrap();
    pool.served_by(actor);
    let worker = Asked::default().join(12, 0);
    pool.join(Arc::clone(&worker)).unwrap();
    let last = key("s", 3_000);
    {
        let PoolState { members, turns, .. } = &mut *pool.state.lock();
        overflowing(turns, members, 3_000, &[12]);
        for group in [0, 2, 13] {
            turns.put_unfit(last.clone(), ready(1), &id(group), members);
        }
    }
    pool.note_credit(&worker, Credit { free: 1, seen: 0, lost: 0, number: 1 });
    pool.wake();
    let begun = Instant::now();
    while pool.sample(0).waiting > 3_000 {
        assert!(begun.elapsed() < Duration::from_secs(1), "nobody looks at it");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(pool.state.lock().turns.waiting(), 3_000, "its Task alone was served");
}
