//! Remembers a trace for each bucket of a histogram, so that a slow value leads to a trace of it. The SDK (0.33) has
//! a place for such exemplars in what it exports and fills it nowhere, so only the page for Prometheus has them.

use std::collections::HashMap;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, TraceId};
use parking_lot::Mutex;
use tenure_core::id::Millis;

use crate::counts::SECONDS;
use crate::names::Metric;

/// How many series of all histograms have exemplars. The SDK takes as many of one instrument.
const SERIES_MAX: usize = 2_000;

/// The last value of a bucket whose trace is sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Exemplar {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanId,
    /// In seconds.
    pub(crate) value: f64,
    /// When it was counted.
    pub(crate) at: Millis,
}

/// One for each bucket of a series, the last of which has no bound.
pub(crate) type BucketExemplars = [Option<Exemplar>; SECONDS.len() + 1];

/// The exemplars of all histograms of durations, by the name of the metric and its attributes.
#[derive(Debug, Default)]
pub(crate) struct Exemplars(Mutex<HashMap<(String, String), BucketExemplars>>);

impl Exemplars {
    /// Takes the place of an older one in its bucket.
    pub(crate) fn note(&self, metric: Metric, attributes: &[KeyValue], exemplar: Exemplar) {
        let series = (metric.name.to_owned(), series_of(attributes.iter()));
        let mut all = self.0.lock();
        if all.len() >= SERIES_MAX && !all.contains_key(&series) {
            return;
        }
        let bucket = SECONDS.partition_point(|bound| *bound < exemplar.value);
        let buckets = all.entry(series).or_insert_with(|| [None; SECONDS.len() + 1]);
        if let Some(place) = buckets.get_mut(bucket)
            && place.is_none_or(|it| it.at <= exemplar.at)
        {
            *place = Some(exemplar);
        }
    }

    /// Those of a series.
    pub(crate) fn of<'a>(
        &self,
        metric: &str,
        attributes: impl Iterator<Item = &'a KeyValue>,
    ) -> Option<BucketExemplars> {
        self.0.lock().get(&(metric.to_owned(), series_of(attributes))).copied()
    }
}

/// Attributes in the order of their names.
fn series_of<'a>(attributes: impl Iterator<Item = &'a KeyValue>) -> String {
    let mut all: Vec<&KeyValue> = attributes.collect();
    all.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    all.iter().map(|it| format!("{}={}\0", it.key, it.value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    fn exemplar(value: f64) -> Exemplar {
        Exemplar { trace: TraceId::from(7), span: SpanId::from(9), value, at: 0 }
    }

    #[test]
    fn a_value_stands_in_its_bucket_until_the_next_one_comes() {
        let all = Exemplars::default();
        let [pool, outcome] = [KeyValue::new("b", "gpu"), KeyValue::new("a", "x")];
        // A bound belongs to its bucket.
        for value in [0.1, 0.06, 0.05, 1e9] {
            all.note(names::RUN_TIME, &[pool.clone(), outcome.clone()], exemplar(value));
        }
        let found = all.of(names::RUN_TIME.name, [outcome, pool.clone()].iter()).unwrap();
        let found: Vec<(usize, f64)> =
            found.iter().enumerate().filter_map(|(at, it)| Some((at, (*it)?.value))).collect();
        assert_eq!(found, [(6, 0.05), (7, 0.06), (24, 1e9)]);
        assert_eq!(all.of(names::RUN_TIME.name, [pool].iter()), None, "another series");
        assert_eq!(all.of(names::QUEUE_TIME.name, [].iter()), None);
    }

    #[test]
    fn series_have_a_bound() {
        let all = Exemplars::default();
        for at in 0..=SERIES_MAX {
            let pool = [KeyValue::new(names::POOL, at.to_string())];
            all.note(names::RUN_TIME, &pool, exemplar(1.0));
        }
        let has = |at: usize| {
            let pool = [KeyValue::new(names::POOL, at.to_string())];
            all.of(names::RUN_TIME.name, pool.iter()).is_some()
        };
        assert!(has(SERIES_MAX - 1) && !has(SERIES_MAX));
        let known = [KeyValue::new(names::POOL, "0")];
        all.note(names::RUN_TIME, &known, exemplar(9.0));
        let of = all.of(names::RUN_TIME.name, known.iter()).unwrap();
        assert_eq!(of.iter().flatten().count(), 2, "a known series goes on");
    }
}
