//! Client and server in memory: handshakes, negotiation, data, closing, and violations by the peer. The client is this
//! crate's or `rustls` itself.

mod alerts;
mod bytes;
mod certificates;
mod clients;
mod early_data;
mod files;
mod histories;
mod kernel;
mod pair;
mod peers;
mod quic;
mod raw;
mod resumption;
mod settled;
mod trust;
mod versions;
