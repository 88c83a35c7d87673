//! TLS with clients over real sockets: curl, openssl and others at the other end. What TLS itself has to keep is tested in
//! `lowroad-tls`, connections with a layer in `lowroad-engine`.

mod automatic;
mod bad;
mod changes;
mod clear;
mod clients;
mod files;
mod handshakes;
#[allow(dead_code, reason = "the authority alone is wanted")]
#[path = "../../../acme/tests/authority/kit/mod.rs"]
mod kit;
mod languages;
mod memory;
mod names;
mod programs;
mod scheme;
mod soak;
mod support;
