//! Messages to a worker.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use lowroad_limits::DeniedAddresses;

use crate::datagrams::DatagramTrain;
use crate::driver::{ConnectionToken, IoDriver, ListenerId};
use crate::interim_response::InterimResponse;
use crate::mailbox::WorkerMailbox;
use crate::service::{ExchangeId, HttpService};
use crate::settings::WorkerSettings;

/// A message to a worker from another thread.
pub enum MailboxMessage<O, C, L, S> {
    /// The outcome for which a deferred request waits.
    Outcome(ExchangeId, O),
    /// An interim response to a deferred request, posted before the outcome. Boxed to keep the messages small, as
    /// interim responses are rare and ten thousand outcomes may be queued.
    Interim(ExchangeId, Box<InterimResponse>),
    /// A body of this connection has more bytes or more room. The connection then polls all its bodies, so one waker
    /// serves all its requests.
    BodyProgress(ConnectionToken),
    /// New settings for later connections and requests.
    Settings(Arc<WorkerSettings>),
    /// Refuses connections of these addresses from now on, and closes the open ones. The sender is dropped after that.
    Deny(Arc<DeniedAddresses>, Sender<Infallible>),
    /// An operator's command to the service.
    Command(C),
    /// Starts accepting at a listener.
    Listen(ListenerId, L),
    /// Starts accepting QUIC connections at the address of a listener.
    ListenDatagrams(ListenerId, S),
    /// Refuses new QUIC connections of a listener; the socket is closed after the last one.
    StopDatagrams(ListenerId),
    /// The mailboxes of all workers, by their numbers.
    Peers(Arc<[WorkerMailbox<Self>]>),
    /// A datagram that another worker has received for a connection of this one.
    Datagram(ListenerId, Box<ForwardedDatagram>),
    /// Stops accepting at a listener; its connections continue.
    StopListening(ListenerId),
    /// Sends duplicates of the open listeners, for another process that will accept from them.
    ShareListeners(Sender<SharedSocket<L>>),
    /// Sends duplicates of the open datagram sockets, for another process that will receive from them.
    ShareDatagrams(Sender<SharedSocket<S>>),
    /// Receives datagrams of a listener from this relay from now on, because another process receives from its sockets. The
    /// sender is dropped once that is so.
    HandOverDatagrams(ListenerId, OwnedFd, Sender<Infallible>),
    /// The other process has ended, so that this one alone accepts from its listeners.
    EndSharing,
    /// Closes a listener at once, because another process accepts its waiting connections.
    HandOver(ListenerId),
    /// Starts the drain: accept no new connections, complete the requests in progress, and stop after the timeout at
    /// the latest.
    Drain {
        /// How long connections may last from now on.
        timeout_ms: u64,
    },
}

/// A duplicate of a listener's sockets, or the reason why there is none.
pub type SharedSocket<S> = (ListenerId, io::Result<S>);

/// For wakers: a body of this connection has made progress.
impl<O, C, L, S> From<ConnectionToken> for MailboxMessage<O, C, L, S> {
    fn from(token: ConnectionToken) -> Self {
        MailboxMessage::BodyProgress(token)
    }
}

/// A message to a worker with this driver and service.
pub type WorkerMessage<D, V> = MailboxMessage<
    <V as HttpService>::Outcome,
    <V as HttpService>::Command,
    <D as IoDriver>::Listener,
    <D as IoDriver>::Datagrams,
>;

/// A datagram that a worker passes to another one.
pub struct ForwardedDatagram {
    /// Its addresses.
    pub(crate) train: DatagramTrain,
    /// Its payload.
    pub(crate) bytes: Box<[u8]>,
}
