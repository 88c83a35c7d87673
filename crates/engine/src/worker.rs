//! A worker: one thread, one event loop, its connections.
//!
//! A turn waits, passes what happened to the connections, and looks at the deadlines that came
//! due. What a connection then does is told in `accepting`, `exchange`, `transmit` and `deadlines`.

use std::sync::Arc;
use std::task::Waker;

use slab::Slab;

use crate::admission::Admission;
use crate::body::Out;
use crate::connection::Connection;
use crate::counters::Counters;
use crate::driver::{Driver, Event, ListenerId, Token};
use crate::file::FileSent;
use crate::h2;
use crate::interim::Interim;
use crate::local::{Local, ROUNDS_MAX};
use crate::mailbox::Mailbox;
use crate::sending::Leaving;
use crate::service::Service;
use crate::settings::Settings;
use crate::underway::{ExchangeId, Waiting};
use crate::wheel::Wheel;

pub use crate::sys::pin_to_cpu;

/// So many messages are enough before sockets have their turn again.
const MESSAGES_ENOUGH: usize = 256;
/// How many wakers of streams are kept.
const WAKERS: usize = 64;
/// How long the end of a connection may take once our last byte is sent.
pub(crate) const LINGER_MS: u64 = 2_000;

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

struct StreamWake<O, C, L> {
    mailbox: Mailbox<Message<O, C, L>>,
    token: Token,
}

impl<O: Send, C: Send, L: Send> std::task::Wake for StreamWake<O, C, L> {
    fn wake(self: Arc<Self>) {
        self.mailbox.post(Message::Moved(self.token));
    }
}

/// What tells a worker that a stream of a connection's has bytes, or room for some: those that were made lately, so that
/// none is made for each poll; each in the place of its connection's slot, modulo their number.
pub(crate) struct Wakers([Option<(Token, Waker)>; WAKERS]);

impl Wakers {
    /// That of a connection.
    pub fn of<O, C, L>(&mut self, mailbox: &Mailbox<Message<O, C, L>>, token: Token) -> &Waker
    where
        O: Send + 'static,
        C: Send + 'static,
        L: Send + 'static,
    {
        let place = &mut self.0[token.slot as usize % WAKERS];
        if place.as_ref().is_none_or(|(known, _)| *known != token) {
            *place = None;
        }
        let (_, waker) = place.get_or_insert_with(|| {
            let mailbox = mailbox.clone();
            (token, Waker::from(Arc::new(StreamWake { mailbox, token })))
        });
        waker
    }
}

/// What a worker with this driver and service is told.
pub type WorkerMessage<D, V> =
    Message<<V as Service>::Outcome, <V as Service>::Command, <D as Driver>::Listener>;

/// One event loop.
pub struct Worker<D: Driver, V: Service> {
    pub(crate) driver: D,
    pub(crate) service: V,
    pub(crate) settings: Arc<Settings>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) connections: Slab<Connection<D::Socket, V>>,
    pub(crate) wheel: Wheel<Token>,
    pub(crate) out: Out,
    /// Memory for what a layer opens.
    pub(crate) plain: Vec<u8>,
    /// Records of the answers in `out`.
    pub(crate) records: Vec<Leaving<V::Record>>,
    /// Connections whose sockets had more than they may say in one turn.
    pub(crate) unfinished: Vec<Token>,
    /// Seconds since 1970, and the same as a `Date` value.
    pub(crate) unix_s: u64,
    pub(crate) date: [u8; 29],
    /// When the draining ends, if it has begun.
    pub(crate) drain_until_ms: Option<u64>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) mailbox: Mailbox<WorkerMessage<D, V>>,
    pub(crate) listeners: Vec<ListenerId>,
    pub(crate) local: Local,
    date_until_ms: u64,
    pub(crate) generation: u32,
    pub(crate) paused_until_ms: Option<u64>,
    /// Listeners that take no new handshakes, and when they close.
    pub(crate) closing: Vec<(ListenerId, u64)>,
    messages: Vec<WorkerMessage<D, V>>,
    events: Vec<Event>,
    pub(crate) due: Vec<Token>,
    pub(crate) wakers: Wakers,
    pub(crate) h2: h2::Shared<V::Record>,
}

