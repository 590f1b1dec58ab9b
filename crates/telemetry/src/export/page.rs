//! Reads all metrics: for the loop that sends them, and for pages that show them.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader as _;
use parking_lot::Mutex;

use super::loops::SharedReader;
use crate::exemplars::Exemplars;
use crate::exposition::{ExpositionFormat, exposition};
use crate::gauges::Gauges;

/// All metrics of this process.
#[derive(Debug)]
pub(crate) struct MetricSource {
    /// Keeps the instruments alive.
    pub(super) _provider: SdkMeterProvider,
    pub(super) reader: SharedReader,
    pub(super) gauges: Arc<Gauges>,
    pub(super) exemplars: Arc<Exemplars>,
    pub(super) begun: Instant,
    /// Held while they are read: the numbers of one moment belong together.
    pub(super) reading: Mutex<()>,
}

impl MetricSource {
    /// Reads all metrics as they are now.
    pub(super) fn read(&self, all: &mut ResourceMetrics) -> OTelSdkResult {
        let _reading = self.reading.lock();
        self.gauges.refresh(self.begun);
        self.reader.collect(all)
    }

    /// The text of a page.
    pub(super) fn text(&self, format: ExpositionFormat) -> String {
        let mut all = ResourceMetrics::default();
        match self.read(&mut all) {
            Ok(()) => exposition(&all, &self.exemplars, format),
            Err(error) => {
                tracing::debug!(%error, "metrics could not be read");
                String::new()
            }
        }
    }
}

/// A page with all metrics of this process, as Prometheus reads it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct MetricsPage(pub(super) Arc<MetricSource>);

impl MetricsPage {
    /// The page as it is now, and its media type, for a reader who accepts these types: who accepts OpenMetrics gets
    /// exemplars.
    pub fn answer(&self, accepts: Option<&str>) -> (&'static str, String) {
        let format = ExpositionFormat::accepted(accepts);
        (format.media_type(), self.0.text(format))
    }
}
