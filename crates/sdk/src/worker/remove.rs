//! Removes a directory tree that a command has left. A command may nest directories deeper than a thread has stack, a
//! process has descriptors or a path has bytes, and put links among them. So this keeps few directories open, follows
//! no link, and names a path for the topmost directory alone.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::{fs, io, mem};

use nix::NixPath;
use nix::dir::{Dir, Entry, OwningIter, Type};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::libc::{dev_t, ino_t};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// How many directories on the way to the one that is emptied stay open. One above these is opened anew, and read from
/// its begin.
const OPEN_MAX: usize = 16;

/// How many steps a call takes: one for each file, two for each directory. A process that has escaped its worker may
/// make new ones for ever.
const STEPS_MAX: usize = 20_000_000;

/// Removes a directory with all that is in it, and of a link the link alone.
///
/// # Errors
/// Those of the system, and that there is more than a call removes. What it has not come to stays.
pub fn remove_tree(dir: &Path) -> io::Result<()> {
    remove_within(STEPS_MAX, dir)
}

fn remove_within(steps: usize, dir: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(dir)?.is_dir() {
        return fs::remove_file(dir);
    }
    let mut walk = Walk { at: OpenDir::open(AT_FDCWD, dir)?, above: Vec::new() };
    for _ in 0..steps {
        if walk.step()? {
            return fs::remove_dir(dir);
        }
    }
    Err(io::Error::other("there is more in it than is removed at once"))
}

/// A walk through a tree, which removes what it has passed.
struct Walk {
    /// The directory that is emptied.
    at: OpenDir,
    /// Those on the way to it, the topmost first.
    above: Vec<DirAbove>,
}

/// A directory whose entries are read.
struct OpenDir {
    dir: OwnedFd,
    entries: OwningIter,
}

/// A directory on the way.
struct DirAbove {
    /// Which one it is.
    id: DirId,
    /// What in it leads down the way.
    nested: CString,
    /// None if it is so far above that it was closed.
    open: Option<OpenDir>,
}

/// The device of a directory, and its number there.
type DirId = (dev_t, ino_t);

impl Walk {
    /// Removes a file, goes down into a directory, or leaves and removes one that is empty. Answers whether the topmost
    /// is empty.
    fn step(&mut self) -> io::Result<bool> {
        match self.at.next_entry()? {
            Some(entry) => {
                if let Some(nested) = self.at.remove_or_open(&entry)? {
                    self.enter(nested, entry.file_name().to_owned())?;
                }
                Ok(false)
            }
            None => self.leave(),
        }
    }

    fn enter(&mut self, nested: OpenDir, name: CString) -> io::Result<()> {
        let above = mem::replace(&mut self.at, nested);
        self.above.push(DirAbove { id: above.id()?, nested: name, open: Some(above) });
        if let Some(far) = self.above.iter_mut().nth_back(OPEN_MAX) {
            far.open = None;
        }
        Ok(())
    }

    fn leave(&mut self) -> io::Result<bool> {
        let Some(above) = self.above.pop() else { return Ok(true) };
        self.at = match above.open {
            Some(open) => open,
            None => self.at.above(above.id)?,
        };
        gone(unlinkat(&self.at.dir, &*above.nested, UnlinkatFlags::RemoveDir))?;
        Ok(false)
    }
}

impl OpenDir {
    /// Opens a directory, and no link to one.
    fn open(at: impl AsFd, name: &(impl NixPath + ?Sized)) -> Result<Self, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let dir = openat(at, name, flags, Mode::empty())?;
        let listed = openat(&dir, c".", flags, Mode::empty())?;
        Ok(Self { dir, entries: Dir::from_fd(listed)?.into_iter() })
    }

    /// Opens the directory above. It is another one if somebody has moved this meanwhile: nothing there is to go.
    fn above(&self, expected: DirId) -> io::Result<Self> {
        let above = Self::open(&self.dir, c"..")?;
        match above.id()? == expected {
            true => Ok(above),
            false => Err(io::Error::other("somebody moves what is in it")),
        }
    }

    fn id(&self) -> Result<DirId, Errno> {
        let found = fstat(&self.dir)?;
        Ok((found.st_dev, found.st_ino))
    }

    fn next_entry(&mut self) -> Result<Option<Entry>, Errno> {
        let is_within = |entry: &Entry| ![c".", c".."].contains(&entry.file_name());
        self.entries.find(|entry| entry.as_ref().map_or(true, is_within)).transpose()
    }

    /// Removes what is no directory, and opens what is one. What has gone meanwhile is as if it had been removed.
    fn remove_or_open(&self, entry: &Entry) -> Result<Option<Self>, Errno> {
        let name: &CStr = entry.file_name();
        if matches!(entry.file_type(), None | Some(Type::Directory)) {
            match Self::open(&self.dir, name) {
                Err(Errno::ENOENT) => return Ok(None),
                Err(Errno::ENOTDIR | Errno::ELOOP) => {} // Not every file system says what is a directory.
                opened => return opened.map(Some),
            }
        }
        gone(unlinkat(&self.dir, name, UnlinkatFlags::NoRemoveDir)).map(|()| None)
    }
}

