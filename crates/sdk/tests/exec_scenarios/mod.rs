//! What holds for a command under either leash; each scenario is run under both.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

pub mod bench;
pub mod ends;
pub mod results;
pub mod runner;
pub mod start;

/// Hands the scenarios to a macro that makes tests of them.
macro_rules! for_all_scenarios {
    ($make:ident) => {
        $make! {
            ends::a_command_that_heeds_its_timeout_ends_at_once,
            ends::a_command_that_ignores_sigterm_is_killed_after_its_grace,
            ends::a_stopped_command_can_be_timed_out,
            ends::without_a_grace_a_command_is_killed_at_once,
            ends::a_cancelled_command_ends_by_itself,
            ends::a_cancelled_command_that_does_not_listen_is_killed,
            ends::a_command_cancelled_before_its_start_never_runs,
            ends::the_children_of_a_command_end_with_it,
            ends::a_dropped_command_is_killed,
            results::exit_codes_are_told,
            results::signals_are_told,
            results::megabytes_arrive_in_the_files,
            results::both_streams_may_share_a_file,
            results::the_tail_shows_the_end_of_both_streams,
            results::the_tail_is_text_whatever_was_written,
            results::an_output_is_returned_as_it_was_written,
            results::no_output_is_fine,
            results::an_output_of_an_earlier_attempt_is_not_taken,
            results::an_output_that_is_not_json_is_refused,
            results::an_output_that_is_too_large_is_refused,
            results::an_output_that_is_a_pipe_is_refused_without_waiting_for_it,
            results::a_bad_output_does_not_hide_a_failure,
            start::the_environment_has_layers,
            start::a_command_runs_where_it_says,
            start::a_command_finds_its_files_from_anywhere,
            start::arguments_arrive_as_they_are,
            start::a_megabyte_of_arguments_arrives,
            start::too_many_arguments_are_an_error_of_the_start,
            start::a_line_may_begin_with_a_dash,
            start::standard_input_is_empty,
            start::no_open_file_of_the_runner_reaches_the_command,
            start::signals_start_with_their_defaults,
            start::a_missing_program_is_named,
            start::a_file_that_is_no_program_is_named,
            start::a_missing_working_directory_is_named,
            start::a_missing_log_directory_is_named,
            start::bad_extra_environment_is_refused,
            start::sixty_four_commands_run_side_by_side,
        }
    };
}
pub(crate) use for_all_scenarios;
