//! TLS with clients over real sockets: curl and openssl at the other end. What TLS itself has to keep is tested in
//! `lowroad-tls`, connections with a layer in `lowroad-engine`.

mod files;
mod support;
