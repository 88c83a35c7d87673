//! The head of a request, the same for every version of HTTP: method, target, authority and fields, as slices of the
//! buffer that it was read into. It knows nothing of connections, bodies, sites or files.
//!
//! Whoever reads a protocol fills it: [`crate::h1::parse`] from text; [`crate::h2::Server`] writes the fields that it decodes as
//! lines into a buffer. Fields of the connection may stand among the lines, since they are kept as they came;
//! what they say is not here.

mod index;
mod owned;
mod partial;

pub(crate) use self::index::{Index, Indexed};
pub use self::owned::OwnedRequest;
pub use self::partial::PartialRequest;

use crate::fields::Lines;
use crate::method::Method;
use crate::values::Values;

/// The request target (RFC 9110 §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// A path, from origin-form or absolute-form.
    Origin {
        /// Begins with `/`, still percent-encoded.
        path: &'b [u8],
        /// What follows the first `?`; may be empty.
        query: Option<&'b [u8]>,
        /// [`crate::target::decode`] would give the path itself: it consists of unreserved
        /// characters, sub-delimiters, `:`, `@` and `/`, without `//` and `/.`.
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
    /// What is asked for.
    pub target: Target<'b>,
    /// The raw authority, for which [`crate::host::is_valid`] holds: that of the target if it has
    /// one, else the value of Host. Never empty. `None` in HTTP/1.0 only.
    pub authority: Option<&'b [u8]>,
    /// The target as it was sent.
    pub(crate) raw_target: &'b [u8],
    /// The field lines with their CRLFs, validated.
    pub(crate) lines: &'b [u8],
    /// Where in `lines` the values are that are often asked for.
    pub(crate) index: Index,
}

impl<'b> Request<'b> {
    /// The target as it was sent: with scheme and authority where the client wrote them.
    #[must_use]
    pub fn raw_target(&self) -> &'b [u8] {
        self.raw_target
    }

    /// The field lines with their CRLFs, validated, for who keeps a copy of them.
    #[must_use]
    pub fn lines(&self) -> &'b [u8] {
        self.lines
    }

    /// All fields in their order: name as received, value without surrounding whitespace.
    #[must_use]
    pub fn fields(&self) -> Lines<'b> {
        Lines::of(self.lines)
    }

    /// Accept-Encoding.
    #[must_use]
    #[inline]
    pub fn accept_encoding(&self) -> Values<'b> {
        self.index.values(Indexed::AcceptEncoding, self.lines)
    }

    /// If-Match.
    #[must_use]
    pub fn if_match(&self) -> Values<'b> {
        self.index.values(Indexed::IfMatch, self.lines)
    }

    /// If-None-Match.
    #[must_use]
    pub fn if_none_match(&self) -> Values<'b> {
        self.index.values(Indexed::IfNoneMatch, self.lines)
    }

    /// If-Modified-Since; `None` if repeated.
    #[must_use]
    pub fn if_modified_since(&self) -> Option<&'b [u8]> {
        self.index.only(Indexed::IfModifiedSince, self.lines)
    }

    /// If-Unmodified-Since; `None` if repeated.
    #[must_use]
    pub fn if_unmodified_since(&self) -> Option<&'b [u8]> {
        self.index.only(Indexed::IfUnmodifiedSince, self.lines)
    }

    /// If-Range; `None` if repeated, and then Range is `None` too.
    #[must_use]
    pub fn if_range(&self) -> Option<&'b [u8]> {
        self.index.only(Indexed::IfRange, self.lines)
    }

    /// Range; `None` if repeated.
    #[must_use]
    pub fn range(&self) -> Option<&'b [u8]> {
        // With two of If-Range the client wants parts only of one version, but we don't know which.
        match self.index.is_repeated(Indexed::IfRange) {
            true => None,
            false => self.index.only(Indexed::Range, self.lines),
        }
    }

    /// Referer, for the log; `None` if repeated.
    #[must_use]
    pub fn referer(&self) -> Option<&'b [u8]> {
        self.index.only(Indexed::Referer, self.lines)
    }

    /// User-Agent, for the log; `None` if repeated.
    #[must_use]
    pub fn user_agent(&self) -> Option<&'b [u8]> {
        self.index.only(Indexed::UserAgent, self.lines)
    }

    /// Whether any field is there that can make the answer another than the whole representation.
    #[inline]
    pub(crate) fn is_conditional(&self) -> bool {
        self.index.has_any_of(Index::CONDITIONS)
    }

    /// Whether any field is there by which a cache may have to answer otherwise than with what is stored for the target:
    /// Authorization, Cache-Control, Pragma, If-Match, If-Unmodified-Since, X-HTTP-Method and its like, or Connection that
    /// names a field. Those that Vary names are not among them.
    #[must_use]
    #[inline]
    pub fn concerns_caches(&self) -> bool {
        self.index.has_any_of(Index::FOR_CACHES)
    }
}
