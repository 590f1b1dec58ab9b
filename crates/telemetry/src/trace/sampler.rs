//! Decides which Tasks become traces.

use opentelemetry::trace::TraceId;

use super::ParentSpan;

/// Decides by the id of the trace, so that every process decides the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// If the maker of the Task named a span, the sampling flag of that span decides.
    pub follows_parent: bool,
    /// The share of traces that are sent, from 0 to 1.
    pub share: f64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self { follows_parent: true, share: 1.0 }
    }
}

impl Sampler {
    /// The sampler that `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` name; none if they name
    /// none.
    pub fn named(name: &str, argument: Option<&str>) -> Option<Self> {
        let follows_parent = name.starts_with("parentbased_");
        let share = match name.trim_start_matches("parentbased_") {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument.map_or(Some(1.0), |it| it.trim().parse().ok())?,
            _ => return None,
        };
        (0.0..=1.0).contains(&share).then_some(Self { follows_parent, share })
    }

    /// Whether a trace is sent.
    pub fn takes(self, trace: TraceId, parent: Option<ParentSpan>) -> bool {
        match parent.filter(|_| self.follows_parent) {
            Some(parent) => parent.is_sampled,
            None => self.is_within(trace),
        }
    }

    /// Decides as the SDKs of OpenTelemetry do, so that services with one share agree.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 2^63.
    fn is_within(self, trace: TraceId) -> bool {
        if self.share >= 1.0 {
            return true;
        }
        let bound = (self.share.max(0.0) * (1_u64 << 63) as f64) as u64;
        let bytes = trace.to_bytes();
        let low = bytes[8..].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        low >> 1 < bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(n: u128) -> TraceId {
        TraceId::from_bytes(n.to_be_bytes())
    }

    #[test]
    fn a_share_of_traces_is_kept_and_it_is_always_the_same() {
        let sampler = Sampler::named("traceidratio", Some("0.25")).unwrap();
        // The ids are spread over all values.
        let ids = (1..=4_000_u128)
            .map(|n| trace(n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_0C44_9E37_79B9)));
        let kept = ids.filter(|id| sampler.takes(*id, None)).count();
        assert!((800..1_200).contains(&kept), "{kept}");
        assert!(!Sampler::named("always_off", None).unwrap().takes(trace(0), None));
        assert!(Sampler::default().takes(trace(u128::MAX), None));
    }

    #[test]
    fn a_parent_decides_where_it_is_asked() {
        let parent = |is_sampled| {
            let span = opentelemetry::trace::SpanId::from_bytes([1; 8]);
            Some(ParentSpan { trace: trace(1), span, is_sampled })
        };
        let off = Sampler::named("parentbased_always_off", None).unwrap();
        assert!(off.takes(trace(1), parent(true)));
        assert!(!Sampler::default().takes(trace(1), parent(false)));
        let own = Sampler::named("always_on", None).unwrap();
        assert!(own.takes(trace(1), parent(false)));
    }

    #[test]
    fn what_names_no_sampler_is_none() {
        for (name, argument) in [("often", None), ("traceidratio", Some("2")), ("", None)] {
            assert_eq!(Sampler::named(name, argument), None, "{name}");
        }
    }
}
