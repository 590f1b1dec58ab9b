//! Makes the messages of MACP from its definitions, which the crate `macp-proto` has, without `protoc`. With the
//! feature `grpc` it makes the service, too.

use std::error::Error;

const DEFINITIONS: [&str; 4] = [
    "macp/v1/envelope.proto",
    "macp/v1/core.proto",
    "macp/v1/policy.proto",
    "macp/modes/task/v1/task.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    tell_cargo("rerun-if-changed=build.rs");
    let folder = std::env::var("DEP_MACP_PROTO_PROTO_DIR")?;
    let service = std::env::var_os("CARGO_FEATURE_GRPC").is_some();
    tonic_prost_build::configure()
        .build_server(service)
        .build_client(service)
        // What this server does not do it answers with UNIMPLEMENTED.
        .generate_default_stubs(true)
        // Maps have an order, so that the same message has the same bytes.
        .btree_map(".")
        .compile_fds(protox::compile(DEFINITIONS, [folder])?)?;
    Ok(())
}

#[allow(clippy::print_stdout)] // So a build script speaks to cargo.
fn tell_cargo(what: &str) {
    println!("cargo::{what}");
}
