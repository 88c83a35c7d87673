//! TLS with curl, openssl and other clients over real sockets. `lowroad-tls` tests TLS itself, `lowroad-engine`
//! connections with a TLS session.

mod automatic;
mod bad;
mod changes;
mod changes_soak;
mod clear;
mod clients;
mod files;
mod handshakes;
mod http3;
mod http3_activation;
mod http3_changes;
mod http3_client;
mod http3_descriptors;
mod http3_early_data;
mod http3_upgrade;
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
