//! TLS with clients over real sockets: curl and openssl at the other end. What TLS itself has to keep is tested in
//! `lowroad-tls`, connections with a layer in `lowroad-engine`.

mod bad;
mod changes;
mod clear;
mod clients;
mod files;
mod handshakes;
mod names;
mod programs;
mod scheme;
mod support;
