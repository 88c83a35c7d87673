//! A handler's response. The server adds framing, `Date`, `Connection` and `Content-Length`.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::stream::Receiver;
use lowroad_engine::tunnel::Tunnel;
use lowroad_http::status::Status;

use crate::fields::Fields;

/// The field of an internal redirect to a path of the site, as in nginx.
pub const PATH_INSTEAD: &str = "X-Accel-Redirect";
/// The field that names a file to send, as in Apache's mod_xsendfile and lighttpd.
pub const FILE_INSTEAD: &str = "X-Sendfile";

/// A handler's response.
pub struct Response {
    /// The status code, 200 to 999; 101 only with `ResponseContent::Upgrade`.
    pub status: Status,
    /// Its fields, except those that the server manages.
    pub fields: Fields,
    /// The body.
    pub content: Content,
    /// Names a source of the response other than the request, such that a change of the source invalidates stored
    /// copies. Not a cache tag of the program.
    pub made_from: Option<Arc<str>>,
}

/// The body of a response.
pub enum Content {
    /// Bytes, possibly none.
    Bytes(Bytes),
    /// A stream of bytes.
    Stream {
        /// The length, if it is known.
        len: Option<u64>,
        /// The bytes.
        stream: Receiver,
    },
    /// An object of the site with text around it; the object does not pass through the handler.
    Stored(Box<Around>),
    /// Local redirect: the site answers this target instead, path and optional query, percent-encoded; status and
    /// fields are ignored (RFC 3875 §6.2.2).
    Local(Vec<u8>),
    /// Upgrade: after a response with status 101 the connection changes its protocol. Only for a request that asks for
    /// it ([`Request::upgrade`](crate::Request::upgrade)).
    Upgrade(Box<Upgrade>),
}

/// An upgraded connection.
pub struct Upgrade {
    /// The protocol: the value of the field Upgrade.
    pub protocol: Vec<u8>,
    /// The tunnel that the connection becomes.
    pub tunnel: Tunnel,
}

/// An object of the site with text around it.
pub struct Around {
    /// The text before the object.
    pub before: Bytes,
    /// The object's decoded path, beginning with `/`.
    pub path: Bytes,
    /// The text after the object.
    pub after: Bytes,
}

impl Response {
    /// A response with a Content-Type and a body.
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

    /// The 101 response to an upgrade request.
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
