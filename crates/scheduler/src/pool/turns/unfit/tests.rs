//! Workers that come and go while many Tasks wait for others.

use super::*;

/// Mechanisms 15: however many Tasks some worker does not fit, others come and go at no cost.
#[tokio::test(start_paused = true)]
async fn who_is_in_no_list_comes_and_goes_at_no_cost() {
    let pool = Pool::new("p".parse().unwrap());
    pool.join(Asked::default().join(0, 1)).unwrap();
    {
        let PoolState { members, turns, .. } = &mut *pool.state.lock();
        (0..30_000).for_each(|task| turns.put_unfit(key("s", task), ready(1), &id(0), members));
    }
    let begun = std::time::Instant::now();
    for boot in 1..=1_000 {
        let worker = Asked::default().join(boot, 1);
        pool.join(Arc::clone(&worker)).unwrap();
        pool.leave(&worker);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    let PoolState { members, turns, .. } = &mut *pool.state.lock();
    let task = key("s", 7);
    turns.put_unfit(task.clone(), ready(1), &id(1), members);
    turns.may_fit(&id(0));
    assert!(!turns.is_unfit_for_some(&id(0)) && turns.is_unfit_for_some(&id(1)));
    assert_eq!((turns.unfit.all(&task), turns.unfit.all(&key("s", 8))), (&[id(1)][..], &[][..]));
    turns.put(task, ready(1), members);
    assert!(turns.unfit.is_empty() && !turns.is_unfit_for_some(&id(1)));
}

/// What a worker gives back after it has left does not count against it, and does not have others tried again.
#[tokio::test(start_paused = true)]
async fn who_has_left_is_put_into_no_list() {
    let pool = Arc::new(Pool::new("p".parse().unwrap()));
    let [one, gone] = [0, 1].map(|group| Asked::default().join(group, 1));
    for worker in [&one, &gone] {
        pool.join(Arc::clone(worker)).unwrap();
    }
    let (actor, _) = ractor::Actor::spawn(None, PoolActor, Arc::clone(&pool)).await.unwrap();
    pool.served_by(actor);
    let permit = |worker| CreditPermit::of(&pool, Arc::clone(worker), 1);
    let [from_one, from_gone] = [&one, &gone].map(permit);
    pool.leave(&gone);
    let task = key("s", 0);
    for permit in [from_one, from_gone] {
        pool.tell(Msg::Unfit(task.clone(), ready(1), permit));
    }
    while pool.untaken.load(std::sync::atomic::Ordering::Acquire) > 0 {
        tokio::task::yield_now().await;
    }
    let state = pool.state.lock();
    assert_eq!(state.turns.unfit.all(&task), [id(0)]);
    assert!(!state.turns.is_unfit_for_some(&id(1)));
}
