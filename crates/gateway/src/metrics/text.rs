//! The text in which Prometheus reads metrics.

use std::fmt::{Display, Write as _};

/// The media type of the text.
pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What kind of number a family of samples has.
#[derive(Debug, Clone, Copy)]
pub(super) enum MetricKind {
    /// It only rises while the process lives.
    Counter,
    /// It rises and falls.
    Gauge,
    /// How many values were at most so large, for several sizes.
    Histogram,
}

impl MetricKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The text in the making. A family is begun, then gets all its samples.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Begins a family of samples.
    pub(super) fn family(&mut self, name: &str, kind: MetricKind, help: &str) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
    }

    /// Adds a sample with its labels.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            self.0.push(if i == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            self.escaped(text);
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn escaped(&mut self, text: &str) {
        for letter in text.chars() {
            match letter {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
    }

    /// The whole text.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_its_lines_and_no_label_breaks_out() {
        let mut text = Exposition::default();
        text.family("tenure_pool_waiting", MetricKind::Gauge, "How much work waits?");
        text.sample("tenure_pool_waiting", &[("tenure_pool", "a\"b\\c\nd"), ("x", "")], 3);
        text.sample("tenure_pool_waiting", &[], 0.5);
        let expected = "# HELP tenure_pool_waiting How much work waits?\n\
                        # TYPE tenure_pool_waiting gauge\n\
                        tenure_pool_waiting{tenure_pool=\"a\\\"b\\\\c\\nd\",x=\"\"} 3\n\
                        tenure_pool_waiting 0.5\n";
        assert_eq!(text.into_text(), expected);
    }
}
