//! Tenure: run DAGs of steps durably. The library embeds the scheduler, the binary is the command
//! line.

pub use tenure_embedded as embedded;
pub use tenure_embedded::plan;
pub use tenure_taskfile as taskfile;

// Compiles the code in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
