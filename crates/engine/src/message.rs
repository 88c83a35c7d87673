//! Messages to a worker.

use std::sync::Arc;

use crate::driver::{Driver, ListenerId, Token};
use crate::interim::Interim;
use crate::service::{ExchangeId, Service};
use crate::settings::Settings;

/// What a worker is told from outside.
pub enum Message<O, C, L> {
    /// What a deferred request waited for.
    Outcome(ExchangeId, O),
    /// A response to a deferred request before the one that counts. Posted before the outcome.
    /// In a box: there are few, and ten thousand outcomes may wait at a time.
    Interim(ExchangeId, Box<Interim>),
    /// A body of this connection's has bytes, or room for some. Whose it is, is found by asking: so one waker does for
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
    /// Take no new connections, answer what is under way, be done by then at the latest.
    Drain {
        /// How long connections may last from now on.
        timeout_ms: u64,
    },
}

/// What a worker with this driver and service is told.
pub type WorkerMessage<D, V> =
    Message<<V as Service>::Outcome, <V as Service>::Command, <D as Driver>::Listener>;
