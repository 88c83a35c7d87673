//! Builds the request to a handler from the client's request.

use std::sync::Arc;

use lowroad_access_control::is_protected;
use lowroad_access_control::passwords::BasicCredentials;
use lowroad_engine::Exchange;
use lowroad_handler::interim_responses::InterimSink;
use lowroad_handler::request::{PathAlias, RawTarget, RequestExtra, RequestHead};
use lowroad_handler::{HandlerRequest as ProgramRequest, RequestBody, SubrequestSource};
use lowroad_http::equals_lower;
use lowroad_http::fields::FieldLines;
use lowroad_http::forwarding;
use lowroad_http::preconditions::may_differ;
use lowroad_http::request::{Request, RequestTarget};

use super::HandlerCall;
use super::call_trace::CallTrace;
use crate::invalidation::target_of;
use crate::validation;

/// The preconditions in the request to a handler (RFC 9110 §13.1).
pub enum OriginConditions {
    /// Those of the client's request.
    FromClient,
    /// These field lines instead.
    Replaced(Vec<u8>),
}

/// Builds the request for a handler.
pub fn build_request(
    call: &HandlerCall<'_>,
    exchange: &mut Exchange,
    conditions: &OriginConditions,
    call_trace: &CallTrace,
    objects: Arc<dyn SubrequestSource>,
    interims: InterimSink,
) -> ProgramRequest {
    let request = call.request;
    let (raw_path, query) = match (call.target, request.target) {
        (Some(target), _) => (target.path, target.query),
        (None, RequestTarget::Origin { path, query, .. }) => (path, query),
        // OPTIONS with the target `*` has no path.
        (None, _) => (call.path, None),
    };
    let host = request.authority.unwrap_or_default();
    let host_lines;
    let forwarded = exchange.forwarded.as_ref();
    let is_host_reported = forwarded.is_some_and(|it| it.authority.is_some());
    // Host must be the authority by which the site was selected (RFC 9112 §3.2.2), or the handler would see another
    // host.
    let lines = if is_host_reported || names_host_in_target(request) {
        host_lines = lines_with_host(request, host);
        &host_lines[..]
    } else {
        request.lines()
    };
    let trusted_lines;
    // For origins, the forwarding fields are replaced later.
    let lines = match call.route.is_origin {
        true => lines,
        false => match with_trusted_forwarding_fields(lines, host, exchange) {
            Some(lines) => {
                trusted_lines = lines;
                &trusted_lines[..]
            }
            None => lines,
        },
    };
    // The client's preconditions refer to the client's copy, and not to the stored response.
    let conditional_lines;
    let lines = match conditions {
        OriginConditions::Replaced(replacement)
            if !replacement.is_empty() || may_differ(request) =>
        {
            conditional_lines = validation::lines_with(lines, replacement);
            &conditional_lines[..]
        }
        _ => lines,
    };
    let traced_lines;
    let lines = match call_trace.replace_context(exchange, lines) {
        Some(replaced) => {
            traced_lines = replaced;
            &traced_lines[..]
        }
        None => lines,
    };
    let early_lines;
    let lines = match exchange.is_early {
        false => lines,
        true => {
            early_lines = with_early_data(lines);
            &early_lines[..]
        }
    };
    let authentication = exchange.authentication.as_deref();
    let mut added_lines = authentication.map_or(Vec::new(), |it| it.lines.clone());
    let cleaned_lines;
    let lines = match call.route.protected_fields.is_empty() {
        true => lines,
        false => {
            // A client must not be able to pretend to be another user.
            let is_forged = |name: &[u8]| is_protected(name, &call.route.protected_fields);
            let mut cleaned = validation::lines_without(lines, is_forged);
            // The proxy adds the fields itself: the client's Connection must not remove them.
            if !call.route.is_origin {
                cleaned.append(&mut added_lines);
            }
            cleaned_lines = cleaned;
            &cleaned_lines[..]
        }
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
        tls: exchange.tls.clone(),
        forwarded: exchange.forwarded.clone(),
        root: call.rules.folder(call.host),
        objects,
        // The body is moved out of the exchange.
        body: RequestBody {
            len: exchange.body_len,
            stream: exchange.body.take(),
        },
        interims,
        extra: RequestExtra {
            trace: call_trace.parent(),
            upstream_tries: exchange.upstream_tries.clone(),
            // The error log and programs name the request by it.
            request_id: exchange.request_id(),
            added_lines,
            has_no_upgrade: !request.has_connection_option(),
            ..extra_of(call, exchange)
        },
    }
}

/// The parts of a request that few handlers need.
fn extra_of(call: &HandlerCall<'_>, exchange: &Exchange) -> RequestExtra {
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
        // Only set after a rewrite; otherwise it would equal the target.
        original_target: call.target.and_then(|_| target_of(call.request)),
        user: credentials
            .flatten()
            .map(|credentials| credentials.user.into())
            .or_else(|| exchange.authentication.as_ref()?.user.clone()),
        ..RequestExtra::default()
    }
}

/// The field lines with the mark of a request in early data (RFC 8470 §5.1), which a proxy in front may have set already.
fn with_early_data(lines: &[u8]) -> Vec<u8> {
    let is_mark = |name: &[u8]| equals_lower(name, b"early-data");
    let mut marked = validation::lines_without(lines, is_mark);
    validation::push_line(&mut marked, b"Early-Data", b"1");
    marked
}

/// Whether the target is in absolute-form, so that Host is ignored (RFC 9112 §3.2.2) and may differ.
fn names_host_in_target(request: &Request<'_>) -> bool {
    request.raw_target().first() != Some(&b'/')
}

/// The field lines without forwarding fields (X-Forwarded-For etc.) that a client may have forged. Behind a trusted
/// proxy, the fields contain the proxy's entries, but not those of the client. `None` if the lines are unchanged.
fn with_trusted_forwarding_fields(
    lines: &[u8],
    host: &[u8],
    exchange: &Exchange,
) -> Option<Vec<u8>> {
    let has_no_reports = || !FieldLines::new(lines).any(|(name, _)| forwarding::is_report(name));
    if exchange.forwarded.is_none() && has_no_reports() {
        return None;
    }
    let mut out = Vec::with_capacity(lines.len() + 128);
    let mut push_line = |name: &[u8], value: &[u8]| validation::push_line(&mut out, name, value);
    let is_trusted = exchange.forwarded.is_some();
    for (name, value) in FieldLines::new(lines) {
        // Forwarding fields from an untrusted sender are dropped, since applications trust them.
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
    let is_host = |name: &[u8]| equals_lower(name, b"host");
    lines.extend(validation::lines_without(request.lines(), is_host));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use lowroad_http::h1::parse;
    use lowroad_http::limits::RequestLimits;

    #[test]
    fn host_in_absolute_form_overrides_the_host_field() {
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
