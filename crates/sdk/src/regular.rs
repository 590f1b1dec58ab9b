//! Opens the files of a command, and nothing that only bears their name: a command can put a link to another file in
//! the place of its log, or a pipe, on which to wait.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens a regular file as the options say; if that makes it, only its user may read it. It never waits for another
/// process.
///
/// # Errors
/// Those of the system; and that it is no regular file.
pub(crate) fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = options.mode(0o600).custom_flags(flags.bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}
