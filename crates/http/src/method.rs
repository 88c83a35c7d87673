//! The request methods this server has a name for. It knows nothing of which of them a resource
//! allows. Read RFC 9110 §9; PATCH is RFC 5789.

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
}

impl Method {
    /// The name as it stands on the request line.
    pub const fn as_str(self) -> &'static str {
        match self {
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

    /// The method with exactly this name, `None` for any other token.
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
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Method;

    #[test]
    fn every_method_parses_back_from_its_name() {
        for method in [
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
        ] {
            assert_eq!(Method::parse(method.as_str().as_bytes()), Some(method));
        }
    }

    #[test]
    fn names_are_case_sensitive_and_whole() {
        for name in ["get", "Get", "GE", "GETS", "", "GET ", "PROPFIND"] {
            assert_eq!(Method::parse(name.as_bytes()), None, "{name:?}");
        }
    }
}
