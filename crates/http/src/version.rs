//! The versions of HTTP.

/// The protocol version of the client. It belongs to the exchange, not to the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a later minor version, which is treated as 1.1 (RFC 9110 §2.5).
    Http11,
    /// HTTP/2.
    Http2,
}

impl Version {
    /// The form used in logs and in the environment of programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }
}
