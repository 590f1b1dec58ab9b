//! Checks what this machine shows to others: files with secrets, the data directory, and gateways without a login.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tenure_node::doctor::Finding;
use tenure_sdk::http::HttpSettings;
use tenure_sdk::http::metrics::read_metrics;

use crate::serve::ExposedSettings;

/// The bits of a file's mode for users who are neither its owner nor in its group.
const OTHERS: u32 = 0o007;
/// The bits that let others than the owner write.
const WRITE: u32 = 0o022;
/// The bits that let others than the owner read.
const READ: u32 = 0o044;

/// The advice about a gateway without a login.
const CALLERS: &str = "name a file of callers with --http-callers (docs/http.md, Identity)";

/// Makes findings from the settings of a node.
pub(super) fn judge(settings: &ExposedSettings, data: Option<&Path>) -> Vec<Finding> {
    let mut findings = vec![files(settings)];
    findings.extend(data.and_then(directory));
    findings.extend(doors(settings));
    findings
}

fn rights(path: &Path) -> Option<u32> {
    Some(std::fs::metadata(path).ok()?.permissions().mode() & 0o777)
}

/// Files with secrets, and the file that says who is let in.
fn files(settings: &ExposedSettings) -> Finding {
    const CHECK: &str = "files.secrets";
    const ADVICE: &str = "chmod 600, and chown to the user of the service";
    let (mut open, mut shared, mut away, mut good) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let callers = settings.callers.iter().map(|path| ("http-callers", path, WRITE));
    let of_metrics = settings.metrics_callers.iter().map(|path| ("metrics-callers", path, WRITE));
    let secrets = settings.secrets.iter().map(|(name, path)| (*name, path, WRITE | READ));
    for (name, path, unwanted) in secrets.chain(callers).chain(of_metrics) {
        let shown = |mode: u32| format!("--{name} {} has mode {mode:04o}", path.display());
        match rights(path) {
            None => away.push(format!("--{name} {} cannot be looked at", path.display())),
            Some(mode) if mode & unwanted & (OTHERS | WRITE) != 0 => open.push(shown(mode)),
            Some(mode) if mode & unwanted != 0 => shared.push(shown(mode)),
            Some(_) => good += 1,
        }
    }
    if !open.is_empty() {
        let found = format!("{}: others than its user can read or change it", open.join(", "));
        return Finding::bad(CHECK, found, ADVICE);
    }
    if !away.is_empty() {
        return Finding::unknown(
            CHECK,
            away.join(", "),
            "see that it is there, and ask as its user",
        );
    }
    if !shared.is_empty() {
        let found = format!("{}: its group can read it", shared.join(", "));
        return Finding::caution(CHECK, found, ADVICE);
    }
    Finding::good(
        CHECK,
        match good {
            0 => "no setting names one".to_owned(),
            _ => format!("{good} looked at: only their user can read them"),
        },
    )
}

/// The data directory of `tenure run` and `tenure dev`, if there is one.
fn directory(path: &Path) -> Option<Finding> {
    const CHECK: &str = "files.data";
    let mode = rights(path).filter(|_| path.is_dir())?;
    let found = format!("{} has mode {mode:04o}", path.display());
    Some(match mode & 0o077 {
        0 => Finding::good(CHECK, format!("only its user can look into {}", path.display())),
        rest if rest & 0o022 != 0 => Finding::bad(
            CHECK,
            format!("{found}: others can change the history in it"),
            "chmod 700: whoever may write there decides what has happened",
        ),
        _ => Finding::caution(
            CHECK,
            format!("{found}: others can read the inputs and outputs of steps in it"),
            "chmod 700",
        ),
    })
}

/// Gateways through which anybody can run commands without a login.
fn doors(settings: &ExposedSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(address) = settings.http {
        findings.push(match &settings.callers {
            Some(_) => Finding::good("http.callers", format!("{address} asks who comes")),
            None => Finding::caution(
                "http.callers",
                format!(
                    "{address} lets in whoever reaches it on this machine, and workers run the commands of their tasks"
                ),
                CALLERS,
            ),
        });
        if !settings.has_tls && !address.ip().is_loopback() {
            findings.push(Finding::caution(
                "http.tls",
                format!("{address} speaks no TLS: tokens can be read on their way"),
                "--http-cert and --http-key, or a proxy on the same machine that speaks TLS",
            ));
        }
    }
    if settings.trusts_tokens {
        findings.push(Finding::bad(
            "macp.tokens",
            "a caller of MACP is whoever it says: its token is taken as its name",
            "leave out --macp-trust-tokens, which is for trying things out",
        ));
    }
    findings
}

