//! The settings of what one session or one principal may take of a node.

use clap::Args;
use serde::Deserialize;
use tenure_node::Settings;

use super::within;
use crate::answer::Failure;

/// Bounds as they are given; the same names on the command line and in a file.
#[derive(Debug, Clone, Copy, Default, Args, Deserialize)]
#[serde(default)]
pub(super) struct GivenBounds {
    /// Tasks of a session that have not ended, on this node [default: 100000]
    #[arg(long, value_name = "N", env = "TENURE_SESSION_TASKS")]
    session_tasks: Option<u64>,

    /// Bytes that the logs of these tasks may have [default: 4294967296]
    #[arg(long, value_name = "BYTES", env = "TENURE_SESSION_BYTES")]
    session_bytes: Option<u64>,

    /// Tasks of all sessions that have not ended, on this node [default: 250000]
    #[arg(long, value_name = "N", env = "TENURE_LIVE_TASKS")]
    live_tasks: Option<u64>,

    /// Bytes that the logs of these tasks may have [default: 17179869184]
    #[arg(long, value_name = "BYTES", env = "TENURE_LIVE_BYTES")]
    live_bytes: Option<u64>,

    /// Bytes of logs whose tasks are in memory at a time; others are read when they are needed
    /// [default: 1073741824]
    #[arg(long, value_name = "BYTES", env = "TENURE_MEMORY")]
    memory: Option<u64>,

    /// Bytes of messages a second that are taken from one principal [default: 67108864]
    #[arg(long, value_name = "BYTES", env = "TENURE_RATE_TRAFFIC")]
    rate_traffic: Option<u64>,

    /// Tasks a second that one principal may create [default: 50000]
    #[arg(long, value_name = "N", env = "TENURE_RATE_CREATES")]
    rate_creates: Option<u64>,

    /// Reports a second that are taken from one principal and end no step [default: 20000]
    #[arg(long, value_name = "N", env = "TENURE_RATE_REPORTS")]
    rate_reports: Option<u64>,

    /// Bytes a second of such reports, which stay in the log [default: 8388608]
    #[arg(long, value_name = "BYTES", env = "TENURE_RATE_REPORT_BYTES")]
    rate_report_bytes: Option<u64>,
}

/// The least memory: with it a node still holds some Tasks at a time.
const MEMORY_MIN: u64 = 16 << 20;

/// The most of anything that is counted here.
const MOST: u64 = 1 << 50;

impl GivenBounds {
    /// Takes the bounds that are missing here from `other`.
    pub(super) fn or(self, other: &Self) -> Self {
        Self {
            session_tasks: self.session_tasks.or(other.session_tasks),
            session_bytes: self.session_bytes.or(other.session_bytes),
            live_tasks: self.live_tasks.or(other.live_tasks),
            live_bytes: self.live_bytes.or(other.live_bytes),
            memory: self.memory.or(other.memory),
            rate_traffic: self.rate_traffic.or(other.rate_traffic),
            rate_creates: self.rate_creates.or(other.rate_creates),
            rate_reports: self.rate_reports.or(other.rate_reports),
            rate_report_bytes: self.rate_report_bytes.or(other.rate_report_bytes),
        }
    }

    /// Sets what is given.
    pub(super) fn apply(self, settings: &mut Settings) -> Result<(), Failure> {
        let (live, rates) = (&mut settings.scheduler.live, &mut settings.rates);
        for (option, given, least, setting) in [
            ("session-tasks", self.session_tasks, 1, &mut live.session_tasks),
            ("session-bytes", self.session_bytes, 1 << 20, &mut live.session_bytes),
            ("live-tasks", self.live_tasks, 1, &mut live.tasks),
            ("live-bytes", self.live_bytes, 1 << 20, &mut live.bytes),
            ("memory", self.memory, MEMORY_MIN, &mut live.memory),
            ("rate-traffic", self.rate_traffic, 64 << 10, &mut rates.traffic),
            ("rate-creates", self.rate_creates, 1, &mut rates.creates),
            ("rate-reports", self.rate_reports, 1, &mut rates.reports),
            ("rate-report-bytes", self.rate_report_bytes, 1 << 10, &mut rates.report_bytes),
        ] {
            if let Some(given) = given {
                *setting = within(option, given, least..=MOST)?;
            }
        }
        Ok(())
    }
}
