//! What the black-box tests share: the binary, task files drawn at random, and a checker of logs.
//!
//! Nothing here uses the code under test. [`wal`] reads logs with its own structs and its own
//! checksum, so that a mistake in the scheduler's reader cannot hide one in its writer.

pub mod binary;
pub mod dag;
pub mod random;
pub mod wal;
