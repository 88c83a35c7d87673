//! Captures the server name that a client requests (SNI). `rustls` reveals it for an unbuffered connection to the
//! certificate resolver only, which runs on the same thread within the call that processes the client's bytes.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificates::CertificateStore;

thread_local! {
    static ASKED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// A certificate resolver that records the requested name.
#[derive(Debug)]
pub(super) struct SniResolver(pub CertificateStore);

impl ResolvesServerCert for SniResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(Box::from);
        ASKED.with(|server_name| server_name.replace(name));
        self.0.resolve(hello)
    }
}

/// Calls `process` and returns the name that was requested in this call.
pub(super) fn record_sni<T>(process: impl FnOnce() -> T) -> (T, Option<Box<str>>) {
    // A name of another connection on this thread must not remain.
    ASKED.with(|server_name| server_name.replace(None));
    let done = process();
    (done, ASKED.with(|server_name| server_name.replace(None)))
}
