//! Traces of requests: starts the trace of a request, and describes the request in its span by the semantic conventions
//! of OpenTelemetry for HTTP servers.

use std::borrow::Cow;
use std::sync::Arc;

use lowroad_engine::Exchange;
use lowroad_http::host;
use lowroad_http::method::Method;
use lowroad_http::request::{PartialRequest, Request, RequestTarget};
use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;
use lowroad_metrics::MetricScope;
use lowroad_store::clock;
use lowroad_traces::request_trace::TracePolicy;
use lowroad_traces::{IdGenerator, RequestTrace, RequestTracing, Span, SpanQueue, span};

use crate::access::RequestOutcome;
use crate::decision::CLIENT_GONE;
use crate::request_metrics::ResponseSource;
use crate::sites::SiteTable;

/// Starts the traces of one worker's requests.
pub struct WorkerTracer {
    policy: TracePolicy,
    ids: IdGenerator,
    queue: Arc<SpanQueue>,
}

/// The span of a request during the sending of its response.
pub struct ServerSpan {
    trace: Arc<RequestTrace>,
    span: Span,
}

impl WorkerTracer {
    /// A tracer that adds its spans to `queue`. Each worker needs another random `seed`.
    pub fn new(policy: TracePolicy, seed: [u64; 2], queue: Arc<SpanQueue>) -> WorkerTracer {
        WorkerTracer {
            policy,
            ids: IdGenerator::new(seed),
            queue,
        }
    }

    /// Starts the trace of a request.
    pub fn begin(&mut self, request: &Request<'_>, exchange: &mut Exchange) {
        let fields = request.fields();
        exchange.tracing = self
            .policy
            .begin(fields, &mut self.ids, &self.queue, unix_ns);
    }

    /// Starts the trace of a request that was refused before its fields were known.
    pub fn begin_refused(&mut self, exchange: &mut Exchange) {
        let fields = std::iter::empty();
        exchange.tracing = self
            .policy
            .begin(fields, &mut self.ids, &self.queue, unix_ns);
    }
}

impl ServerSpan {
    /// The span of a request that is answered now; `None` if the request is not sampled.
    pub fn new(
        sites: &SiteTable,
        request: &Request<'_>,
        exchange: &Exchange,
        status: StatusCode,
        outcome: RequestOutcome,
    ) -> Option<Box<ServerSpan>> {
        let RequestTracing::Sampled(trace) = &exchange.tracing else {
            return None;
        };
        let mut span = trace.server_span();
        let method = known_method(&request.method);
        span.set("http.request.method", method.unwrap_or("_OTHER").to_owned());
        if method.is_none() {
            let original = request.method.as_str().to_owned();
            span.set("http.request.method_original", original);
        }
        match request.target {
            RequestTarget::Origin { path, query, .. } => {
                span.set("url.path", span::text(path));
                if let Some(query) = query {
                    span.set("url.query", span::redacted_query(query));
                }
            }
            _ => span.set("url.path", span::text(request.raw_target())),
        }
        let authority = request.authority;
        set_server(&mut span, sites, exchange, authority);
        if let Some(user_agent) = request.user_agent() {
            span.set("user_agent.original", span::text(user_agent));
        }
        let route = set_scope(&mut span, sites, exchange);
        // The name has few values, so it contains no path.
        let name = method.unwrap_or("HTTP");
        span.name = match route {
            Some(route) => Cow::Owned(format!("{name} {route}")),
            None => Cow::Owned(name.to_owned()),
        };
        set_response(&mut span, status, outcome);
        Some(Box::new(ServerSpan {
            trace: trace.clone(),
            span,
        }))
    }

    /// As [`ServerSpan::new`], for a request that could not be parsed completely.
    pub fn refused(
        sites: &SiteTable,
        partial: &PartialRequest<'_>,
        exchange: &Exchange,
        status: StatusCode,
    ) -> Option<Box<ServerSpan>> {
        let RequestTracing::Sampled(trace) = &exchange.tracing else {
            return None;
        };
        let mut span = trace.server_span();
        let method = Method::parse(partial.method);
        let method = method.as_ref().and_then(known_method).unwrap_or("_OTHER");
        span.set("http.request.method", method.to_owned());
        if let Some(path) = partial.path() {
            span.set("url.path", span::text(path));
        }
        set_server(&mut span, sites, exchange, partial.authority);
        set_scope(&mut span, sites, exchange);
        span.name = Cow::Borrowed("HTTP");
        set_response(&mut span, status, RequestOutcome::Generated);
        Some(Box::new(ServerSpan {
            trace: trace.clone(),
            span,
        }))
    }

