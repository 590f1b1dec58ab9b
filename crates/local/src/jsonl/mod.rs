//! The log of a Task as a file: `<data>/tasks/<session_id>/<wal_name>.wal.jsonl` (STORE-04).
//!
//! One event is one line, one append is one `write` and one `fdatasync`; a few threads sync many
//! Tasks in parallel. The journal answers nobody before the bytes are on disk.
//!
//! A lock of the directory keeps a second writer out, and `<data>/lock` says which process holds
//! it. Before each write the journal checks the lock and the log, in case somebody has moved or
//! changed them. `<data>/index.jsonl` saves a start from reading every log. The index is derived:
//! rows are not synced, and what it lacks is read from the logs again. The program that publishes
//! the events of a log writes a `.published` file beside it.
//!
//! Reading order: `layout` and `lock` say which files there are and who may write; `disk` changes
//! files; `lines`, `head`, `tail`, `seek` and `replay` read logs; `published` marks how far events
//! are published; `index` and `catalog` know all Tasks; `log` is one open log; `pool` and `group`
//! are the threads and what they share; [`journal`] and [`reader`] put it together.

mod catalog;
mod disk;
mod group;
mod head;
mod index;
mod journal;
mod layout;
mod lines;
mod lock;
mod log;
mod pool;
mod published;
mod reader;
mod replay;
mod report;
mod seek;
mod startup;
mod tail;

pub use disk::{Disk, Files};
pub use journal::{JournalOptions, JsonlJournal};
pub use published::PublishedMark;
pub use reader::JsonlReader;
pub use report::{Damage, OpenReport, Repair};
pub use startup::OpenError;
