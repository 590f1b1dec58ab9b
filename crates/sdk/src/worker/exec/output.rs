//! The result a command leaves in `$TENURE_OUTPUT`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{ExecError, OUTPUT_BYTES_MAX, OutputError};
use tenure_wire::json;

/// Removes what an earlier attempt may have left.
pub(super) fn clear(path: &Path) -> Result<(), ExecError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ExecError::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// The checked result; `None` when the command left none, or an empty file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, ExecError> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ExecError::left("open", path)(error)),
    };
    if !file.metadata().map_err(ExecError::left("read", path))?.is_file() {
        return Err(OutputError::NotAFile.into());
    }
    let mut bytes = Vec::new();
    let mut limited = file.take(OUTPUT_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(ExecError::left("read", path))?;
    Ok(check(&bytes)?.map(<[u8]>::to_vec))
}

/// Opens without waiting: a command may have put a pipe in the file's place.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path)
}

/// One JSON value without the white space around it. It is checked in full, with its nesting, so that later
/// readers can parse every value that was accepted here.
fn check(bytes: &[u8]) -> Result<Option<&[u8]>, OutputError> {
    if bytes.len() as u64 > OUTPUT_BYTES_MAX {
        return Err(OutputError::TooLarge);
    }
    let text = std::str::from_utf8(bytes).map_err(OutputError::NotUtf8)?.trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    json::check(text.as_bytes()).map_err(OutputError::NotJson)?;
    Ok(Some(text.as_bytes()))
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn one_json_value_is_taken_without_the_space_around_it() {
        assert_eq!(check(b" {\"a\": 1}\n").expect("valid"), Some(&b"{\"a\": 1}"[..]));
        assert_eq!(check(b"null").expect("valid"), Some(&b"null"[..]));
    }

    #[test]
    fn an_empty_file_is_no_output() {
        assert_eq!(check(b"").expect("valid"), None);
        assert_eq!(check(b" \n").expect("valid"), None);
    }

    #[test]
    fn what_is_not_one_json_value_is_refused() {
        assert!(matches!(check(b"done"), Err(OutputError::NotJson(_))));
        assert!(matches!(check(b"1 2"), Err(OutputError::NotJson(_))));
        assert!(matches!(check(b"\"\xff\""), Err(OutputError::NotUtf8(_))));
        assert!(matches!(check("[".repeat(1000).as_bytes()), Err(OutputError::NotJson(_))));
    }

    #[test]
    fn the_limit_counts_every_byte_of_the_file() {
        let quoted = |length: u64| {
            let inside = usize::try_from(length).expect("small") - 2;
            format!("\"{}\"", "x".repeat(inside)).into_bytes()
        };
        assert!(check(&quoted(OUTPUT_BYTES_MAX)).is_ok());
        assert!(matches!(check(&quoted(OUTPUT_BYTES_MAX + 1)), Err(OutputError::TooLarge)));
    }
}
