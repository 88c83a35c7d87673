//! Interim responses (1xx) to one request, on their way from its handler to its client.

use std::fmt;
use std::sync::Arc;

use lowroad_engine::{ExchangeId, Interim};
use lowroad_http::fields::Fields;
use lowroad_http::status::Status;

/// The maximum of interim responses to one request; more are a fault of the handler.
const COUNT_MAX: u8 = 16;

/// Posts an interim response to the worker of the client.
pub type PostInterim = Arc<dyn Fn(ExchangeId, Interim) + Send + Sync>;

/// The sink for interim responses, like 103 (Early Hints).
#[derive(Default)]
pub struct Interims {
    to: Option<(PostInterim, ExchangeId)>,
    count: u8,
}

impl Interims {
    /// A sink that discards all.
    pub fn none() -> Interims {
        Interims::default()
    }

    /// For the client of an exchange.
    pub fn new(post: PostInterim, id: ExchangeId) -> Interims {
        Interims {
            to: Some((post, id)),
            count: 0,
        }
    }

    /// Sends an interim response before the final one. Returns whether it was passed on: its status must be 102 to 199
    /// but not 101, which is a final response, and there are at most 15 others. Clients of HTTP/1.0 get none; nor does a
    /// client of a handler that responds immediately ([`Begun::Answered`](crate::Begun)), or which waits as a
    /// follower for the response to an equal request.
    pub fn send(&mut self, status: Status, fields: Fields) -> bool {
        let Some((post, id)) = &self.to else {
            return false;
        };
        if self.count >= COUNT_MAX || !Interim::is_one(status) {
            // Counted per request: a broken handler must not flood the client.
            return false;
        }
        self.count += 1;
        post(*id, Interim { status, fields });
        true
    }
}

impl fmt::Debug for Interims {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Interims").field(&self.count).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn there_are_some_but_not_without_end() {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let into = sent.clone();
        let post = move |_, it: Interim| into.lock().expect("no panic").push(it.status.code());
        let mut interims = Interims::new(Arc::new(post), ExchangeId::NOBODY);
        let hints = Status::EARLY_HINTS;
        for not in [Status::CONTINUE, Status::SWITCHING_PROTOCOLS, Status::OK] {
            assert!(!interims.send(not, Fields::new()));
        }
        let count = (0..100).filter(|_| interims.send(hints, Fields::new()));
        assert_eq!(count.count(), 16);
        assert_eq!(*sent.lock().expect("no panic"), [103; 16]);
        assert!(!Interims::none().send(hints, Fields::new()));
    }
}
