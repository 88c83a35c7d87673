//! The severity of messages.

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Normal operation.
    Info,
    /// A failure that is not urgent: the certificate is valid for long enough to retry.
    Warning,
    /// A failure that affects clients now or soon.
    Error,
}
