//! The numbers of a pool at one moment, and which of its workers may take a Step.
//!
//! Whoever makes Tasks and workers chooses how many handlers there are. So what is needed is copied under the lock of
//! the pool, for which all its work waits, and counted without it: once for all Steps, however many handlers they have.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::eligibility::{Obstacle, Wanted, WorkerCounts, has_handler, principal_of};
use tenure_core::id::{AgentId, HandlerName, Millis, SessionId};
use tenure_ports::map::IdMap;
use tenure_ports::observer::PoolSample;

use super::groups::GroupSet;
use super::left::HandlerSteps;
use super::{Pool, Worker};

/// A link of a worker as it was at a moment.
#[derive(Debug)]
pub(super) struct SeenLink {
    pub(super) worker: Arc<Worker>,
    pub(super) group: usize,
    /// How many Steps it would take.
    pub(super) left: u64,
}

/// What a Task had ready at a moment.
#[derive(Debug)]
pub(super) struct SeenSteps {
    /// The groups of workers that serve its session.
    pub(super) groups: GroupSet,
    /// Its Steps and Runs.
    pub(super) ready: usize,
    pub(super) steps: HandlerSteps,
}

impl Pool {
    /// The numbers of the pool, for an observer.
    pub(crate) fn sample(&self, now: Millis) -> PoolSample {
        let (sample, seen, links) = {
            let state = self.state.lock();
            let oldest = state.turns.oldest(|_| true);
            let oldest = oldest.map(|(_, (since, _))| now.saturating_sub(*since));
            let seen = state.turns.seen_steps();
            let sample = PoolSample {
                leaving: 0,
                suspended: state.members.suspended().count() as u64,
                pool: self.id.clone(),
                workers: state.members.count() as u64,
                free: u64::try_from(state.members.free()).unwrap_or(u64::MAX),
                waiting: state.turns.waiting(),
                ready: state.turns.withheld_steps(),
                waits: Vec::new(),
                sessions: state.members.sessions(),
                oldest: Duration::from_millis(
                    oldest.and_then(|ms| ms.try_into().ok()).unwrap_or(0),
                ),
                running: self.turnover.running(),
                ended: self.turnover.ended(),
            };
            let links = if seen.is_empty() { Vec::new() } else { state.members.seen_links() };
            (sample, seen, links)
        };
        let steps = by_handler(&seen);
        PoolSample {
            ready: sample.ready + steps.values().sum::<u64>(),
            waits: waits(&steps, &links),
            ..sample
        }
    }

    /// The workers of the pool now, for questions about Steps of a session.
    pub(crate) fn workers_of(&self, session: &SessionId) -> PoolWorkers {
        let (links, serving) = {
            let state = self.state.lock();
            (state.members.seen_links(), state.members.serving(session))
        };
        PoolWorkers { links, serving, by_name: OnceCell::new(), asked: RefCell::default() }
    }
}

/// Ready Steps by the groups that serve them and by handler; no handler: those that are not told apart.
type StepsByHandler<'a> = IdMap<(GroupSet, Option<&'a HandlerName>), u64>;

fn by_handler(seen: &[SeenSteps]) -> StepsByHandler<'_> {
    let mut steps = StepsByHandler::default();
    for it in seen {
        for (handler, count) in it.steps.ready(it.ready).filter(|(_, count)| *count > 0) {
            *steps.entry((it.groups, handler)).or_default() += count as u64;
        }
    }
    steps
}

/// The groups of workers that may take Steps.
#[derive(Debug, Default)]
struct AbleGroups {
    /// Those with a worker that can run them.
    able: GroupSet,
    /// Those with such a worker that has capacity.
    free: GroupSet,
}

impl AbleGroups {
    fn add(&mut self, link: &SeenLink) {
        self.able.add(link.group);
        if link.left > 0 {
            self.free.add(link.group);
        }
    }
}

/// What keeps ready Steps from the pool's workers, and how many Steps each obstacle keeps. Steps whose handlers are not
/// told apart count as if all workers had these.
fn waits(steps: &StepsByHandler<'_>, links: &[SeenLink]) -> Vec<(Obstacle, u64)> {
    let mut named: IdMap<&HandlerName, AbleGroups> = IdMap::default();
    named.extend(steps.keys().filter_map(|(_, name)| Some(((*name)?, AbleGroups::default()))));
    let [mut every, mut all_able] = [AbleGroups::default(), AbleGroups::default()];
    for link in links {
        every.add(link);
        match &link.worker.handlers {
            None => all_able.add(link),
            Some(handlers) => handlers.iter().for_each(|handler| {
                named.get_mut(handler).into_iter().for_each(|groups| groups.add(link));
            }),
        }
    }
    let mut waits: BTreeMap<Obstacle, u64> = BTreeMap::new();
    for ((groups, handler), count) in steps {
        let own = handler.map_or(Some(&every), |handler| named.get(handler));
        let meets = |of: fn(&AbleGroups) -> GroupSet| {
            u32::from([own, Some(&all_able)].into_iter().flatten().any(|it| of(it).meets(*groups)))
        };
        let counts = WorkerCounts {
            workers: u32::try_from(links.len()).unwrap_or(u32::MAX),
            serving: u32::from(every.able.meets(*groups)),
            able: meets(|it| it.able),
            free: meets(|it| it.free),
        };
        let Some(why) = counts.obstacle() else { continue };
        *waits.entry(why).or_default() += count;
    }
    waits.into_iter().collect()
}

