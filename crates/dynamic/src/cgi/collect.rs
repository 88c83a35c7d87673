//! Bodies whose length is not known: programs need to be told it (RFC 3875 §4.1.2), so such a body
//! is collected first, as far as memory allows. It knows nothing of programs.

use bytes::Bytes;
use lowroad_engine::stream::stream;
use lowroad_http::status::Status;

use crate::request::Unread;
use crate::{Body, Failure};

/// Longer bodies must come with their length.
const LEN_MAX: usize = 1 << 20;

/// Makes a body have a length.
///
/// # Errors
/// 411 if it is too long to be collected, 400 if it was cut.
pub async fn length(body: &mut Body) -> Result<(), Failure> {
    if body.len.is_some() || body.stream.is_none() {
        return Ok(());
    }
    let bytes = body.read(LEN_MAX).await.map_err(|unread| match unread {
        Unread::TooLong => Failure::new(Status::LENGTH_REQUIRED, ""),
        Unread::Cut => Failure::new(Status::BAD_REQUEST, ""),
    })?;
    let len = bytes.len();
    let (sender, receiver) = stream(LEN_MAX);
    if sender.push(Bytes::from(bytes)).is_ok() {
        sender.end();
    }
    *body = Body {
        len: u64::try_from(len).ok(),
        stream: Some(receiver),
    };
    Ok(())
}
