//! Adapters for a single process: everything that it needs to run Tasks without any server.
//!
//! [`JsonlJournal`] writes one file per Task and answers only when the commits are on disk;
//! [`JsonlReader`] reads the same files from another process. [`FileBlobs`] stores
//! beside them what is too large for a log. [`MemoryLeases`] stores leases for as
//! long as the process lives.

mod blobs;
mod jsonl;
mod leases;
mod regular;

pub use blobs::FileBlobs;
pub use jsonl::{
    Damage, Disk, Files, JournalOptions, JsonlJournal, JsonlReader, OpenError, OpenReport,
    PublishedMark, Repair,
};
pub use leases::MemoryLeases;
pub use regular::{check_real_dir, make_private_dir, make_real_dir, open_regular, read_regular};
