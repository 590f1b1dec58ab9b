//! What every attack needs.
//!
//! [`stage`] is where it takes place, [`victim`] the one who must not notice it, and [`judge`] holds what happened
//! against the law. [`raw`] and [`http`] say what no library would.

pub(crate) mod http;
pub(crate) mod judge;
pub(crate) mod raw;
pub(crate) mod stage;
pub(crate) mod victim;
