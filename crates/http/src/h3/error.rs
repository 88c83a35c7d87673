//! Error codes, and errors of the peer with their scope. Read RFC 9114 §8, RFC 9204 §6.

use super::qpack::QpackError;

/// An error code, registered or not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct H3ErrorCode(pub u64);

macro_rules! codes {
    ($($name:ident = $code:literal $doc:literal;)*) => {
        impl H3ErrorCode {
            $(#[doc = $doc] pub const $name: H3ErrorCode = H3ErrorCode($code);)*

            /// The registered name, without the prefix `H3_` of most; `unknown` if there is none.
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
    NO_ERROR = 0x100 "No error.";
    GENERAL_PROTOCOL_ERROR = 0x101 "A protocol violation without a more specific code.";
    INTERNAL_ERROR = 0x102 "An internal error of the sender.";
    STREAM_CREATION_ERROR = 0x103 "A stream that the peer does not accept.";
    CLOSED_CRITICAL_STREAM = 0x104 "A stream that the connection requires was closed.";
    FRAME_UNEXPECTED = 0x105 "A frame that is not permitted in this state or on this stream.";
    FRAME_ERROR = 0x106 "A frame of an invalid layout or size.";
    EXCESSIVE_LOAD = 0x107 "Excessive load.";
    ID_ERROR = 0x108 "An identifier that is misused: beyond a limit, reduced, or reused.";
    SETTINGS_ERROR = 0x109 "A setting that is not permitted.";
    MISSING_SETTINGS = 0x10a "The control stream does not begin with SETTINGS.";
    REQUEST_REJECTED = 0x10b "A request was not processed: it can be retried.";
    REQUEST_CANCELLED = 0x10c "A request or its response is no longer needed.";
    REQUEST_INCOMPLETE = 0x10d "A stream ended without a whole request.";
    MESSAGE_ERROR = 0x10e "A malformed message.";
    CONNECT_ERROR = 0x10f "The connection of a CONNECT request failed.";
    VERSION_FALLBACK = 0x110 "The request requires HTTP/1.1.";
    QPACK_DECOMPRESSION_FAILED = 0x200 "A field section can't be decoded.";
    QPACK_ENCODER_STREAM_ERROR = 0x201 "An invalid instruction on the encoder stream.";
    QPACK_DECODER_STREAM_ERROR = 0x202 "An invalid instruction on the decoder stream.";
}

impl core::fmt::Debug for H3ErrorCode {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} ({:#x})", self.name(), self.0)
    }
}

/// The part of a connection that an error ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorScope {
    /// One stream is reset; the connection continues.
    Stream,
    /// The connection is closed.
    Connection,
}

/// An error of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct H3Error {
    /// The error code.
    pub code: H3ErrorCode,
    /// The part of the connection that ends.
    pub scope: ErrorScope,
    /// The reason for logs and the phrase of CONNECTION_CLOSE: plain ASCII, no full stop.
    pub reason: &'static str,
}

impl H3Error {
    pub(super) const fn connection(code: H3ErrorCode, reason: &'static str) -> H3Error {
        H3Error {
            code,
            scope: ErrorScope::Connection,
            reason,
        }
    }

    pub(super) const fn stream(code: H3ErrorCode, reason: &'static str) -> H3Error {
        H3Error {
            code,
            scope: ErrorScope::Stream,
            reason,
        }
    }

    pub(super) const fn unexpected(reason: &'static str) -> H3Error {
        H3Error::connection(H3ErrorCode::FRAME_UNEXPECTED, reason)
    }

    pub(super) const fn layout(reason: &'static str) -> H3Error {
        H3Error::connection(H3ErrorCode::FRAME_ERROR, reason)
    }

    pub(super) const fn load(reason: &'static str) -> H3Error {
        H3Error::connection(H3ErrorCode::EXCESSIVE_LOAD, reason)
    }

    /// A field section that can't be decoded (RFC 9204 §2.2).
    pub(super) const fn section(fault: QpackError) -> H3Error {
        let code = H3ErrorCode::QPACK_DECOMPRESSION_FAILED;
        H3Error::connection(code, fault.as_str())
    }
}
