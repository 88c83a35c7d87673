//! Writes the heads of requests to the servers of an origin, for HTTP/1.1 and HTTP/2.

use std::borrow::Cow;
use std::net::SocketAddr;

use lowroad_config::{OriginConfig, OriginHost, ProxyProtocol, RouteConfig};
use lowroad_handler::HandlerRequest;
use lowroad_http::fields::{FieldLines, StandardHeader};
use lowroad_http::h1::BodyLen;
use lowroad_http::h2::hpack::put_field_u64;
use lowroad_http::h2::{OutgoingRequest, put_lines};
use lowroad_http::proxy_protocol::{ProxyAddresses, write_v1, write_v2};

use super::forwarding::ForwardTerms;
use super::h2::RequestHead;
use super::link::OriginLink;
use super::path_map::PathMap;
use super::request_changes::RequestChanges;
use super::servers::OriginEndpoint;
use super::{RetryableRequest, forwarding};

/// The capacity reserved for a request head in addition to the target and the fields.
const OWN_LEN: usize = 128;

/// What the heads of a route's requests depend on.
pub(super) struct RequestHeads {
    host: OriginHost,
    proxy_protocol: Option<ProxyProtocol>,
    /// See `OriginConfig::adds_via`.
    adds_via: bool,
    /// The changes to path and fields, if there are any.
    changes: Option<Box<RequestChanges>>,
}

/// What the head of a request depends on, apart from the route.
struct ServerTerms<'t> {
    /// The server's own name.
    host: &'t [u8],
    is_h2: bool,
}

/// The parts of a forwarded request's head other than field lines.
struct ForwardedRequest<'r> {
    /// The target, if it differs from the client's.
    target: Option<Vec<u8>>,
    /// The protocol of an upgrade.
    protocol: Option<&'r [u8]>,
    host: Cow<'r, [u8]>,
}

impl RequestHeads {
    pub(super) fn new(route: &RouteConfig, origin: &OriginConfig) -> RequestHeads {
        RequestHeads {
            host: origin.host.clone(),
            proxy_protocol: origin.proxy_protocol,
            adds_via: origin.adds_via,
            changes: RequestChanges::new(route),
        }
    }

    /// Whether a PROXY header precedes the first request of a connection, so that clients can't share it.
    pub(super) fn has_proxy_header(&self) -> bool {
        self.proxy_protocol.is_some()
    }

    /// How the paths of responses are translated back, if they are.
    pub(super) fn path_map(&self) -> Option<&PathMap> {
        self.changes.as_ref()?.path_map.as_ref()
    }

    /// The head of the request as a field block.
    pub(super) fn field_block(
        &self,
        request: &HandlerRequest,
        endpoint: &OriginEndpoint,
        retryable: &RetryableRequest,
    ) -> RequestHead {
        let has_body = !retryable.len.is_empty();
        let mut lines = Vec::new();
        let server = ServerTerms {
            host: &endpoint.host,
            is_h2: true,
        };
        let forwarded = self.request_lines(request, server, has_body, &mut lines);
        if let Some(trace) = &retryable.trace {
            trace.write_fields(&mut lines);
        }
        let pseudo = OutgoingRequest {
            method: request.method,
            is_https: endpoint.scheme == "https",
            authority: &forwarded.host,
            path: forwarded.target.as_deref().unwrap_or(request.target()),
            protocol: None,
        };
        let mut block = Vec::with_capacity(pseudo.path.len() + lines.len() + OWN_LEN);
        pseudo.put_pseudo_fields(&mut block);
        put_lines(FieldLines::new(&lines), &mut block);
        if let BodyLen::Known(len) = retryable.len {
            put_field_u64(StandardHeader::ContentLength, len, &mut block);
        }
        RequestHead {
            block,
            method: request.method,
            len: retryable.len,
        }
    }

