//! The service behind the stack: distinguishes connections of clients from those to the database, and dispatches their
//! bytes.
//!
//! A request passes `WebService::input`, then `answer`, which calls `decision`; dynamic pages continue in
//! [`crate::pages`].

mod answer;
mod body;
mod connection_table;

use alloc::string::String;

use lowroad_http::date;
use lowroad_http::limits::RequestLimits;
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_net::{
    ConnectionEnd, ConnectionId, ConnectionInitiator, StackCalls, TcpService, WAITING_MAX,
};

use crate::archive::SiteArchive;
use crate::counters::{UnikernelCounter, UnikernelCounters};
use crate::journal::RequestJournal;
use crate::machine_view::MachineView;
use crate::pages::PageEngine;
use crate::request_memo::RequestMemo;
use crate::response::UnikernelResponse;
use crate::server::{CurrentTime, earlier};
use crate::trusted_networks::TrustedNetworks;
use connection_table::{ConnectionTable, SlotUse};

/// The time in which a client must complete the head of a request.
const HEAD_TIMEOUT_US: u64 = 10_000_000;

/// The site, its clients and their requests.
pub struct WebService {
    site: SiteArchive,
    limits: RequestLimits,
    connections: ConnectionTable,
    memo: RequestMemo,
    out: UnikernelResponse,
    date: [u8; 29],
    now: CurrentTime,
    /// The number of the last response; never repeated.
    serial: u64,
    trusted: TrustedNetworks,
    pages: PageEngine,
    machine_view: MachineView,
    /// The earliest deadline of the incomplete requests.
    heads_due_us: u64,
    pub(crate) journal: RequestJournal,
    pub(crate) counters: UnikernelCounters,
    /// Connections are closed after their next response.
    is_draining: bool,
}

impl WebService {
    /// A service for `connections_max` connections.
    pub fn new(
        site: SiteArchive,
        connections_max: usize,
        journal_len: usize,
        pages: PageEngine,
        trusted: TrustedNetworks,
        serial: u64,
        machine_view: MachineView,
    ) -> WebService {
        let limits = RequestLimits {
            head_len_max: WAITING_MAX,
            ..RequestLimits::default()
        };
        WebService {
            site,
            limits,
            connections: ConnectionTable::new(connections_max),
            memo: RequestMemo::new(),
            out: UnikernelResponse::default(),
            date: date::format(0),
            now: CurrentTime {
                mono_us: 0,
                unix_s: 0,
            },
            serial,
            trusted,
            pages,
            machine_view,
            heads_due_us: 0,
            journal: RequestJournal::new(journal_len),
            counters: UnikernelCounters::default(),
            is_draining: false,
        }
    }

    /// Sets the time for the following calls.
    #[inline]
    pub fn set_now(&mut self, now: CurrentTime) {
        // Formatted once a second instead of for each response.
        if now.unix_s != self.now.unix_s {
            self.date = date::format(now.unix_s);
        }
        self.now = now;
    }

    /// Ends slow requests and maintains the database connections. Returns the time of the next call.
    pub fn tick(&mut self, calls: &mut impl StackCalls) -> Option<u64> {
        let mut next_us = None;
        if self.connections.partial_count() > 0 {
            // Not at each call, since it scans all connections.
            if self.heads_due_us <= self.now.mono_us {
                self.heads_due_us = self.end_slow_heads(calls).unwrap_or(0);
            }
            next_us = Some(self.heads_due_us).filter(|due_us| *due_us > 0);
        }
        if self.pages.is_idle() {
            return next_us;
        }
        let pages_us = self.pages.tick(calls, self.now.mono_us);
        self.make_pages(calls);
        self.claim_databases();
        earlier(next_us, pages_us)
    }

    /// Records the connections that were opened to the database.
    fn claim_databases(&mut self) {
        for id in self.pages.take_opened() {
            self.connections.take(id, SlotUse::Database, None);
        }
    }

    fn end_slow_heads(&mut self, calls: &mut impl StackCalls) -> Option<u64> {
        let now_us = self.now.mono_us;
        let mut first_us = None;
        for index in 0..self.connections.len() {
            let (id, _, Some(start_us)) = self.connections.at(index) else {
                continue;
            };
            // RFC 9110 §15.5.9: slow heads (Slowloris) would occupy connections for ever.
            let due_us = start_us + HEAD_TIMEOUT_US;
            if due_us > now_us {
                first_us = earlier(first_us, Some(due_us));
                continue;
            }
            self.counters.add(UnikernelCounter::HeadTimeouts);
            self.refuse(calls, id, StatusCode::REQUEST_TIMEOUT, None, Method::Get);
        }
        // Deadlines are grouped: a timeout is late by a second at most.
        first_us.map(|first| first.max(now_us + 1_000_000))
    }

