//! The properties of a request for the variables of the configuration.

use std::borrow::Cow;
use std::net::IpAddr;

use lowroad_engine::tls_session::TlsInfo;
use lowroad_http::fields::FieldLines;
use lowroad_variables::{RequestFacts, TlsFacts};

use crate::HandlerRequest;

impl RequestFacts for HandlerRequest {
    fn authority(&self) -> &[u8] {
        self.host()
    }

    fn client(&self) -> IpAddr {
        self.peer
    }

    fn client_port(&self) -> u16 {
        self.peer_port
    }

    fn is_https(&self) -> bool {
        HandlerRequest::is_https(self)
    }

    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn path(&self) -> &[u8] {
        HandlerRequest::path(self)
    }

    fn query(&self) -> Option<&[u8]> {
        HandlerRequest::query(self)
    }

    fn request_uri(&self) -> Cow<'_, [u8]> {
        self.original_target().into()
    }

    fn fields(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_> {
        let added = FieldLines::new(&self.extra.added_lines);
        Box::new(HandlerRequest::fields(self).chain(added))
    }

    fn request_id(&self) -> u128 {
        self.extra.request_id
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        self.tls.as_deref().map(tls_facts)
    }
}

/// The properties of a TLS session for variables.
pub fn tls_facts(tls: &TlsInfo) -> TlsFacts<'_> {
    let client = tls.client.as_deref();
    TlsFacts {
        version: tls.version,
        cipher: tls.cipher,
        server_name: tls.server_name.as_deref().unwrap_or_default(),
        subject: client.map_or("", |client| &client.subject),
        issuer: client.map_or("", |client| &client.issuer),
        serial: client.map_or("", |client| &client.serial),
        fingerprint: client.map_or("", |client| &client.fingerprint),
    }
}
