//! Checks the NATS server that was reached: its version, its limits, and which rights each user
//! has.

use async_nats::ServerInfo;
use tenure_wire::bus::MESSAGE_MAX;

use super::{Finding, bytes, version};

/// The oldest version that has what the log needs: atomic batches.
const OLDEST: (u32, u32) = (2, 12);
/// The version that tests run against.
const TRIED: (u32, u32) = (2, 15);

/// Judges what a server says of itself. `is_near`: as it seems, only this machine reaches it.
pub fn judge(info: &ServerInfo, is_near: bool) -> Vec<Finding> {
    vec![age(info), payload(info), tls(info, is_near)]
}

fn age(info: &ServerInfo) -> Finding {
    const CHECK: &str = "nats.version";
    let found = format!("nats-server {}", info.version);
    match version(&info.version) {
        old if old < OLDEST => Finding::bad(CHECK, found, "take 2.12 or newer, best 2.15"),
        old if old < TRIED => {
            Finding::caution(CHECK, found, "it should do; Tenure is tested with 2.15")
        }
        _ => Finding::good(CHECK, found),
    }
}

fn payload(info: &ServerInfo) -> Finding {
    const CHECK: &str = "nats.payload";
    let most = bytes(info.max_payload as u64);
    let found = format!("messages may have {most}");
    match info.max_payload {
        MESSAGE_MAX.. => Finding::good(CHECK, found),
        _ => Finding::bad(CHECK, found, "set `max_payload: 1MB`: nodes do not start otherwise"),
    }
}

fn tls(info: &ServerInfo, is_near: bool) -> Finding {
    const CHECK: &str = "nats.tls";
    match (info.tls_required, is_near) {
        (true, _) => Finding::good(CHECK, "connections have TLS"),
        (false, true) => Finding::good(CHECK, "no TLS, on this machine"),
        (false, false) => Finding::caution(
            CHECK,
            "connections may go without TLS: passwords and inputs can be read on their way",
            "deploy/nats/tls.conf has what the server needs; nodes and clients take --nats-ca",
        ),
    }
}

/// Which forbidden rights the server granted; none: that could not be tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Let {
    /// The server asks for a login.
    pub asks: bool,
    /// The user that speaks to workers can also write the log, or empty or delete a stream.
    pub control: Option<bool>,
    /// The user that speaks to callers can do so.
    pub intake: Option<bool>,
    /// The user that writes the log can change, empty or delete a stream.
    pub journal: Option<bool>,
}

/// Judges whether users have rights that they must not have.
pub fn rights(of: Let) -> Finding {
    const CHECK: &str = "nats.rights";
    match of {
        Let { asks: false, .. } => Finding::caution(
            CHECK,
            "the server asks nobody who he is: who reaches it may be any worker, and write history",
            "where others can reach it: users and rights as in deploy/nats/roles.conf",
        ),
        Let { control: Some(true), .. } | Let { intake: Some(true), .. } => Finding::bad(
            CHECK,
            "who speaks to workers or callers may write the log, or delete it: an answer to a crafted \
             address could become history",
            "three users with the rights of deploy/nats/roles.conf: journal, control, intake",
        ),
        Let { journal: Some(true), .. } => Finding::caution(
            CHECK,
            "who writes the log may change or delete it too",
            "deny the journal's user $JS.API.STREAM.DELETE.>, $JS.API.STREAM.PURGE.> and the others, as \
             deploy/nats/roles.conf does",
        ),
        Let { control: Some(false), intake: Some(false), journal: Some(false), .. } => {
            Finding::good(
                CHECK,
                "control and intake can neither write the log nor empty or delete a stream, and journal \
                 can change, empty or delete none",
            )
        }
        Let { .. } => Finding::unknown(
            CHECK,
            "who may do what could not be tried: the server did not answer",
            "try again; or hold the users of NATS against deploy/nats/roles.conf",
        ),
    }
}

/// Judges whether a node's users have the rights that they need. `lacks`: what the server refused
/// to each; none: that could not be tried.
pub fn needs(lacks: &[Option<Vec<String>>]) -> Finding {
    const CHECK: &str = "nats.needs";
    let refused: Vec<&str> = lacks.iter().flatten().flatten().map(String::as_str).collect();
    if !refused.is_empty() {
        let advice = "give journal, control and intake the rights of deploy/nats/roles.conf, which has \
                      what each must say and hear";
        let found = format!("a node may not use what it needs: {}", refused.join(", "));
        return Finding::bad(CHECK, found, advice);
    }
    match lacks.iter().all(Option::is_some) {
        true => Finding::good(CHECK, "journal, control and intake may say and hear what they must"),
        false => Finding::unknown(
            CHECK,
            "whether a node may do what it must could not be tried: the server did not answer",
            "try again; or hold the users of NATS against deploy/nats/roles.conf",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn rights_that_are_missing_are_judged_before_those_that_are_not_known() {
        let none = || Some(Vec::new());
        let some = || Some(vec!["tenure.v1.event.doctor".to_owned()]);
        assert_eq!(needs(&[none(), none()]).verdict, Verdict::Good);
        assert_eq!(needs(&[none(), None]).verdict, Verdict::Unknown);
        let found = needs(&[None, some()]);
        assert_eq!(found.verdict, Verdict::Bad);
        assert!(found.found.ends_with(": tenure.v1.event.doctor"), "{found:?}");
    }

    fn info(version: &str, max_payload: usize, tls_required: bool) -> ServerInfo {
        ServerInfo { version: version.into(), max_payload, tls_required, ..ServerInfo::default() }
    }

    #[test]
    fn a_server_is_judged_at_its_limits() {
        use Verdict::{Bad, Caution, Good};
        for (version, verdict) in
            [("2.11.9", Bad), ("2.12.0", Caution), ("2.14.9", Caution), ("2.15.0", Good)]
        {
            assert_eq!(age(&info(version, 0, false)).verdict, verdict, "{version}");
        }
        assert_eq!(payload(&info("", MESSAGE_MAX, false)).verdict, Good);
        assert_eq!(payload(&info("", MESSAGE_MAX - 1, false)).verdict, Bad);
        assert_eq!(tls(&info("", 0, true), false).verdict, Good);
        assert_eq!(tls(&info("", 0, false), true).verdict, Good);
        assert_eq!(tls(&info("", 0, false), false).verdict, Caution);
    }

    #[test]
    fn rights_are_judged_by_the_worst() {
        use Verdict::{Bad, Caution, Good, Unknown};
        let (yes, no) = (Some(true), Some(false));
        for (asks, control, intake, journal, verdict) in [
            (false, yes, yes, yes, Caution), // Said once, as it is meant or is not.
            (false, None, None, None, Caution),
            (true, yes, None, yes, Bad),
            (true, no, yes, no, Bad),
            (true, None, no, yes, Caution),
            (true, None, no, no, Unknown),
            (true, no, None, no, Unknown),
            (true, no, no, None, Unknown),
            (true, no, no, no, Good),
        ] {
            let of = Let { asks, control, intake, journal };
            assert_eq!(rights(of).verdict, verdict, "{of:?}");
        }
    }
}
