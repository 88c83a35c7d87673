//! Interim responses (1xx) from a handler to the client of a request.

use std::fmt;
use std::sync::Arc;

use lowroad_engine::{ExchangeId, InterimResponse};
use lowroad_http::fields::ResponseFields;
use lowroad_http::status::StatusCode;

/// The maximum number of interim responses to one request; more indicate a bug of the handler.
const COUNT_MAX: u8 = 16;

/// Posts an interim response to the worker of the client.
pub type PostInterim = Arc<dyn Fn(ExchangeId, InterimResponse) + Send + Sync>;

/// The sink for interim responses, like 103 (Early Hints).
#[derive(Default)]
pub struct InterimSink {
    to: Option<(PostInterim, ExchangeId)>,
    count: u8,
}

impl InterimSink {
    /// A sink that discards all.
    pub fn none() -> InterimSink {
        InterimSink::default()
    }

    /// The sink for the client of an exchange.
    pub fn new(post: PostInterim, id: ExchangeId) -> InterimSink {
        InterimSink {
            to: Some((post, id)),
            count: 0,
        }
    }

    /// Sends an interim response before the final one. Returns whether it was accepted: the status must be 102 to 199
    /// (101 is a final response), and there may be at most 16 interim responses. Interim responses are not sent to
    /// HTTP/1.0 clients, to the client of a handler that responds immediately
    /// ([`HandlerResult::Ready`](crate::HandlerResult::Ready)), or to a follower, which waits for the response to an
    /// equal request.
    pub fn send(&mut self, status: StatusCode, fields: ResponseFields) -> bool {
        let Some((post, id)) = &self.to else {
            return false;
        };
        if self.count >= COUNT_MAX || !InterimResponse::is_interim_status(status) {
            // The number is limited for each request: a faulty handler must not flood the client.
            return false;
        }
        self.count += 1;
        post(*id, InterimResponse { status, fields });
        true
    }
}

impl fmt::Debug for InterimSink {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Interims").field(&self.count).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn interim_responses_are_limited() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let into = sent.clone();
        let post =
            move |_, it: InterimResponse| into.lock().expect("no panic").push(it.status.code());
        let mut interims = InterimSink::new(Arc::new(post), ExchangeId::NONE);
        let hints = StatusCode::EARLY_HINTS;
        for not in [
            StatusCode::CONTINUE,
            StatusCode::SWITCHING_PROTOCOLS,
            StatusCode::OK,
        ] {
            assert!(!interims.send(not, ResponseFields::new()));
        }
        let count = (0..100).filter(|_| interims.send(hints, ResponseFields::new()));
        assert_eq!(count.count(), 16);
        assert_eq!(*sent.lock().expect("no panic"), [103; 16]);
        assert!(!InterimSink::none().send(hints, ResponseFields::new()));
    }
}
