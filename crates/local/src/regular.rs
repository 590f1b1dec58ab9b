//! Opens the files of a data directory, and nothing that only bears their name.
//!
//! A directory may come from elsewhere: from an archive, or with a repository that somebody cloned. A symbolic link in
//! it could have this program read, write or remove files of its user, and a named pipe would let it wait for ever. The
//! path *to* a data directory may have links: its user has named it.
//!
//! What is made there is for its user alone: inputs and outputs of Steps may be secrets.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::libc::{ELOOP, ENXIO, O_NOFOLLOW, O_NONBLOCK};

/// The rights to a file that is made: its user's.
pub(crate) const OWN_FILE: u32 = 0o600;

/// Makes a directory that only its user may look into. One that is there stays as it is.
///
/// # Errors
/// Those of the system; `AlreadyExists` if there is anything of this name.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Makes a directory inside of a data directory, unless it is there. Answers whether it did. Only its user may look
/// into what it makes.
///
/// # Errors
/// Those of the system; `InvalidInput` if there is a link or anything else.
pub fn make_real_dir(path: &Path) -> io::Result<bool> {
    match make_private_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            check_real_dir(path).map(|()| false)
        }
        made => made.map(|()| true),
    }
}

/// Makes sure that there is a directory of this name and no link to one.
///
/// # Errors
/// Those of the system, such as `NotFound`; `InvalidInput` if there is a link or anything else.
pub fn check_real_dir(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => Ok(()),
        false => Err(irregular(path, "directory")),
    }
}

/// Opens a regular file as the options say; if that makes it, only its user may read it. It never waits for another
/// process.
///
/// # Errors
/// Those of the system; `InvalidInput` if there is a link, a pipe, a device or a directory.
pub fn open_regular(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    let file = match options.mode(OWN_FILE).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.raw_os_error(), Some(ELOOP | ENXIO)) => {
            return Err(irregular(path, "file"));
        }
        Err(error) => return Err(error),
    };
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(irregular(path, "file")),
    }
}

/// Opens a regular file for reading.
///
/// # Errors
/// As those of [`open_regular`].
pub fn read_regular(path: &Path) -> io::Result<File> {
    open_regular(path, OpenOptions::new().read(true))
}

/// All bytes of a regular file that has at most so many. A sparse file takes no room on a disk and may be longer than
/// the memory, so a longer one is not read.
///
/// # Errors
/// As those of [`open_regular`]; `FileTooLarge`.
pub(crate) fn bytes_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (file, mut bytes) = (read_regular(path)?, Vec::new());
    let len = file.metadata()?.len();
    if len > most {
        let message = format!("{} has {len} bytes; at most {most} are read", path.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn irregular(path: &Path, kind: &str) -> io::Error {
    let message = format!(
        "{} is no regular {kind}: put the {kind} itself there, no link and no pipe",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn a_file_is_opened_and_what_bears_its_name_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, pipe) =
            (dir.path().join("file"), dir.path().join("link"), dir.path().join("pipe"));
        fs::write(&file, "text").unwrap();
        symlink(&file, &link).unwrap();
        mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        assert_eq!(bytes_of(&file, 4).unwrap(), b"text");
        for path in [&link, &pipe, &dir.path().to_owned()] {
            let error = read_regular(path).unwrap_err();
            assert!(error.to_string().contains("no regular file"), "{path:?}: {error}");
        }
        for path in [&link, &pipe] {
            let error =
                open_regular(path, OpenOptions::new().append(true).create(true)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path:?}: {error}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"text", "nothing is written through a link");
        let missing = read_regular(&dir.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_directory_is_made_once_and_what_bears_its_name_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        assert!(make_real_dir(&real).unwrap());
        assert!(!make_real_dir(&real).unwrap(), "it is there");
        symlink(&real, &link).unwrap();
        let (file, nowhere) = (dir.path().join("file"), dir.path().join("nowhere"));
        fs::write(&file, "text").unwrap();
        symlink(dir.path().join("not there"), &nowhere).unwrap();
        for path in [&link, &file, &nowhere] {
            for error in [make_real_dir(path).unwrap_err(), check_real_dir(path).unwrap_err()] {
                assert!(error.to_string().contains("no regular directory"), "{path:?}: {error}");
            }
        }
        assert!(!dir.path().join("not there").exists(), "nothing is made through a link");
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse");
        let file = File::create(&path).unwrap();
        for (len, is_read) in [(0, true), (9, true), (10, true), (11, false), (1 << 40, false)] {
            file.set_len(len).unwrap();
            match bytes_of(&path, 10) {
                Ok(bytes) => assert!(is_read && bytes.len() as u64 == len, "{len}"),
                Err(error) => {
                    assert_eq!((error.kind(), is_read), (io::ErrorKind::FileTooLarge, false));
                }
            }
        }
    }
}
