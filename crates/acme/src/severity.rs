//! How much a message matters.

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something happened as it should.
    Info,
    /// Something failed, and a certificate is valid for a while yet.
    Warning,
    /// Something failed, and clients see it now or soon.
    Error,
}
