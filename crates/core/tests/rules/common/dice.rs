//! Random choices that a failing test can be asked to make again.
#![allow(clippy::print_stderr, clippy::expect_used, dead_code, unreachable_pub)]

/// Names the environment variable that has a test run one seed alone.
const SEED: &str = "TENURE_TEST_SEED";

/// The seeds of a test: so many, or the one that is asked for.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    let one = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
    one.map_or(0..count, |seed: u64| seed..seed + 1)
}

/// A source of choices (splitmix64). Dropped in a panic it says how to have the same ones again.
#[derive(Debug)]
pub struct Dice {
    seed: u64,
    state: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    fn roll(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.roll() % n as u64).expect("below n")
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them, if there are any.
    pub fn any<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| self.of(all))
    }

    /// One of them.
    pub fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    /// Some of them, in their order.
    pub fn some<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        all.iter().filter(|_| self.one_in(2)).cloned().collect()
    }
}

impl Drop for Dice {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the same again: {SEED}={}", self.seed);
        }
    }
}
