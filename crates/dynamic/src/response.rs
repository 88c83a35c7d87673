//! A response as a handler makes it. Framing, `Date`, `Connection` and `Content-Length` are the
//! server's affair.

use bytes::Bytes;
use lowroad_engine::stream::Receiver;
use lowroad_http::status::Status;

use crate::fields::Fields;

/// A response.
pub struct Response {
    /// The status, 200 to 999.
    pub status: Status,
    /// Its fields, but for those that are the server's own affair.
    pub fields: Fields,
    /// The body.
    pub content: Content,
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
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl AsRef<[u8]>) -> Response {
        self.fields.push(name, value.as_ref());
        self
    }
}
