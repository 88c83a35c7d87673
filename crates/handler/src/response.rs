//! A response as a handler makes it. Framing, `Date`, `Connection` and `Content-Length` are the
//! server's affair.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::stream::Receiver;
use lowroad_engine::tunnel::Tunnel;
use lowroad_http::status::Status;

use crate::fields::Fields;

/// Names a path of the site that is to be answered instead, as nginx has it.
pub const PATH_INSTEAD: &str = "X-Accel-Redirect";
/// Names a file that is to be sent instead, as Apache's modules and lighttpd have it.
pub const FILE_INSTEAD: &str = "X-Sendfile";

/// A response.
pub struct Response {
    /// The status, 200 to 999; 101 with [`Content::Upgrade`] only.
    pub status: Status,
    /// Its fields, but for those that are the server's own affair.
    pub fields: Fields,
    /// The body.
    pub content: Content,
    /// Names what it was made of besides the request, where that may change and whoever keeps the response is told so. No
    /// tag of a program.
    pub made_from: Option<Arc<str>>,
}

/// The body of a response.
pub enum Content {
    /// Bytes, perhaps none.
    Bytes(Bytes),
    /// Bytes that are still being made.
    Stream {
        /// How many there will be, if that is known.
        len: Option<u64>,
        /// The bytes.
        stream: Receiver,
    },
    /// What the site has stored for a path, with text around it; it does not pass through here.
    Stored(Box<Around>),
    /// What the site answers for this target, a path and perhaps a query, percent-encoded; the status and the fields do not
    /// count (RFC 3875 §6.2.2).
    Local(Vec<u8>),
    /// None: after a response with status 101 the connection speaks another protocol. Only for a request that asks for one
    /// ([`Request::upgrade`](crate::Request::upgrade)).
    Upgrade(Box<Upgrade>),
}

/// A connection that speaks another protocol.
pub struct Upgrade {
    /// The protocol, as the value of Upgrade.
    pub protocol: Vec<u8>,
    /// What the connection becomes.
    pub tunnel: Tunnel,
}

/// A stored object and the text around it.
pub struct Around {
    /// What comes before it.
    pub before: Bytes,
    /// Its decoded path, beginning with `/`.
    pub path: Bytes,
    /// What comes after it.
    pub after: Bytes,
}

impl Response {
    /// A response of bytes with a Content-Type.
    pub fn of(status: Status, content_type: &str, body: impl Into<Bytes>) -> Response {
        let mut fields = Fields::new();
        fields.push("Content-Type", content_type.as_bytes());
        Response {
            status,
            fields,
            content: Content::Bytes(body.into()),
            made_from: None,
        }
    }

    /// The response to a request that asks for another protocol, and gets it.
    pub fn upgrade(protocol: impl Into<Vec<u8>>, tunnel: Tunnel) -> Response {
        Response {
            status: Status::SWITCHING_PROTOCOLS,
            fields: Fields::new(),
            content: Content::Upgrade(Box::new(Upgrade {
                protocol: protocol.into(),
                tunnel,
            })),
            made_from: None,
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Response {
        self.fields.push(name, value.as_ref());
        self
    }
}
