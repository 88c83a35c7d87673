//! The spans of the attempts at an origin, by the semantic conventions of OpenTelemetry for HTTP clients.

use lowroad_handler::active_span::ActiveSpan;
use lowroad_handler::{HandlerRequest, HandlerResponse};
use lowroad_limits::RefusalReason;
use lowroad_traces::{SpanKind, TraceParent, span};

use super::RetryableRequest;
use super::endpoint_counters::failure_reason;
use super::exchange::ProxyFailure;
use super::servers::OriginEndpoint;

/// From this status on, an attempt counts as failed.
const FAILURE_STATUS: u16 = 400;

/// The spans of one request's attempts.
pub struct TrySpans {
    parent: TraceParent,
    /// The number of attempts so far.
    try_count: u16,
    /// The attempt in progress.
    current: Option<ActiveSpan>,
}

impl TrySpans {
    /// The spans of a request; `None` if it is not traced.
    pub fn new(request: &HandlerRequest) -> Option<Box<TrySpans>> {
        let parent = request.extra.trace.clone()?;
        Some(Box::new(TrySpans {
            parent,
            try_count: 0,
            current: None,
        }))
    }

    /// Appends the field lines by which the origin continues the trace.
    pub fn write_fields(&self, out: &mut Vec<u8>) {
        match &self.current {
            Some(current) => current.as_parent().write_fields(out),
            None => self.parent.write_fields(out),
        }
    }

    fn begin(&mut self, request: &HandlerRequest, endpoint: &OriginEndpoint) {
        let method = request.method.as_str().to_owned();
        let mut span = ActiveSpan::begin(&self.parent, SpanKind::Client, method.clone());
        span.set("http.request.method", method);
        // The name ends with the URL of the server.
        let url = endpoint.name.rsplit(' ').next().unwrap_or_default();
        match url.split_once("://") {
            Some((_, authority)) => {
                let (host, port) = split_authority(authority, endpoint.scheme);
                span.set("server.address", host.to_owned());
                span.set("server.port", port);
                let path = span::text(request.raw_path());
                let query = request.query().map(span::redacted_query);
                let query = query.map_or(String::new(), |query| format!("?{query}"));
                span.set("url.full", format!("{url}{path}{query}"));
            }
            None => {
                let path = url.strip_prefix("unix:").unwrap_or(url);
                span.set("server.address", path.to_owned());
            }
        }
        if self.try_count > 0 {
            span.set("http.request.resend_count", self.try_count);
        }
        self.try_count = self.try_count.saturating_add(1);
        self.current = Some(span);
    }
}

impl RetryableRequest {
    /// Starts the span of an attempt at a server.
    pub fn begin_span(&mut self, request: &HandlerRequest, endpoint: &OriginEndpoint) {
        if let Some(trace) = &mut self.trace {
            trace.begin(request, endpoint);
        }
    }

    /// Ends the span of an attempt, when the head of the response has arrived or the attempt has failed.
    pub fn end_span(&mut self, result: &Result<HandlerResponse, ProxyFailure>) {
        let current = self.trace.as_mut().and_then(|trace| trace.current.take());
        if let Some(current) = current {
            match result {
                Ok(response) => current.end_with_status(response.status, FAILURE_STATUS),
                Err(failed) => current.end_with_failure(&failed.failure, error_type(failed)),
            }
        }
    }
}

/// Why there is no response, as the metric of failures names it: the status of the failure is only that of the error
/// page for the client.
fn error_type(failed: &ProxyFailure) -> &'static str {
    let limit = failed.failure.reason.map(RefusalReason::as_str);
    failure_reason(failed.outcome)
        .or(limit)
        .unwrap_or("cancelled")
}

/// Host and port of an authority.
fn split_authority<'a>(authority: &'a str, scheme: &str) -> (&'a str, u16) {
    let default = if scheme == "https" { 443 } else { 80 };
    let split = authority
        .rsplit_once(':')
        .and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = split.unwrap_or((authority, default));
    (host.trim_matches(['[', ']']), port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_is_split_into_host_and_port() {
        for (authority, scheme, expected) in [
            ("127.0.0.1:3000", "http", ("127.0.0.1", 3000)),
            ("[::1]:3000", "http", ("::1", 3000)),
            ("[::1]", "https", ("::1", 443)),
            ("app.internal", "http", ("app.internal", 80)),
        ] {
            assert_eq!(split_authority(authority, scheme), expected);
        }
    }
}
