//! The payloads of what holders and orchestrators report on Steps.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::id::{ArtifactId, AttemptId, Millis, Ref};
use crate::record::{ArtifactInput, Progress, Reason, RemoteRef, Value};
use crate::status::{Outcome, ReplyKind, WaitKind};

/// Optional fields of every report (R in 2.8): an absent field changes nothing, lists are added to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportFacts {
    /// Progress since the last report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// The result in prose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_summary: Option<String>,
    /// Artifacts by id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifact_ids: Vec<ArtifactId>,
    /// Artifacts with their records.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactInput>,
    /// Refs of outputs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_refs: Vec<Ref>,
    /// Checkpoints, given to later Attempts (ATT-09).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checkpoint_refs: Vec<Ref>,
    /// The peer that does the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteRef>,
    /// How many entries of the Task's `input_refs` the Attempt has seen (CTRL-12).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_seen: Option<u64>,
}

impl ReportFacts {
    /// Whether all fields are empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The facts in a box; `None` if all are empty, as in most reports.
    pub fn boxed(self) -> Option<Box<Self>> {
        (!self.is_empty()).then(|| Box::new(self))
    }
}

/// Writes the optional [`ReportFacts`] as fields of the payload around them.
mod flat {
    use super::{Box, Deserialize, Deserializer, ReportFacts, Serialize, Serializer};

    #[allow(clippy::ref_option)] // The shape serde asks for.
    pub(super) fn serialize<S: Serializer>(
        facts: &Option<Box<ReportFacts>>,
        s: S,
    ) -> Result<S::Ok, S::Error> {
        match facts {
            Some(facts) => facts.serialize(s),
            None => ReportFacts::default().serialize(s),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        d: D,
    ) -> Result<Option<Box<ReportFacts>>, D::Error> {
        ReportFacts::deserialize(d).map(ReportFacts::boxed)
    }
}

macro_rules! report {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $ty,)*
            /// The other reported facts; in the stored form their fields stand beside those of the payload.
            #[serde(flatten, with = "flat")]
            pub report: Option<Box<ReportFacts>>,
        }
    };
}

report! {
    /// An Attempt started.
    StepStarted {
        /// The Attempt.
        attempt_id: AttemptId,
        /// End of the lease unless renewed.
        lease_expires_at: Millis,
    }
}
report! {
    /// A report that does not end the Attempt.
    StepUpdated {
        /// The Attempt; absent: the orchestrator reported.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt_id: Option<AttemptId>,
        /// End of the lease unless renewed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lease_expires_at: Option<Millis>,
    }
}
report! {
    /// A Step waits for the orchestrator.
    StepBlocked {
        /// The Attempt that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt_id: Option<AttemptId>,
        /// What it waits for.
        wait_kind: WaitKind,
        /// Why.
        reason: Reason,
    }
}
report! {
    /// A Step completed.
    StepCompleted {
        /// The Attempt that ended, or whose late result was adopted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt_id: Option<AttemptId>,
        /// Its outcome.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Why, if the report says it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
        /// The result (U13).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
        /// What kind of answer it is (CTX-01).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reply: Option<ReplyKind>,
        /// Whether it is the late result of an Attempt that had ended as lost (REPORT-14).
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        adopted: bool,
    }
}
report! {
    /// A Step failed.
    StepFailed {
        /// The Attempt that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt_id: Option<AttemptId>,
        /// Its outcome.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Why; also the Attempt's error.
        reason: Reason,
        /// Failed Attempts that count, including this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt_count: Option<u32>,
        /// The shortest wait before a retry that its worker asked for, in milliseconds (RETRY-02).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    }
}
report! {
    /// A Step was cancelled.
    StepCancelled {
        /// The Attempt that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        attempt_id: Option<AttemptId>,
        /// Its outcome.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<Outcome>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    }
}
