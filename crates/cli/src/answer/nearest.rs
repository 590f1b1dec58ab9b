//! Finds the known names that are most like a wrong one.

/// How alike two names have to be, from 0 to 1, for one to be suggested for the other.
const ALIKE: f64 = 0.8;
/// How many names are suggested at once.
const OFFERED_MAX: usize = 3;

/// The known names nearest to one that is not known, best first.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let mut scored: Vec<(f64, &str)> =
        known.into_iter().map(|other| (likeness(name, other), other)).collect();
    scored.retain(|(score, _)| *score >= ALIKE);
    scored.sort_by(|(a, x), (b, y)| b.total_cmp(a).then_with(|| x.cmp(y)));
    scored.into_iter().take(OFFERED_MAX).map(|(_, other)| other).collect()
}

/// How alike two names are; the beginning of a name counts as alike.
fn likeness(name: &str, other: &str) -> f64 {
    let part = name.len() >= 3 && other.contains(name);
    strsim::jaro_winkler(name, other).max(if part { 0.9 } else { 0.0 })
}

/// `did you mean a or b?`, or nothing.
pub(crate) fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let names: Vec<String> = nearest(name, known).into_iter().map(|n| format!("`{n}`")).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typos_and_parts_of_names_find_the_name() {
        let known = ["nightly-load", "nightly-report", "etl", "import"];
        assert_eq!(nearest("nigthly-load", known)[0], "nightly-load");
        assert_eq!(nearest("imprt", known), ["import"]);
        assert_eq!(nearest("report", known), ["nightly-report"]);
        assert!(nearest("zzz", known).is_empty());
        assert_eq!(did_you_mean("etll", known).as_deref(), Some("did you mean `etl`?"));
    }
}
