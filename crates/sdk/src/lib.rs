//! For users of Tenure: workers with handlers, the step context, the orchestrator client.

pub mod worker;
