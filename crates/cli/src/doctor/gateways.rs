//! Compares the files of agents of several gateways.

use std::collections::BTreeMap;

use tenure_core::Rejection;
use tenure_node::doctor::Finding;
use tenure_sdk::http::metrics::{GatewayMetrics, read_metrics};
use tenure_sdk::http::{HttpConnectError, HttpSettings};

use crate::answer::{Exit, Failure, human};

const CHECK: &str = "gateways.agents";

/// The metric that counts the agents of a gateway, up to the digest of their file.
const AGENTS: &str = "tenure_gateway_agents{digest=\"";

/// How much of a digest is shown.
const DIGEST_SHOWN: usize = 12;

/// What to do about a gateway that says nothing.
const SILENT: &str = "see that the gateway runs, that --gateways names it, and what its log says";

/// The advice about a gateway that refuses the caller.
const REFUSED: &str = "see that --token is one of an orchestrator or an observer";

/// What to do about an address that is none.
const ADDRESS: &str = "--gateways, or TENURE_URL, names gateways, with commas between them: http://HOST:PORT, \
                       https://HOST:PORT or unix:PATH";

/// What to do about files that differ.
const DIFFERENT: &str = "give all gateways of the cluster the same file of agents and the same task files that it \
                         names, and send each of them SIGHUP. `tenure agent list -o json` says the digest of these";

/// Asks gateways which file of agents each has, and compares the answers.
///
/// # Errors
/// The settings cannot be used.
pub(super) async fn gateways(settings: &HttpSettings) -> Result<Vec<Finding>, Failure> {
    match read_metrics(settings).await {
        Ok(pages) => Ok(judge(&pages)),
        Err(error @ HttpConnectError::Address { .. }) => Err(Failure::from(error).help(ADDRESS)),
        Err(error) => Err(error.into()),
    }
}

/// Makes findings from the metrics of gateways.
fn judge(pages: &[GatewayMetrics]) -> Vec<Finding> {
    let mut by_file: BTreeMap<ServedAgentsFile<'_>, Vec<&str>> = BTreeMap::new();
    let mut findings = Vec::new();
    for GatewayMetrics { address, text } in pages {
        match text {
            Ok(text) => by_file.entry(ServedAgentsFile::read(text)).or_default().push(address),
            Err(refused) => {
                let found = why_silent(address, refused);
                findings.push(match Exit::of(refused.code) {
                    Exit::Unavailable => Finding::bad(CHECK, found, SILENT),
                    _ => Finding::unknown(CHECK, found, REFUSED),
                });
            }
        }
    }
    let each = by_file.iter().map(|(file, at)| format!("{}: {}", at.join(", "), file.shown()));
    let found = each.collect::<Vec<_>>().join("; ");
    match by_file.len() {
        0 => {}
        1 => findings.push(Finding::good(CHECK, found)),
        _ => findings.push(Finding::caution(CHECK, found, DIFFERENT)),
    }
    findings
}

/// Why a gateway says nothing. Most reasons name it.
fn why_silent(address: &str, refused: &Rejection) -> String {
    let why = &refused.message;
    if why.contains(address) { why.clone() } else { format!("{address}: {why}") }
}

/// Which agents a gateway serves, as its metrics say it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServedAgentsFile<'a> {
    /// The digest of the file; empty: there is none.
    digest: &'a str,
    count: usize,
}

impl<'a> ServedAgentsFile<'a> {
    fn read(metrics: &'a str) -> Self {
        let sample = metrics.lines().find_map(|line| line.strip_prefix(AGENTS));
        let (digest, count) = sample.and_then(|it| it.split_once("\"} ")).unwrap_or_default();
        Self { digest, count: count.trim().parse().unwrap_or_default() }
    }

    fn shown(&self) -> String {
        let agents = human::plural(self.count, "agent");
        let short = self.digest.get(..DIGEST_SHOWN).unwrap_or(self.digest);
        match short {
            "" => "no file of agents".to_owned(),
            short => format!("{agents}, file {short}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Code;
    use tenure_node::doctor::Verdict;

    use super::*;

    fn page(address: &str, digest: &str) -> GatewayMetrics {
        let agents = match digest {
            "" => String::new(),
            digest => format!(
                "# TYPE tenure_gateway_agents gauge\ntenure_gateway_agents{{digest=\"{digest}\"}} 2\n"
            ),
        };
        let text = Ok(format!("tenure_gateway_connections 1\n{agents}tenure_gateway_streams 0\n"));
        GatewayMetrics { address: address.into(), text }
    }

    fn judged(pages: &[GatewayMetrics]) -> Vec<(Verdict, String)> {
        judge(pages).into_iter().map(|finding| (finding.verdict, finding.found)).collect()
    }

    const ONE: &str = "0123456789abcdef0123456789abcdef";
    const OTHER: &str = "fedcba9876543210fedcba9876543210";

    /// Gateways with the same file are well, also if that is none.
    #[test]
    fn gateways_with_one_file_are_well() {
        let same = judged(&[page("http://a", ONE), page("http://b", ONE)]);
        let found = "http://a, http://b: 2 agents, file 0123456789ab".to_owned();
        assert_eq!(same, [(Verdict::Good, found)]);
        let none = judged(&[page("http://a", ""), page("http://b", "")]);
        assert_eq!(none, [(Verdict::Good, "http://a, http://b: no file of agents".to_owned())]);
        assert_eq!(judged(&[]), []);
    }

    /// Gateways with different files are named, each with its own.
    #[test]
    fn gateways_with_different_files_are_told_apart() {
        let pages = [page("http://a", OTHER), page("http://b", ONE), page("http://c", "")];
        let found = "http://c: no file of agents; http://b: 2 agents, file 0123456789ab; \
                     http://a: 2 agents, file fedcba987654";
        assert_eq!(judged(&pages), [(Verdict::Caution, found.to_owned())]);
    }

    /// A gateway that does not answer is told beside what the others say.
    #[test]
    fn a_silent_gateway_hides_no_other() {
        let silent = |code, address: &str, why: &str| {
            let text = Err(Rejection::new(code, why));
            GatewayMetrics { address: address.into(), text }
        };
        let away = silent(Code::Unavailable, "http://b", "cannot reach http://b");
        let denies = silent(Code::PermissionDenied, "http://c", "metrics are for others");
        let found = judged(&[page("http://a", ONE), away, denies]);
        let expected = [
            (Verdict::Bad, "cannot reach http://b".to_owned()),
            (Verdict::Unknown, "http://c: metrics are for others".to_owned()),
            (Verdict::Good, "http://a: 2 agents, file 0123456789ab".to_owned()),
        ];
        assert_eq!(found, expected);
    }
}
