//! The versions of HTTP.

/// The protocol version of an exchange, as spoken by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a later minor version, which is treated as 1.1 (RFC 9110 §2.5).
    Http11,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

impl HttpVersion {
    /// The name used in logs and in the environment of CGI programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            HttpVersion::Http10 => "HTTP/1.0",
            HttpVersion::Http11 => "HTTP/1.1",
            HttpVersion::Http2 => "HTTP/2.0",
            HttpVersion::Http3 => "HTTP/3.0",
        }
    }

    /// The version number, as in Via (RFC 9110 §7.6.3).
    #[must_use]
    pub fn number(self) -> &'static str {
        &self.as_str()["HTTP/".len()..]
    }

    /// Whether the version is HTTP/1.0: connections close by default, and there is no chunked coding.
    #[must_use]
    pub const fn is_10(self) -> bool {
        matches!(self, HttpVersion::Http10)
    }

    /// Whether messages have the text format of HTTP/1 (RFC 9112); else they are frames.
    #[must_use]
    pub const fn is_http1(self) -> bool {
        matches!(self, HttpVersion::Http10 | HttpVersion::Http11)
    }

    /// Whether a connection persists (RFC 9112 §9.3): `close` and `keep_alive` are options in its Connection field.
    #[must_use]
    pub const fn persists(self, close: bool, keep_alive: bool) -> bool {
        !close && (keep_alive || !self.is_10())
    }
}
