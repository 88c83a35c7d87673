//! Certificates from a real authority: pebble, over loopback, with its own DNS. Where it can't be had, these tests
//! are skipped. What no real authority does, a server of the test's does (`faults`).

mod challenges;
mod failures;
mod faults;
mod files;
mod kit;
mod limits;
mod processes;
mod reloads;
mod renewal;
