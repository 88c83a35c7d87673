//! The properties of a request for the variables of redirects, rewrites and response fields.

use std::borrow::Cow;
use std::net::IpAddr;

use lowroad_access_control::is_protected;
use lowroad_engine::Exchange;
use lowroad_handler::request_facts::tls_facts;
use lowroad_http::fields::FieldLines;
use lowroad_http::request::{Request, RequestTarget};
use lowroad_variables::{RequestFacts, TlsFacts};

/// A request during the decision.
pub struct DecisionFacts<'r> {
    pub request: &'r Request<'r>,
    pub exchange: &'r Exchange,
    /// The decoded path; after a rewrite, the new one.
    pub path: &'r [u8],
    /// The query of the path.
    pub query: Option<&'r [u8]>,
    /// The request fields that only authentication sets.
    pub protected_fields: &'r [Box<str>],
}

impl RequestFacts for DecisionFacts<'_> {
    fn authority(&self) -> &[u8] {
        self.request.authority.unwrap_or_default()
    }

    fn client(&self) -> IpAddr {
        self.exchange.peer
    }

    fn client_port(&self) -> u16 {
        self.exchange.peer_port
    }

    fn is_https(&self) -> bool {
        self.exchange.is_https()
    }

    fn method(&self) -> &str {
        self.request.method.as_str()
    }

    fn path(&self) -> &[u8] {
        self.path
    }

    fn query(&self) -> Option<&[u8]> {
        self.query
    }

    fn request_uri(&self) -> Cow<'_, [u8]> {
        match self.request.target {
            RequestTarget::Origin {
                path,
                query: Some(query),
                ..
            } => [path, b"?", query].concat().into(),
            RequestTarget::Origin { path, .. } => path.into(),
            RequestTarget::Asterisk | RequestTarget::Authority(_) => b"*"[..].into(),
        }
    }

    fn fields(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_> {
        // A client must not set the variables of authentication.
        let own = self.request.fields();
        let own = own.filter(|(name, _)| !is_protected(name, self.protected_fields));
        let authentication = self.exchange.authentication.as_ref();
        let added = authentication.map_or(FieldLines::NONE, |it| FieldLines::new(&it.lines));
        Box::new(own.chain(added))
    }

    fn request_id(&self) -> u128 {
        self.exchange.request_id()
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        self.exchange.tls.as_deref().map(tls_facts)
    }
}
