//! The binary `tenure`: runs DAGs of steps durably, and shows their history.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // First of all: this process may be the guard of a command and not the command line.
    tenure_sdk::worker::exec::guard::run_if_requested();
    tenure_cli::main()
}
