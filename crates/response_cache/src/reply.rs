//! A handler's response and the stored object that it refers to.

use lowroad_handler::{Content, Response};
use lowroad_http::h1::BodyLen;
use lowroad_http::status::Status;
use lowroad_store::ObjectArc;
use lowroad_store::object::Representation;

/// A response and the stored object that it refers to.
pub struct Reply {
    pub response: Response,
    /// The object of [`Content::Stored`], a representation.
    pub stored: Option<ObjectArc>,
}

impl Reply {
    /// Creates a reply; `stored` is the object of [`Content::Stored`], a representation.
    pub fn new(response: Response, stored: Option<ObjectArc>) -> Reply {
        Reply { response, stored }
    }

    pub fn status(&self) -> Status {
        self.response.status
    }

    /// The body's length, as far as it is known.
    pub fn len(&self) -> BodyLen {
        match &self.response.content {
            Content::Bytes(bytes) => BodyLen::Known(bytes.len() as u64),
            Content::Stream { len, .. } => len.map_or(BodyLen::Unknown, BodyLen::Known),
            Content::Upgrade(_) | Content::Local(_) => BodyLen::None,
            Content::Stored(around) => {
                let stored = self.stored.as_ref();
                let stored = stored.and_then(|stored| stored.representation());
                let between = stored.map_or(0, Representation::len);
                BodyLen::Known(around.before.len() as u64 + between + around.after.len() as u64)
            }
        }
    }
}