impl<D: Driver, V: Service> Worker<D, V> {
    /// Bytes of memory that an idle connection takes: its entry in the table, which may be empty.
    pub const CONNECTION_LEN: usize = size_of::<Option<Connection<D::Socket, V>>>();

    /// A worker without listeners: they come by [`Message::Listen`].
    pub fn new(
        driver: D,
        service: V,
        mailbox: Mailbox<WorkerMessage<D, V>>,
        settings: Arc<Settings>,
        admission: Arc<Admission>,
        counters: Arc<Counters>,
    ) -> Self {
        let now_ms = driver.now_ms();
        let local = driver.local().clone();
        Worker {
            driver,
            service,
            settings,
            counters,
            connections: Slab::new(),
            wheel: Wheel::new(now_ms),
            out: Out::default(),
            plain: Vec::new(),
            records: Vec::new(),
            unfinished: Vec::new(),
            unix_s: 0,
            date: [b' '; 29],
            drain_until_ms: None,
            admission,
            mailbox,
            listeners: Vec::new(),
            local,
            date_until_ms: 0,
            generation: 0,
            paused_until_ms: None,
            closing: Vec::new(),
            messages: Vec::new(),
            events: Vec::new(),
            due: Vec::new(),
            wakers: Wakers([const { None }; WAKERS]),
            h2: h2::Shared::default(),
        }
    }

    /// Turns until the worker has drained; gives its tasks up then.
    pub fn run(&mut self) {
        while !self.drained() {
            self.turn();
        }
        self.local.tasks.end();
    }

    /// Whether draining was asked for and is over: there are no connections, and nobody waits for what a task makes, or that
    /// took too long.
    pub fn drained(&self) -> bool {
        let Some(until_ms) = self.drain_until_ms else {
            return false;
        };
        let is_alone = self.closing.is_empty() && self.connections.is_empty();
        is_alone && (!self.local.tasks.is_held() || self.driver.now_ms() >= until_ms)
    }

    /// One wait and all that it brought.
    pub fn turn(&mut self) {
        let unfinished = std::mem::take(&mut self.unfinished);
        let timeout_ms = match unfinished.is_empty() {
            true => self.timeout_ms(),
            false => Some(0),
        };
        let mut events = std::mem::take(&mut self.events);
        self.driver.wait(timeout_ms, &mut events);
        self.keep_date();
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        for token in unfinished {
            if let Some(id) = self.find(token) {
                self.receive(id, true);
            }
        }
        self.answer_bell();
        self.look_at_deadlines();
        self.service.turn_ended(self.driver.now_ms());
    }

    /// Takes messages and runs tasks, which may bring forth more of both. What comes again and
    /// again waits until sockets had their turn.
    fn answer_bell(&mut self) {
        let mut taken = 0;
        for _ in 0..ROUNDS_MAX {
            if taken >= MESSAGES_ENOUGH || !self.local.bell.take_notified() {
                return;
            }
            taken += self.answer_once();
        }
    }

