//! The accelerator over real sockets, between real clients and an origin that does what a test says.

mod applications;
mod conditions;
mod encrypted;
mod faults;
mod forward;
mod front;
mod groups;
mod interims;
mod purge;
mod stale;
mod upgrade;
