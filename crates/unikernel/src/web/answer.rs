//! From a client's bytes to a request, its response, and a record in the log.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use lowroad_http::h1::{self, H1RequestHead};
use lowroad_http::method::Method;
use lowroad_http::refusal::RequestRefusal;
use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;
use lowroad_net::{ConnectionId, SendPiece, SendQueueFull, StackCalls, WAITING_MAX};

use super::WebService;
use super::body::{self, BodyHandling};
use super::connection_table::SlotUse;
use crate::counters::UnikernelCounter;
use crate::decision::{self, BuiltinResource, SiteDecision};
use crate::journal::JournalRecord;
use crate::pages::{FinishedPage, PageVisit};
use crate::refusal_page::{self, RefusalPage};
use crate::request_memo::MemoHit;
use crate::response::{ResponseContext, UnikernelResponse};
use crate::response_fields;
use crate::server::CurrentTime;
use crate::status;

/// The response to a failed page must not be cached.
const NO_STORE: Option<(&str, &[u8])> = Some(("Cache-Control", b"no-store"));

const TEXT: &[u8] = b"text/plain; charset=utf-8";

/// The texts of a request in the log: request line, Referer, User-Agent.
type LogTexts<'r> = [&'r [u8]; 3];

impl WebService {
    /// Processes one request. Returns the number of consumed bytes; 0 if it is incomplete.
    #[inline]
    pub(super) fn request(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        bytes: &[u8],
    ) -> usize {
        // Memoized responses keep the connection open, which draining must not.
        if !self.is_draining
            && let Some(found) = self.known.find(bytes)
        {
            self.answer_known(calls, id, &found);
            return bytes.len();
        }
        // An incomplete head is not parsed again before its end has arrived.
        let place = self.places.get(id);
        if place.is_partial() {
            let seen_len = core::mem::replace(&mut place.seen_len, bytes.len());
            let is_due = match place.needed_len {
                // Only the new bytes are searched for the end of the head: a slow client's head is not parsed with
                // each byte.
                0 => h1::head_complete(bytes, seen_len) || bytes.len() >= WAITING_MAX,
                needed_len => bytes.len() >= needed_len,
            };
            if !is_due && !place.is_finished {
                return 0;
            }
            place.needed_len = 0;
        }
        match h1::parse(bytes, &self.limits) {
            Ok(Some(head)) => {
                // A body that stays unread leaves the next request's start unknown.
                let mut used_len = Some(head.len);
                if head.framing.has_body() {
                    match body::find(&head, bytes, &self.limits) {
                        Ok(BodyHandling::Here { end }) => used_len = Some(end),
                        Ok(BodyHandling::Unread) => used_len = None,
                        Ok(BodyHandling::Coming { end }) => {
                            self.places.get(id).needed_len = end;
                            return self.wait_for_more(calls, id, bytes.len());
                        }
                        Err(refusal) => return self.refuse_request(calls, id, refusal, bytes),
                    }
                }
                // The request is complete, so the head's timeout no longer applies.
                self.places.set_begun(id, 0);
                match self.answer(calls, id, &head, bytes, used_len.is_some()) {
                    true => used_len.unwrap_or(head.len),
                    false => 0,
                }
            }
            Ok(None) => self.wait_for_more(calls, id, bytes.len()),
            Err(refusal) => self.refuse_request(calls, id, refusal, bytes),
        }
    }

    /// Refuses an invalid request and drops all bytes behind it.
    fn refuse_request(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        refusal: RequestRefusal,
        bytes: &[u8],
    ) -> usize {
        self.counters.add(UnikernelCounter::RequestsRefused);
        let line = h1::first_line(bytes);
        // A response to HEAD has no content, though the request was not read to its end.
        let method = match line.starts_with(b"HEAD ") {
            true => Method::Head,
            false => Method::Get,
        };
        self.refuse(calls, id, refusal.status(), Some(refusal.as_str()), method);
        // Invalid requests have no reliable fields; only the first line is logged.
        self.log(id, 0, [line, b"", b""]);
        bytes.len()
    }

    /// Waits for the rest of a request; closes the connection if the client will send no more.
    fn wait_for_more(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        len: usize,
    ) -> usize {
        let now_us = self.now.mono_us;
        let place = self.places.get(id);
        if place.is_finished {
            self.close(calls, id);
            return len;
        }
        place.seen_len = len;
        if !place.is_partial() {
            // 0 stands for no incomplete request.
            self.places.set_begun(id, now_us.max(1));
        }
        0
    }

    /// Responds to a request that is in the memo.
    #[inline]
    fn answer_known(&mut self, calls: &mut impl StackCalls, id: ConnectionId, found: &MemoHit<'_>) {
        if self.places.get(id).is_partial() {
            self.places.set_begun(id, 0);
        }
        response_fields::kept(found.file, &self.date, &mut self.out);
        self.counters.add(UnikernelCounter::Requests);
        self.log(id, 0, found.texts);
        self.send(calls, id, true);
    }

