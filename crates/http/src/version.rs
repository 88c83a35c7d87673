//! The versions of HTTP. What they mean is the affair of whoever speaks them.

/// The version that a client speaks: it belongs to an exchange, not to the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1, or a later minor version, which is understood as 1.1 (RFC 9110 §2.5).
    Http11,
    /// HTTP/2.
    Http2,
}

impl Version {
    /// As it stands in logs and in the environment of programs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
        }
    }
}
