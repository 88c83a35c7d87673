//! Processes the requests of a client: parses received bytes, sends the response, and logs it.

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

/// Responses for failed pages must not be cached.
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
        // A memoized response keeps the connection open, but draining must close it.
        if !self.is_draining
            && let Some(hit) = self.memo.find(bytes)
        {
            self.answer_from_memo(calls, id, &hit);
            return bytes.len();
        }
        // While the head is incomplete, it is not parsed again for each received part.
        let slot = self.connections.get(id);
        if slot.is_partial() {
            let searched_len = core::mem::replace(&mut slot.searched_len, bytes.len());
            let is_due = match slot.needed_len {
                // Only the new bytes are searched for the end of the head.
                0 => h1::head_complete(bytes, searched_len) || bytes.len() >= WAITING_MAX,
                needed_len => bytes.len() >= needed_len,
            };
            if !is_due && !slot.is_finished {
                return 0;
            }
            slot.needed_len = 0;
        }
        match h1::parse(bytes, &self.limits) {
            Ok(Some(head)) => {
                // If the body is not read, the start of the next request is unknown.
                let mut used_len = Some(head.len);
                if head.framing.has_body() {
                    match body::find(&head, bytes, &self.limits) {
                        Ok(BodyHandling::Complete { end }) => used_len = Some(end),
                        Ok(BodyHandling::Unread) => used_len = None,
                        Ok(BodyHandling::Incomplete { end }) => {
                            self.connections.get(id).needed_len = end;
                            return self.wait_for_more(calls, id, bytes.len());
                        }
                        Err(refusal) => return self.refuse_request(calls, id, refusal, bytes),
                    }
                }
                // The request is complete, so the timeout for the head ends.
                self.connections.set_request_start(id, 0);
                match self.answer(calls, id, &head, bytes, used_len.is_some()) {
                    true => used_len.unwrap_or(head.len),
                    false => 0,
                }
            }
            Ok(None) => self.wait_for_more(calls, id, bytes.len()),
            Err(refusal) => self.refuse_request(calls, id, refusal, bytes),
        }
    }

    /// Sends the response to an invalid request, and drops all bytes that were received.
    fn refuse_request(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        refusal: RequestRefusal,
        bytes: &[u8],
    ) -> usize {
        self.counters.add(UnikernelCounter::RequestsRefused);
        let line = h1::first_line(bytes);
        // The response to HEAD has no body, also if the request could not be parsed.
        let method = match line.starts_with(b"HEAD ") {
            true => Method::Head,
            false => Method::Get,
        };
        self.refuse(calls, id, refusal.status(), Some(refusal.as_str()), method);
        // The fields of an invalid request can't be trusted, so only the first line is logged.
        self.log(id, 0, [line, b"", b""]);
        bytes.len()
    }

    /// Waits for the rest of a request. Closes the connection if the client has sent its FIN.
    fn wait_for_more(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        len: usize,
    ) -> usize {
        let now_us = self.now.mono_us;
        let slot = self.connections.get(id);
        if slot.is_finished {
            self.close(calls, id);
            return len;
        }
        slot.searched_len = len;
        if !slot.is_partial() {
            // 0 would mean that there is no incomplete request.
            self.connections.set_request_start(id, now_us.max(1));
        }
        0
    }

    /// Responds to a request that was found in the memo.
    #[inline]
    fn answer_from_memo(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        hit: &MemoHit<'_>,
    ) {
        if self.connections.get(id).is_partial() {
            self.connections.set_request_start(id, 0);
        }
        response_fields::write_persistent(hit.file, &self.date, &mut self.out);
        self.counters.add(UnikernelCounter::Requests);
        self.log(id, 0, hit.texts);
        self.send(calls, id, true);
    }

    /// Responds to a request, or begins its page. Returns false if the request was queued and must stay unread.
    /// `can_persist`: whether the start of the next request is known.
    fn answer(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        head: &H1RequestHead<'_>,
        bytes: &[u8],
        can_persist: bool,
    ) -> bool {
        let request = &head.request;
        self.serial = self.serial.wrapping_mul(6_364_136_223_846_793_005) | 1;
        let peer = self.connections.get(id).peer;
        let keep_alive = head.keep_alive && can_persist;
        let (context, mut out) = self.begin(keep_alive, head.version);
        // In the usual case without trusted networks, the address need not be compared.
        let is_trusted = !self.trusted.is_empty() && self.trusted.contains(*peer.ip());
        match decision::decide(&self.site, request, is_trusted, &context, &mut out) {
            SiteDecision::Answered => {}
            SiteDecision::Builtin(resource) => {
                let has_body = request.method != Method::Head;
                let net_counters = calls.counters();
                self.write_builtin(resource, net_counters, has_body, &context, &mut out);
            }
            SiteDecision::Page(page) => {
                let visit = PageVisit {
                    id,
                    keep_alive: context.keep_alive,
                    start_us: self.now.mono_us,
                };
                match self.pages.begin(visit, page, head, peer) {
                    Ok(is_started) => {
                        // The response object is put back, to keep its allocation.
                        self.out = out;
                        self.record_page_start(calls, id, is_started);
                        return is_started;
                    }
                    Err(SendQueueFull) => {
                        // The page queue is full: an immediate 503 is better than a late timeout.
                        self.counters.add(UnikernelCounter::PagesRefused);
                        let status = StatusCode::SERVICE_UNAVAILABLE;
                        self.write_refusal(
                            status,
                            None,
                            request.method,
                            NO_STORE,
                            &context,
                            &mut out,
                        );
                    }
                }
            }
        }
        // Only whole files are memoized: their response depends on nothing else in the request.
        if let Some(file) = out.whole_file {
            self.memo.insert(bytes, head, file);
        }
        let keep_alive = context.keep_alive && !out.closes;
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

    fn record_page_start(
        &mut self,
        calls: &mut impl StackCalls,
        id: ConnectionId,
        is_started: bool,
    ) {
        if !is_started {
            self.connections.get(id).usage = SlotUse::Queued;
            return;
        }
        self.counters.add(UnikernelCounter::Requests);
        self.connections.get(id).usage = SlotUse::Waiting;
        self.run_pages(calls);
    }

    /// Sends the response with a finished page, successful or failed.
    pub(super) fn send_page(&mut self, calls: &mut impl StackCalls, finished: FinishedPage) {
        let id = finished.visit.id;
        let slot = self.connections.get(id);
        if slot.generation != id.generation || slot.usage != SlotUse::Waiting {
            // The connection of the client has ended.
            return self.pages.release_task(finished.task_index);
        }
        let input = &self.pages.task(finished.task_index).input;
        let (method, version) = (input.method, input.version);
        let (context, mut out) = self.begin(finished.visit.keep_alive, version);
        match finished.result {
            Ok(()) => self
                .pages
                .task(finished.task_index)
                .write(&context, &mut out),
            Err(failure) => {
                self.counters.add(UnikernelCounter::PagesFailed);
                let text = Some(failure.explanation());
                self.write_refusal(failure.status(), text, method, NO_STORE, &context, &mut out);
            }
        }
        self.out = out;
        // The duration includes the time in which the page waited for the database.
        let elapsed_us = self.now.mono_us - finished.visit.start_us;
        let duration_us = u32::try_from(elapsed_us).unwrap_or(u32::MAX);
        let texts = [
            &self.pages.task(finished.task_index).input.line[..],
            b"",
            b"",
        ];
        let peer = self.connections.get(id).peer;
        // The record with the reason precedes the record of the request.
        if finished.result.is_err() {
            let reason = &self.pages.task(finished.task_index).reason;
            self.journal
                .append(&JournalRecord::failure(self.now.unix_s, peer, reason));
        }
        self.journal
            .append(&record(&self.out, self.now, peer, duration_us, texts));
        self.pages.release_task(finished.task_index);
        self.send(calls, id, context.keep_alive);
        // Requests that have arrived meanwhile are still unread.
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
        self.connections.set_request_start(id, 0);
        let (context, mut out) = self.begin(false, HttpVersion::Http11);
        self.write_refusal(status, text, method, None, &context, &mut out);
        self.out = out;
        self.send(calls, id, false);
    }

    /// Prepares a response: returns its inputs and the cleared object to write it to.
    fn begin(
        &mut self,
        keep_alive: bool,
        version: HttpVersion,
    ) -> (ResponseContext, UnikernelResponse) {
        let context = ResponseContext {
            unix_s: self.now.unix_s,
            date: self.date,
            keep_alive: keep_alive && !self.is_draining,
            version,
            serial: self.serial,
        };
        // Moved out of `self`, so that the site can be borrowed while the response is written.
        let mut out = core::mem::take(&mut self.out);
        out.clear();
        (context, out)
    }

    /// Writes the page for an error status.
    fn write_refusal(
        &self,
        status: StatusCode,
        explanation: Option<&str>,
        method: Method,
        field: Option<(&str, &[u8])>,
        context: &ResponseContext,
        out: &mut UnikernelResponse,
    ) {
        let page = RefusalPage {
            status,
            explanation,
            field,
            has_body: method != Method::Head,
        };
        refusal_page::page(&self.site, page, context, out);
    }

    /// Writes a built-in resource.
    fn write_builtin(
        &self,
        resource: BuiltinResource,
        net_counters: Vec<(&'static str, u64)>,
        has_body: bool,
        context: &ResponseContext,
        out: &mut UnikernelResponse,
    ) {
        let (content_type, body): (&[u8], String) = match resource {
            BuiltinResource::Log => (TEXT, self.machine_view.log(&self.journal)),
            BuiltinResource::Status => (TEXT, status::text(&self.all_counters(net_counters))),
            BuiltinResource::StatusJson => (
                b"application/json",
                status::json(&self.all_counters(net_counters)),
            ),
        };
        status::write(content_type, body.as_bytes(), has_body, context, out);
    }

    /// All counters of the machine, by name.
    fn all_counters(&self, net_counters: Vec<(&'static str, u64)>) -> Vec<(&'static str, u64)> {
        let mut counted: Vec<_> = self.counted(net_counters.into_iter()).collect();
        self.machine_view.sum(&mut counted);
        let mut all = vec![("uptime_s", self.now.mono_us / 1_000_000)];
        all.extend(self.machine_view.traffic());
        all.append(&mut counted);
        all
    }

    /// The counters of this core, by name. Names and order are constant, except for those of the database at the end,
    /// which are missing during the shutdown.
    pub(crate) fn counted(
        &self,
        net_counters: impl Iterator<Item = (&'static str, u64)>,
    ) -> impl Iterator<Item = (&'static str, u64)> {
        let service_counters = [
            ("http_heads_partial", self.connections.partial_count()),
            ("log_dropped", self.journal.dropped),
        ];
        let core_counters = self.counters.with_names().chain(service_counters);
        core_counters
            .chain(net_counters)
            .chain(self.pages.counters())
    }

    /// Logs the response in `out`.
    #[inline]
    fn log(&mut self, id: ConnectionId, duration_us: u32, texts: LogTexts<'_>) {
        let peer = self.connections.get(id).peer;
        self.journal
            .append(&record(&self.out, self.now, peer, duration_us, texts));
    }

    /// Sends the response in `out`. The send queue is empty before each response, so there is room in it; if no buffer
    /// is free, the connection is reset.
    #[inline]
    fn send(&mut self, calls: &mut impl StackCalls, id: ConnectionId, keep_alive: bool) {
        let out = &self.out;
        let len = out.copied.len() + out.static_bytes.len();
        self.counters
            .add_all(UnikernelCounter::BytesSent, len as u64);
        let mut sent = calls.send(id, SendPiece::Copied(&out.copied));
        if sent.is_ok() && !out.static_bytes.is_empty() {
            let (bytes, sums) = (out.static_bytes, out.sums);
            sent = calls.send(id, SendPiece::Lasting { bytes, sums });
        }
        match (sent, keep_alive) {
            (Ok(()), true) => self.connections.get(id).usage = SlotUse::Answering,
            (Ok(()), false) => self.close(calls, id),
            (Err(SendQueueFull), _) => self.reset_connection(calls, id),
        }
    }

    /// Resets the connection, because no buffer is free for the response.
    #[cold]
    fn reset_connection(&mut self, calls: &mut impl StackCalls, id: ConnectionId) {
        self.counters.add(UnikernelCounter::AnswersWithoutMemory);
        self.connections.get(id).usage = SlotUse::Closing;
        // Without a buffer, an error response can't be sent either.
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
