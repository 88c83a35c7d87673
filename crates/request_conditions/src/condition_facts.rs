//! The properties of a request for the variables of conditions.

use std::borrow::Cow;
use std::net::IpAddr;

use lowroad_http::request::RequestTarget;
use lowroad_http::target;
use lowroad_variables::{RequestFacts, TlsFacts};

use crate::ConditionInput;

/// The properties of a request for variables, as the client sent them.
pub(crate) struct ConditionFacts<'r> {
    input: &'r ConditionInput<'r>,
    path: Cow<'r, [u8]>,
}

impl<'r> ConditionFacts<'r> {
    pub(crate) fn new(input: &'r ConditionInput<'r>) -> ConditionFacts<'r> {
        let path = match input.request.target {
            RequestTarget::Origin {
                path, plain: false, ..
            } => {
                // Conditions compare paths as patterns do. Decoding never lengthens a path. A path that can't be decoded is refused before any condition.
                let mut decoded = vec![0; path.len()];
                let len = target::decode_with_slashes(path, &mut decoded).map_or(0, <[u8]>::len);
                decoded.truncate(len);
                Cow::Owned(decoded)
            }
            RequestTarget::Origin { path, .. } => Cow::Borrowed(path),
            RequestTarget::Asterisk | RequestTarget::Authority(_) => Cow::Borrowed(&b"/"[..]),
        };
        ConditionFacts { input, path }
    }
}

impl RequestFacts for ConditionFacts<'_> {
    fn authority(&self) -> &[u8] {
        self.input.request.authority.unwrap_or_default()
    }

    fn client(&self) -> IpAddr {
        self.input.client
    }

    fn client_port(&self) -> u16 {
        0
    }

    fn is_https(&self) -> bool {
        self.input.is_https
    }

    fn method(&self) -> &str {
        self.input.request.method.as_str()
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn query(&self) -> Option<&[u8]> {
        match self.input.request.target {
            RequestTarget::Origin { query, .. } => query,
            RequestTarget::Asterisk | RequestTarget::Authority(_) => None,
        }
    }

    fn request_uri(&self) -> Cow<'_, [u8]> {
        match self.input.request.target {
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
        Box::new(self.input.request.fields())
    }

    // The variables of the next two have no place in a condition.
    fn request_id(&self) -> u128 {
        0
    }

    fn tls(&self) -> Option<TlsFacts<'_>> {
        None
    }
}
