//! Captures the server name that a client requests (SNI). For an unbuffered connection, `rustls` passes the name only
//! to the certificate resolver, which runs on the same thread during the call that processes the ClientHello.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificates::CertificateStore;

thread_local! {
    static SERVER_NAME: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// A certificate resolver that records the requested server name.
#[derive(Debug)]
pub(super) struct SniResolver(pub CertificateStore);

impl ResolvesServerCert for SniResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(Box::from);
        SERVER_NAME.with(|server_name| server_name.replace(name));
        self.0.resolve(hello)
    }
}

/// Calls `process` and returns the server name that a client requested during this call.
pub(super) fn record_sni<T>(process: impl FnOnce() -> T) -> (T, Option<Box<str>>) {
    // The name must not be that of another connection on this thread.
    SERVER_NAME.with(|server_name| server_name.replace(None));
    let done = process();
    (
        done,
        SERVER_NAME.with(|server_name| server_name.replace(None)),
    )
}
