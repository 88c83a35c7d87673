//! The properties of a request that only formats with variables need, kept until the response is complete.

use std::sync::Arc;

use lowroad_engine::response::WrittenHead;
use lowroad_engine::tls_session::TlsInfo;
use lowroad_engine::upstream_tries::UpstreamTries;
use lowroad_engine::{Exchange, ResponseWriter};
use lowroad_http::fields::FieldLines;
use lowroad_http::request::Request;
use lowroad_http::version::HttpVersion;
use lowroad_log::variable::{NamedValue, ValueSource, cookie, is_field};
use lowroad_log::{EntryDetails, LogProcess, TextFormat, TlsTexts, ValueTexts};
use lowroad_metrics::{MetricScope, ScopeLabels, ScopeRegistry};

use crate::access_upstream::UpstreamColumns;

/// The properties of one request.
#[derive(Default)]
pub(crate) struct RecordDetails {
    peer_port: u16,
    is_https: bool,
    scope: MetricScope,
    /// The values that the formats of all logs name, adjacent.
    values: Vec<u8>,
    /// The start of the first value in `values`, and the end of each value.
    bounds: Vec<usize>,
    connection: u64,
    connection_requests: u64,
    head_len: u64,
    request_id: Option<[u8; 16]>,
    trace: Option<([u8; 16], [u8; 8])>,
    tls: Option<Arc<TlsInfo>>,
    tries: Option<Arc<UpstreamTries>>,
    upstream: UpstreamColumns,
}

impl RecordDetails {
    /// The memory of the texts.
    pub(crate) fn capacity(&self) -> usize {
        self.values.capacity() + self.bounds.capacity() * size_of::<usize>()
    }

    /// Reads the attempts at upstream servers, when the response has ended.
    pub(crate) fn finish(&mut self) {
        let tries = self.tries.take();
        self.upstream = tries.map_or_else(UpstreamColumns::default, |tries| {
            UpstreamColumns::new(&tries.snapshot())
        });
    }

    fn set_values(
        &mut self,
        request: Option<&Request<'_>>,
        sent: &FieldLines<'_>,
        values: &[NamedValue],
    ) {
        self.values.clear();
        self.bounds.clear();
        self.bounds.push(0);
        for NamedValue { source, name } in values {
            match (source, request) {
                (ValueSource::RequestField, Some(request)) => {
                    self.push_field(request.fields(), name);
                }
                (ValueSource::ResponseField, _) => self.push_field(sent.clone(), name),
                (ValueSource::Cookie, Some(request)) => self.push_cookie(request, name),
                // Arguments are in the request line.
                (ValueSource::Argument, _) | (_, None) => {}
            }
            self.bounds.push(self.values.len());
        }
    }

    /// Appends the combined value of a field (RFC 9110 §5.3).
    fn push_field<'f>(&mut self, lines: impl Iterator<Item = (&'f [u8], &'f [u8])>, name: &str) {
        let start = self.values.len();
        // Cookies are combined differently (RFC 9113 §8.2.3).
        let separator: &[u8] = if name == "cookie" { b"; " } else { b", " };
        for (_, value) in lines.filter(|(received, _)| is_field(received, name)) {
            if self.values.len() > start {
                self.values.extend_from_slice(separator);
            }
            self.values.extend_from_slice(value);
        }
    }

    fn push_cookie(&mut self, request: &Request<'_>, name: &str) {
        // HTTP/2 clients may send each cookie in a separate field (RFC 9113 §8.2.3).
        let mut fields = request.fields().filter(|it| is_field(it.0, "cookie"));
        if let Some(value) = fields.find_map(|(_, field)| cookie(field, name)) {
            self.values.extend_from_slice(value);
        }
    }

    fn tls_texts(&self) -> TlsTexts<'_> {
        let Some(tls) = &self.tls else {
            return TlsTexts::default();
        };
        let client = tls.client.as_deref();
        TlsTexts {
            cipher: tls.cipher,
            server_name: tls.server_name.as_deref().unwrap_or_default(),
            session_reused: if tls.is_resumed { "r" } else { "." },
            client_verify: if client.is_some() { "SUCCESS" } else { "NONE" },
            client_subject: client.map_or("", |client| &client.subject),
            client_issuer: client.map_or("", |client| &client.issuer),
            client_serial: client.map_or("", |client| &client.serial),
        }
    }
}

/// The worker that writes entries.
#[derive(Clone, Debug)]
pub struct LogWorker {
    /// The number of the worker, from 0.
    pub number: usize,
    /// The number of workers.
    pub count: usize,
    /// The host.
    pub hostname: Arc<str>,
}

