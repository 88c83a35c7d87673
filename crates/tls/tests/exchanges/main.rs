//! Both sides in memory: handshakes, what they agree on, bytes, ends, and peers that misbehave. The client is this
//! crate's or `rustls` as it comes.

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
mod raw;
mod resumption;
mod settled;
mod trust;
mod versions;
