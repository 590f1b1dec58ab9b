//! Bounds the files with the output of a command, so that a command that prints for ever does not fill the disk.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::sleep;

use super::{ExecPaths, blocking};
use crate::regular::open_regular;
use crate::secrets::CUTS;

/// How long each of the two files of an Attempt may get. When it is longer, what is in it is dropped, and the
/// command goes on in the same file.
pub(super) const LOG_BYTES_MAX: u64 = 1 << 30;

/// How often a running command's files are looked at. In that time they may get longer.
const LOOK: Duration = Duration::from_secs(5);

/// Does work, and meanwhile keeps the files within the bound.
pub(super) async fn bounded<T>(paths: &ExecPaths, work: impl Future<Output = T>) -> T {
    let logs = [paths.stdout.clone(), paths.stderr.clone()];
    tokio::select! {
        biased;
        done = work => done,
        never = look_for_ever(logs) => match never {},
    }
}

async fn look_for_ever(logs: [PathBuf; 2]) -> std::convert::Infallible {
    loop {
        sleep(LOOK).await;
        let logs = logs.clone();
        let cuts = blocking(move || {
            for log in &logs {
                if let Err(error) = cut(log, LOG_BYTES_MAX) {
                    tracing::debug!(file = %log.display(), %error, "an output cannot be bounded");
                }
            }
            Ok(())
        });
        let _ = cuts.await; // The runtime is shutting down.
    }
}

/// Empties a file that is too long, and writes a line that says so. Commands append to it, so they go on behind that.
/// A command can replace its log by a link to another file, or by a pipe: neither is its log, and stays as it is.
fn cut(log: &Path, max: u64) -> io::Result<()> {
    let mut file = open_regular(log, OpenOptions::new().append(true))?;
    let bytes = file.metadata()?.len();
    if bytes <= max {
        return Ok(());
    }
    let _nobody_masks = CUTS.write();
    file.set_len(0)?;
    writeln!(file, "[tenure: {bytes} bytes before this line were dropped: a log may have {max}]")?;
    tracing::warn!(file = %log.display(), bytes, "the output of a command was too long, and is dropped so far");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_command_whose_output_was_dropped_goes_on_behind_a_line_that_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("stdout.log");
        let mut command = OpenOptions::new().create(true).append(true).open(&log).unwrap();
        command.write_all(b"0123456789").unwrap();
        cut(&log, 10).unwrap();
        assert_eq!(fs::read(&log).unwrap(), b"0123456789");
        command.write_all(b"ab").unwrap();
        cut(&log, 10).unwrap();
        command.write_all(b"cd").unwrap();
        let text = fs::read_to_string(&log).unwrap();
        assert_eq!(text, "[tenure: 12 bytes before this line were dropped: a log may have 10]\ncd");
    }
    /// Otherwise stars might come to a place where another text is by then.
    #[test]
    fn no_log_is_emptied_while_a_secret_is_masked() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("stdout.log");
        fs::write(&log, "0123456789").unwrap();
        let masks = CUTS.read();
        let (tell, told) = std::sync::mpsc::channel();
        let path = log.clone();
        std::thread::spawn(move || tell.send(cut(&path, 1).is_ok()));
        assert!(told.recv_timeout(Duration::from_millis(200)).is_err());
        assert_eq!(fs::read(&log).unwrap(), b"0123456789");
        drop(masks);
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(true));
    }
    #[test]
    fn a_file_to_which_a_log_is_a_link_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("other"), "0123456789").unwrap();
        symlink("other", at("stdout.log")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for no_log in ["stdout.log", "pipe", "none"] {
            assert!(cut(&at(no_log), 1).is_err(), "{no_log}");
        }
        assert_eq!(fs::read(at("other")).unwrap(), b"0123456789");
        assert!(!at("none").exists());
    }
}