    /// The last problem, for the operator; returned once.
    pub fn take_problem(&mut self) -> Option<String> {
        self.pages.take_problem()
    }

    /// Closes idle connections of clients, and those to the database when no page needs them.
    pub fn end_idle(&mut self, calls: &mut impl StackCalls) {
        self.is_draining = true;
        // Database connections are closed once their pages are done.
        // A connection without a request in progress ends now; others after their response.
        self.pages.stop(calls);
        for index in 0..self.connections.len() {
            if let (id, SlotUse::Reading, None) = self.connections.at(index) {
                self.close(calls, id);
            }
        }
    }

    fn close(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        self.connections.get(id).usage = SlotUse::Closing;
        calls.close(id);
    }

    /// Sends the finished pages, and begins queued ones.
    fn make_pages(&mut self, calls: &mut impl StackCalls) {
        while let Some(finished) = self.pages.run(calls) {
            self.send_page(calls, finished);
        }
        let mut started = 0;
        // As many as there are free tasks.
        while let Some(id) = self.pages.next_queued(started) {
            started += 1;
            let slot = self.connections.get(id);
            // The connection may have ended, and its slot may be in use again.
            if slot.generation == id.generation && slot.usage == SlotUse::Queued {
                slot.usage = SlotUse::Reading;
                calls.resume(id);
            }
        }
        self.claim_databases();
    }
}

impl TcpService for WebService {
    fn opened(
        &mut self,
        _calls: &mut impl StackCalls,
        id: ConnectionId,
        opened: ConnectionInitiator,
    ) {
        if opened.is_active_open {
            // The database server sends the first packet.
            return;
        }
        self.counters.add(UnikernelCounter::Connections);
        self.connections
            .take(id, SlotUse::Reading, Some(opened.peer));
    }

    #[inline]
    fn input(&mut self, calls: &mut impl StackCalls, id: ConnectionId, bytes: &[u8]) -> usize {
        match self.connections.get(id).usage {
            SlotUse::Reading => {}
            // The current request isn't finished: pipelined requests stay unread.
            SlotUse::Answering | SlotUse::Queued | SlotUse::Waiting => return 0,
            SlotUse::Closing | SlotUse::Free => return bytes.len(),
            SlotUse::Database => {
                self.pages.input(calls, self.now.mono_us, id, bytes);
                self.make_pages(calls);
                return bytes.len();
            }
        }
        self.request(calls, id, bytes)
    }

    fn finished(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        match self.connections.get(id).usage {
            SlotUse::Database => {
                self.pages.on_connection_lost(self.now.mono_us, id);
                // Pages that waited for the lost connection fail or retry now.
                calls.close(id);
                self.make_pages(calls);
            }
            // A half-closed client still gets its responses.
            SlotUse::Answering | SlotUse::Queued | SlotUse::Waiting => {
                self.connections.get(id).is_finished = true
            }
            SlotUse::Reading | SlotUse::Closing | SlotUse::Free => {
                self.connections.set_request_start(id, 0);
                self.close(calls, id);
            }
        }
    }

    fn sent(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        let slot = self.connections.get(id);
        match slot.usage {
            SlotUse::Answering => {
                let is_waiting = calls.waiting_len(id) > 0;
                // A half-closed client gets the responses to all of its pipelined requests first.
                if slot.is_finished && !is_waiting {
                    return self.close(calls, id);
                }
                slot.usage = SlotUse::Reading;
                if is_waiting {
                    calls.resume(id);
                }
            }
            SlotUse::Database => self.pages.sent(calls, id),
            _ => {}
        }
    }

    fn ended(&mut self, calls: &mut impl StackCalls, id: ConnectionId, _end: ConnectionEnd) {
        self.connections.set_request_start(id, 0);
        let usage = core::mem::replace(&mut self.connections.get(id).usage, SlotUse::Free);
        match usage {
            SlotUse::Database => {
                self.pages.on_connection_lost(self.now.mono_us, id);
                self.make_pages(calls);
            }
            SlotUse::Waiting => self.pages.forget(calls, id),
            // Its place in the queue would be given to a later connection in the same slot.
            SlotUse::Queued => self.pages.unqueue(id),
            _ => {}
        }
    }
}
