//! The files that receive standard output and standard error, and their last lines for the summary.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use nix::fcntl::{FcntlArg, OFlag, fcntl};

use super::{ExecError, ExecPaths};
use crate::regular::open_regular;

/// The summary is for people and goes with every result, so it has at most a screenful of lines.
const TAIL_LINES_MAX: usize = 20;
const TAIL_BYTES_MAX: usize = 2 * 1024;

/// The open files, to be inherited by the command.
#[derive(Debug)]
pub(super) struct OutputFiles {
    pub(super) stdout: File,
    pub(super) stderr: File,
}

impl OutputFiles {
    pub(super) fn create(paths: &ExecPaths) -> Result<Self, ExecError> {
        Ok(Self { stdout: create(&paths.stdout)?, stderr: create(&paths.stderr)? })
    }
}

/// An empty file in append mode, so that two descriptors on the same file do not overwrite each
/// other when standard output and standard error share it.
fn create(path: &Path) -> Result<File, ExecError> {
    let make = || {
        let file = open_regular(path, OpenOptions::new().append(true).create(true))?;
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_APPEND))?; // A command inherits no other flag.
        file.set_len(0)?;
        Ok(file)
    };
    make().map_err(ExecError::file("create the log", path))
}

/// The sizes of standard output and standard error.
pub(super) fn sizes(paths: &ExecPaths) -> Result<(u64, u64), ExecError> {
    Ok((size(&paths.stdout)?, size(&paths.stderr)?))
}

fn size(path: &Path) -> Result<u64, ExecError> {
    let found = open_regular(path, OpenOptions::new().read(true)).and_then(|log| log.metadata());
    found.map(|log| log.len()).map_err(ExecError::left("read the log", path))
}

/// The last lines of standard output, and then those of standard error, which say more about a
/// failure.
pub(super) fn tail(paths: &ExecPaths) -> Result<String, ExecError> {
    let mut text = String::new();
    if paths.stdout != paths.stderr {
        text = read_end(&paths.stdout)?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
    }
    text.push_str(&read_end(&paths.stderr)?);
    Ok(last_lines(&text).to_owned())
}

/// The last part of a file, at least as long as a tail can be.
fn read_end(path: &Path) -> Result<String, ExecError> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = open_regular(path, OpenOptions::new().read(true))?;
        let skipped = file.metadata()?.len().saturating_sub(TAIL_BYTES_MAX as u64);
        file.seek(SeekFrom::Start(skipped))?;
        let mut bytes = Vec::with_capacity(TAIL_BYTES_MAX);
        file.take(TAIL_BYTES_MAX as u64).read_to_end(&mut bytes)?;
        let whole = if skipped == 0 { 0 } else { first_char(&bytes) };
        Ok(bytes.split_off(whole))
    };
    let bytes = read().map_err(ExecError::left("read the log", path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Where the first whole UTF-8 character begins when the bytes were cut anywhere.
fn first_char(bytes: &[u8]) -> usize {
    let is_continuation = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    bytes.iter().take(3).take_while(|byte| is_continuation(byte)).count()
}

/// The end of `text` within both limits: whole characters, and whole lines unless the last line
/// alone is too long.
fn last_lines(text: &str) -> &str {
    let text = text.trim_end();
    let kept = &text[text.ceil_char_boundary(text.len().saturating_sub(TAIL_BYTES_MAX))..];
    let is_cut = kept.len() < text.len() && !text[..text.len() - kept.len()].ends_with('\n');
    let kept = match kept.split_once('\n') {
        Some((_, whole_lines)) if is_cut => whole_lines,
        _ => kept,
    };
    match kept.rmatch_indices('\n').nth(TAIL_LINES_MAX - 1) {
        Some((newline, _)) => &kept[newline + 1..],
        None => kept,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    /// A command can replace its log by a link to a file of somebody else, or by a pipe.
    #[test]
    fn what_only_bears_the_name_of_a_log_is_neither_emptied_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("other"), "s3cret").unwrap();
        std::os::unix::fs::symlink("other", at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for no_log in ["link", "pipe"].map(at) {
            assert!(create(&no_log).is_err() && size(&no_log).is_err(), "{}", no_log.display());
            assert!(read_end(&no_log).is_err(), "{}", no_log.display());
        }
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "s3cret");
    }

    #[test]
    fn a_log_is_empty_and_its_writer_waits_for_room_as_any() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "of an earlier attempt").unwrap();
        let mut file = create(&path).unwrap();
        let flags = OFlag::from_bits_retain(fcntl(&file, FcntlArg::F_GETFL).unwrap());
        assert!(flags.contains(OFlag::O_APPEND) && !flags.contains(OFlag::O_NONBLOCK), "{flags:?}");
        file.write_all(b"new").unwrap();
        assert_eq!((read_end(&path).unwrap().as_str(), size(&path).unwrap()), ("new", 3));
    }

    #[test]
    fn a_short_text_is_its_own_tail() {
        assert_eq!(last_lines("one\ntwo\n"), "one\ntwo");
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn a_tail_has_at_most_twenty_lines() {
        let lines: Vec<String> = (1..=50).map(|line| line.to_string()).collect();
        assert_eq!(last_lines(&lines.join("\n")), lines[30..].join("\n"));
    }

    #[test]
    fn a_tail_drops_the_line_it_would_have_to_cut() {
        let text = format!("{}\n{}\nend", "a".repeat(3000), "b".repeat(1500));
        assert_eq!(last_lines(&text), format!("{}\nend", "b".repeat(1500)));
    }

    #[test]
    fn a_tail_keeps_a_line_that_just_fits() {
        let line = "b".repeat(TAIL_BYTES_MAX);
        assert_eq!(last_lines(&format!("a\n{line}")), line);
    }

    #[test]
    fn one_long_line_is_cut_between_characters() {
        let text = "é€x".repeat(2000);
        let tail = last_lines(&text);
        assert!(tail.len() <= TAIL_BYTES_MAX && tail.len() > TAIL_BYTES_MAX - 4);
        assert!(text.ends_with(tail));
    }

    #[test]
    fn bytes_cut_inside_a_character_begin_with_the_next_one() {
        let euro = "€€".as_bytes();
        assert_eq!([0, 1, 2, 3].map(|cut| first_char(&euro[cut..])), [0, 2, 1, 0]);
    }
}
