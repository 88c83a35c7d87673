//! Which name a client has asked for. `rustls` does not say it of an unbuffered connection, only to who chooses the
//! certificate; that is called on the thread that gives it the client's bytes, before it returns.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::certificates::Store;

thread_local! {
    static ASKED: RefCell<Option<Box<str>>> = const { RefCell::new(None) };
}

/// The certificates of a store, for clients whose names are noted.
#[derive(Debug)]
pub(super) struct Asked(pub Store);

impl ResolvesServerCert for Asked {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(Box::from);
        ASKED.with(|asked| asked.replace(name));
        self.0.resolve(hello)
    }
}

/// Calls `process`, and gives the name that was asked for meanwhile.
pub(super) fn noting<T>(process: impl FnOnce() -> T) -> (T, Option<Box<str>>) {
    ASKED.with(|asked| asked.replace(None));
    let done = process();
    (done, ASKED.with(|asked| asked.replace(None)))
}
