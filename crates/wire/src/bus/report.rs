//! Reads reports of workers: skips unknown fields, and notes content fields of Steps, which no
//! worker may change, so that the scheduler can refuse them (REPORT-04).

use std::fmt;

use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use smol_str::SmolStr;
use tenure_core::command::StepReport;

use super::reader;

/// Reads a report, in whatever order its fields come.
pub(super) fn read<'de, D: Deserializer<'de>>(d: D) -> Result<StepReport, D::Error> {
    d.deserialize_map(ReportSeed)
}

struct ReportSeed;

impl<'de> Visitor<'de> for ReportSeed {
    type Value = StepReport;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a report")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StepReport, A::Error> {
        let mut content = Vec::new();
        let rest = Rest { map, content: &mut content };
        let mut report: StepReport = reader::lenient(MapAccessDeserializer::new(rest))?;
        report.content_fields.append(&mut content);
        Ok(report)
    }
}

/// The fields of a report without content fields.
struct Rest<'a, A> {
    map: A,
    content: &'a mut Vec<SmolStr>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.map.next_key::<SmolStr>()? {
            if !StepReport::CONTENT.contains(&name.as_str()) {
                return seed.deserialize(StrDeserializer::new(name.as_str())).map(Some);
            }
            self.map.next_value::<IgnoredAny>()?;
            self.content.push(name);
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
