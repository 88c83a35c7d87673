//! The head of a request, in one form for all versions of HTTP: method, target, authority and fields, as slices of the
//! receive buffer.
//!
//! Each protocol's parser builds a [`Request`]: [`crate::h1::parse`] from text; the HTTP/2 server writes decoded fields
//! as lines into a buffer. The lines are kept as received and may include connection-specific fields; the protocol's
//! parser returns their meaning (framing, persistence) separately.

mod index;
mod owned;
mod partial;

pub(crate) use self::index::{FieldIndex, IndexedField};
pub use self::owned::OwnedRequest;
pub use self::partial::PartialRequest;

use crate::field_values::FieldLineValues;
use crate::fields::FieldLines;
use crate::method::Method;

/// The request target (RFC 9110 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestTarget<'b> {
    /// A path, from origin-form or absolute-form.
    Origin {
        /// Begins with `/`, still percent-encoded.
        path: &'b [u8],
        /// The bytes after the first `?`; may be empty.
        query: Option<&'b [u8]>,
        /// [`crate::target::decode`] would return the path unchanged: it consists of unreserved characters,
        /// sub-delimiters, `:`, `@` and `/`, without `//` and `/.`.
        plain: bool,
    },
    /// `*`, with OPTIONS only.
    Asterisk,
    /// `host:port`, with CONNECT only.
    Authority(&'b [u8]),
}

/// A request without its body.
#[derive(Clone, Debug)]
pub struct Request<'b> {
    /// The method.
    pub method: Method,
    /// The parsed request target.
    pub target: RequestTarget<'b>,
    /// The authority as sent, for which [`crate::host::is_valid`] holds: that of the target if it has one, else the
    /// value of Host. Never empty. `None` is possible in HTTP/1.0 only.
    pub authority: Option<&'b [u8]>,
    /// The target as it was sent.
    pub(crate) raw_target: &'b [u8],
    /// The field lines with their CRLFs, validated.
    pub(crate) lines: &'b [u8],
    /// Positions in `lines` of the values that are often used.
    pub(crate) index: FieldIndex,
}

impl<'b> Request<'b> {
    /// The target as it was sent: with scheme and authority if the client sent them.
    #[must_use]
    pub fn raw_target(&self) -> &'b [u8] {
        self.raw_target
    }

    /// The field lines with their CRLFs, validated, for callers that keep a copy.
    #[must_use]
    pub fn lines(&self) -> &'b [u8] {
        self.lines
    }

    /// All fields in their order: name as received, value without surrounding whitespace.
    #[must_use]
    pub fn fields(&self) -> FieldLines<'b> {
        FieldLines::new(self.lines)
    }

    /// Accept-Encoding.
    #[must_use]
    #[inline]
    pub fn accept_encoding(&self) -> FieldLineValues<'b> {
        self.index.values(IndexedField::AcceptEncoding, self.lines)
    }

    /// If-Match.
    #[must_use]
    pub fn if_match(&self) -> FieldLineValues<'b> {
        self.index.values(IndexedField::IfMatch, self.lines)
    }

    /// If-None-Match.
    #[must_use]
    pub fn if_none_match(&self) -> FieldLineValues<'b> {
        self.index.values(IndexedField::IfNoneMatch, self.lines)
    }

    /// If-Modified-Since; `None` if repeated.
    #[must_use]
    pub fn if_modified_since(&self) -> Option<&'b [u8]> {
        self.index
            .single_value(IndexedField::IfModifiedSince, self.lines)
    }

    /// If-Unmodified-Since; `None` if repeated.
    #[must_use]
    pub fn if_unmodified_since(&self) -> Option<&'b [u8]> {
        self.index
            .single_value(IndexedField::IfUnmodifiedSince, self.lines)
    }

    /// If-Range; `None` if repeated. [`Request::range`] is then `None`, too.
    #[must_use]
    pub fn if_range(&self) -> Option<&'b [u8]> {
        self.index.single_value(IndexedField::IfRange, self.lines)
    }

    /// Range; `None` if repeated.
    #[must_use]
    pub fn range(&self) -> Option<&'b [u8]> {
        // If-Range makes Range conditional on one validator (RFC 9110 §13.1.5). With two of them it is unknown which
        // representation the client has, so the whole representation is sent.
        match self.index.is_repeated(IndexedField::IfRange) {
            true => None,
            false => self.index.single_value(IndexedField::Range, self.lines),
        }
    }

    /// Referer, for the log; `None` if repeated.
    #[must_use]
    pub fn referer(&self) -> Option<&'b [u8]> {
        self.index.single_value(IndexedField::Referer, self.lines)
    }

    /// User-Agent, for the log; `None` if repeated.
    #[must_use]
    pub fn user_agent(&self) -> Option<&'b [u8]> {
        self.index.single_value(IndexedField::UserAgent, self.lines)
    }

    /// Whether a field is present that can make the response differ from a 200 with the whole representation.
    #[inline]
    pub(crate) fn is_conditional(&self) -> bool {
        self.index.has_any_of(FieldIndex::CONDITIONS)
    }

    /// Whether Connection names another field, without which there is no upgrade (RFC 9110 §7.8).
    #[must_use]
    #[inline]
    pub fn has_connection_option(&self) -> bool {
        self.index.has_any_of(IndexedField::ConnectionOption.bit())
    }

    /// Whether a field is present that may prevent a cache from using the response stored for the target:
    /// Authorization, Cache-Control, Pragma, If-Match, If-Unmodified-Since, a method override such as X-HTTP-Method, or
    /// a Connection field that names another field. Fields that Vary names are not included.
    #[must_use]
    #[inline]
    pub fn affects_caching(&self) -> bool {
        self.index.has_any_of(FieldIndex::FOR_CACHES)
    }
}
