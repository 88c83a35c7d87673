//! Request methods: those this server has a name for, and all others, which are for programs and origins. It knows
//! nothing of which of them a resource allows. Read RFC 9110 §9; PATCH is RFC 5789.

use core::fmt;

use crate::scan::{self, TOKEN};

/// Longer names are refused. The longest that is registered, UPDATEREDIRECTREF, has 17 bytes.
pub const EXTENSION_LEN_MAX: usize = 30;

/// A method. Names are case-sensitive (RFC 9110 §9.1), so `get` is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Transfer a current representation.
    Get,
    /// The head of what GET would give.
    Head,
    /// Communication options of the target.
    Options,
    /// Resource-specific processing of the content.
    Post,
    /// Replace the representation.
    Put,
    /// Remove the representation.
    Delete,
    /// Change the representation by a patch document.
    Patch,
    /// Message loop-back.
    Trace,
    /// A tunnel to the authority in the target.
    Connect,
    /// Take out of the cache what is stored. Of no standard, but of many caches.
    Purge,
    /// One that only a program or an origin can know. It is not safe, and idempotent only if it is registered so.
    Extension(Extension),
}

/// The name of a method that has none here: at most [`EXTENSION_LEN_MAX`] bytes, carried along, so that a method is
/// copied as before and outlives the buffer that it was read from.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Extension {
    /// 1 <= len <= EXTENSION_LEN_MAX; the bytes behind it are 0.
    len: u8,
    bytes: [u8; EXTENSION_LEN_MAX],
}

const _: () = assert!(size_of::<Method>() == 32);

/// All methods that have a name here.
const KNOWN: [Method; 10] = [
    Method::Get,
    Method::Head,
    Method::Options,
    Method::Post,
    Method::Put,
    Method::Delete,
    Method::Patch,
    Method::Trace,
    Method::Connect,
    Method::Purge,
];

impl Method {
    /// The name as it stands on the request line.
    pub fn as_str(&self) -> &str {
        match self {
            Method::Extension(extension) => extension.as_str(),
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Options => "OPTIONS",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
            Method::Connect => "CONNECT",
            Method::Purge => "PURGE",
        }
    }

    /// The method with exactly this name. `None` for what is no token, is too long, or differs from a known name only in
    /// case: who reads names without regard to case would take that for another request than we do.
    pub fn parse(name: &[u8]) -> Option<Method> {
        Some(match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            b"PURGE" => Method::Purge,
            _ => Method::Extension(Extension::new(name)?),
        })
    }

    /// Whether to ask twice is known to be the same as to ask once (RFC 9110 §9.2.2).
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        match self {
            Method::Post | Method::Patch | Method::Connect => false,
            Method::Extension(_) => IDEMPOTENT_EXTENSIONS.contains(&self.as_str()),
            _ => true,
        }
    }
}

/// Other methods that are registered as idempotent: those of WebDAV and its extensions, and QUERY (IANA's registry of
/// HTTP methods).
const IDEMPOTENT_EXTENSIONS: [&str; 29] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PROPFIND",
    "PROPPATCH",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

impl Extension {
    fn new(name: &[u8]) -> Option<Extension> {
        let is_token = !name.is_empty() && scan::run(name, TOKEN) == name.len();
        let is_known = |known: &Method| name.eq_ignore_ascii_case(known.as_str().as_bytes());
        if !is_token || KNOWN.iter().any(is_known) {
            return None;
        }
        let mut bytes = [0; EXTENSION_LEN_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let len = u8::try_from(name.len()).ok()?;
        Some(Extension { len, bytes })
    }

    /// The name as it stands on the request line.
    pub fn as_str(&self) -> &str {
        let name = self.bytes.get(..usize::from(self.len));
        // A token is ASCII.
        core::str::from_utf8(name.unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Debug for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_parses_back_from_its_name() {
        for method in KNOWN {
            assert_eq!(Method::parse(method.as_str().as_bytes()), Some(method));
        }
    }

    #[test]
    fn any_other_token_is_an_extension() {
        let long = "A".repeat(EXTENSION_LEN_MAX);
        for name in ["M-SEARCH", "GE", "GETS", "brew", "!", &long] {
            let method = Method::parse(name.as_bytes()).expect(name);
            assert!(matches!(method, Method::Extension(_)), "{name}");
            assert_eq!(method.as_str(), name);
            assert!(!method.is_idempotent());
        }
        for name in IDEMPOTENT_EXTENSIONS {
            let method = Method::parse(name.as_bytes()).expect(name);
            assert!(matches!(method, Method::Extension(_)), "{name}");
            assert!(method.is_idempotent(), "{name}");
        }
    }

    #[test]
    fn what_is_no_token_or_nearly_a_known_name_is_none() {
        let long = "A".repeat(EXTENSION_LEN_MAX + 1);
        for name in [
            "get", "Get", "connect", "", "GET ", "A B", "A/", "\u{e4}", &long,
        ] {
            assert_eq!(Method::parse(name.as_bytes()), None, "{name:?}");
        }
    }
}
