//! The span that the maker of a Task named.

use opentelemetry::trace::{SpanId, TraceId};
use tenure_core::TraceParent;

/// A span of another program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParentSpan {
    /// Its trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether that trace is sampled.
    pub is_sampled: bool,
}

impl ParentSpan {
    /// Reads a W3C `traceparent`; none if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let TraceParent { trace, span, is_sampled } = TraceParent::parse(text)?;
        let trace = TraceId::from_bytes(trace.to_be_bytes());
        Some(Self { trace, span: SpanId::from_bytes(span.to_be_bytes()), is_sampled })
    }
}
