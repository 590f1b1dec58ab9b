//! [`Disk`]: the writes and syncs of log files, behind a trait so that tests can make them fail.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;

use super::lock::is_at;
use crate::regular::{OWN_FILE, make_real_dir, open_regular};

/// Changes to log files. Reads are not part of it: their errors go to the readers anyway.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// An open log.
    type File: fmt::Debug + Send + Sync + 'static;

    /// Makes a file that must not exist yet.
    fn create_new(&self, path: &Path) -> io::Result<Self::File>;

    /// Opens a file that exists, for writing.
    fn open(&self, path: &Path) -> io::Result<Self::File>;

    /// Writes at `offset`; possibly fewer bytes than given.
    fn write_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<usize>;

    /// Cuts the file to `len` bytes.
    fn truncate(&self, file: &Self::File, len: u64) -> io::Result<()>;

    /// Waits until the content is on disk.
    fn sync(&self, file: &Self::File) -> io::Result<()>;

    /// The length of the file; `None` if it is not the file at `path`.
    fn len_at(&self, file: &Self::File, path: &Path) -> io::Result<Option<u64>>;

    /// Makes a directory; it is no error if the directory exists, and one if a link has its name.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Waits until the names in a directory are on disk.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Waits until the content of the index is on disk.
    fn sync_index(&self, index: &File) -> io::Result<()> {
        index.sync_all()
    }

    /// Writes everything at `offset`, in one call unless the system writes less.
    fn write_all_at(&self, file: &Self::File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_at(file, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Files;

impl Disk for Files {
    type File = File;

    fn create_new(&self, path: &Path) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(OWN_FILE).open(path)
    }

    fn open(&self, path: &Path) -> io::Result<File> {
        open_regular(path, OpenOptions::new().write(true))
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn truncate(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn len_at(&self, file: &File, path: &Path) -> io::Result<Option<u64>> {
        Ok(is_at(file, path)?.map(|found| found.len()))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        make_real_dir(path).map(drop)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}
