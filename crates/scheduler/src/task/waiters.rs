//! [`LateAnswers`]: callers of a Task whose answers wait for its end, or for the end of a Run.
//!
//! A command that waits is cheap to repeat, and each repetition waits as well. So a Task holds so many waiting answers
//! of a principal and in all, a node so many of a principal ([`WaiterCounts`]). Who comes when there is no place is
//! told to ask again: the command stands, and a repetition of it has the same effect. Adding one, finding those that
//! something concerns and dropping those whose callers have gone costs the same however many wait.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use tenure_core::Rejection;
use tenure_core::command::Wait;
use tenure_core::id::AgentId;
use tenure_core::table::Pos;
use tenure_ports::map::IdMap;

use crate::ask::HeldAnswer;
use crate::count::{Gauge, One};

/// How many answers of one principal a Task holds. A client asks again every few seconds, and its earlier requests
/// are held until the node gives them up: this is enough for some forty calls of a principal that wait at a time.
const OF_PRINCIPAL_MAX: usize = 256;

/// How many answers a Task holds in all.
const OF_TASK_MAX: usize = 2_048;

/// How many answers of one principal a node holds, in all its Tasks.
const OF_PRINCIPAL_ON_NODE_MAX: usize = 8_192;

/// After how long a caller asks again for whom there was no place.
const RETRY_AFTER_MS: u64 = 1_000;

/// A Task looks for callers that have gone when it holds so many more answers than twice those that were left after
/// its last look.
const SWEPT_AT: usize = 32;

/// The waiting answers of one Task.
#[derive(Debug, Default)]
pub(super) struct LateAnswers {
    for_end: Vec<LateAnswer>,
    by_run: IdMap<Pos, Vec<LateAnswer>>,
    by_principal: IdMap<AgentId, usize>,
    count: usize,
    /// When it holds so many answers, it drops those whose callers have gone.
    swept_at: usize,
    /// How many answers were looked at in all, which shows what it costs.
    #[cfg(test)]
    looked_at: usize,
}

/// An answer, and its place among those of the node.
type LateAnswer = (HeldAnswer, WaiterPlace);

impl LateAnswers {
    /// Holds an answer until what it waits for has happened.
    ///
    /// # Errors
    /// The answer, if there is no place for it.
    #[allow(clippy::result_large_err)] // It is moved once, as it was on the way here.
    pub(super) fn hold(
        &mut self,
        held: HeldAnswer,
        wait: Wait,
        of_node: &WaiterCounts,
    ) -> Result<(), HeldAnswer> {
        if self.count >= self.swept_at.max(SWEPT_AT) {
            self.sweep();
        }
        let who = &held.caller.agent;
        let of_principal = self.by_principal.get(who).copied().unwrap_or(0);
        if of_principal >= OF_PRINCIPAL_MAX || self.count >= OF_TASK_MAX {
            return Err(held);
        }
        let Some(place) = of_node.take(who) else { return Err(held) };
        *self.by_principal.entry(who.clone()).or_default() += 1;
        self.count += 1;
        // A caller that waits for long gives its permit back, so as not to keep others out.
        let waiter = (HeldAnswer { _permit: None, ..held }, place);
        match wait {
            Wait::TaskEnd => self.for_end.push(waiter),
            Wait::RunEnd(run) => self.by_run.entry(run).or_default().push(waiter),
        }
        Ok(())
    }

    /// Takes out all of them.
    pub(super) fn take_all(&mut self) -> Vec<HeldAnswer> {
        let all = std::mem::take(self);
        let of_runs = all.by_run.into_values().flatten();
        all.for_end.into_iter().chain(of_runs).map(|(held, _)| held).collect()
    }

    /// Takes out those that wait for the end of a Run.
    pub(super) fn take_of_run(&mut self, run: Pos) -> Vec<HeldAnswer> {
        let Some(taken) = self.by_run.remove(&run) else { return Vec::new() };
        taken.iter().for_each(|(held, _)| self.count_out(&held.caller.agent));
        taken.into_iter().map(|(held, _)| held).collect()
    }