/// So many questions about the same workers are answered by going over them; for more, their handlers are counted.
const GONE_OVER: usize = 8;

/// The workers of a pool at one moment, for many questions about Steps of a session.
#[derive(Debug)]
pub(crate) struct PoolWorkers {
    links: Vec<SeenLink>,
    /// The groups of workers that serve the session.
    serving: GroupSet,
    /// The links of each worker, and of each principal.
    by_name: OnceCell<IdMap<AgentId, Vec<usize>>>,
    /// What was asked about, by who alone may take the Step.
    asked: RefCell<IdMap<Whom, HandlerQuestions>>,
}

/// Who alone may take a Step.
type Whom = (Option<AgentId>, [Option<AgentId>; 3]);

/// What was asked about the handlers of the same workers.
#[derive(Debug, Default)]
struct HandlerQuestions {
    times: usize,
    counted: Option<CountedHandlers>,
}

/// Workers by their handlers.
#[derive(Debug, Default)]
struct CountedHandlers {
    /// Those that name none, so they can run all. They are in no other count.
    all: WorkerCounts,
    by_name: IdMap<HandlerName, WorkerCounts>,
}

impl PoolWorkers {
    /// The workers that may take a Step, by the same conditions as a claim.
    pub(crate) fn facts(&self, wanted: Wanted<'_>) -> WorkerCounts {
        let mut asked = self.asked.borrow_mut();
        let asked = asked.entry(wanted.whom()).or_default();
        asked.times += 1;
        if asked.times <= GONE_OVER {
            let mut facts = WorkerCounts::default();
            for link in self.admitted(wanted) {
                let has = has_handler(link.worker.handlers.as_deref(), wanted.handler);
                facts.add(self.serving.has(link.group), has, link.left);
            }
            return facts;
        }
        asked.counted.get_or_insert_with(|| self.count(wanted)).of(wanted.handler)
    }

    /// The links of the workers that alone may take a Step.
    fn admitted(&self, wanted: Wanted<'_>) -> impl Iterator<Item = &SeenLink> {
        let named = wanted.only().map(|name| {
            let links = self.by_name.get_or_init(|| self.name_links()).get(name);
            links.map_or(&[][..], Vec::as_slice)
        });
        let every = if named.is_none() { &self.links[..] } else { &[] };
        let named = named.into_iter().flatten().map(|at| &self.links[*at]);
        every.iter().chain(named).filter(move |link| wanted.admits(&link.worker.id))
    }

    fn name_links(&self) -> IdMap<AgentId, Vec<usize>> {
        let mut by_name: IdMap<AgentId, Vec<usize>> = IdMap::default();
        for (at, link) in self.links.iter().enumerate() {
            let id = &link.worker.id;
            by_name.entry(id.clone()).or_default().push(at);
            let principal = AgentId::new(principal_of(id)).ok().filter(|principal| principal != id);
            principal.into_iter().for_each(|it| by_name.entry(it).or_default().push(at));
        }
        by_name
    }

    fn count(&self, wanted: Wanted<'_>) -> CountedHandlers {
        let mut counted = CountedHandlers::default();
        for link in self.admitted(wanted) {
            let serves = self.serving.has(link.group);
            counted.all.add(serves, link.worker.handlers.is_none(), link.left);
            for handler in link.worker.handlers.iter().flatten().filter(|_| serves) {
                match counted.by_name.get_mut(handler) {
                    Some(able) => able.add(true, true, link.left),
                    None => {
                        let mut able = WorkerCounts::default();
                        able.add(true, true, link.left);
                        counted.by_name.insert(handler.clone(), able);
                    }
                }
            }
        }
        counted
    }
}

impl CountedHandlers {
    fn of(&self, handler: &HandlerName) -> WorkerCounts {
        let able = self.by_name.get(handler).copied().unwrap_or_default();
        WorkerCounts {
            able: self.all.able.saturating_add(able.able),
            free: self.all.free.saturating_add(able.free),
            ..self.all
        }
    }
}

#[cfg(test)]
mod tests;
