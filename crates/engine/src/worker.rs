//! A worker: a thread with an event loop and its connections.
//!
//! A turn of the loop waits, passes events to the connections, and checks the deadlines that are due. Connections
//! handle events in `accept`, `exchange`, `transmit` and `deadlines`. `recovery` continues after a panic.

use std::sync::Arc;

use lowroad_limits::ConnectionLimit;
use slab::Slab;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::counters::WorkerCounters;
use crate::driver::{ConnectionToken, DriverEvent, IoDriver, ListenerId};
use crate::mailbox::WorkerMailbox;
use crate::recovery::{ListenerSuspension, PanicBackoff};
use crate::service::{ExchangeId, HttpService};
use crate::settings::WorkerSettings;
use crate::worker_handle::ROUNDS_MAX;

pub use crate::message::{ForwardedDatagram, MailboxMessage, SharedSocket, WorkerMessage};
pub use crate::system_calls::pin_to_cpu;

/// After this many messages, socket events are handled again.
const MESSAGES_ENOUGH: usize = 256;

/// A worker: an event loop, its connections and the state that they share.
pub struct Worker<D: IoDriver, V: HttpService> {
    pub(crate) context: WorkerContext<D, V>,
    pub(crate) connections: Slab<WorkerConnection<D, V>>,
    pub(crate) listeners: Vec<ListenerId>,
    pub(crate) generation: u32,
    pub(crate) paused_until_ms: Option<u64>,
    /// Listeners that refuse new handshakes, with the times at which they are closed.
    pub(crate) closing: Vec<(ListenerId, u64)>,
    pub(crate) panic_backoff: PanicBackoff,
    /// The pause after a repeated panic.
    pub(crate) suspension: Option<ListenerSuspension>,
    /// Whether another process has duplicates of the listeners: a suspension would end its service, too.
    pub(crate) has_shared_listeners: bool,
    /// Messages and events that are not handled yet, the first at the end: a panic loses only those that caused it.
    messages: Vec<WorkerMessage<D, V>>,
    events: Vec<DriverEvent>,
    pub(crate) due: Vec<u32>,
}

impl<D: IoDriver, V: HttpService> Worker<D, V> {
    /// The memory of an idle connection in bytes: the size of an entry in the table.
    pub const CONNECTION_LEN: usize = size_of::<Option<WorkerConnection<D, V>>>();

