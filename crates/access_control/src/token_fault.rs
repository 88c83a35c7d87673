//! Why a request is not admitted by its token.

/// Why a request is not admitted by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenFault {
    /// The request has no token.
    Missing,
    /// The token is invalid, for this reason.
    Invalid(&'static str),
    /// No key is known yet.
    NoKeys,
}
