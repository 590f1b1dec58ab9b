//! Says why the system did not start a program. Its own words are the same for many mistakes: "No such file
//! or directory" also stands for a script whose interpreter is missing.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::libc::{E2BIG, EACCES, ENOENT, O_NONBLOCK};

use super::{ExecSpec, Program};

/// The kernel reads no more of the first line of a script.
const FIRST_LINE_MAX: u64 = 256;

/// The reason for people, as far as the files show it, and what the system said.
pub(in crate::worker) fn why_not_started(spec: &ExecSpec, error: &io::Error) -> String {
    let Program::Direct { program, .. } = spec.program() else { return error.to_string() };
    let found = match program.contains('/') {
        true => Some(spec.cwd().unwrap_or(Path::new("")).join(program)),
        false => in_path(program, &search_path(spec), spec.cwd()),
    };
    let why = match (error.raw_os_error(), found) {
        (Some(E2BIG), _) => Some("its arguments and environment are too large".to_owned()),
        (Some(ENOENT | EACCES), None) => Some("no directory of PATH has it".to_owned()),
        (Some(ENOENT), Some(file)) => Some(what_is_missing(&file)),
        (Some(EACCES), Some(file)) => what_is_denied(&file),
        _ => None,
    };
    why.map_or_else(|| error.to_string(), |why| format!("{why} ({error})"))
}

/// The `PATH` of the command, in which the system looks for it.
fn search_path(spec: &ExecSpec) -> OsString {
    let own = spec.env().get("PATH").map(OsString::from);
    own.or_else(|| std::env::var_os("PATH")).unwrap_or_default()
}

/// The first file of this name.
fn in_path(program: &str, path: &OsString, cwd: Option<&Path>) -> Option<PathBuf> {
    let from = cwd.unwrap_or(Path::new(""));
    let mut files = std::env::split_paths(path).map(|dir| from.join(dir).join(program));
    files.find(|file| file.symlink_metadata().is_ok())
}

fn what_is_missing(file: &Path) -> String {
    let shown = file.display();
    if file.symlink_metadata().is_err() {
        return format!("there is no file `{shown}`");
    }
    if file.metadata().is_err() {
        return format!("`{shown}` is a symbolic link to a file that is not there");
    }
    match interpreter(file) {
        Some(name) if name.ends_with('\r') => format!(
            "the first line of `{shown}` ends in a carriage return, which the system takes for a part of the \
             interpreter's name: give the file the line ends of Unix"
        ),
        Some(name) => {
            format!("`{shown}` needs the interpreter `{name}`, which is not there")
        }
        None => {
            format!("`{shown}` needs a loader that is not there: it was built for another system")
        }
    }
}

fn what_is_denied(file: &Path) -> Option<String> {
    let shown = file.display();
    let found = fs::metadata(file).ok()?;
    if found.is_dir() {
        return Some(format!("`{shown}` is a directory"));
    }
    if !found.is_file() {
        return Some(format!("`{shown}` is a pipe, a socket or a device, and no program"));
    }
    if found.permissions().mode() & 0o111 == 0 {
        return Some(format!("`{shown}` has no permission to be executed: chmod +x gives it"));
    }
    let name = interpreter(file)?;
    Some(format!("`{shown}`, or its interpreter `{name}`, may not be executed by this user"))
}

/// The interpreter that the first line of a script names, with the carriage return if the line ends in one.
fn interpreter(file: &Path) -> Option<String> {
    let mut start = Vec::new();
    // A pipe that a command has put there since would be waited for.
    let file = File::options().read(true).custom_flags(O_NONBLOCK).open(file).ok()?;
    file.take(FIRST_LINE_MAX).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let words = line.trim_start_matches([' ', '\t']);
    words.split([' ', '\t']).next().filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::unwrap_used)]
mod tests {
    use nix::sys::stat::Mode;
    use serde_json::json;

    use super::*;

    /// Why a program with this text and these rights does not start, if the system says this of it.
    fn of_file(text: Option<&str>, mode: u32, errno: i32) -> String {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool");
        if let Some(text) = text {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let spec = json!({ "command": ["./tool"], "cwd": dir.path() });
        let spec: ExecSpec = serde_json::from_value(spec).unwrap();
        let why = why_not_started(&spec, &io::Error::from_raw_os_error(errno));
        why.replace(&*dir.path().to_string_lossy(), "DIR").replace("/./", "/")
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        assert!(of_file(None, 0, ENOENT).starts_with("there is no file `DIR/tool` (No such file"));
    }

    #[test]
    fn a_missing_interpreter_is_named() {
        let why = of_file(Some("#!/no/such/python -u\nprint()"), 0o755, ENOENT);
        assert!(why.contains("`DIR/tool` needs the interpreter `/no/such/python`"), "{why}");
        let why = of_file(Some("#! /bin/sh\r\necho\r\n"), 0o755, ENOENT);
        assert!(why.contains("ends in a carriage return"), "{why}");
        assert!(of_file(Some("\x7fELF"), 0o755, ENOENT).contains("built for another system"));
    }

    #[test]
    fn a_file_without_the_permission_is_told_from_a_directory() {
        let why = of_file(Some("#!/bin/sh\n"), 0o644, EACCES);
        assert!(why.starts_with("`DIR/tool` has no permission to be executed"), "{why}");
        let dir = tempfile::tempdir().unwrap();
        let spec: ExecSpec = serde_json::from_value(json!({ "command": [dir.path()] })).unwrap();
        let why = why_not_started(&spec, &io::Error::from_raw_os_error(EACCES));
        assert!(why.contains("is a directory (Permission denied"), "{why}");
    }

    /// An earlier command may have left a pipe there, which nobody writes to.
    #[test]
    fn a_pipe_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("tool");
        nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
        let spec: ExecSpec = serde_json::from_value(json!({ "command": [&pipe] })).unwrap();
        let why = why_not_started(&spec, &io::Error::from_raw_os_error(EACCES));
        assert!(why.contains("/tool` is a pipe, a socket or a device, and no program ("), "{why}");
        assert_eq!(interpreter(&pipe), None, "one that takes the place of a file just then");
    }

    #[test]
    fn a_name_is_looked_up_in_the_path_of_the_command() {
        let why = |path: &str, errno| {
            let spec = json!({ "command": ["tool"], "env": { "PATH": path } });
            let spec: ExecSpec = serde_json::from_value(spec).unwrap();
            why_not_started(&spec, &io::Error::from_raw_os_error(errno))
        };
        assert!(why("/no/such/place", ENOENT).starts_with("no directory of PATH has it ("));
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tool"), "#!/bin/sh\n").unwrap();
        let path = format!("/no/such/place:{}", dir.path().display());
        assert!(why(&path, EACCES).contains("/tool` has no permission to be executed"));
    }
}
