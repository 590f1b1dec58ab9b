//! The adapters on real servers: NATS with JetStream, and Redis.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A test that cannot go on has failed.

mod blobs;
mod capacity;
mod checkpoints;
mod damage;
mod deployed;
mod features;
mod fitness;
mod frames;
mod journal;
mod leases;
mod leaving;

mod lost;
mod ownership;
mod parts;
mod proxy;
mod record;
mod redis_at;
mod scheduler;
mod servers;
mod snapshots;
mod takeover;
mod unheard;
