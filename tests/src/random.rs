//! Random numbers that a printed seed brings back.

use anyhow::{Context as _, Result};

/// What an environment variable says, if it is set.
///
/// # Errors
/// It is no number.
pub fn said(name: &str) -> Result<Option<u64>> {
    let said = std::env::var(name).ok();
    said.map(|said| said.parse().with_context(|| format!("{name}={said}"))).transpose()
}

/// The clock, which makes every run another.
///
/// # Errors
/// It is before 1970.
pub fn now_ms() -> Result<u64> {
    Ok(u64::try_from(std::time::UNIX_EPOCH.elapsed()?.as_millis())?)
}

/// A small generator (SplitMix64): good enough to draw test cases, and the same everywhere.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