    /// Responds to a request, or begins its page. False: the request stays unread. `may_keep`: the start of the next
    /// request is known.
    fn answer(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        head: &H1RequestHead<'_>,
        bytes: &[u8],
        may_keep: bool,
    ) -> bool {
        let request = &head.request;
        self.serial = self.serial.wrapping_mul(6_364_136_223_846_793_005) | 1;
        let peer = self.places.get(id).peer;
        let keep_alive = head.keep_alive && may_keep;
        let (about, mut out) = self.begin(keep_alive, head.version);
        // Without trusted networks, the usual case, the address is not looked at.
        let is_trusted = !self.trusted.is_empty() && self.trusted.has(*peer.ip());
        match decision::decide(&self.site, request, is_trusted, &about, &mut out) {
            SiteDecision::Answered => {}
            SiteDecision::Own(own) => {
                let has_body = request.method != Method::Head;
                let of_net = calls.counters();
                self.own(own, of_net, has_body, &about, &mut out);
            }
            SiteDecision::Page(page) => {
                let visit = PageVisit {
                    id,
                    keep_alive: about.keep_alive,
                    begun_us: self.now.mono_us,
                };
                match self.pages.begin(visit, page, head, peer) {
                    Ok(is_begun) => {
                        // The object returns to its place, to keep its allocation.
                        self.out = out;
                        self.page_begun(calls, id, is_begun);
                        return is_begun;
                    }
                    Err(SendQueueFull) => {
                        // The queue is full: 503 at once is better than a timeout later.
                        self.counters.add(UnikernelCounter::PagesRefused);
                        let status = StatusCode::SERVICE_UNAVAILABLE;
                        self.say(status, None, request.method, NO_STORE, &about, &mut out);
                    }
                }
            }
        }
        // Only whole files are memoized: their response depends on nothing else in the head.
        if let Some(file) = out.whole {
            self.known.keep(bytes, head, file);
        }
        let keep_alive = about.keep_alive && !out.closes;
        self.out = out;
        self.counters.add(UnikernelCounter::Requests);
        let [referer, user_agent] = [request.referer(), request.user_agent()];
        let texts = [
            head.line(),
            referer.unwrap_or_default(),
            user_agent.unwrap_or_default(),
        ];
        self.log(id, 0, texts);
        self.send(calls, id, keep_alive);
        true
    }

    fn page_begun(&mut self, calls: &mut impl StackCalls, id: ConnectionId, is_begun: bool) {
        if !is_begun {
            self.places.get(id).used = SlotUse::Queued;
            return;
        }
        self.counters.add(UnikernelCounter::Requests);
        self.places.get(id).used = SlotUse::Waiting;
        self.make_pages(calls);
    }

    /// Sends a finished page, successful or failed.
    pub(super) fn answer_made(&mut self, calls: &mut impl StackCalls, made: FinishedPage) {
        let id = made.visit.id;
        let place = self.places.get(id);
        if place.generation != id.generation || place.used != SlotUse::Waiting {
            // The client's connection has ended.
            return self.pages.end(made.at);
        }
        let asked = &self.pages.task(made.at).asked;
        let (method, version) = (asked.method, asked.version);
        let (about, mut out) = self.begin(made.visit.keep_alive, version);
        match made.result {
            Ok(()) => self.pages.task(made.at).write(&about, &mut out),
            Err(failure) => {
                self.counters.add(UnikernelCounter::PagesFailed);
                let text = Some(failure.explanation());
                self.say(failure.status(), text, method, NO_STORE, &about, &mut out);
            }
        }
        self.out = out;
        // The duration includes the waiting for the database.
        let took_us = self.now.mono_us - made.visit.begun_us;
        let duration_us = u32::try_from(took_us).unwrap_or(u32::MAX);
        let texts = [&self.pages.task(made.at).asked.line[..], b"", b""];
        let peer = self.places.get(id).peer;
        // The reason precedes the request's own record.
        if made.result.is_err() {
            let reason = &self.pages.task(made.at).reason;
            self.journal
                .put(&JournalRecord::failure(self.now.unix_s, peer, reason));
        }
        self.journal
            .put(&record(&self.out, self.now, peer, duration_us, texts));
        self.pages.end(made.at);
        self.send(calls, id, about.keep_alive);
        // Requests that arrived meanwhile were left unread.
        calls.resume(id);
    }

    /// Sends an error response and closes the connection.
    pub(super) fn refuse(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        status: StatusCode,
        text: Option<&str>,
        method: Method,
    ) {
        self.places.set_begun(id, 0);
        let (about, mut out) = self.begin(false, HttpVersion::Http11);
        self.say(status, text, method, None, &about, &mut out);
        self.out = out;
        self.send(calls, id, false);
    }

