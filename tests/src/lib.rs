//! What the black-box tests share: the binary, task files drawn at random, a checker of logs, and a
//! cluster of real processes that can be broken.
//!
//! Nothing here uses the code under test. [`wal`] reads logs with its own structs and its own
//! checksum, so that a mistake in the scheduler's reader cannot hide one in its writer.

pub mod binary;
pub mod cluster;
pub mod dag;
pub mod fleet;
pub mod otlp;
pub mod promql;
pub mod pty;
pub mod random;
pub mod soak;
pub mod wal;