    /// A worker without listeners; [`MailboxMessage::Listen`] adds them.
    pub fn new(
        driver: D,
        service: V,
        mailbox: WorkerMailbox<WorkerMessage<D, V>>,
        settings: Arc<WorkerSettings>,
        admission: Arc<ConnectionLimit>,
        counters: Arc<WorkerCounters>,
    ) -> Self {
        Worker {
            context: WorkerContext::new(driver, service, mailbox, settings, admission, counters),
            connections: Slab::new(),
            listeners: Vec::new(),
            generation: 0,
            paused_until_ms: None,
            closing: Vec::new(),
            panic_backoff: PanicBackoff::default(),
            suspension: None,
            has_shared_listeners: false,
            messages: Vec::new(),
            events: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Runs the event loop until the worker has drained, then cancels its tasks.
    pub fn run(&mut self) {
        while !self.drained() {
            self.turn();
        }
        // Tasks own upstream connections and permits, which are released before the thread ends.
        self.context.worker_handle.tasks.end();
    }

    /// Whether a drain was requested and is complete: there are no connections, and no handshakes of QUIC and no
    /// [`DrainHold`](crate::tasks::DrainHold), or the drain timeout has elapsed.
    pub fn drained(&self) -> bool {
        let Some(until_ms) = self.context.drain_until_ms else {
            return false;
        };
        let is_alone = self.closing.is_empty() && self.connections.is_empty();
        let is_waiting =
            self.context.worker_handle.tasks.has_holds() || self.context.quic.has_handshakes();
        is_alone && (!is_waiting || self.context.driver.now_ms() >= until_ms)
    }

    /// Waits once, and handles all events.
    pub fn turn(&mut self) {
        let unfinished = std::mem::take(&mut self.context.unfinished);
        // Sockets are edge-triggered: no event reports bytes that were left unread.
        let timeout_ms = match unfinished.is_empty() {
            true => self.timeout_ms(),
            false => Some(0),
        };
        let remaining_ms = self.context.worker_handle.timers.bound_wait(timeout_ms);
        let due_ms = remaining_ms.map(|ms| self.context.driver.now_ms().saturating_add(ms));
        self.context.driver.wait(timeout_ms, &mut self.events);
        self.report_lag(due_ms);
        self.context.update_date();
        self.events.reverse();
        while let Some(event) = self.events.pop() {
            self.handle(event);
        }
        for token in unfinished {
            self.visit(token, |connection, context| {
                connection.receive(context, true)
            });
        }
        // Messages and tasks are handled after the sockets: socket events may wake tasks and post messages.
        self.handle_notification();
        self.check_deadlines();
        // Last, since everything before may write to connections.
        self.serve_quic();
        self.context
            .service
            .turn_ended(self.context.driver.now_ms());
    }

    /// Reports the delay of this turn since `due_ms`: the time of a timer, or of bytes left unread by the last turn.
    /// Uses the time that the driver has read anyway.
    fn report_lag(&mut self, due_ms: Option<u64>) {
        let now_ms = self.context.driver.now_ms();
        if let Some(lag_ms) = due_ms.and_then(|due_ms| now_ms.checked_sub(due_ms)) {
            self.context.service.loop_lag(lag_ms);
        }
    }

    /// Handles messages and runs tasks, which may cause more messages and wake more tasks. After some rounds the rest
    /// waits for the next turn, so that sockets are served.
    fn handle_notification(&mut self) {
        let mut handled = 0;
        for _ in 0..ROUNDS_MAX {
            if handled >= MESSAGES_ENOUGH || !self.context.worker_handle.event_count.take_notified()
            {
                return;
            }
            handled += self.run_round();
        }
    }

    /// Runs tasks, then handles messages. Returns the number of messages. Not inlined, so that a turn without a
    /// notification stays cheap.
    #[inline(never)]
    fn run_round(&mut self) -> usize {
        // Tasks run first, as they may post outcomes, which are then handled in the same round.
        self.context.worker_handle.tasks.run();
        // Only a panic leaves messages.
        let unhandled = self.handle_messages();
        self.context.mailbox.take(&mut self.messages);
        self.messages.reverse();
        unhandled + self.handle_messages()
    }

    fn handle_messages(&mut self) -> usize {
        let count = self.messages.len();
        while let Some(message) = self.messages.pop() {
            self.handle_message(message);
        }
        count
    }

    fn handle(&mut self, event: DriverEvent) {
        match event {
            DriverEvent::Ready {
                token,
                readable,
                writable,
                ended,
                broken,
            } => self.visit(token, |connection, context| {
                connection.on_socket_event(context, readable || ended, ended, writable, broken);
            }),
            DriverEvent::Acceptable(listener) => self.accept(listener),
            DriverEvent::Sent(token, completion) => {
                self.visit(token, |connection, context| {
                    connection.send_ended(context, *completion)
                });
            }
            DriverEvent::File(token, sent) => {
                self.visit(token, |connection, context| {
                    connection.file_sent(context, sent)
                });
            }
            DriverEvent::UpstreamReady(socket_event) => self
                .context
                .worker_handle
                .sources
                .handle_event(socket_event),
            DriverEvent::Datagrams(socket) => self.receive_datagrams(socket),
            DriverEvent::Room(socket) => self.on_datagram_room(socket),
        }
    }

    fn handle_message(&mut self, message: WorkerMessage<D, V>) {
        match message {
            MailboxMessage::Outcome(ExchangeId { connection, stream }, outcome) => {
                self.visit(connection, |connection, context| {
                    connection.store_outcome(context, stream, outcome);
                });
            }
            MailboxMessage::Interim(ExchangeId { connection, stream }, interim) => {
                self.visit(connection, |connection, context| {
                    connection.write_interim(context, stream, &interim);
                });
            }
            MailboxMessage::BodyProgress(token) => {
                self.visit(token, |connection, context| {
                    connection.handle_progress(context)
                });
            }
            MailboxMessage::Settings(settings) => self.context.settings = settings,
            MailboxMessage::Deny(denied, _applied) => self.deny(denied),
            MailboxMessage::Command(command) => self.context.service.command(command),
            MailboxMessage::Listen(id, listener) => self.start_listening(id, listener),
            MailboxMessage::ListenDatagrams(id, socket) => self.start_datagrams(id, socket),
            MailboxMessage::Peers(peers) => self.context.peers = peers,
            MailboxMessage::Datagram(id, datagram) => self.take_forwarded(id, &datagram),
            MailboxMessage::StopDatagrams(id) => self.stop_datagrams(id),
            MailboxMessage::StopListening(id) => self.stop_listening(id),
            MailboxMessage::ShareListeners(to) => self.share_listeners(&to),
            MailboxMessage::ShareDatagrams(to) => self.share_datagrams(&to),
            MailboxMessage::HandOverDatagrams(id, relay, done) => {
                self.hand_over_datagrams(id, relay);
                drop(done);
            }
            MailboxMessage::EndSharing => self.has_shared_listeners = false,
            MailboxMessage::HandOver(id) => self.hand_over(id),
            MailboxMessage::Drain { timeout_ms } => self.drain(timeout_ms),
        }
    }

    /// Calls `act` with the connection, if it still exists, then removes the connection if it was closed.
    #[inline]
    pub(crate) fn visit(
        &mut self,
        token: ConnectionToken,
        act: impl FnOnce(&mut WorkerConnection<D, V>, &mut WorkerContext<D, V>),
    ) {
        let slot = token.slot as usize;
        let Some(connection) = self.connections.get_mut(slot) else {
            return;
        };
        // If the tokens differ, the event is for an earlier connection in this slot.
        if connection.token != token {
            return;
        }
        act(connection, &mut self.context);
        if connection.is_closed() {
            self.remove(slot);
        }
    }
}
