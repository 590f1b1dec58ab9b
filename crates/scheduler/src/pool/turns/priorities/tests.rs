//! Tasks of many priorities.

use super::*;

/// P16: Whoever makes Tasks chooses their priorities. However many different ones wait for workers that do not fit, or
/// for none, a Step that is given out meanwhile costs the same.
#[tokio::test(start_paused = true)]
async fn priorities_cost_the_others_nothing() {
    let (mut turns, mut workers) = (Turns::new(), Workers::of(&[("main", 1), ("ci", 0)]));
    for task in 0..10_000 {
        let priority = i32::try_from(task).unwrap();
        turns.put_unfit(key("main", task), Left { priority, ..ready(1) }, &id(0), &workers);
        turns.put(key("ci", task), Left { priority, ..ready(1) }, &workers);
        turns.put(key("nobody", task), Left { priority, ..ready(1) }, &workers);
    }
    assert_eq!((turns.lines.len(), turns.waiting()), (3, 30_000));
    workers.looks.set(0);
    for _ in 0..100 {
        workers.free[0] = 1;
        turns.put(key("main", 99_999), ready(1), &workers);
        assert!(turns.has_next(&workers));
        assert_eq!(turns.serve(&mut workers).unwrap().0, key("main", 99_999));
        assert!(!turns.has_next(&workers) && turns.serve(&mut workers).is_none());
    }
    assert!(workers.looks.get() <= 2_000, "{}", workers.looks.get());
    workers.free = vec![0, 2];
    let highest = ["ci/t9999 1", "ci/t9998 1"];
    assert_eq!(served(&mut turns, &mut workers), highest, "the highest first, one turn each");
}

/// P16: a Task with another priority stands behind those that have it already; one without ready Steps is passed over.
#[tokio::test(start_paused = true)]
async fn higher_priorities_come_first_in_all_lines() {
    let (mut turns, mut workers) = (Turns::new(), Workers::of(&[("*", 0), ("a", 0)]));
    for (session, task, priority) in
        [("a", 0, 0), ("b", 0, 5), ("a", 1, 5), ("b", 1, -7), ("a", 2, 9)]
    {
        turns.put(key(session, task), Left { priority, ..ready(1) }, &workers);
    }
    turns.put(key("a", 0), Left { priority: 5, ..ready(1) }, &workers);
    turns.put(key("a", 2), Left { priority: 9, ..ready(0) }, &workers);
    workers.free = vec![9, 0];
    let order = ["b/t0 1", "a/t1 1", "a/t0 1", "b/t1 1"];
    assert_eq!(served(&mut turns, &mut workers), order);
    assert!(turns.is_empty() && turns.entries.is_empty() && turns.lines.is_empty());
}
