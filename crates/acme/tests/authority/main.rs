//! Certificates from a real authority: pebble, over loopback, with its own DNS. Without pebble these tests are skipped.
//! Behaviour that no real authority has is simulated (`faults`).

mod challenges;
mod failures;
mod faults;
mod files;
mod kit;
mod limits;
mod processes;
mod reloads;
mod renewal;
