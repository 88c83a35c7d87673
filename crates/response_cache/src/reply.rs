//! A handler's response and the stored object that it refers to.

use lowroad_handler::{HandlerResponse, ResponseContent};
use lowroad_http::h1::BodyLen;
use lowroad_http::status::StatusCode;
use lowroad_store::ObjectArc;
use lowroad_store::object::Representation;

/// A response and the stored object that it refers to.
pub struct HandlerReply {
    /// The response of the handler.
    pub response: HandlerResponse,
    /// The object of [`ResponseContent::Stored`], a representation.
    pub stored: Option<ObjectArc>,
}

impl HandlerReply {
    /// Creates a reply; `stored` is the object of [`ResponseContent::Stored`], a representation.
    pub fn new(response: HandlerResponse, stored: Option<ObjectArc>) -> HandlerReply {
        HandlerReply { response, stored }
    }

    /// The status code of the response.
    pub fn status(&self) -> StatusCode {
        self.response.status
    }

    /// The length of the body, as far as it is known.
    pub fn len(&self) -> BodyLen {
        match &self.response.content {
            ResponseContent::Bytes(bytes) => BodyLen::Known(bytes.len() as u64),
            ResponseContent::Stream { len, .. } => len.map_or(BodyLen::Unknown, BodyLen::Known),
            // Neither has content to be sent.
            ResponseContent::Upgrade(_) | ResponseContent::LocalRedirect(_) => BodyLen::None,
            ResponseContent::Stored(around) => {
                let stored = self.stored.as_ref();
                let stored = stored.and_then(|stored| stored.representation());
                let stored_len = stored.map_or(0, Representation::len);
                BodyLen::Known(around.before.len() as u64 + stored_len + around.after.len() as u64)
            }
        }
    }
}
