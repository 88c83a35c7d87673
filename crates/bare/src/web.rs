//! The service: which connection is a visitor's and which the database's, and what each does when bytes come.
//! The way of a request: [`Web::input`], [`decide`], [`Web::send`]; that of a page goes through `pages`.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use lowroad_http::date;
use lowroad_http::limits::Limits;
use lowroad_http::method::Method;
use lowroad_http::request::{self, Framing, Parsed, Request, Version};
use lowroad_http::status::Status;
use lowroad_net::{Calls, End, Full, Id, Opened, Piece, Service, WAITING_MAX};

use crate::archive::Archive;
use crate::counters::{Counter, Counters};
use crate::decide::{self, Decision, Own};
use crate::journal::{Journal, Record};
use crate::known::{Found, Known};
use crate::out::{About, Out};
use crate::pages::{Made, Pages, Visit};
use crate::refuse::{self, Page};
use crate::respond;
use crate::server::{Now, earlier};
use crate::status;
use crate::trusted::Trusted;

/// A visitor that has begun a request must have ended its head within this.
const HEAD_TIMEOUT_US: u64 = 10_000_000;
/// What is sent of the log.
const LOG_LEN_MAX: usize = 48 << 10;

/// What a place in the table of connections is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    /// A visitor's; the next request can be taken.
    Reading,
    /// A visitor's, whose answer has not left whole.
    Answering,
    /// A visitor's, whose request waits until its page can be begun.
    Queued,
    /// A visitor's, for whom a page is being made.
    Waiting,
    /// No more will be read.
    Closing,
    /// The database's.
    Database,
}

#[derive(Clone, Copy)]
struct Place {
    used: Use,
    generation: u32,
    peer: SocketAddrV4,
    /// When the request that is incomplete began, in microseconds; 0 if none is.
    begun_us: u64,
    /// Bytes of it that were looked at.
    seen_len: usize,
    /// The visitor will send no more.
    is_finished: bool,
}

const FREE: Place = Place {
    used: Use::Free,
    generation: 0,
    peer: SocketAddrV4::new(core::net::Ipv4Addr::UNSPECIFIED, 0),
    begun_us: 0,
    seen_len: 0,
    is_finished: false,
};

/// The site, its visitors and what they wait for.
pub struct Web {
    site: Archive,
    limits: Limits,
    places: Vec<Place>,
    known: Known,
    out: Out,
    date: [u8; 29],
    now: Now,
    /// Answers so far: never twice the same.
    serial: u64,
    trusted: Trusted,
    pages: Pages,
    /// When the first of the requests that are incomplete may have taken too long.
    heads_due_us: u64,
    /// The log.
    pub journal: Journal,
    /// What has happened.
    pub counters: Counters,
    /// Connections are closed after their next answer.
    pub is_draining: bool,
}

impl Web {
    /// A service with room for so many connections.
    pub fn new(
        site: Archive,
        connections_max: usize,
        journal_len: usize,
        pages: Pages,
        trusted: Trusted,
        serial: u64,
    ) -> Web {
        let limits = Limits {
            head_len_max: WAITING_MAX,
            ..Limits::default()
        };
        Web {
            site,
            limits,
            places: vec![FREE; connections_max],
            known: Known::new(),
            out: Out::default(),
            date: date::format(0),
            now: Now {
                mono_us: 0,
                unix_s: 0,
            },
            serial,
            trusted,
            pages,
            heads_due_us: 0,
            journal: Journal::new(journal_len),
            counters: Counters::default(),
            is_draining: false,
        }
    }

    /// What time it is in all that follows.
    #[inline]
    pub fn set_now(&mut self, now: Now) {
        if now.unix_s != self.now.unix_s {
            self.date = date::format(now.unix_s);
        }
        self.now = now;
    }

