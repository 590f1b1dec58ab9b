//! The places where a worker finds secrets.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::{SecretError, SecretName, VALUE_BYTES_MAX};
use crate::worker::withhold;

/// How long a program may take to answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// How a prefix of variables begins. Commands do not inherit such variables, and none of them is a login of the worker.
const PREFIX: &str = "TENURE_SECRET_";

/// The exit status with which a program says that there is no secret of this name.
const NONE_OF_THIS_NAME: i32 = 1;

/// A place where secrets are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// Variables of the worker's environment whose names begin with this.
    Env(String),
    /// Files of a directory, each named as its secret.
    Dir(PathBuf),
    /// A program that is given the name, and writes the value.
    Command(PathBuf),
}

/// `env:PREFIX`, `dir:PATH` or `command:PATH`.
impl FromStr for SecretSource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let path = |path: &str| {
            let path = Path::new(path);
            match path.is_absolute() {
                true => Ok(path.to_owned()),
                false => Err(format!("{} is no absolute path", path.display())),
            }
        };
        match text.split_once(':') {
            Some(("env", prefix)) if prefix.starts_with(PREFIX) => Ok(Self::Env(prefix.to_owned())),
            Some(("env", _)) => Err(format!(
                "a prefix of variables begins with {PREFIX}: commands do not inherit such variables, and no login of \
                 the worker is one"
            )),
            Some(("dir", dir)) => path(dir).map(Self::Dir),
            Some(("command", program)) => path(program).map(Self::Command),
            _ => Err("it is env:PREFIX, dir:PATH or command:PATH".to_owned()),
        }
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(prefix) => write!(f, "variables {prefix}…"),
            Self::Dir(path) => write!(f, "files in {}", path.display()),
            Self::Command(path) => write!(f, "the program {}", path.display()),
        }
    }
}

/// The places where a worker has secrets, in the order in which they are searched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretSources(Vec<SecretSource>);

