//! The routes of operations over a real socket, against a scheduler on a directory.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod gateway;
mod http;

mod blobs;
mod document;
mod parts;
mod pools;
mod problems;
mod reads;
mod writes;
