//! Connections in virtual time over a network with faults. Without cryptography, so that equal seeds give equal
//! datagrams.

mod admission;
mod http_peers;
mod network;
mod responses;
mod streams;