/// The properties that the logs of a worker need.
pub(crate) struct NeededDetails {
    /// The values that the formats name, one log after the other.
    values: Vec<NamedValue>,
    has_request_id: bool,
    has_trace: bool,
    has_sent_head: bool,
    has_tls: bool,
    has_upstream: bool,
    scopes: Arc<ScopeRegistry>,
    labels: Vec<ScopeLabels>,
    worker: LogWorker,
    pid: u32,
    /// Memory for the fields of a response.
    sent_lines: Vec<u8>,
}

impl NeededDetails {
    /// The details for logs with these formats, of which `values` has the named values.
    pub(crate) fn new(
        formats: &[&TextFormat],
        values: Vec<NamedValue>,
        scopes: Arc<ScopeRegistry>,
        worker: LogWorker,
    ) -> NeededDetails {
        let any = |has: fn(&TextFormat) -> bool| formats.iter().any(|format| has(format));
        NeededDetails {
            values,
            has_request_id: any(TextFormat::has_request_id),
            has_trace: any(TextFormat::has_trace),
            has_sent_head: any(TextFormat::has_sent_head),
            has_tls: any(TextFormat::has_tls),
            has_upstream: any(TextFormat::has_upstream),
            labels: scopes.labels(),
            scopes,
            worker,
            pid: std::process::id(),
            sent_lines: Vec::new(),
        }
    }

    /// Whether handlers have to record their attempts at upstream servers.
    pub(crate) fn has_upstream(&self) -> bool {
        self.has_upstream
    }

    /// Records the details of a request. `request` is `None` for a request that was refused before it was complete,
    /// `response` if nothing was written.
    pub(crate) fn record(
        &mut self,
        details: &mut RecordDetails,
        exchange: &Exchange,
        request: Option<&Request<'_>>,
        response: Option<&ResponseWriter<'_>>,
    ) {
        details.peer_port = exchange.peer_port;
        details.is_https = exchange.is_https();
        self.set_scope(details, MetricScope::from_number(exchange.metric_scope));
        self.set_connection(details, exchange);
        let has_id = self.has_request_id;
        details.request_id = has_id.then(|| exchange.request_id().to_be_bytes());
        let ids = self.has_trace.then(|| exchange.tracing.ids()).flatten();
        details.trace = ids.map(|(trace, span)| (*trace.bytes(), *span.bytes()));
        details.tls = exchange.tls.clone().filter(|_| self.has_tls);
        details.tries = exchange.upstream_tries.clone();
        let response = response.filter(|_| self.has_sent_head);
        let sent = response.map(|response| response.written_head(&mut self.sent_lines));
        let sent = sent.unwrap_or(WrittenHead::NONE);
        details.head_len = sent.len;
        details.set_values(request, &sent.fields, &self.values);
    }

    /// Records the site and the route.
    pub(crate) fn set_scope(&mut self, details: &mut RecordDetails, scope: MetricScope) {
        details.scope = scope;
        // Scopes are only added, so old labels stay valid after a reload.
        if scope.index() >= self.labels.len() {
            self.labels = self.scopes.labels();
        }
    }

    fn set_connection(&self, details: &mut RecordDetails, exchange: &Exchange) {
        let (number, count) = (self.worker.number as u64, self.worker.count.max(1) as u64);
        let accepted = u64::from(exchange.id.connection.generation);
        // Each worker counts its own connections, so its number makes them unique.
        details.connection = accepted.saturating_sub(1) * count + number + 1;
        let stream = u64::from(exchange.id.stream.0);
        details.connection_requests = match exchange.protocol {
            // Clients number their streams 1, 3, 5 (RFC 9113 §5.1.1).
            HttpVersion::Http2 => stream.div_ceil(2),
            // These numbers are 0, 1, 2 (RFC 9000 §2.1).
            HttpVersion::Http3 => stream + 1,
            _ => stream,
        };
    }

    /// The details for a log of which the first value has this index.
    pub(crate) fn entry<'a>(
        &'a self,
        details: &'a RecordDetails,
        first_value: usize,
    ) -> EntryDetails<'a> {
        let labels = self.labels.get(details.scope.index());
        EntryDetails {
            peer_port: details.peer_port,
            scheme: if details.is_https { "https" } else { "http" },
            site: labels.map_or("", |labels| &labels.site),
            route: labels.map_or("", |labels| &labels.route),
            values: ValueTexts {
                bytes: &details.values,
                bounds: details.bounds.get(first_value..).unwrap_or_default(),
            },
            head_len: details.head_len,
            request_id: details.request_id,
            trace: details.trace,
            upstream: details.upstream.texts(),
            tls: details.tls_texts(),
            connection: details.connection,
            connection_requests: details.connection_requests,
            process: LogProcess {
                hostname: &self.worker.hostname,
                pid: self.pid,
            },
        }
    }
}
