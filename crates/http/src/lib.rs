//! HTTP/1.1, HTTP/2 and HTTP/3 as pure functions over bytes: requests, bodies, preconditions and response heads.
//!
//! The crate uses no clock, socket, thread or file; time and buffers are arguments. A request passes through the
//! modules in this order: [`h1::parse`] checks a head and returns a [`Request`] that borrows from it;
//! [`body::BodyReader`] decodes the body; [`target::decode`] decodes the path; `preconditions`, [`range`] and
//! `content_coding` select the response; `HeadWriter` writes its head. HTTP/2 and HTTP/3 build the same
//! [`Request`] from their field sections ([`h2`], [`h3`]).
//!
//! The parser is written by hand, because it has to be stricter than general-purpose parsers (a request that two
//! programs could interpret differently is refused, see `RequestRefusal`) and cheaper: one pass, no allocation, no
//! array of fields.
//!
//! Read first: RFC 9112 (HTTP/1.1), RFC 9113 (HTTP/2), RFC 9114 (HTTP/3), then RFC 9110 §5 (fields), §8 (validators),
//! §12 to §14.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod ascii_case;
mod byte_scan;
mod chunked;
mod field_coding;
mod field_lines;
mod field_section;
mod list_values;
mod streams;

pub mod body;
pub mod content_coding;
pub mod date;
pub mod encoded_heads;
pub mod error_page;
pub mod field_values;
pub mod fields;
pub mod forwarding;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod head_writer;
pub mod host;
pub mod limits;
pub mod method;
pub mod preconditions;
pub mod protocol;
pub mod proxy_protocol;
pub mod range;
pub mod refusal;
pub mod request;
pub mod status;
pub mod stored_head;
pub mod structured_fields;
pub mod target;
pub mod version;

pub use ascii_case::equals_lower;
pub use body::{BodyFraming, BodyReader, FeedProgress};
pub use content_coding::{CodingSet, ContentCoding};
pub use field_values::FieldLineValues;
pub use head_writer::HeadWriter;
pub use limits::RequestLimits;
pub use method::Method;
pub use preconditions::{PreconditionOutcome, Validators};
pub use range::{ByteRange, RangeSet, RangesSpecifier};
pub use refusal::RequestRefusal;
pub use request::{OwnedRequest, Request, RequestTarget};
pub use status::StatusCode;
pub use version::HttpVersion;
