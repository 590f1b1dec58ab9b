//! What the conformance kit of A2A demands is tested here, too, so that nobody needs the kit to notice a fault.

use super::rules::named;
use super::{assert_none, root};

/// Requirements, or groups of them, that no test of ours has, and why.
const ABSENT: &[(&str, &str)] = &[
    ("AUTH-SERVER-001", "callers verify certificates; rustls does it for our own client"),
    ("AUTH-TLS-002", "rustls speaks no other versions of TLS than 1.2 and 1.3"),
    ("CARD-EXT-002", "an agent whose card says that there is more of it has more"),
    ("CARD-SIGN", "cards are not signed"),
    ("CORE-CAP-002", "every agent streams"),
    ("GRPC-ERR", "there is no gRPC"),
    ("GRPC-META", "there is no gRPC"),
    ("GRPC-SVC", "there is no gRPC"),
];

/// The ids of the requirements: each begins a line of what the kit finds, behind the line with the counts.
fn requirements() -> Vec<String> {
    let found = std::fs::read_to_string(root().join("tests/a2a/1.0-dev.txt")).unwrap();
    let ids = found.lines().skip(1).filter_map(|line| line.split(' ').next());
    ids.map(str::to_owned).collect()
}

/// Group and number of a requirement. Some have a letter behind the number, for a part of the same.
fn parts(requirement: &str) -> (&str, u32) {
    let (group, number) = requirement.rsplit_once('-').unwrap();
    (group, number.trim_end_matches(|c: char| c.is_ascii_lowercase()).parse().unwrap())
}

#[test]
fn every_requirement_of_the_kit_is_named_by_a_test() {
    let (requirements, named) = (requirements(), named());
    assert!(requirements.len() > 100, "{requirements:?}");
    let (mut missing, mut needless) = (Vec::new(), Vec::new());
    for requirement in requirements {
        let (group, number) = parts(&requirement);
        let is_named = named.get(group).is_some_and(|all| all.contains(&number));
        let is_absent = ABSENT.iter().any(|(absent, _)| [group, &*requirement].contains(absent));
        match (is_named, is_absent) {
            (false, false) => missing.push(requirement),
            (true, true) => needless.push(requirement),
            _ => {}
        }
    }
    assert_none(&missing, "each requirement has a test whose comment names it");
    assert_none(&needless, "take it out of the table of those that are absent");
}