    /// Ends what has taken too long; opens connections to the database. Gives the time of its next call, if it
    /// wants one.
    pub fn tick(&mut self, calls: &mut impl Calls) -> Option<u64> {
        let mut next_us = None;
        if self.counters[Counter::HeadsPartial] > 0 {
            // Not at each call: it looks at all places.
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

    /// Connections that were opened to the database are known as such.
    fn claim_databases(&mut self) {
        for id in self.pages.take_opened() {
            if let Some(place) = self.places.get_mut(id.index as usize) {
                *place = Place {
                    used: Use::Database,
                    generation: id.generation,
                    ..FREE
                };
            }
        }
    }

    fn end_slow_heads(&mut self, calls: &mut impl Calls) -> Option<u64> {
        let now_us = self.now.mono_us;
        let mut first_us: Option<u64> = None;
        for index in 0..self.places.len() {
            let place = self.places[index];
            if place.begun_us == 0 {
                continue;
            }
            let due_us = place.begun_us + HEAD_TIMEOUT_US;
            if due_us > now_us {
                first_us = Some(first_us.map_or(due_us, |first| first.min(due_us)));
                continue;
            }
            let id = Id {
                index: index as u32,
                generation: place.generation,
            };
            self.counters.add(Counter::HeadTimeouts);
            self.refuse(calls, id, Status::REQUEST_TIMEOUT, None);
        }
        // Not for each of them: late by a second at most.
        first_us.map(|first| first.max(now_us + 1_000_000))
    }

    #[inline]
    fn place(&mut self, id: Id) -> &mut Place {
        &mut self.places[id.index as usize]
    }

    /// What an operator wants to know of what went wrong last.
    pub fn take_trouble(&mut self) -> Option<String> {
        self.pages.take_trouble()
    }

    /// Ends the visitors that wait for nothing, and the database's connections when nobody needs them.
    pub fn end_idle(&mut self, calls: &mut impl Calls) {
        self.is_draining = true;
        self.pages.stop(calls);
        for index in 0..self.places.len() {
            let place = &mut self.places[index];
            if place.used == Use::Reading && place.begun_us == 0 {
                place.used = Use::Closing;
                calls.close(Id {
                    index: index as u32,
                    generation: place.generation,
                });
            }
        }
    }

    /// A partial head is counted, so that nobody looks for them when there are none.
    fn set_begun(&mut self, id: Id, begun_us: u64) {
        let place = self.place(id);
        let was = place.begun_us != 0;
        place.begun_us = begun_us;
        match (was, begun_us != 0) {
            (false, true) => self.counters.add(Counter::HeadsPartial),
            (true, false) => self.counters.less(Counter::HeadsPartial),
            _ => {}
        }
    }

    /// Takes one request. Gives the bytes that it used; 0 if it is not complete.
    #[inline]
    fn request(&mut self, calls: &mut impl Calls, id: Id, bytes: &[u8]) -> usize {
        if !self.is_draining
            && let Some(found) = self.known.find(bytes)
        {
            self.answer_known(calls, id, &found);
            return bytes.len();
        }
        let place = self.place(id);
        if place.begun_us != 0 {
            let seen_len = core::mem::replace(&mut place.seen_len, bytes.len());
            let is_due = request::head_complete(bytes, seen_len) || bytes.len() >= WAITING_MAX;
            if !is_due && !place.is_finished {
                return 0;
            }
        }
        match request::parse(bytes, &self.limits) {
            Ok(Parsed::Complete(request)) => {
                if self.place(id).begun_us != 0 {
                    self.set_begun(id, 0);
                }
                match self.answer(calls, id, &request, bytes) {
                    true => request.head_len,
                    false => 0,
                }
            }
            Ok(Parsed::Partial) if self.place(id).is_finished => {
                self.place(id).used = Use::Closing;
                calls.close(id);
                bytes.len()
            }
            Ok(Parsed::Partial) => {
                self.place(id).seen_len = bytes.len();
                if self.place(id).begun_us == 0 {
                    self.set_begun(id, self.now.mono_us.max(1));
                }
                0
            }
            Err(refusal) => {
                self.counters.add(Counter::RequestsRefused);
                self.set_begun(id, 0);
                self.note_refused(id, request::first_line(bytes), refusal.status());
                self.refuse(calls, id, refusal.status(), Some(refusal.as_str()));
                bytes.len()
            }
        }
    }

    /// Answers a request that was parsed before.
    #[inline]
    fn answer_known(&mut self, calls: &mut impl Calls, id: Id, found: &Found<'_>) {
        if self.place(id).begun_us != 0 {
            self.set_begun(id, 0);
        }
        let (file, body) = (found.file, found.file.body());
        respond::dated_head(file, &self.date, &mut self.out.copied);
        self.counters.add(Counter::Requests);
        let sent_len = (self.out.copied.len() + body.len()) as u64;
        self.counters.add_all(Counter::BytesSent, sent_len);
        let (bytes, sums) = (body, file.sums);
        let sent = calls.send(id, Piece::Copied(&self.out.copied));
        let sent = sent.and_then(|()| calls.send(id, Piece::Lasting { bytes, sums }));
        let place = &mut self.places[id.index as usize];
        let [line, referer, user_agent] = found.texts;
        self.journal.put(&Record {
            unix_s: self.now.unix_s,
            peer: place.peer,
            status: Status::OK.code(),
            body_len: body.len() as u64,
            duration_us: 0,
            line,
            referer,
            user_agent,
        });
        place.used = Use::Answering;
        if sent.is_err() {
            self.gone(calls, id);
        }
    }

    /// There is no memory for an answer: its connection goes.
    #[cold]
    fn gone(&mut self, calls: &mut impl Calls, id: Id) {
        self.counters.add(Counter::AnswersWithoutMemory);
        self.place(id).used = Use::Closing;
        calls.abort(id);
    }

    /// Answers a request, or begins to. False: it has to wait where it is.
    fn answer(
        &mut self,
        calls: &mut impl Calls,
        id: Id,
        request: &Request<'_>,
        bytes: &[u8],
    ) -> bool {
        self.serial = self.serial.wrapping_mul(6_364_136_223_846_793_005) | 1;
        let peer = self.place(id).peer;
        // A body is not for anything here; what it has of the connection is thrown away.
        let has_body = !matches!(request.framing, Framing::None | Framing::Length(0));
        let keep_alive = request.keep_alive && !has_body && !self.is_draining;
        let mut out = core::mem::take(&mut self.out);
        out.clear();
        let date = self.date;
        let about = About {
            unix_s: self.now.unix_s,
            date: &date,
            keep_alive,
            version: request.version,
            serial: self.serial,
        };
        let is_trusted = !self.trusted.is_empty() && self.trusted.has(*peer.ip());
        let decision = decide::decide(&self.site, request, is_trusted, &about, &mut out);
        let begun = match decision {
            Decision::Answered => None,
            Decision::Own(own) => {
                let of_net = calls.counters();
                self.own(own, of_net, request, &about, &mut out);
                None
            }
            Decision::Page(page) => {
                let visit = Visit {
                    id,
                    keep_alive,
                    begun_us: self.now.mono_us,
                };
                match self.pages.begin(visit, page, request, peer) {
                    Ok(begun) => Some(begun),
                    Err(Full) => {
                        self.counters.add(Counter::PagesRefused);
                        let status = Status::SERVICE_UNAVAILABLE;
                        self.page(status, None, request.method, &about, &mut out);
                        None
                    }
                }
            }
        };
        if let Some(begun) = begun {
            self.out = out;
            if !begun {
                self.place(id).used = Use::Queued;
            } else {
                self.counters.add(Counter::Requests);
                self.place(id).used = Use::Waiting;
                self.make_pages(calls);
            }
            return begun;
        }
        let record = Record {
            unix_s: self.now.unix_s,
            peer,
            status: out.status,
            body_len: out.body_len as u64,
            duration_us: 0,
            line: request.line(),
            referer: request.referer.unwrap_or_default(),
            user_agent: request.user_agent.unwrap_or_default(),
        };
        if let Some(file) = out.whole {
            self.known.keep(bytes, request, file);
        }
        self.counters.add(Counter::Requests);
        self.journal.put(&record);
        self.send(calls, id, &out, !keep_alive);
        self.out = out;
        true
    }

    fn page(
        &self,
        status: Status,
        explanation: Option<&str>,
        method: Method,
        about: &About<'_>,
        out: &mut Out,
    ) {
        let page = Page {
            status,
            explanation,
            field: None,
            has_body: method != Method::Head,
        };
        refuse::page(&self.site, page, about, out);
    }

    /// Pages that are ready go out; that may let others begin.
    fn make_pages(&mut self, calls: &mut impl Calls) {
        while let Some(made) = self.pages.run(calls) {
            self.made(calls, made);
        }
        let mut begun = 0;
        while let Some(id) = self.pages.next_queued(begun) {
            begun += 1;
            let place = self.place(id);
            if place.generation == id.generation && place.used == Use::Queued {
                place.used = Use::Reading;
                calls.resume(id);
            }
        }
        self.claim_databases();
    }

    fn made(&mut self, calls: &mut impl Calls, made: Made) {
        let id = made.visit.id;
        let place = *self.place(id);
        if place.generation != id.generation || place.used != Use::Waiting {
            // Its visitor has gone.
            return self.pages.end(made.at);
        }
        let mut out = core::mem::take(&mut self.out);
        out.clear();
        let keep_alive = made.visit.keep_alive && !self.is_draining;
        let date = self.date;
        let about = About {
            unix_s: self.now.unix_s,
            date: &date,
            keep_alive,
            version: self.pages.task(made.at).asked.version,
            serial: self.serial,
        };
        match made.result {
            Ok(()) => self.pages.task(made.at).write(&about, &mut out),
            Err(failure) => {
                self.counters.add(Counter::PagesFailed);
                let method = self.pages.task(made.at).asked.method;
                let text = Some(failure.explanation());
                self.page(failure.status(), text, method, &about, &mut out);
            }
        }
        self.journal.put(&Record {
            unix_s: self.now.unix_s,
            peer: place.peer,
            status: out.status,
            body_len: out.body_len as u64,
            duration_us: u32::try_from(self.now.mono_us - made.visit.begun_us).unwrap_or(u32::MAX),
            line: &self.pages.task(made.at).asked.line,
            referer: b"",
            user_agent: b"",
        });
        self.pages.end(made.at);
        self.send(calls, id, &out, !keep_alive);
        self.out = out;
        // What has come meanwhile waits.
        calls.resume(id);
    }

    fn own(
        &self,
        own: Own,
        of_net: Vec<(&'static str, u64)>,
        request: &Request<'_>,
        about: &About<'_>,
        out: &mut Out,
    ) {
        let (content_type, body): (&[u8], String) = match own {
            Own::Log => (b"text/plain; charset=utf-8", self.journal.text(LOG_LEN_MAX)),
            Own::Status => (
                b"text/plain; charset=utf-8",
                status::text(&self.shown(of_net)),
            ),
            Own::StatusJson => (b"application/json", status::json(&self.shown(of_net))),
        };
        status::write(
            content_type,
            body.as_bytes(),
            request.method != Method::Head,
            about,
            out,
        );
    }

    /// All that is counted, by name.
    fn shown(&self, of_net: Vec<(&'static str, u64)>) -> Vec<(&'static str, u64)> {
        let mut all = vec![("uptime_s", self.now.mono_us / 1_000_000)];
        all.extend(self.counters.named());
        all.push(("log_dropped", self.journal.dropped));
        all.extend(self.pages.counters());
        all.extend(of_net);
        all
    }

    /// Says no to what is not a request, and closes.
    fn refuse(&mut self, calls: &mut impl Calls, id: Id, status: Status, text: Option<&str>) {
        let mut out = core::mem::take(&mut self.out);
        out.clear();
        let date = self.date;
        let about = About {
            unix_s: self.now.unix_s,
            date: &date,
            keep_alive: false,
            version: Version::Http11,
            serial: 0,
        };
        self.page(status, text, Method::Get, &about, &mut out);
        self.set_begun(id, 0);
        self.send(calls, id, &out, true);
        self.out = out;
    }

    fn note_refused(&mut self, id: Id, line: &[u8], status: Status) {
        let record = Record {
            unix_s: self.now.unix_s,
            peer: self.place(id).peer,
            status: status.code(),
            body_len: 0,
            duration_us: 0,
            line,
            referer: b"",
            user_agent: b"",
        };
        self.journal.put(&record);
    }

    /// The answer leaves. Only begun when nothing else is queued, so there is room; where memory is at its end,
    /// the connection goes.
    #[inline]
    fn send(&mut self, calls: &mut impl Calls, id: Id, out: &Out, close: bool) {
        self.counters.add_all(
            Counter::BytesSent,
            (out.copied.len() + out.lasting.len()) as u64,
        );
        let mut sent = calls.send(id, Piece::Copied(&out.copied));
        if sent.is_ok() && !out.lasting.is_empty() {
            let (bytes, sums) = (out.lasting, out.sums);
            sent = calls.send(id, Piece::Lasting { bytes, sums });
        }
        if sent.is_err() {
            return self.gone(calls, id);
        }
        let place = self.place(id);
        match close {
            true => {
                place.used = Use::Closing;
                calls.close(id);
            }
            false => place.used = Use::Answering,
        }
    }
}

impl Service for Web {
    fn opened(&mut self, _calls: &mut impl Calls, id: Id, opened: Opened) {
        if opened.by_us {
            // Its server speaks first.
            return;
        }
        self.counters.add(Counter::Connections);
        *self.place(id) = Place {
            used: Use::Reading,
            generation: id.generation,
            peer: opened.peer,
            ..FREE
        };
    }

    #[inline]
    fn input(&mut self, calls: &mut impl Calls, id: Id, bytes: &[u8]) -> usize {
        match self.place(id).used {
            Use::Reading => {}
            // A request that was complete left the connection in this state, and is on its way out.
            Use::Answering | Use::Queued | Use::Waiting => return 0,
            Use::Closing | Use::Free => return bytes.len(),
            Use::Database => {
                self.pages.input(calls, self.now.mono_us, id, bytes);
                self.make_pages(calls);
                return bytes.len();
            }
        }
        self.request(calls, id, bytes)
    }

    fn finished(&mut self, calls: &mut impl Calls, id: Id) {
        match self.place(id).used {
            Use::Database => {
                self.pages.lost(self.now.mono_us, id);
                calls.close(id);
                self.make_pages(calls);
            }
            // It gets what it has asked for.
            Use::Answering | Use::Queued | Use::Waiting => self.place(id).is_finished = true,
            Use::Reading | Use::Closing | Use::Free => {
                self.set_begun(id, 0);
                self.place(id).used = Use::Closing;
                calls.close(id);
            }
        }
    }

    fn sent(&mut self, calls: &mut impl Calls, id: Id) {
        let place = *self.place(id);
        match place.used {
            Use::Answering => {
                let is_waiting = calls.waiting_len(id) > 0;
                if place.is_finished && !is_waiting {
                    self.place(id).used = Use::Closing;
                    return calls.close(id);
                }
                self.place(id).used = Use::Reading;
                if is_waiting {
                    calls.resume(id);
                }
            }
            Use::Database => self.pages.sent(calls, id),
            _ => {}
        }
    }

    fn ended(&mut self, calls: &mut impl Calls, id: Id, _end: End) {
        let used = self.place(id).used;
        self.set_begun(id, 0);
        self.place(id).used = Use::Free;
        match used {
            Use::Database => {
                self.pages.lost(self.now.mono_us, id);
                self.make_pages(calls);
            }
            Use::Waiting => self.pages.forget(calls, id),
            Use::Queued => self.pages.unqueue(id),
            _ => {}
        }
    }
}
