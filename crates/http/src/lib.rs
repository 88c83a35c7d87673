//! HTTP/1.1 and HTTP/2 as pure functions over bytes: requests, bodies, preconditions and response heads.
//!
//! The crate uses no clock, socket, thread or file; time and buffers are arguments. A request passes the modules in
//! this order: [`h1::parse`] checks a head and returns a [`Request`] of slices of it; [`body::BodyReader`] decodes the
//! body; [`target::decode`] turns the path into a name; `preconditions`, [`range`] and `content_coding` select the
//! response; `HeadWriter` writes its head. HTTP/2 builds the same [`Request`] from its field blocks ([`h2`]).
//!
//! The parser is written by hand, because it has to be stricter than general-purpose parsers (a request that two
//! programs could read in two ways is refused, see `RequestRefusal`) and cheaper: one pass, no allocation, no array
//! of fields.
//!
//! Read first: RFC 9112 (HTTP/1.1), RFC 9113 (HTTP/2), then RFC 9110 §5 (fields), §8 (validators), §12 to §14.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod chunked;
mod lines;
mod list;
mod scan;

pub mod body;
pub mod conditional;
pub mod date;
pub mod encoded;
pub mod encoding;
pub mod error_page;
pub mod fields;
pub mod forwarding;
pub mod h1;
pub mod h2;
pub mod head;
pub mod host;
pub mod limits;
pub mod method;
pub mod protocol;
pub mod proxy_protocol;
pub mod range;
pub mod refusal;
pub mod request;
pub mod status;
pub mod structured;
pub mod target;
pub mod values;
pub mod version;

pub use body::{BodyReader, Fed, Framing};
pub use conditional::{Precondition, Validators};
pub use encoding::{Encoding, EncodingSet};
pub use head::HeadWriter;
pub use limits::Limits;
pub use method::Method;
pub use range::{ByteRange, RangeSet, Ranges};
pub use refusal::Refusal;
pub use request::{OwnedRequest, Request, Target};
pub use status::Status;
pub use values::Values;
pub use version::Version;