impl SecretSources {
    /// These places. A secret is that of the first place that has one of this name.
    pub fn of(sources: impl IntoIterator<Item = SecretSource>) -> Self {
        Self(sources.into_iter().collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a secret.
    ///
    /// # Errors
    /// No place has it, what it has is no text without NUL, or a place cannot be read now.
    pub async fn read(&self, name: &SecretName) -> Result<String, SecretError> {
        for source in &self.0 {
            if let Some(bytes) = source.read(name).await? {
                return text_of(name, bytes);
            }
        }
        let searched = match self.0.is_empty() {
            true => "it was started without --secrets".to_owned(),
            false => {
                let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
                format!("it was searched for among {}", all.join(", "))
            }
        };
        Err(SecretError::Missing { name: name.clone(), searched })
    }
}

impl SecretSource {
    /// The bytes of a secret; none if it is not here.
    async fn read(&self, name: &SecretName) -> Result<Option<Vec<u8>>, SecretError> {
        match self {
            Self::Env(prefix) => {
                use std::os::unix::ffi::OsStringExt as _;
                let value = std::env::var_os(format!("{prefix}{name}"));
                Ok(value.map(|value| value.into_vec()))
            }
            Self::Dir(dir) => {
                let (path, of) = (dir.join(name.as_str()), name.clone());
                let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                read.map_err(io::Error::other).flatten().map_err(|error| unavailable(of, &error))
            }
            Self::Command(program) => ask(program, name).await,
        }
    }
}

/// The content of a file, without the end of its last line; none if there is no such file.
fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Without waiting: somebody may have put a pipe there.
    let opened =
        std::fs::OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(VALUE_BYTES_MAX as u64 + 2).read_to_end(&mut bytes)?;
    Ok(Some(without_line_end(bytes)))
}

/// Has a program say a secret. It gets the environment of the worker without its logins.
async fn ask(program: &Path, name: &SecretName) -> Result<Option<Vec<u8>>, SecretError> {
    let mut command = std::process::Command::new(program);
    withhold(&mut command);
    command.arg(name.as_str()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut command = Command::from(command);
    command.kill_on_drop(true);
    let asked = async {
        let mut child = command.spawn()?;
        let mut bytes = Vec::new();
        if let Some(written) = child.stdout.take() {
            written.take(VALUE_BYTES_MAX as u64 + 2).read_to_end(&mut bytes).await?;
        }
        Ok::<_, io::Error>((child.wait().await?, bytes))
    };
    let ended = timeout(ANSWERS_WITHIN, asked)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let (status, bytes) = ended.map_err(|error| unavailable(name.clone(), &error))?;
    match status.code() {
        Some(0) => Ok(Some(without_line_end(bytes))),
        Some(NONE_OF_THIS_NAME) => Ok(None),
        _ => {
            let why = format!("the program {} ended with {status}", program.display());
            Err(SecretError::Unavailable { name: name.clone(), why })
        }
    }
}

fn without_line_end(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    bytes
}

/// The value as a text that may stand in an environment. No message holds a part of it.
fn text_of(name: &SecretName, bytes: Vec<u8>) -> Result<String, SecretError> {
    let unusable = |why: &str| SecretError::Unusable { name: name.clone(), why: why.to_owned() };
    if bytes.is_empty() {
        return Err(unusable("it is empty"));
    }
    if bytes.len() > VALUE_BYTES_MAX {
        return Err(unusable("it has more than 64 KiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| unusable("it is no text in UTF-8"))?;
    match text.contains('\0') {
        true => Err(unusable("it has a NUL byte")),
        false => Ok(text),
    }
}

fn unavailable(name: SecretName, error: &io::Error) -> SecretError {
    SecretError::Unavailable { name, why: error.to_string() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn name(text: &str) -> SecretName {
        SecretName::new(text).unwrap()
    }

    #[test]
    fn sources_are_read_as_options_write_them() {
        assert_eq!("dir:/run/secrets".parse(), Ok(SecretSource::Dir("/run/secrets".into())));
        assert_eq!("command:/bin/get".parse(), Ok(SecretSource::Command("/bin/get".into())));
        let prefix = "TENURE_SECRET_CI_";
        assert_eq!(format!("env:{prefix}").parse(), Ok(SecretSource::Env(prefix.to_owned())));
        // A prefix that also names logins, or what commands inherit, would hand these out.
        for wrong in
            ["env:", "env:TENURE_", "env:CI_", "dir:secrets", "command:get", "file:/x", "x"]
        {
            assert!(wrong.parse::<SecretSource>().is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn the_first_place_that_has_a_secret_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (dir.path().join("one"), dir.path().join("other"));
        for (at, names) in [(&one, &["a", "empty"][..]), (&other, &["a", "b"])] {
            std::fs::create_dir(at).unwrap();
            for name in names {
                std::fs::write(
                    at.join(name),
                    format!("{}-{name}\r\n", at.file_name().unwrap().display()),
                )
                .unwrap();
            }
        }
        std::fs::write(one.join("empty"), "\n").unwrap();
        std::fs::write(one.join("long"), "x".repeat(VALUE_BYTES_MAX + 1)).unwrap();
        std::fs::write(one.join("bytes"), b"\xff").unwrap();
        std::fs::create_dir(one.join("dir")).unwrap();
        let sources = SecretSources::of([SecretSource::Dir(one), SecretSource::Dir(other)]);
        assert_eq!(sources.read(&name("a")).await.unwrap(), "one-a");
        assert_eq!(sources.read(&name("b")).await.unwrap(), "other-b");
        for (wrong, code) in [
            ("c", "secret_missing"),
            ("empty", "secret_unusable"),
            ("long", "secret_unusable"),
            ("bytes", "secret_unusable"),
            ("dir", "secret_unavailable"),
        ] {
            let refused = sources.read(&name(wrong)).await.unwrap_err();
            assert_eq!(refused.code(), code, "{refused}");
        }
    }

    #[tokio::test]
    async fn a_program_is_given_the_name_and_no_login() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("get");
        let lines = "case $1 in\n db) echo \"value-of-$1${TENURE_TOKEN:-}\" ;;\n none) exit 1 ;;\n \
                     *) exit 3 ;;\nesac\n";
        std::fs::write(&program, format!("#!/bin/sh\n{lines}")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let sources = SecretSources::of([SecretSource::Command(program)]);
        assert_eq!(sources.read(&name("db")).await.unwrap(), "value-of-db");
        assert_eq!(sources.read(&name("none")).await.unwrap_err().code(), "secret_missing");
        let failed = sources.read(&name("broken")).await.unwrap_err();
        assert_eq!((failed.code(), failed.is_retryable()), ("secret_unavailable", true));
        let nowhere = SecretSources::of([SecretSource::Command("/no/such/program".into())]);
        assert_eq!(nowhere.read(&name("db")).await.unwrap_err().code(), "secret_unavailable");
    }
}
