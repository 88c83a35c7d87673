//! The accelerator over real sockets, between real clients and an origin that does what a test says.

mod applications;
mod conditions;
mod encrypted;
mod faults;
mod forward;
mod front;
mod purge;
mod groups;
mod interims;
mod stale;
mod upgrade;