    /// Writes the head of the request to `out`. Returns whether a body has to follow.
    pub(super) fn write(
        &self,
        request: &HandlerRequest,
        endpoint: &OriginEndpoint,
        retryable: &RetryableRequest,
        link: &mut OriginLink,
        out: &mut Vec<u8>,
    ) -> Option<bool> {
        // A buffer of the connection is reused, so that the head needs no allocation.
        let OriginLink { http, scratch, .. } = link;
        let mut lines = std::mem::take(scratch);
        lines.clear();
        let has_body = !retryable.len.is_empty();
        let server = ServerTerms {
            host: &endpoint.host,
            is_h2: false,
        };
        let forwarded = self.request_lines(request, server, has_body, &mut lines);
        if let Some(trace) = &retryable.trace {
            trace.write_fields(&mut lines);
        }
        let target = forwarded.target.as_deref().unwrap_or(request.target());
        out.reserve(target.len() + lines.len() + OWN_LEN);
        let start_result = match forwarded.protocol {
            Some(protocol) => http
                .request_upgrade(target, &lines, protocol, out)
                .map(|()| false),
            None => http.request(request.method, target, &lines, retryable.len, out),
        };
        *scratch = lines;
        start_result.ok()
    }

    /// Appends the field lines for a server.
    fn request_lines<'r>(
        &'r self,
        request: &'r HandlerRequest,
        server: ServerTerms<'r>,
        has_body: bool,
        lines: &mut Vec<u8>,
    ) -> ForwardedRequest<'r> {
        let changes = self.changes.as_deref();
        let changed_host = changes.and_then(|changes| changes.host(request));
        let host = match (changed_host, &self.host) {
            (Some(host), _) => Cow::Owned(host),
            // An HTTP/1.0 request may lack Host, but an HTTP/1.1 origin requires it (RFC 9112 §3.2).
            (None, OriginHost::Client) if request.host().is_empty() => Cow::Borrowed(server.host),
            (None, OriginHost::Client) => Cow::Borrowed(request.host()),
            (None, OriginHost::Origin) => Cow::Borrowed(server.host),
            (None, OriginHost::Name(name)) => Cow::Borrowed(name.as_bytes()),
        };
        let terms = ForwardTerms {
            host: &host,
            adds_via: self.adds_via,
            has_body,
            is_h2: server.is_h2,
        };
        let protocol = forwarding::request_lines(request, &terms, lines);
        if let Some(changes) = changes {
            changes.apply(request, lines);
        }
        ForwardedRequest {
            target: changes.and_then(|changes| changes.target(request)),
            protocol,
            host,
        }
    }

    /// Writes the PROXY header with the client's address, if configured.
    pub(super) fn write_proxy_header(&self, request: &HandlerRequest, out: &mut Vec<u8>) {
        let Some(version) = self.proxy_protocol else {
            return;
        };
        // The PROXY protocol distinguishes IPv4 from IPv6, so IPv4-mapped addresses are converted.
        let source = SocketAddr::new(request.peer.to_canonical(), request.peer_port);
        let local = request.local;
        let addresses = ProxyAddresses::Tcp {
            source,
            destination: SocketAddr::new(local.ip().to_canonical(), local.port()),
        };
        match version {
            ProxyProtocol::V1 => write_v1(out, addresses),
            ProxyProtocol::V2 => write_v2(out, addresses),
        }
    }

    /// The lines of the head, if the route changes it: for an explanation.
    pub(super) fn explain(&self, request: &HandlerRequest, is_h2: bool) -> Vec<String> {
        let Some(changes) = self.changes.as_deref() else {
            return Vec::new();
        };
        // Without a choice, the server's own name for Host is unknown.
        let mut lines = Vec::new();
        let server = ServerTerms {
            host: b"(the server's)",
            is_h2,
        };
        let version = if is_h2 { "HTTP/2" } else { "HTTP/1.1" };
        let forwarded = self.request_lines(request, server, false, &mut lines);
        let target = forwarded.target.as_deref().unwrap_or(request.target());
        let target = String::from_utf8_lossy(target);
        let mut shown = vec![format!("{} {target} {version}", request.method.as_str())];
        if is_h2 {
            let host = String::from_utf8_lossy(&forwarded.host);
            shown.push(format!(":authority: {host}"));
        }
        let fields = FieldLines::new(&lines);
        shown.extend(fields.map(|(name, value)| {
            let value = match changes.is_secret(name) {
                true => "(a secret)".into(),
                false => String::from_utf8_lossy(value),
            };
            format!("{}: {value}", String::from_utf8_lossy(name))
        }));
        if let Some(path_map) = &changes.path_map
            && let Some(prefix) = path_map.restored_prefix()
        {
            shown.push(format!("paths in the response begin with {prefix} again"));
        }
        shown
    }
}
