//! The service on top of the TCP stack: passes the bytes of client connections to `answer`, and those of database
//! connections to `pages`.
//!
//! A request is received by `WebService::input` and processed in `answer`, which calls `decision`. Dynamic pages
//! continue in [`crate::pages`].

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

/// Timeout for the head of a request.
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
    /// The serial number of the last response; never repeated.
    serial: u64,
    trusted: TrustedNetworks,
    pages: PageEngine,
    machine_view: MachineView,
    /// The earliest deadline of an incomplete request.
    heads_due_us: u64,
    pub(crate) journal: RequestJournal,
    pub(crate) counters: UnikernelCounters,
    /// Whether connections are closed after their next response.
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
        // The date is formatted once a second instead of for each response.
        if now.unix_s != self.now.unix_s {
            self.date = date::format(now.unix_s);
        }
        self.now = now;
    }

    /// Ends overdue requests and maintains the database connections. Returns the time of the next call.
    pub fn tick(&mut self, calls: &mut impl StackCalls) -> Option<u64> {
        let mut next_us = None;
        if self.connections.partial_count() > 0 {
            // Timeouts are not checked in each call, since the check scans all connections.
            if self.heads_due_us <= self.now.mono_us {
                self.heads_due_us = self.time_out_slow_heads(calls).unwrap_or(0);
            }
            next_us = Some(self.heads_due_us).filter(|due_us| *due_us > 0);
        }
        if self.pages.is_idle() {
            return next_us;
        }
        let pages_us = self.pages.tick(calls, self.now.mono_us);
        self.run_pages(calls);
        self.register_database_connections();
        earlier(next_us, pages_us)
    }

    /// Registers the connections that were opened to the database.
    fn register_database_connections(&mut self) {
        for id in self.pages.take_opened() {
            self.connections.occupy(id, SlotUse::Database, None);
        }
    }

    fn time_out_slow_heads(&mut self, calls: &mut impl StackCalls) -> Option<u64> {
        let now_us = self.now.mono_us;
        let mut first_us = None;
        for index in 0..self.connections.len() {
            let (id, _, Some(start_us)) = self.connections.at(index) else {
                continue;
            };
            // RFC 9110 §15.5.9: clients that send their heads slowly (Slowloris) would otherwise keep connections
            // occupied.
            let due_us = start_us + HEAD_TIMEOUT_US;
            if due_us > now_us {
                first_us = earlier(first_us, Some(due_us));
                continue;
            }
            self.counters.add(UnikernelCounter::HeadTimeouts);
            self.refuse(calls, id, StatusCode::REQUEST_TIMEOUT, None, Method::Get);
        }
        // Timeouts are handled at most once a second, so a timeout is at most one second late.
        first_us.map(|first| first.max(now_us + 1_000_000))
    }

    /// The last problem, for the operator. It is returned once.
    pub fn take_problem(&mut self) -> Option<String> {
        self.pages.take_problem()
    }

    /// Closes idle connections of clients, and those to the database if no page needs them.
    pub fn begin_draining(&mut self, calls: &mut impl StackCalls) {
        self.is_draining = true;
        // Database connections are closed after the last page.
        self.pages.stop(calls);
        // Connections without a request are closed now, the others after their response.
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
    fn run_pages(&mut self, calls: &mut impl StackCalls) {
        while let Some(finished) = self.pages.run(calls) {
            self.send_page(calls, finished);
        }
        let mut started = 0;
        // As many queued pages begin as tasks are free.
        while let Some(id) = self.pages.next_queued(started) {
            started += 1;
            let slot = self.connections.get(id);
            // The connection may have ended; then another connection may use the slot.
            if slot.generation == id.generation && slot.usage == SlotUse::Queued {
                slot.usage = SlotUse::Reading;
                calls.resume(id);
            }
        }
        self.register_database_connections();
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
            .occupy(id, SlotUse::Reading, Some(opened.peer));
    }

    #[inline]
    fn input(&mut self, calls: &mut impl StackCalls, id: ConnectionId, bytes: &[u8]) -> usize {
        match self.connections.get(id).usage {
            SlotUse::Reading => {}
            // The current request is not finished, so pipelined requests stay unread.
            SlotUse::Answering | SlotUse::Queued | SlotUse::Waiting => return 0,
            SlotUse::Closing | SlotUse::Free => return bytes.len(),
            SlotUse::Database => {
                self.pages.input(calls, self.now.mono_us, id, bytes);
                self.run_pages(calls);
                return bytes.len();
            }
        }
        self.request(calls, id, bytes)
    }

    fn finished(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        match self.connections.get(id).usage {
            SlotUse::Database => {
                self.pages.on_connection_lost(self.now.mono_us, id);
                // Pages that waited for the lost connection now fail or are repeated.
                calls.close(id);
                self.run_pages(calls);
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
                // A half-closed client gets the responses to all of its pipelined requests before the connection is
                // closed.
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
                self.run_pages(calls);
            }
            SlotUse::Waiting => self.pages.abort_page(calls, id),
            // Otherwise a later connection in the same slot would be taken for the queued one.
            SlotUse::Queued => self.pages.unqueue(id),
            _ => {}
        }
    }
}
