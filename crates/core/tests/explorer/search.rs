//! The search: breadth first from every shape, and histories that a seed draws, which go deeper.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::allowed;
use crate::changes;
use crate::finish::finish;
use crate::inputs;
use crate::key;
use crate::laws::{self, Broken};
use crate::shapes::Shape;
use crate::world::{Input, World};

/// How many states wait at most to be gone on from, for each shape: memory for no more.
const WAITING_MAX: usize = 20_000;

/// How many states of each depth are kept to go on from: memory for no more.
const LEVEL_MAX: usize = 8_000;

/// How many inputs are drawn on a state at a time.
const DRAWN: usize = 8;

/// How deep the drawn histories go.
const DEPTH_MAX: usize = 14;

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
        Ok(Err(refusal)) => match allowed::row(world, input) {
            Some(row) => Err(format!("{row}: it has to be accepted, and is refused: {refusal}")),
            None => Ok(None),
        },
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

/// A state, from which shape it came, and how.
type State<'s> = (&'s Shape, World, Option<Rc<Path>>);

/// Goes deep: draws a depth, a state of that depth and some inputs, and keeps the new states for the next depth.
/// So a state far from the beginning is tried as often as one near to it.
pub(crate) fn deep(shapes: &[Shape], seed: u64, time: Duration) -> Found {
    let until = Instant::now() + time;
    let (mut found, mut dice) = (Found::default(), Dice(seed));
    let mut seen = HashSet::new();
    let begin = |shape| (shape, World::new(shape), None);
    let mut levels: Vec<Vec<State<'_>>> = vec![shapes.iter().map(begin).collect()];
    while Instant::now() < until {
        let depth = dice.below(levels.len());
        let at = dice.below(levels[depth].len());
        let (shape, world, path) = levels[depth][at].clone();
        for input in drawn(&world, path.as_deref(), &mut dice) {
            found.inputs += 1;
            let path = Path::longer(path.as_ref(), input);
            let next = take(&world, &path.input)
                .unwrap_or_else(|broken| fail(shape, Some(&path), &broken));
            let Some(next) = next else { continue };
            found.accepted += 1;
            if !seen.insert((shape.name.as_str(), key::of(&next))) {
                continue;
            }
            check(&next).unwrap_or_else(|broken| fail(shape, Some(&path), &broken));
            found.states += 1;
            found.depth = found.depth.max(path.length);
            found.ended += usize::from(next.task.is_terminal());
            if next.task.is_terminal() || path.length >= DEPTH_MAX {
                continue; // What is tried on an end, the breadth-first search tries.
            }
            if levels.len() == depth + 1 {
                levels.push(Vec::new());
            }
            let kept = (shape, next, Some(path));
            match &mut levels[depth + 1] {
                level if level.len() < LEVEL_MAX => level.push(kept),
                level => level[dice.below(LEVEL_MAX)] = kept,
            }
        }
    }
    found
}

/// Some inputs on a state. A third are of the whole alphabet. A third are of time, the scheduler and workers:
/// without them a Task comes to its end by an orchestrator before much has happened to its Steps. A third repeat
/// what has happened before, as only what happens again and again reaches a limit.
fn drawn(world: &World, path: Option<&Path>, dice: &mut Dice) -> Vec<Input> {
    let all = inputs::all(world);
    let ordinary = inputs::ordinary(world).len(); // They come first in `all`.
    let before: Vec<_> = iter::successors(path, |path| path.before.as_deref()).collect();
    let draw = |_| {
        let again: Vec<&Input> = match dice.below(3) {
            0 => return all.get(dice.below(all.len())).cloned(),
            1 => return all.get(dice.below(ordinary.max(1))).cloned(),
            _ => {
                let kind = before.get(dice.below(before.len().max(1)))?.input.kind();
                all.iter().filter(|input| input.kind() == kind).collect()
            }
        };
        again.get(dice.below(again.len().max(1))).copied().cloned()
    };
    (0..DRAWN).filter_map(draw).collect()
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
