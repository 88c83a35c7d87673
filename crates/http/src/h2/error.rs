//! Error codes and connection errors. Read RFC 9113 §5.4 and §7.

/// An error code, registered or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

macro_rules! codes {
    ($($name:ident = $code:literal $doc:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: ErrorCode = ErrorCode($code);)*

            /// The registered name; `unknown` if there is none.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($code => stringify!($name),)*
                    _ => "unknown",
                }
            }
        }
    };
}

codes! {
    NO_ERROR = 0 "No error.";
    PROTOCOL_ERROR = 1 "A protocol violation without a code of its own.";
    INTERNAL_ERROR = 2 "An internal error of the sender.";
    FLOW_CONTROL_ERROR = 3 "More data than the window allows, or a window that is too large.";
    SETTINGS_TIMEOUT = 4 "SETTINGS was not acknowledged in time.";
    STREAM_CLOSED = 5 "A frame for a closed stream.";
    FRAME_SIZE_ERROR = 6 "A frame of an invalid size.";
    REFUSED_STREAM = 7 "A stream was not processed: the request can be retried.";
    CANCEL = 8 "A stream is no longer needed.";
    COMPRESSION_ERROR = 9 "A field block can't be decoded.";
    CONNECT_ERROR = 10 "The connection of a CONNECT request failed.";
    ENHANCE_YOUR_CALM = 11 "Excessive load.";
    INADEQUATE_SECURITY = 12 "TLS does not meet the requirements.";
    HTTP_1_1_REQUIRED = 13 "The request requires HTTP/1.1.";
}

impl core::fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

/// A connection error. When it is returned to the caller, GOAWAY has been written to the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The error code.
    pub code: ErrorCode,
    /// The reason for logs and debug data: plain ASCII, no full stop.
    pub reason: &'static str,
}

impl ConnectionError {
    pub(super) const fn new(code: ErrorCode, reason: &'static str) -> ConnectionError {
        ConnectionError { code, reason }
    }

    pub(super) const fn protocol(reason: &'static str) -> ConnectionError {
        ConnectionError::new(ErrorCode::PROTOCOL_ERROR, reason)
    }

    pub(super) const fn size(reason: &'static str) -> ConnectionError {
        ConnectionError::new(ErrorCode::FRAME_SIZE_ERROR, reason)
    }

    pub(super) const fn calm(reason: &'static str) -> ConnectionError {
        ConnectionError::new(ErrorCode::ENHANCE_YOUR_CALM, reason)
    }
}

impl From<super::hpack::HpackError> for ConnectionError {
    fn from(fault: super::hpack::HpackError) -> ConnectionError {
        ConnectionError::new(ErrorCode::COMPRESSION_ERROR, fault.as_str())
    }
}
