//! A clock that goes on while the machine is suspended.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the machine was started, sleep included: what was certain before a suspension is not
/// after it. None where the system does not say: then nothing is certain.
pub(crate) fn since_boot() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on() {
        let before = since_boot().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        assert!(since_boot().unwrap() >= before + Duration::from_millis(2));
    }
}
