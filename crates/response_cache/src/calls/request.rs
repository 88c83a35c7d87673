//! Builds the request that a handler gets.

use std::sync::Arc;

use lowroad_access_control::passwords::BasicCredentials;
use lowroad_engine::Exchange;
use lowroad_handler::interim_responses::InterimSink;
use lowroad_handler::request::{PathAlias, RawTarget, RequestExtra, RequestHead};
use lowroad_handler::{HandlerRequest as ProgramRequest, RequestBody, SubrequestSource};
use lowroad_http::fields::FieldLines;
use lowroad_http::forwarding;
use lowroad_http::preconditions::may_differ;
use lowroad_http::request::{Request, RequestTarget};

use super::HandlerCall;
use crate::invalidation::target_of;
use crate::validation;

/// The conditions in the request to a handler (RFC 9110 §13.1).
pub enum OriginConditions {
    /// The client's.
    AsSent,
    /// These field lines.
    Instead(Vec<u8>),
}

/// Builds the request for a handler.
pub fn build_request(
    call: &HandlerCall<'_>,
    exchange: &mut Exchange,
    conditions: &OriginConditions,
    objects: Arc<dyn SubrequestSource>,
    interims: InterimSink,
) -> ProgramRequest {
    let request = call.request;
    let (raw_path, query) = match (call.target, request.target) {
        (Some(target), _) => (target.path, target.query),
        (None, RequestTarget::Origin { path, query, .. }) => (path, query),
        // `*` of OPTIONS has no path.
        (None, _) => (call.path, None),
    };
    let host = request.authority.unwrap_or_default();
    let host_lines;
    let forwarded = exchange.forwarded.as_ref();
    let is_host_reported = forwarded.is_some_and(|it| it.authority.is_some());
    // Host must equal the authority of the decision (RFC 9112 §3.2.2), or the handler would see another site.
    let lines = if is_host_reported || names_host_in_target(request) {
        host_lines = lines_with_host(request, host);
        &host_lines[..]
    } else {
        request.lines()
    };
    let trusted_lines;
    // A request to an origin is rewritten later, without these fields.
    let lines = match call.route.is_origin {
        true => lines,
        false => match with_trusted_reports(lines, host, exchange) {
            Some(lines) => {
                trusted_lines = lines;
                &trusted_lines[..]
            }
            None => lines,
        },
    };
    // The client's conditions are about its own copy, not about the stored response.
    let conditional_lines;
    let lines = match conditions {
        OriginConditions::Instead(replacement)
            if !replacement.is_empty() || may_differ(request) =>
        {
            conditional_lines = validation::lines_with(lines, replacement);
            &conditional_lines[..]
        }
        _ => lines,
    };
    ProgramRequest {
        method: request.method,
        version: exchange.protocol,
        head: RequestHead::new(
            RawTarget {
                path: raw_path,
                query,
            },
            call.path,
            host,
            lines,
        ),
        peer: exchange.peer,
        peer_port: exchange.peer_port,
        local: call.local,
        secured: exchange.tls.clone(),
        forwarded: exchange.forwarded.clone(),
        root: call.rules.folder(call.host),
        objects,
        // Moved: the exchange has no body afterwards.
        body: RequestBody {
            len: exchange.body_len,
            stream: exchange.body.take(),
        },
        interims,
        extra: extra_of(call),
    }
}

/// The rarely used parts of a request.
fn extra_of(call: &HandlerCall<'_>) -> RequestExtra {
    let alias = call
        .rules
        .alias(call.path)
        .map(|(alias, folder, _)| PathAlias {
            path_len: alias.path.len(),
            folder: folder.clone(),
        });
    let credentials = call
        .is_user
        .then(|| BasicCredentials::from_request(call.request));
    RequestExtra {
        alias,
        // Only after a rewrite: else it equals the target.
        original_target: call.target.and_then(|_| target_of(call.request)),
        user: credentials
            .flatten()
            .map(|credentials| credentials.user.into()),
    }
}

/// Whether the target is in absolute-form: then Host is ignored (RFC 9112 §3.2.2) and may differ.
fn names_host_in_target(request: &Request<'_>) -> bool {
    request.raw_target().first() != Some(&b'/')
}

/// The field lines without forwarding fields that a client may have forged. Behind a trusted proxy, they contain the
/// proxy's reports without the client's own entries. `None` if the lines are unchanged.
fn with_trusted_reports(lines: &[u8], host: &[u8], exchange: &Exchange) -> Option<Vec<u8>> {
    let has_no_reports = || !FieldLines::new(lines).any(|(name, _)| forwarding::is_report(name));
    if exchange.forwarded.is_none() && has_no_reports() {
        return None;
    }
    let mut out = Vec::with_capacity(lines.len() + 128);
    let mut push_line = |name: &[u8], value: &[u8]| {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    };
    let is_trusted = exchange.forwarded.is_some();
    for (name, value) in FieldLines::new(lines) {
        // Reports of an untrusted sender are dropped: programs take them for true.
        if !forwarding::is_report(name) || is_trusted && forwarding::is_forwarded_report(name) {
            push_line(name, value);
        }
    }
    if let Some(forwarded) = &exchange.forwarded {
        push_line(
            b"X-Forwarded-For",
            exchange.peer.to_canonical().to_string().as_bytes(),
        );
        push_line(
            b"X-Forwarded-Proto",
            if exchange.is_https() {
                b"https"
            } else {
                b"http"
            },
        );
        if !host.is_empty() {
            push_line(b"X-Forwarded-Host", host);
        }
        if let Some(port) = forwarded.port {
            push_line(b"X-Forwarded-Port", port.to_string().as_bytes());
        }
    }
    Some(out)
}

/// The field lines with this Host in place of the client's.
fn lines_with_host(request: &Request<'_>, host: &[u8]) -> Vec<u8> {
    let mut lines = [b"Host: ", host, b"\r\n"].concat();
    let fields = request.fields();
    for (name, value) in fields.filter(|(name, _)| !name.eq_ignore_ascii_case(b"host")) {
        lines.extend_from_slice(name);
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.extend_from_slice(b"\r\n");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_http::h1::parse;
    use lowroad_http::limits::RequestLimits;

    #[test]
    fn a_host_in_the_target_is_the_one_that_counts() {
        let head = b"GET http://good/x HTTP/1.1\r\nA: b\r\nHost: evil\r\nC: d\r\n\r\n";
        let Ok(Some(head)) = parse(head, &RequestLimits::default()) else {
            panic!("it is a request");
        };
        let request = head.request;
        assert!(names_host_in_target(&request));
        let lines = lines_with_host(&request, request.authority.unwrap_or_default());
        assert_eq!(lines, b"Host: good\r\nA: b\r\nC: d\r\n");
    }
}
