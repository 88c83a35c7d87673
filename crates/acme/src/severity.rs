//! The severity of messages.

/// The severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Normal operation.
    Info,
    /// A failure while a certificate is valid for some time.
    Warning,
    /// A failure that clients see now or soon.
    Error,
}
