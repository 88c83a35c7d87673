//! A worker: one thread, one event loop, its connections.
//!
//! A turn waits, passes what happened to the connections, and looks at the deadlines that came
//! due. What a connection then does is told in `accepting`, `exchange`, `transmit` and `deadlines`.

use std::sync::Arc;

use lowroad_limits::ConnectionLimit;
use slab::Slab;

use crate::connection::WorkerConnection;
use crate::context::WorkerContext;
use crate::counters::WorkerCounters;
use crate::driver::{ConnectionToken, DriverEvent, IoDriver, ListenerId};
use crate::mailbox::WorkerMailbox;
use crate::service::{ExchangeId, HttpService};
use crate::settings::WorkerSettings;
use crate::worker_handle::ROUNDS_MAX;

pub use crate::message::{MailboxMessage, WorkerMessage};
pub use crate::system_calls::pin_to_cpu;

/// So many messages are enough before sockets have their turn again.
const MESSAGES_ENOUGH: usize = 256;

/// One event loop.
pub struct Worker<D: IoDriver, V: HttpService> {
    pub(crate) context: WorkerContext<D, V>,
    pub(crate) connections: Slab<WorkerConnection<D, V>>,
    pub(crate) listeners: Vec<ListenerId>,
    pub(crate) generation: u32,
    pub(crate) paused_until_ms: Option<u64>,
    /// Listeners that take no new handshakes, and when they close.
    pub(crate) closing: Vec<(ListenerId, u64)>,
    messages: Vec<WorkerMessage<D, V>>,
    events: Vec<DriverEvent>,
    pub(crate) due: Vec<u32>,
}

impl<D: IoDriver, V: HttpService> Worker<D, V> {
    /// Bytes of memory that an idle connection takes: its entry in the table, which may be empty.
    pub const CONNECTION_LEN: usize = size_of::<Option<WorkerConnection<D, V>>>();

    /// A worker without listeners: they come by [`MailboxMessage::Listen`].
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
            messages: Vec::new(),
            events: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Turns until the worker has drained; gives its tasks up then.
    pub fn run(&mut self) {
        while !self.drained() {
            self.turn();
        }
        self.context.local.tasks.end();
    }

    /// Whether draining was asked for and is over: there are no connections, and nobody waits for what a task makes, or that
    /// took too long.
    pub fn drained(&self) -> bool {
        let Some(until_ms) = self.context.drain_until_ms else {
            return false;
        };
        let is_alone = self.closing.is_empty() && self.connections.is_empty();
        is_alone
            && (!self.context.local.tasks.is_held() || self.context.driver.now_ms() >= until_ms)
    }

    /// One wait and all that it brought.
    pub fn turn(&mut self) {
        let unfinished = std::mem::take(&mut self.context.unfinished);
        let timeout_ms = match unfinished.is_empty() {
            true => self.timeout_ms(),
            false => Some(0),
        };
        let mut events = std::mem::take(&mut self.events);
        self.context.driver.wait(timeout_ms, &mut events);
        self.context.keep_date();
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        for token in unfinished {
            self.visit(token, |connection, context| {
                connection.receive(context, true)
            });
        }
        self.answer_bell();
        self.look_at_deadlines();
        self.context
            .service
            .turn_ended(self.context.driver.now_ms());
    }

    /// Takes messages and runs tasks, which may bring forth more of both. What comes again and
    /// again waits until sockets had their turn.
    fn answer_bell(&mut self) {
        let mut taken = 0;
        for _ in 0..ROUNDS_MAX {
            if taken >= MESSAGES_ENOUGH || !self.context.local.bell.take_notified() {
                return;
            }
            taken += self.answer_once();
        }
    }

    /// Apart, so that a turn in which nobody rang pays for nothing of it.
    #[inline(never)]
    fn answer_once(&mut self) -> usize {
        // First what others wait for elsewhere, then the answers that came of it.
        self.context.local.tasks.run();
        let mut messages = std::mem::take(&mut self.messages);
        self.context.mailbox.take(&mut messages);
        let taken = messages.len();
        for message in messages.drain(..) {
            self.take_message(message);
        }
        self.messages = messages;
        taken
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
                connection.ready(context, readable || ended, ended, writable, broken);
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
            DriverEvent::Outgoing(news) => self.context.local.sources.happened(news),
            // A worker opens no socket for datagrams until there is a protocol for them here.
            DriverEvent::Datagrams(_) | DriverEvent::Room(_) => {}
        }
    }

    fn take_message(&mut self, message: WorkerMessage<D, V>) {
        match message {
            MailboxMessage::Outcome(ExchangeId { connection, stream }, outcome) => {
                self.visit(connection, |connection, context| {
                    connection.outcome(context, stream, outcome);
                });
            }
            MailboxMessage::Interim(ExchangeId { connection, stream }, interim) => {
                self.visit(connection, |connection, context| {
                    connection.interim(context, stream, &interim);
                });
            }
            MailboxMessage::Moved(token) => {
                self.visit(token, |connection, context| {
                    connection.stream_moved(context)
                });
            }
            MailboxMessage::Settings(settings) => self.context.settings = settings,
            MailboxMessage::Command(command) => self.context.service.command(command),
            MailboxMessage::Listen(id, listener) => self.start_listening(id, listener),
            MailboxMessage::StopListening(id) => self.stop_listening(id),
            MailboxMessage::Drain { timeout_ms } => self.drain(timeout_ms),
        }
    }

    /// Lets a connection act, if it still is the one that the token names, and removes it if that has closed it.
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
        if connection.token != token {
            return;
        }
        act(connection, &mut self.context);
        if connection.is_closed() {
            self.remove(slot);
        }
    }
}
