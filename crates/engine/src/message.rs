//! Messages to a worker.

use std::sync::Arc;

use crate::driver::{ConnectionToken, IoDriver, ListenerId};
use crate::interim_response::InterimResponse;
use crate::service::{ExchangeId, HttpService};
use crate::settings::WorkerSettings;

/// A message to a worker from another thread.
pub enum MailboxMessage<O, C, L> {
    /// The outcome of a deferred request's wait.
    Outcome(ExchangeId, O),
    /// An interim response to a deferred request, posted before the outcome. Boxed: there are few, and ten thousand
    /// outcomes may wait at a time.
    Interim(ExchangeId, Box<InterimResponse>),
    /// A body of this connection has more bytes, or room for more. The connection polls all its bodies, so one waker serves
    /// all requests of a connection.
    Moved(ConnectionToken),
    /// New settings, for connections and requests that begin from now on.
    Settings(Arc<WorkerSettings>),
    /// A change by an operator, for the service.
    Command(C),
    /// Starts accepting at a listener.
    Listen(ListenerId, L),
    /// Stops accepting at a listener; connections stay.
    StopListening(ListenerId),
    /// Accept no new connections, complete the requests in progress, and end by the timeout.
    Drain {
        /// How long connections may last from now on.
        timeout_ms: u64,
    },
}

/// Reports that a body of this connection has moved.
impl<O, C, L> From<ConnectionToken> for MailboxMessage<O, C, L> {
    fn from(token: ConnectionToken) -> Self {
        MailboxMessage::Moved(token)
    }
}

/// A message to a worker with this driver and service.
pub type WorkerMessage<D, V> = MailboxMessage<
    <V as HttpService>::Outcome,
    <V as HttpService>::Command,
    <D as IoDriver>::Listener,
>;
