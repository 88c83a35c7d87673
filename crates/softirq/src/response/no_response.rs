//! Errors of fetches.

use std::fmt;
use std::io::ErrorKind;
use std::net::IpAddr;

/// The reason for which a fetch returned no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// The requested address no longer belongs to this machine, or belongs to several of its interfaces.
    AddressGone(IpAddr),
    /// No connection could be made.
    Connect(ErrorKind),
    /// The connection failed.
    Broken(ErrorKind),
    /// The origin took too long.
    TimedOut,
    /// The origin closed the connection before the response was complete.
    Closed,
    /// The end of the connection delimits the body, so that its completeness is unknown.
    Unframed,
    /// The origin does not speak HTTP/1.1.
    Version,
    /// The response is malformed, for this reason.
    Malformed(&'static str),
    /// The head is over the limit.
    HeadTooLong {
        /// The limit.
        len_max: usize,
    },
    /// The body is over the limit.
    TooLong {
        /// The limit.
        len_max: usize,
    },
    /// The origin's response to this machine differs from its response to other clients.
    DiffersBySource {
        /// The status that this machine gets.
        machine: u16,
        /// The status that other clients get.
        probe: u16,
    },
}

impl FetchError {
    /// A short name for counters.
    pub fn label(&self) -> &'static str {
        match self {
            FetchError::AddressGone(_) => "address-gone",
            FetchError::Connect(_) => "origin-unreachable",
            FetchError::Broken(_) => "origin-broken",
            FetchError::TimedOut => "origin-timeout",
            FetchError::Closed => "origin-closed",
            FetchError::Unframed => "unframed",
            FetchError::Version | FetchError::Malformed(_) | FetchError::HeadTooLong { .. } => {
                "origin-malformed"
            }
            FetchError::TooLong { .. } => "too-long",
            FetchError::DiffersBySource { .. } => "for-few",
        }
    }
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchError::AddressGone(address) => write!(
                f,
                "{address} is no longer an address of this machine, or belongs to several devices"
            ),
            FetchError::Connect(kind) => write!(
                f,
                "can't connect to the origin ({kind}); check that it listens"
            ),
            FetchError::Broken(kind) => write!(f, "the connection to the origin broke ({kind})"),
            FetchError::TimedOut => f.write_str("the origin took too long"),
            FetchError::Closed => {
                f.write_str("the origin closed the connection before its response was complete")
            }
            FetchError::Unframed => f.write_str(
                "the end of the connection delimits the body of the origin's response, so it may \
                 be truncated; let the server send Content-Length or chunks",
            ),
            FetchError::Version => f.write_str("the origin's response is not HTTP/1.1"),
            FetchError::Malformed(reason) => {
                write!(f, "the origin's response is malformed: {reason}")
            }
            FetchError::HeadTooLong { len_max } => write!(
                f,
                "the head of the origin's response has more than {len_max} bytes"
            ),
            FetchError::TooLong { len_max } => write!(
                f,
                "the body of the origin's response has more than {len_max} bytes"
            ),
            FetchError::DiffersBySource { machine, probe } => write!(
                f,
                "the origin sends status {machine} to this machine and {probe} to other \
                 clients, so the response depends on the client"
            ),
        }
    }
}

impl std::error::Error for FetchError {}