    /// The Runs for whose end somebody waits.
    pub(super) fn runs(&self) -> Vec<Pos> {
        self.by_run.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Drops those whose callers have gone.
    fn sweep(&mut self) {
        #[cfg(test)]
        {
            self.looked_at += self.count;
        }
        let mut gone = Vec::new();
        let mut sweep = |waiters: &mut Vec<LateAnswer>| {
            gone.extend(waiters.extract_if(.., |(held, _)| held.reply_to.is_closed()));
        };
        sweep(&mut self.for_end);
        self.by_run.values_mut().for_each(&mut sweep);
        self.by_run.retain(|_, waiters| !waiters.is_empty());
        gone.iter().for_each(|(held, _)| self.count_out(&held.caller.agent));
        self.swept_at = 2 * self.count + SWEPT_AT;
    }

    fn count_out(&mut self, who: &AgentId) {
        self.count -= 1;
        if let Entry::Occupied(mut count) = self.by_principal.entry(who.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The refusal of an answer for which there is no place. The command stands.
pub(super) fn no_place() -> Rejection {
    let message = "the command stands; as many callers wait here as may: repeat it with the same id, or ask for the \
                   task from time to time";
    Rejection::in_doubt(message).with("retry_after_ms", RETRY_AFTER_MS)
}

/// How many answers wait on a node, in all and by principal.
#[derive(Debug, Default)]
pub(crate) struct WaiterCounts {
    all: Gauge,
    by_principal: Arc<Mutex<IdMap<AgentId, usize>>>,
}

/// One of these answers; dropping this counts it out.
#[derive(Debug)]
pub(crate) struct WaiterPlace {
    _one: One,
    who: AgentId,
    by_principal: Arc<Mutex<IdMap<AgentId, usize>>>,
}

impl WaiterCounts {
    /// How many wait.
    pub(crate) fn now(&self) -> u64 {
        self.all.now()
    }

    /// Counts one that waits in this process, and is no principal.
    pub(crate) fn one(&self) -> One {
        self.all.one()
    }

    fn take(&self, who: &AgentId) -> Option<WaiterPlace> {
        let mut all = self.by_principal.lock();
        match all.get_mut(who) {
            Some(count) if *count >= OF_PRINCIPAL_ON_NODE_MAX => return None,
            Some(count) => *count += 1,
            None => drop(all.insert(who.clone(), 1)),
        }
        drop(all);
        let by_principal = Arc::clone(&self.by_principal);
        Some(WaiterPlace { _one: self.all.one(), who: who.clone(), by_principal })
    }
}

impl Drop for WaiterPlace {
    fn drop(&mut self) {
        let mut all = self.by_principal.lock();
        if let Some(count) = all.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use tenure_core::Caller;
    use tenure_core::id::SessionId;
    use tokio::sync::oneshot;

    use super::*;
    use crate::ask::WriteAnswer;

    type Answer = oneshot::Receiver<Result<WriteAnswer, Rejection>>;

    fn held(who: &str) -> (HeldAnswer, Answer) {
        let (reply_to, answer) = oneshot::channel();
        let mut caller = Caller::system(SessionId::new("s").unwrap());
        caller.agent = AgentId::new(who).unwrap();
        let result = Err(Rejection::in_doubt("of no matter"));
        let (waits, is_summarised) = (Some(Wait::TaskEnd), true);
        (HeldAnswer { result, waits, reply_to, caller, is_summarised, _permit: None }, answer)
    }

    /// LIVE-04: 20,000 repetitions of a command that waits cost what 20,000 of any other cost: no answer is looked
    /// at again for each that comes. What one principal repeats takes no place from another.
    #[test]
    fn a_repeated_wait_costs_the_same_however_many_wait() {
        let (mut waiters, of_node) = (LateAnswers::default(), WaiterCounts::default());
        let (mut answers, mut refused) = (Vec::new(), 0);
        for _ in 0..20_000 {
            let (held, answer) = held("eve");
            refused += usize::from(waiters.hold(held, Wait::TaskEnd, &of_node).is_err());
            answers.push(answer);
        }
        assert_eq!((waiters.count, refused), (OF_PRINCIPAL_MAX, 20_000 - OF_PRINCIPAL_MAX));
        assert!(waiters.looked_at <= 4 * 20_000, "{}", waiters.looked_at);
        let (of_bob, _answer) = held("bob");
        assert!(waiters.hold(of_bob, Wait::TaskEnd, &of_node).is_ok());
        assert_eq!(of_node.now(), OF_PRINCIPAL_MAX as u64 + 1);
        assert_eq!(waiters.take_all().len(), OF_PRINCIPAL_MAX + 1);
        assert_eq!(of_node.now(), 0);
        assert!(of_node.by_principal.lock().is_empty() && waiters.is_empty());
    }

    /// LIVE-04: who has gone keeps no place, of a Task or of the node.
    #[test]
    fn waiters_end_with_their_clients() {
        let (mut waiters, of_node) = (LateAnswers::default(), WaiterCounts::default());
        for _ in 0..20_000 {
            let (held, answer) = held("eve");
            drop(answer); // Its client has gone.
            waiters.hold(held, Wait::RunEnd(3), &of_node).unwrap();
            assert!(waiters.count <= 3 * SWEPT_AT, "{}", waiters.count);
        }
        assert!(waiters.looked_at <= 2 * 20_000, "{}", waiters.looked_at);
        waiters.sweep();
        assert!(waiters.is_empty() && waiters.runs().is_empty());
        assert_eq!(of_node.now(), 0);
    }

    /// The end of a Run concerns those that wait for it, and nobody else.
    #[test]
    fn the_end_of_a_run_answers_those_that_wait_for_it() {
        let (mut waiters, of_node) = (LateAnswers::default(), WaiterCounts::default());
        let mut answers = Vec::new();
        for wait in [Wait::RunEnd(1), Wait::RunEnd(2), Wait::RunEnd(1), Wait::TaskEnd] {
            let (held, answer) = held("ann");
            waiters.hold(held, wait, &of_node).unwrap();
            answers.push(answer);
        }
        assert_eq!((waiters.take_of_run(1).len(), waiters.take_of_run(1).len()), (2, 0));
        assert_eq!((waiters.count, waiters.runs()), (2, vec![2]));
        assert_eq!(waiters.take_all().len(), 2);
    }
}