/// Whether gateways let somebody in who has no token.
pub(super) async fn gateways(settings: &HttpSettings) -> Option<Finding> {
    const CHECK: &str = "gateways.callers";
    let nobody = HttpSettings { token: None, ..settings.clone() };
    let pages = read_metrics(&nobody).await.ok()?;
    let is_near = |address: &str| {
        [
            "http://127.",
            "https://127.",
            "http://localhost",
            "https://localhost",
            "http://[::1]",
            "unix:",
        ]
        .iter()
        .any(|near| address.starts_with(near))
    };
    let lets_in: Vec<&str> =
        pages.iter().filter(|page| page.text.is_ok()).map(|page| page.address.as_str()).collect();
    Some(match &lets_in[..] {
        [] => Finding::good(CHECK, "who has no token is not let in"),
        near if near.iter().all(|address| is_near(address)) => Finding::caution(
            CHECK,
            format!("{} let in whoever reaches them on this machine", near.join(", ")),
            CALLERS,
        ),
        far => Finding::bad(
            CHECK,
            format!(
                "{} let in whoever reaches them, and workers run the commands of their tasks",
                far.join(", ")
            ),
            CALLERS,
        ),
    })
}

/// The data directory to look at: the one that is named, or the usual one if it is there.
pub(super) fn data_dir(named: Option<&PathBuf>) -> Option<PathBuf> {
    let usual = || Some(PathBuf::from(".tenure")).filter(|path| path.is_dir());
    named.cloned().or_else(usual)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use tenure_node::doctor::Verdict;

    use super::*;

    fn settings(
        secrets: Vec<(&'static str, PathBuf)>,
        callers: Option<PathBuf>,
    ) -> ExposedSettings {
        ExposedSettings {
            secrets,
            callers,
            metrics_callers: None,
            http: None,
            has_tls: false,
            trusts_tokens: false,
        }
    }

    #[test]
    fn files_are_judged_by_who_else_can_get_at_them() {
        use Verdict::{Bad, Caution, Good, Unknown};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "s3cret").unwrap();
        for (mode, as_secret, as_callers) in [
            (0o600, Good, Good),
            (0o400, Good, Good),
            (0o640, Caution, Good),
            (0o604, Bad, Good),
            (0o644, Bad, Good),
            (0o620, Bad, Bad),
            (0o602, Bad, Bad),
        ] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let secret = files(&settings(vec![("config", path.clone())], None));
            let callers = files(&settings(Vec::new(), Some(path.clone())));
            let metrics_callers = Some(path.clone());
            let of_metrics =
                files(&ExposedSettings { metrics_callers, ..settings(Vec::new(), None) });
            assert_eq!(
                [secret.verdict, callers.verdict, of_metrics.verdict],
                [as_secret, as_callers, as_callers],
                "{mode:o}: {secret:?} {of_metrics:?}"
            );
            assert!(!format!("{secret:?}{callers:?}").contains("s3cret"));
        }
        assert_eq!(files(&settings(Vec::new(), None)).verdict, Good);
        let gone = settings(vec![("http-key", dir.path().join("gone"))], None);
        assert_eq!(files(&gone).verdict, Unknown);
    }

    #[test]
    fn a_data_directory_is_for_its_user() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, verdict) in [
            (0o700, Verdict::Good),
            (0o750, Verdict::Caution),
            (0o755, Verdict::Caution),
            (0o770, Verdict::Bad),
        ] {
            fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(directory(dir.path()).unwrap().verdict, verdict, "{mode:o}");
        }
        assert_eq!(directory(&dir.path().join("gone")), None);
    }

    #[test]
    fn a_door_without_a_login_is_found() {
        let open = |address: &str, callers: Option<&str>| {
            let base = settings(Vec::new(), callers.map(PathBuf::from));
            doors(&ExposedSettings { http: Some(address.parse().unwrap()), ..base })
        };
        let checks = |findings: Vec<Finding>| {
            findings.iter().map(|it| (it.check, it.verdict)).collect::<Vec<_>>()
        };
        assert_eq!(checks(open("127.0.0.1:8080", None)), [("http.callers", Verdict::Caution)]);
        assert_eq!(
            checks(open("127.0.0.1:8080", Some("who.toml"))),
            [("http.callers", Verdict::Good)]
        );
        let far = checks(open("10.0.0.1:8080", Some("who.toml")));
        assert_eq!(far, [("http.callers", Verdict::Good), ("http.tls", Verdict::Caution)]);
        let trusting = ExposedSettings { trusts_tokens: true, ..settings(Vec::new(), None) };
        assert_eq!(checks(doors(&trusting)), [("macp.tokens", Verdict::Bad)]);
    }
}
