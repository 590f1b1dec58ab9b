//! The contract, rule by rule: each test names the rules that it fails without.
//!
//! One binary for all of them: a link each would take longer than the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, unused_imports, dead_code, unreachable_pub)]

mod common;
mod views;

mod counts;
mod explain;
mod explain_means;
mod patch_properties;
mod random_commands;
mod rules_answers;
mod rules_artifacts;
mod rules_attempt;
mod rules_board;
mod rules_cancel;
mod rules_claim;
mod rules_clock;
mod rules_creation;
mod rules_dag;
mod rules_dispatch;
mod rules_event_map;
mod rules_get_list;
mod rules_id;
mod rules_lease;
mod rules_occ_idem;
mod rules_patch;
mod rules_patch_fields;
mod rules_patch_status;
mod rules_perm;
mod rules_policy;
mod rules_progress;
mod rules_query;
mod rules_ready;
mod rules_recover;
mod rules_relations;
mod rules_report;
mod rules_retry;
mod rules_run;
mod rules_run_tables;
mod rules_runtime;
mod rules_snapshot;
mod rules_step;
mod rules_step_tables;
mod rules_suspension;
mod rules_task;
mod rules_term;
mod rules_view;
mod scope_leak;
mod tables_gateway;
mod tables_status;
mod view_durable;
