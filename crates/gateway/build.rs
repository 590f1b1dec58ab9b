//! Compiles the description of A2A over gRPC, if the feature `grpc` is on.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    tell_cargo("rerun-if-changed=proto");
    #[cfg(feature = "grpc")]
    compile()?;
    Ok(())
}

#[allow(clippy::print_stdout)] // So a build script speaks to cargo.
fn tell_cargo(what: &str) {
    println!("cargo::{what}");
}

#[cfg(feature = "grpc")]
fn compile() -> Result<(), Box<dyn Error>> {
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("a2a.binpb");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("a2a.proto")?;
    Ok(std::fs::write(out, compiler.encode_file_descriptor_set())?)
}
