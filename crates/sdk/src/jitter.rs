//! Random pauses, so that many callers do not repeat their requests at the same moment.

use std::time::Duration;

use uuid::Uuid;

/// A random pause between half of `pause` and all of it: callers that begin to wait together do not
/// come back together.
pub(crate) fn jittered(pause: Duration) -> Duration {
    within(pause, random())
}

fn within(pause: Duration, random: u32) -> Duration {
    pause / 2 + pause.mul_f64(f64::from(random) / f64::from(u32::MAX)) / 2
}

/// Random enough for this purpose: the ids of this version end with random bits.
fn random() -> u32 {
    let [.., a, b, c, d] = *Uuid::now_v7().as_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_at_least_half_of_it_and_at_most_all() {
        let pause = Duration::from_millis(100);
        assert_eq!(within(pause, 0), Duration::from_millis(50));
        assert_eq!(within(pause, u32::MAX), pause);
        let some: std::collections::HashSet<_> = (0..32).map(|_| jittered(pause)).collect();
        assert!(some.len() > 16, "{some:?}");
    }
}
