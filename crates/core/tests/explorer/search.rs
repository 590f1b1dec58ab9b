//! The search: breadth first from every shape, and walks by a seed beyond.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::changes;
use crate::finish::finish;
use crate::inputs;
use crate::key;
use crate::laws::{self, Broken};
use crate::shapes::Shape;
use crate::world::{Input, World};

/// How many states wait at most to be gone on from, for each shape: memory for no more.
const WAITING_MAX: usize = 20_000;

/// How long a walk is.
const WALK: usize = 60;

/// How many of the first inputs are those with which Steps usually go on.
const ORDINARY: usize = 12;

/// How far it goes on after the end of the Task, where little is accepted.
const BEYOND_END: usize = 5;

/// What a search has seen.
#[derive(Default)]
pub(crate) struct Found {
    /// States that differ.
    pub(crate) states: usize,
    inputs: usize,
    accepted: usize,
    ended: usize,
    depth: usize,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { states, inputs, accepted, ended, depth } = self;
        write!(
            f,
            "{states} states ({ended} of them ends), {inputs} inputs of which {accepted} were accepted, "
        )?;
        write!(f, "up to {depth} inputs deep")
    }
}

/// How a state was reached: the last input, and the state before it.
struct Path {
    input: Input,
    before: Option<Rc<Path>>,
    length: usize,
}

impl Path {
    fn longer(before: Option<&Rc<Self>>, input: Input) -> Rc<Self> {
        let length = before.map_or(1, |before| before.length + 1);
        Rc::new(Self { input, before: before.cloned(), length })
    }
}

fn fail(shape: &Shape, path: Option<&Rc<Path>>, broken: &str) -> ! {
    let mut lines = Vec::new();
    let mut at = path;
    while let Some(path) = at {
        lines.push(format!("  {}. {}", path.length, path.input));
        at = path.before.as_ref();
    }
    lines.reverse();
    panic!("{broken}\n\nTask: {}\n{}", shape.name, lines.join("\n"));
}

/// Takes an input; what panics is a broken law too.
fn take(world: &World, input: &Input) -> Result<Option<World>, Broken> {
    let tried = catch_unwind(AssertUnwindSafe(|| world.after_checked(input)));
    match tried {
        Ok(Ok((next, commit))) => {
            if let Some(commit) = &commit {
                changes::check(world, input, commit, &next)?;
            }
            let waited = next.now > world.now && laws::is_timer(&input.command);
            Ok((commit.is_some() || waited || is_known_in_memory(world, &next)).then_some(next))
        }
        Ok(Err(_)) => Ok(None),
        Err(panic) => Err(words(&*panic)),
    }
}

/// Whether the input changed what only memory knows.
fn is_known_in_memory(before: &World, after: &World) -> bool {
    !after.task.is_untouched_since(&before.task)
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}

fn check(world: &World) -> Result<(), Broken> {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        laws::check(world)?;
        if world.task.is_terminal() { Ok(()) } else { finish(world).map(drop) }
    }));
    checked.unwrap_or_else(|panic| Err(words(&*panic)))
}

/// The states from one shape that are still to be gone on from.
struct Frontier<'s> {
    shape: &'s Shape,
    seen: HashSet<u64>,
    waiting: VecDeque<(World, Option<Rc<Path>>)>,
}

/// Explores every shape breadth first: one level of each in turn, until the time is over.
pub(crate) fn breadth_first(shapes: &[Shape], time: Duration) -> Found {
    let until = Instant::now() + time;
    let mut found = Found::default();
    let mut frontiers: Vec<Frontier<'_>> = shapes.iter().map(Frontier::new).collect();
    while frontiers.iter().any(|frontier| !frontier.waiting.is_empty()) {
        for frontier in &mut frontiers {
            let level = frontier.waiting.len().min(16);
            for _ in 0..level {
                frontier.expand(&mut found);
                if Instant::now() > until {
                    return found;
                }
            }
        }
    }
    found
}

impl<'s> Frontier<'s> {
    fn new(shape: &'s Shape) -> Self {
        let world = World::new(shape);
        check(&world).unwrap_or_else(|broken| fail(shape, None, &broken));
        let seen = HashSet::from([key::of(&world)]);
        Self { shape, seen, waiting: VecDeque::from([(world, None)]) }
    }

    fn expand(&mut self, found: &mut Found) {
        let Some((world, path)) = self.waiting.pop_front() else { return };
        for input in inputs::all(&world) {
            found.inputs += 1;
            let next = take(&world, &input);
            let next = next.unwrap_or_else(|broken| {
                fail(self.shape, Some(&Path::longer(path.as_ref(), input.clone())), &broken)
            });
            let Some(next) = next else { continue };
            found.accepted += 1;
            if !self.seen.insert(key::of(&next)) {
                continue;
            }
            let path = Path::longer(path.as_ref(), input);
            check(&next).unwrap_or_else(|broken| fail(self.shape, Some(&path), &broken));
            found.states += 1;
            found.depth = found.depth.max(path.length);
            found.ended += usize::from(next.task.is_terminal());
            if self.waiting.len() < WAITING_MAX {
                self.waiting.push_back((next, Some(path)));
            }
        }
    }
}

/// Walks from shapes that a seed draws, until the time is over.
pub(crate) fn walks(shapes: &[Shape], seed: u64, time: Duration) -> Found {
    let until = Instant::now() + time;
    let (mut found, mut dice) = (Found::default(), Dice(seed));
    let mut seen = HashSet::new();
    while Instant::now() < until {
        let shape = &shapes[dice.below(shapes.len())];
        let (mut world, mut path) = (World::new(shape), None);
        let mut beyond = 0;
        for _ in 0..WALK {
            beyond += usize::from(world.task.is_terminal());
            if beyond > BEYOND_END {
                break;
            }
            let all = inputs::all(&world);
            // Every other input is one of the first, those of the scheduler and of workers: without them
            // a Task comes to its end by an orchestrator before much has happened to its Steps.
            let among = if dice.below(2) == 0 { all.len() } else { all.len().min(ORDINARY) };
            let input = all[dice.below(among)].clone();
            found.inputs += 1;
            let longer = Path::longer(path.as_ref(), input);
            let next = take(&world, &longer.input)
                .unwrap_or_else(|broken| fail(shape, Some(&longer), &broken));
            let Some(next) = next else { continue };
            found.accepted += 1;
            found.depth = found.depth.max(longer.length);
            if seen.insert((shape.name.as_str(), key::of(&next))) {
                check(&next).unwrap_or_else(|broken| fail(shape, Some(&longer), &broken));
                found.states += 1;
                found.ended += usize::from(next.task.is_terminal());
            }
            (world, path) = (next, Some(longer));
        }
    }
    found
}

/// Numbers from a seed: the generator `SplitMix64`.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((x ^ (x >> 31)) % n as u64).unwrap_or(0)
    }
}
