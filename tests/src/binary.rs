//! The program under test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// The binary: the one that `TENURE_BIN` names, else one built from the sources that are there.
///
/// # Errors
/// It does not build.
pub fn tenure() -> Result<&'static Path> {
    static BUILT: OnceLock<std::result::Result<PathBuf, String>> = OnceLock::new();
    match BUILT.get_or_init(|| build().map_err(|error| format!("{error:#}"))) {
        Ok(path) => Ok(path),
        Err(error) => bail!("{error}"),
    }
}

fn build() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("TENURE_BIN") {
        return Ok(path.into());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // What cargo says of this package are other variables than those of the build before, and some build
    // scripts look at them: half of all dependencies would be built anew.
    let told = std::env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    told.for_each(|name| {
        command.env_remove(name);
    });
    // With the features of the workspace, as the tests themselves: else many dependencies are built anew.
    command.args(["build", "--quiet", "--workspace", "--bin", "tenure", "--message-format=json"]);
    if cfg!(feature = "grpc") {
        command.args(["--features", "tenure/grpc"]);
    }
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = command.current_dir(root).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "tenure does not build");
    let lines = output.stdout.split(|&byte| byte == b'\n');
    let messages = lines.filter_map(|l| serde_json::from_slice::<serde_json::Value>(l).ok());
    let mut paths = messages.filter_map(|message| Some(message["executable"].as_str()?.into()));
    paths.next_back().context("cargo named no binary")
}

/// A started process that does not outlive the test.
#[derive(Debug)]
pub struct Running {
    child: Child,
}

/// What a process left behind.
#[derive(Debug, Clone)]
pub struct Ended {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it said.
    pub stderr: String,
}

impl Running {
    /// Starts a process with its output in pipes.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self { child: command.spawn().context("tenure does not start")? })
    }

    /// The process.
    pub fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id().cast_signed())
    }

    /// Ends it without a warning.
    ///
    /// # Errors
    /// It could not be signalled.
    pub fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }

    /// Whether it has ended by itself.
    ///
    /// # Errors
    /// It cannot be asked.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end, and fails if that takes too long.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn end(mut self, within: Duration) -> Result<Ended> {
        let stdout = drain(self.child.stdout.take());
        let stderr = drain(self.child.stderr.take());
        let deadline = Instant::now() + within;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let (out, err) = (stdout.join(), stderr.join());
                bail!("tenure did not end within {within:?}\n{out:?}\n{err:?}");
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
        Ok(Ended { status, stdout: text(stdout), stderr: text(stderr) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drain(pipe: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