/// Whether a thing is gone: also if somebody else has removed it.
fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::ENOENT) => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test that cannot go on has failed.
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::thread;

    use nix::sys::stat::mkdirat;
    use nix::unistd::{mkfifo, symlinkat};

    use super::*;

    /// Nests directories, some of which have others and links beside them.
    fn nest(dir: &Path, outside: &Path, depth: usize) {
        let mut at = OwnedFd::from(File::open(dir).unwrap());
        let open = |at: &OwnedFd, name: &CStr| openat(at, name, OFlag::O_RDONLY, Mode::empty());
        for level in 0..depth {
            mkdirat(&at, c"nested", Mode::S_IRWXU).unwrap();
            if level % 1000 == 0 {
                symlinkat(outside, &at, c"link").unwrap();
                for name in [c"a", c"z"] {
                    mkdirat(&at, name, Mode::S_IRWXU).unwrap();
                    symlinkat(outside, open(&at, name).unwrap(), c"link").unwrap();
                }
            }
            at = open(&at, c"nested").unwrap();
        }
    }

    /// A command can bring down its whole worker otherwise.
    #[test]
    fn a_tree_goes_that_is_deeper_than_a_stack_and_no_link_in_it_is_followed() {
        // A disk may take minutes for so many directories.
        let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let at = |name: &str| place.path().join(name);
        let (tree, outside) = (at("tree"), at("outside"));
        for dir in [&tree, &outside, &tree.join("empty"), &tree.join("some/more")] {
            fs::create_dir_all(dir).unwrap();
        }
        for file in [&outside.join("precious"), &tree.join("stdout.log"), &tree.join("some/file")] {
            fs::write(file, "mine").unwrap();
        }
        symlink("nowhere", tree.join("dangling")).unwrap();
        mkfifo(&tree.join("pipe"), Mode::S_IRWXU).unwrap();
        nest(&tree, &outside, 20_000);
        let (given, small) = (tree.clone(), thread::Builder::new().stack_size(64 << 10));
        small.spawn(move || remove_tree(&given)).unwrap().join().unwrap().unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read(outside.join("precious")).unwrap(), b"mine");
    }

    #[test]
    fn of_a_link_only_the_link_goes() {
        let place = tempfile::tempdir().unwrap();
        let (link, outside) = (place.path().join("link"), place.path().join("outside"));
        fs::create_dir_all(outside.join("precious")).unwrap();
        symlink(&outside, &link).unwrap();
        remove_tree(&link).unwrap();
        assert!(fs::symlink_metadata(&link).is_err() && outside.join("precious").exists());
        assert_eq!(remove_tree(&link).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// Whoever has moved a directory out of the tree has put it where something else may be.
    #[test]
    fn nothing_goes_beside_a_directory_that_was_moved_away() {
        let place = tempfile::tempdir().unwrap();
        let (tree, outside) = (place.path().join("tree"), place.path().join("outside"));
        fs::create_dir_all(tree.join("nested")).unwrap();
        fs::create_dir_all(outside.join("precious")).unwrap();
        let expected = OpenDir::open(AT_FDCWD, &tree).unwrap().id().unwrap();
        let nested = OpenDir::open(AT_FDCWD, &tree.join("nested")).unwrap();
        assert!(nested.above(expected).is_ok());
        fs::rename(tree.join("nested"), outside.join("nested")).unwrap();
        assert!(nested.above(expected).is_err());
    }

    #[test]
    fn a_call_takes_so_many_steps_and_the_next_one_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        assert!(remove_within(4, &tree).is_err());
        assert!(tree.join("a/b").exists() && !tree.join("a/b/c").exists());
        remove_within(5, &tree).unwrap();
        assert!(!tree.exists());
    }
}
