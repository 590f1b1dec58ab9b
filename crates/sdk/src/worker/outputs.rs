//! Shows what commands wrote, page by page, to whoever asks a node for it (ART-09).

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use tenure_ports::bus::WorkerPort;
use tenure_ports::journal::TaskKey;
use tenure_wire::bus::V;
use tenure_wire::bus::output::{
    OUTPUT_PAGE_MAX, OutputAnswer, OutputPage, OutputRequest, OutputStream,
};
use tenure_wire::bus::request::RawBytes;

use super::attempt_files::AttemptDir;
use super::pool::PoolShared;
use crate::regular::open_regular;

/// The page when there is no such file.
const NO_FILE: OutputPage = OutputPage { data: RawBytes(Vec::new()), size_bytes: None };

impl PoolShared {
    /// Reads a page and sends it to the node that asks. It does so for one request after another; nodes bound how
    /// many there are.
    pub(super) async fn show_output(self: Arc<Self>, asked: OutputRequest) {
        let _turn = self.showing.lock().await;
        let (request, node) = (asked.request, asked.node.clone());
        let files = self.options.files.clone();
        let read = move || files.map_or(Ok(NO_FILE), |files| read_page(&files, &asked));
        let read = tokio::task::spawn_blocking(read).await;
        let page = match read.map_err(io::Error::other).flatten() {
            Ok(page) => page,
            Err(error) => {
                tracing::warn!(%error, "what a command wrote cannot be shown");
                NO_FILE
            }
        };
        self.port.show_output(&node, OutputAnswer { v: V, request, page }).await;
    }
}

/// Reads a page of the log of an Attempt, which has its place below the directory for all files.
fn read_page(files: &Path, asked: &OutputRequest) -> io::Result<OutputPage> {
    let (session_id, task_id) = (asked.session_id.clone(), asked.task_id.clone());
    let task = TaskKey { session_id, task_id };
    let dir = AttemptDir::new(&fs::canonicalize(files)?, &task, &asked.step_id, asked.ordinal);
    read_output_page(&dir, asked.stream, asked.from)
}

/// Reads a page of what the command of an Attempt wrote, from this byte on. The path of the directory for
/// all files must have no links in it.
///
/// # Errors
/// The system refuses, or a link is in the place of the directory of the Attempt or of the file.
pub fn read_output_page(
    dir: &AttemptDir,
    stream: OutputStream,
    from: u64,
) -> io::Result<OutputPage> {
    match fs::canonicalize(dir.path()) {
        Ok(real) if real == dir.path() => {}
        // A command can replace the directory by a link to another.
        Ok(_) => return Err(io::Error::other("its directory is a link")),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(NO_FILE),
        Err(error) => return Err(error),
    }
    let path = match stream {
        OutputStream::Stdout => dir.stdout(),
        OutputStream::Stderr => dir.stderr(),
    };
    let Some(mut file) = open_log(&path)? else { return Ok(NO_FILE) };
    let size = file.metadata()?.len();
    let mut data = Vec::new();
    if from < size {
        file.seek(SeekFrom::Start(from))?;
        file.take(OUTPUT_PAGE_MAX as u64).read_to_end(&mut data)?;
    }
    Ok(OutputPage { data: RawBytes(data), size_bytes: Some(size) })
}

/// A log as a file; none if there is none. A command can replace its log by a link to another file, or by
/// a pipe, on which to wait: neither is a log.
///
/// # Errors
/// The system refuses, or it is no regular file.
pub fn open_log(path: &Path) -> io::Result<Option<File>> {
    match open_regular(path, File::options().read(true)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn asked(step: &str, from: u64) -> OutputRequest {
        OutputRequest {
            request: 1,
            node: "n1".into(),
            session_id: "s".parse().unwrap(),
            task_id: "t".parse().unwrap(),
            step_id: step.parse().unwrap(),
            ordinal: 1,
            stream: OutputStream::Stdout,
            from,
        }
    }

    /// The directory for all files, in which an Attempt of this Step has written so.
    fn written(step: &str, text: &[u8]) -> tempfile::TempDir {
        let files = tempfile::tempdir().unwrap();
        let dir = files.path().join("s/t").join(step).join("1");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("stdout.log"), text).unwrap();
        files
    }

    #[test]
    fn a_link_or_a_pipe_is_no_log() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("log"), "text").unwrap();
        symlink("log", at("link")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(open_log(&at("log")).unwrap().is_some());
        assert!(open_log(&at("none")).unwrap().is_none());
        for no_log in ["link", "pipe", "."] {
            assert!(open_log(&at(no_log)).is_err(), "{no_log}");
        }
    }

    /// ART-09: a page has 256 KiB at most, and is empty at the end and behind it.
    #[test]
    fn a_page_is_bounded() {
        let text = [b"x".repeat(OUTPUT_PAGE_MAX), b"y".to_vec()].concat();
        let files = written("a", &text);
        let size = text.len() as u64;
        let read = |from| {
            let page = read_page(files.path(), &asked("a", from)).unwrap();
            assert_eq!(page.size_bytes, Some(size), "{from}");
            page.data.0
        };
        assert_eq!(read(0), b"x".repeat(OUTPUT_PAGE_MAX), "one byte more than a page is there");
        assert_eq!(read(1), text[1..], "as many as a page");
        assert_eq!(read(size - 1), b"y");
        for behind in [size, size + 1, u64::MAX] {
            assert_eq!(read(behind), b"", "{behind}");
        }
        assert_eq!(read_page(files.path(), &asked("b", 0)).unwrap(), NO_FILE);
    }

    /// ART-09: a worker reads below its own directory alone, and follows no link out of it.
    #[test]
    fn what_a_command_has_linked_to_is_not_shown() {
        let files = written("a", b"mine");
        let other = written("a", b"another's");
        for (step, to) in [("away", other.path()), ("beside", files.path())] {
            let linked = files.path().join("s/t").join(step);
            fs::create_dir_all(&linked).unwrap();
            symlink(to.join("s/t/a/1"), linked.join("1")).unwrap();
            assert!(read_page(files.path(), &asked(step, 0)).is_err(), "{step}");
        }
        let log = files.path().join("s/t/a/1/stdout.log");
        assert_eq!(read_page(files.path(), &asked("a", 0)).unwrap().data.0, b"mine");
        fs::remove_file(&log).unwrap();
        symlink(other.path().join("s/t/a/1/stdout.log"), &log).unwrap();
        assert!(read_page(files.path(), &asked("a", 0)).is_err());
    }
}
