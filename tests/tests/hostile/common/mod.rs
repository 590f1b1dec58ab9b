//! What every attack needs.
//!
//! [`stage`] is where it takes place, [`victim`] the one who must not notice it, and [`judge`] holds what happened
//! against the law. [`asker`] and [`flood`] keep requests under way, [`raw`] and [`http`] say what no library would.

pub(crate) mod asker;
pub(crate) mod flood;
pub(crate) mod http;
pub(crate) mod judge;
pub(crate) mod raw;
pub(crate) mod stage;
pub(crate) mod victim;
