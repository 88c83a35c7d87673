//! Request methods: a variant for each standard one, and extension methods for handlers and origins. Read RFC 9110 §9;
//! PATCH is RFC 5789.

use core::fmt;

use crate::byte_scan::{self, TOKEN};

/// Longer method names are refused. The longest registered one, UPDATEREDIRECTREF, has 17 bytes.
pub const EXTENSION_LEN_MAX: usize = 30;

/// A method. Names are case-sensitive (RFC 9110 §9.1), so `get` is not a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Transfer a current representation.
    Get,
    /// Like GET, without content in the response.
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
    /// Remove stored responses from the cache. Not standardized, but common among caches.
    Purge,
    /// An extension method, which only handlers and origins interpret. Not safe; idempotent if registered as such.
    Extension(ExtensionMethod),
}

/// The name of an extension method, at most [`EXTENSION_LEN_MAX`] bytes. Stored inline, so that a method is `Copy` and
/// outlives the buffer that it was parsed from.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExtensionMethod {
    /// 1 <= len <= EXTENSION_LEN_MAX; the bytes after the name are 0.
    len: u8,
    bytes: [u8; EXTENSION_LEN_MAX],
}

const _: () = assert!(size_of::<Method>() == 32);

/// The methods that have a variant.
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
    /// The name as written on the request line.
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

    /// The method with exactly this name. `None` if the name is not a token, is too long, or differs from a known name
    /// only in case: a recipient that ignores case would interpret it as another method.
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
            _ => Method::Extension(ExtensionMethod::new(name)?),
        })
    }

    /// Whether the method is one of the standard safe ones: the client expects no effect of the request (RFC 9110 §9.2.1).
    #[must_use]
    pub fn is_safe(&self) -> bool {
        matches!(
            self,
            Method::Get | Method::Head | Method::Options | Method::Trace
        )
    }

    /// Whether the method is idempotent: repeating the request has the same effect as sending it once (RFC 9110
    /// §9.2.2).
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        match self {
            Method::Post | Method::Patch | Method::Connect => false,
            Method::Extension(_) => IDEMPOTENT_EXTENSIONS.contains(&self.as_str()),
            _ => true,
        }
    }
}

/// Extension methods registered as idempotent: those of WebDAV and its extensions, and QUERY (IANA HTTP Method
/// Registry).
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

impl ExtensionMethod {
    fn new(name: &[u8]) -> Option<ExtensionMethod> {
        let is_token = !name.is_empty() && byte_scan::run_len(name, TOKEN) == name.len();
        let is_standard =
            |candidate: &Method| name.eq_ignore_ascii_case(candidate.as_str().as_bytes());
        if !is_token || KNOWN.iter().any(is_standard) {
            return None;
        }
        let mut bytes = [0; EXTENSION_LEN_MAX];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let len = u8::try_from(name.len()).ok()?;
        Some(ExtensionMethod { len, bytes })
    }

    /// The name as written on the request line.
    pub fn as_str(&self) -> &str {
        let name = self.bytes.get(..usize::from(self.len));
        // A token is ASCII.
        core::str::from_utf8(name.unwrap_or_default()).unwrap_or_default()
    }
}

impl fmt::Debug for ExtensionMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_names_parse_to_their_method() {
        for method in KNOWN {
            assert_eq!(Method::parse(method.as_str().as_bytes()), Some(method));
        }
    }

    #[test]
    fn unknown_token_is_an_extension_method() {
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
    fn invalid_or_case_variant_method_names_are_rejected() {
        // `get` could be taken for GET by a program that ignores case.
        let long = "A".repeat(EXTENSION_LEN_MAX + 1);
        for name in [
            "get", "Get", "connect", "", "GET ", "A B", "A/", "\u{e4}", &long,
        ] {
            assert_eq!(Method::parse(name.as_bytes()), None, "{name:?}");
        }
    }
}