    /// Apart, so that a turn in which nobody rang pays for nothing of it.
    #[inline(never)]
    fn answer_once(&mut self) -> usize {
        // First what others wait for elsewhere, then the answers that came of it.
        self.local.tasks.run();
        let mut messages = std::mem::take(&mut self.messages);
        self.mailbox.take(&mut messages);
        let taken = messages.len();
        for message in messages.drain(..) {
            self.take_message(message);
        }
        self.messages = messages;
        taken
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Ready {
                token,
                readable,
                writable,
                ended,
                broken,
            } => {
                if let Some(id) = self.find(token) {
                    self.ready(id, readable || ended, ended, writable, broken);
                }
            }
            Event::Acceptable(listener) => self.accept(listener),
            Event::Sent(token, completion) => {
                if let Some(id) = self.find(token) {
                    self.send_ended(id, *completion);
                }
            }
            Event::File(token, sent) => {
                if let Some(id) = self.find(token) {
                    self.file_sent(id, sent);
                }
            }
            Event::Outgoing(news) => self.local.sources.happened(news),
        }
    }

    fn ready(&mut self, id: usize, readable: bool, ended: bool, writable: bool, broken: bool) {
        if broken {
            return self.broken(id);
        }
        if writable {
            self.push_sealed(id);
        }
        if writable && self.has_sending(id) {
            self.writable(id);
        }
        if readable && self.connections.contains(id) {
            self.receive(id, ended);
        }
        if ended && self.connections.contains(id) {
            self.ended_while_waiting(id);
        }
    }

    fn take_message(&mut self, message: WorkerMessage<D, V>) {
        match message {
            Message::Outcome(exchange, outcome) => {
                if let Some(id) = self.find(exchange.connection) {
                    self.outcome(id, exchange.stream, outcome);
                }
            }
            Message::Interim(exchange, interim) => {
                if let Some(id) = self.find(exchange.connection) {
                    self.interim(id, exchange.stream, &interim);
                }
            }
            Message::Moved(token) => {
                if let Some(id) = self.find(token) {
                    self.stream_moved(id);
                }
            }
            Message::Settings(settings) => self.settings = settings,
            Message::Command(command) => self.service.command(command),
            Message::Listen(id, listener) => self.start_listening(id, listener),
            Message::StopListening(id) => self.stop_listening(id),
            Message::Drain { timeout_ms } => self.drain(timeout_ms),
        }
    }

    fn keep_date(&mut self) {
        let now_ms = self.driver.now_ms();
        if now_ms >= self.date_until_ms {
            let unix_ms = self.driver.unix_ms();
            self.unix_s = unix_ms / 1000;
            self.date = lowroad_http::date::format(self.unix_s);
            self.date_until_ms = now_ms + 1000 - unix_ms % 1000;
        }
    }

    /// The slot of a connection, if it still is the one that the token names.
    pub(crate) fn find(&self, token: Token) -> Option<usize> {
        let id = token.slot as usize;
        let connection = self.connections.get(id)?;
        (connection.generation == token.generation).then_some(id)
    }

    /// Closes a connection at once. What was under way is logged as far as it got.
    pub(crate) fn close(&mut self, id: usize) {
        self.abandon_waiting(id);
        let mut connection = self.connections.remove(id);
        for (record, len) in connection.exchanges.take_records() {
            let now_ms = self.driver.now_ms();
            self.service.sent(record, len, false, now_ms);
        }
        self.admission.leave(connection.transport.peer);
        // The client must not take a body that was cut for a whole one.
        let is_cut = connection.sending.is_some() && connection.http.ends_by_close();
        match is_cut {
            true => connection.transport.reset(&mut self.driver),
            false => connection.transport.close(&mut self.driver),
        }
        if let Some(sending) = connection.sending {
            let now_ms = self.driver.now_ms();
            for left in sending.responses() {
                self.service.sent(left.record, left.body_len, false, now_ms);
            }
        }
    }

    /// Tells the service of the requests that will not be answered.
    pub(crate) fn abandon_waiting(&mut self, id: usize) {
        while let Some(waiting) = self.connections[id].exchanges.take_any_waiting() {
            self.abandon(id, waiting);
        }
    }

    /// Tells the service of a request that will not be answered.
    pub(crate) fn abandon(&mut self, id: usize, waiting: Waiting<V>) {
        let mut exchange = self.resumed(id, waiting.exchange);
        self.service.abandoned(waiting.pending, &mut exchange);
    }

    /// Closes a connection that the peer or the network broke.
    pub(crate) fn close_broken(&mut self, id: usize) {
        let connection = &self.connections[id];
        if !connection.is_idle() && !connection.lingering {
            self.counters.broken.bump();
        }
        self.close(id);
    }

    /// A file can't be sent to its end.
    fn cut_file(&mut self, id: usize) {
        match self.connections[id].two {
            None => self.close(id),
            Some(_) => self.stream_read(id, None),
        }
    }

    fn file_sent(&mut self, id: usize, sent: FileSent) {
        let len = match sent {
            FileSent::Bytes { len, .. } => len,
            _ => 0,
        };
        self.connections[id].transport.file_sent(len);
        match sent {
            FileSent::Changed => {
                self.counters.file_changed.bump();
                self.cut_file(id);
            }
            FileSent::Failed => {
                self.counters.file_failed.bump();
                self.cut_file(id);
            }
            FileSent::Broken => self.close_broken(id),
            FileSent::Bytes { len, full } => self.file_progress(id, len, full),
            FileSent::Tail(tail) => self.file_tail(id, tail),
            FileSent::Read(bytes) => self.file_read(id, bytes),
        }
    }
}