    /// Ends the span of a response that no client received.
    pub fn cancel(mut self) {
        self.span.fail("cancelled", Cow::Borrowed(""));
        self.span.end_unix_ns = unix_ns();
        self.trace.push(Box::new(self.span));
    }

    /// Ends the span: `body_len` bytes of the body were sent, all of them if `is_complete`.
    pub fn end(mut self, body_len: u64, is_complete: bool) {
        self.span.set("http.response.body.size", body_len);
        if !is_complete {
            let text = "the response was not sent completely";
            self.span.fail("truncated", Cow::Borrowed(text));
        }
        self.span.end_unix_ns = unix_ns();
        self.trace.push(Box::new(self.span));
    }
}

fn unix_ns() -> u64 {
    clock::unix_ns().max(0) as u64
}

/// The method, if it is one of RFC 9110 or PATCH. Others could have any number of values.
fn known_method(method: &Method) -> Option<&'static str> {
    Some(match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Options => "OPTIONS",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Patch => "PATCH",
        Method::Trace => "TRACE",
        Method::Connect => "CONNECT",
        Method::Purge | Method::Extension(_) => return None,
    })
}

/// Sets the attributes of the connection: server, client, scheme and protocol.
fn set_server(span: &mut Span, sites: &SiteTable, exchange: &Exchange, authority: Option<&[u8]>) {
    let is_https = exchange.is_https();
    span.set("url.scheme", if is_https { "https" } else { "http" });
    let forwarded = exchange.forwarded.as_ref();
    let reported = forwarded.and_then(|it| it.authority.as_deref());
    let mut name = [0; 256];
    match reported
        .or(authority)
        .and_then(|raw| Some((raw, host::normalize(raw, &mut name)?)))
    {
        Some((raw, host)) => {
            span.set("server.address", span::text(host));
            let default = if is_https { 443 } else { 80 };
            span.set("server.port", host::port(raw).unwrap_or(default));
        }
        None => {
            let local = sites.address(exchange.listener);
            span.set("server.address", local.ip().to_string());
            span.set("server.port", local.port());
        }
    }
    span.set("client.address", exchange.peer.to_canonical().to_string());
    let version = match exchange.protocol {
        HttpVersion::Http2 => "2",
        HttpVersion::Http3 => "3",
        version => version.number(),
    };
    span.set("network.protocol.version", version);
    if let Some(tls) = &exchange.tls {
        span.set("tls.protocol.version", tls.version);
    }
}

/// Sets site and route of the request; returns the pattern of the route.
fn set_scope(span: &mut Span, sites: &SiteTable, exchange: &Exchange) -> Option<String> {
    let scope = MetricScope::from_number(exchange.metric_scope);
    // Sites and routes beyond the limit share a scope, so it names none of them.
    if matches!(scope, MetricScope::NO_SITE | MetricScope::OTHER) {
        return None;
    }
    for site in &sites.all {
        let route = site.routes.iter().find(|it| it.metric_scope == scope);
        if site.metric_scope == scope || route.is_some() {
            span.set("lowroad.site", site.rules.label.clone());
            let route = route?.pattern_text();
            span.set("http.route", route.clone());
            return Some(route);
        }
    }
    None
}

fn set_response(span: &mut Span, status: StatusCode, outcome: RequestOutcome) {
    span.set("http.response.status_code", status.code());
    let source = ResponseSource::from(outcome);
    span.set("lowroad.level", source.level());
    span.set("lowroad.cache.outcome", source.outcome());
    if status == CLIENT_GONE {
        span.fail("cancelled", Cow::Borrowed(""));
    } else if status.code() >= 500 {
        span.fail(status.code().to_string(), Cow::Borrowed(""));
    }
}
