//! The response of a handler. The server adds framing, `Date`, `Connection` and `Content-Length`.

use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::stream::BodyReceiver;
use lowroad_engine::tunnel::ClientTunnel;
use lowroad_http::status::StatusCode;

use crate::fields::ResponseFields;

/// The field that requests an internal redirect to a path of the site, as in nginx.
pub const ACCEL_REDIRECT_FIELD: &str = "X-Accel-Redirect";
/// The field that names a file to be sent, as in Apache's mod_xsendfile and lighttpd.
pub const SENDFILE_FIELD: &str = "X-Sendfile";

/// A handler's response.
pub struct HandlerResponse {
    /// The status code, 200 to 999; 101 only with `ResponseContent::Upgrade`.
    pub status: StatusCode,
    /// The fields, except those that the server manages.
    pub fields: ResponseFields,
    /// The body.
    pub content: ResponseContent,
    /// The name of another source from which the response was made (an SQL page). A change of the source invalidates
    /// stored responses. It is separate from the application's cache tags.
    pub source: Option<Arc<str>>,
}

/// The body of a response.
pub enum ResponseContent {
    /// Bytes, possibly none.
    Bytes(Bytes),
    /// A stream of bytes.
    Stream {
        /// The length, if it is known.
        len: Option<u64>,
        /// The bytes.
        stream: BodyReceiver,
    },
    /// A file of the site with text around it. The handler does not read the file.
    Stored(Box<WrappedObject>),
    /// Local redirect (RFC 3875 §6.2.2): the response for this target is sent instead. Path and optional query,
    /// percent-encoded; status and fields are ignored.
    LocalRedirect(Vec<u8>),
    /// Upgrade: after a response with status 101 the connection changes its protocol. Only for a request that asks for
    /// it ([`HandlerRequest::upgrade`](crate::HandlerRequest::upgrade)).
    Upgrade(Box<UpgradedConnection>),
}

/// An upgraded connection.
pub struct UpgradedConnection {
    /// The protocol: the value of the field Upgrade.
    pub protocol: Vec<u8>,
    /// The tunnel that the connection becomes.
    pub tunnel: ClientTunnel,
}

/// A file of the site with text around it.
pub struct WrappedObject {
    /// The text before the file.
    pub before: Bytes,
    /// The decoded path of the file, beginning with `/`.
    pub path: Bytes,
    /// The text after the file.
    pub after: Bytes,
}

impl HandlerResponse {
    /// A response with a Content-Type and a body.
    pub fn new(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> HandlerResponse {
        let mut fields = ResponseFields::new();
        fields.push("Content-Type", content_type.as_bytes());
        HandlerResponse {
            status,
            fields,
            content: ResponseContent::Bytes(body.into()),
            source: None,
        }
    }

    /// The 101 response to an upgrade request.
    pub fn upgrade(protocol: impl Into<Vec<u8>>, tunnel: ClientTunnel) -> HandlerResponse {
        HandlerResponse {
            status: StatusCode::SWITCHING_PROTOCOLS,
            fields: ResponseFields::new(),
            content: ResponseContent::Upgrade(Box::new(UpgradedConnection {
                protocol: protocol.into(),
                tunnel,
            })),
            source: None,
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> HandlerResponse {
        self.fields.push(name, value.as_ref());
        self
    }
}
