//! Messages to a worker.

use std::sync::Arc;

use crate::driver::{Driver, ListenerId, Token};
use crate::interim::Interim;
use crate::service::{ExchangeId, Service};
use crate::settings::Settings;

/// A message to a worker from outside.
pub enum Message<O, C, L> {
    /// The outcome of a deferred request's wait.
    Outcome(ExchangeId, O),
    /// An interim response to a deferred request, posted before the outcome.
    /// In a box: there are few, and ten thousand outcomes may wait at a time.
    Interim(ExchangeId, Box<Interim>),
    /// A body of this connection has more bytes, or room for more. The connection polls all its bodies, so one waker serves
    /// all requests of a connection.
    Moved(Token),
    /// New settings, for what begins from now on.
    Settings(Arc<Settings>),
    /// An operator's change for the service.
    Command(C),
    /// Accept here too.
    Listen(ListenerId, L),
    /// Accept here no more; connections stay.
    StopListening(ListenerId),
    /// Accept no new connections, complete the requests under way, and end by the timeout.
    Drain {
        /// How long connections may last from now on.
        timeout_ms: u64,
    },
}

/// Reports that a body of this connection has moved.
impl<O, C, L> From<Token> for Message<O, C, L> {
    fn from(token: Token) -> Self {
        Message::Moved(token)
    }
}

/// A message to a worker with this driver and service.
pub type WorkerMessage<D, V> =
    Message<<V as Service>::Outcome, <V as Service>::Command, <D as Driver>::Listener>;
