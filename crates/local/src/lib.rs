//! Embedded adapters: everything a single process needs to run Tasks without any server.
//!
//! [`JsonlJournal`] keeps one file per Task and answers only when what it was given is on disk;
//! [`JsonlReader`] looks at the same files from another process. [`MemoryLeases`] knows who is
//! alive for as long as the process is.

mod jsonl;
mod leases;

pub use jsonl::{
    Damage, Disk, Files, JournalOptions, JsonlJournal, JsonlReader, OpenError, OpenReport,
    PublishedMark, Repair,
};
pub use leases::MemoryLeases;