    /// The inputs of a response, and the object for it.
    fn begin(
        &mut self,
        keep_alive: bool,
        version: HttpVersion,
    ) -> (ResponseContext, UnikernelResponse) {
        let about = ResponseContext {
            unix_s: self.now.unix_s,
            date: self.date,
            keep_alive: keep_alive && !self.is_draining,
            version,
            serial: self.serial,
        };
        // Taken out, so that the site can be read while the response is written.
        let mut out = core::mem::take(&mut self.out);
        out.clear();
        (about, out)
    }

    /// Writes the page for a status.
    fn say(
        &self,
        status: StatusCode,
        explanation: Option<&str>,
        method: Method,
        field: Option<(&str, &[u8])>,
        about: &ResponseContext,
        out: &mut UnikernelResponse,
    ) {
        let page = RefusalPage {
            status,
            explanation,
            field,
            has_body: method != Method::Head,
        };
        refusal_page::page(&self.site, page, about, out);
    }

    /// Writes a built-in resource.
    fn own(
        &self,
        own: BuiltinResource,
        of_net: Vec<(&'static str, u64)>,
        has_body: bool,
        about: &ResponseContext,
        out: &mut UnikernelResponse,
    ) {
        let (content_type, body): (&[u8], String) = match own {
            BuiltinResource::Log => (TEXT, self.whole.log(&self.journal)),
            BuiltinResource::Status => (TEXT, status::text(&self.shown(of_net))),
            BuiltinResource::StatusJson => (b"application/json", status::json(&self.shown(of_net))),
        };
        status::write(content_type, body.as_bytes(), has_body, about, out);
    }

    /// All counters of the machine, by name.
    fn shown(&self, of_net: Vec<(&'static str, u64)>) -> Vec<(&'static str, u64)> {
        let mut counted: Vec<_> = self.counted(of_net.into_iter()).collect();
        self.whole.sum(&mut counted);
        let mut all = vec![("uptime_s", self.now.mono_us / 1_000_000)];
        all.extend(self.whole.traffic());
        all.append(&mut counted);
        all
    }

    /// The counters of this core, by name. Names and order are constant, except for those of the database at the end,
    /// which disappear during the shutdown.
    pub(crate) fn counted(
        &self,
        of_net: impl Iterator<Item = (&'static str, u64)>,
    ) -> impl Iterator<Item = (&'static str, u64)> {
        let own = [
            ("http_heads_partial", self.places.partial_count()),
            ("log_dropped", self.journal.dropped),
        ];
        let named = self.counters.named().chain(own);
        named.chain(of_net).chain(self.pages.counters())
    }

    /// Logs the response in `response`.
    #[inline]
    fn log(&mut self, id: ConnectionId, duration_us: u32, texts: LogTexts<'_>) {
        let peer = self.places.get(id).peer;
        self.journal
            .put(&record(&self.out, self.now, peer, duration_us, texts));
    }

    /// Sends the response in `response`. The queue is empty before each response, so there is room; without a free buffer
    /// the connection is reset.
    #[inline]
    fn send(&mut self, calls: &mut impl StackCalls, id: ConnectionId, keep_alive: bool) {
        let out = &self.out;
        let len = out.copied.len() + out.lasting.len();
        self.counters
            .add_all(UnikernelCounter::BytesSent, len as u64);
        let mut sent = calls.send(id, SendPiece::Copied(&out.copied));
        if sent.is_ok() && !out.lasting.is_empty() {
            let (bytes, sums) = (out.lasting, out.sums);
            sent = calls.send(id, SendPiece::Lasting { bytes, sums });
        }
        match (sent, keep_alive) {
            (Ok(()), true) => self.places.get(id).used = SlotUse::Answering,
            (Ok(()), false) => self.close(calls, id),
            (Err(SendQueueFull), _) => self.give_up(calls, id),
        }
    }

    /// Resets the connection, since there is no buffer for the response.
    #[cold]
    fn give_up(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        self.counters.add(UnikernelCounter::AnswersWithoutMemory);
        self.places.get(id).used = SlotUse::Closing;
        // Without a buffer even an error response can't be queued.
        calls.abort(id);
    }
}

#[inline]
fn record<'r>(
    out: &UnikernelResponse,
    now: CurrentTime,
    peer: SocketAddrV4,
    duration_us: u32,
    [line, referer, user_agent]: LogTexts<'r>,
) -> JournalRecord<'r> {
    JournalRecord {
        unix_s: now.unix_s,
        peer,
        status: out.status,
        body_len: out.body_len as u64,
        duration_us,
        line,
        referer,
        user_agent,
    }
}
