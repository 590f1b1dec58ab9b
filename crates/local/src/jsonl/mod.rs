//! The log of a Task as a file: `<data>/tasks/<session_id>/<wal_name>.wal.jsonl` (STORE-04).
//!
//! One event is one line, one append is one `write` and one `fdatasync`; many Tasks are synced in
//! parallel by a few threads. Nobody is answered before the bytes are on disk.
//!
//! A second writer is kept away by a lock of the directory, and `<data>/lock` says whose it is; before
//! each write the lock and the log are looked at, should somebody have moved or changed them. There is
//! `<data>/index.jsonl`, which spares reading every log at start. The index is derived: it is
//! never synced, and whatever it does not know is read from the logs again. A `.published` beside a
//! log is written by whoever publishes its events.
//!
//! Reading order: `layout` and `lock` say what lies where; `disk` is what is done to files;
//! `lines`, `head`, `tail`, `seek` and `replay` read logs; `published` says what of them has left;
//! `index` and `catalog` know all Tasks; `log` is one open log; `pool` and `group` are the threads
//! and what they share; [`journal`] and [`reader`] put it together.

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
