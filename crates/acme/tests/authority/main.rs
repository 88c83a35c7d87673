//! Certificates from a real ACME server: Pebble, over loopback, with its own DNS server. Without Pebble, these tests
//! are skipped. Errors that Pebble cannot produce are simulated (`faults`).

mod challenges;
mod failures;
mod faults;
mod files;
mod kit;
mod limits;
mod processes;
mod reloads;
mod renewal;
