//! The request that a handler gets: an owned copy of the head, and the body as a stream.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::stream::{BodyReceiver, StreamItem};
use lowroad_engine::tls_session::TlsInfo;
use lowroad_engine::upstream_tries::UpstreamTries;
use lowroad_http::fields::{FieldLines, ResponseFields};
use lowroad_http::forwarding::{self, ForwardedRequest};
use lowroad_http::h1::requested_upgrade;
use lowroad_http::method::Method;
use lowroad_http::version::HttpVersion;
use lowroad_traces::TraceParent;

use crate::interim_responses::InterimSink;

/// A request to a handler.
pub struct HandlerRequest {
    /// The method.
    pub method: Method,
    /// The client's protocol version.
    pub version: HttpVersion,
    /// The head.
    pub head: RequestHead,
    /// The client's address.
    pub peer: IpAddr,
    /// The client's port; 0 if it is unknown.
    pub peer_port: u16,
    /// The local address of the connection.
    pub local: SocketAddr,
    /// The TLS parameters, if the connection uses TLS.
    pub tls: Option<Arc<TlsInfo>>,
    /// The report of a trusted proxy in forwarding fields, if the connection is from one.
    pub forwarded: Option<Arc<ForwardedRequest>>,
    /// The site's document root for this host: absolute, without symbolic links.
    pub root: Arc<Path>,
    /// The files of the site, for subrequests.
    pub objects: Arc<dyn SubrequestSource>,
    /// The body.
    pub body: RequestBody,
    /// The sink for interim responses.
    pub interims: InterimSink,
    /// Rarely used properties.
    pub extra: RequestExtra,
}

/// Rarely used properties of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestExtra {
    /// The folder to which the path is mapped, if it is outside the document root.
    pub alias: Option<PathAlias>,
    /// The target that the client sent, if an internal redirect replaced it.
    pub original_target: Option<Vec<u8>>,
    /// The authenticated user, if the server has verified Basic credentials.
    pub user: Option<Box<str>>,
    /// The span for which the handler is called, if the request is traced. The fields name it, except in requests to
    /// origins: each attempt has its own span.
    pub trace: Option<TraceParent>,
    /// Receives the attempts at upstream servers, if the access log needs them.
    pub upstream_tries: Option<Arc<UpstreamTries>>,
    /// The identifier of the request (`$request_id`).
    pub request_id: u128,
    /// Field lines that the server adds to the request to an origin, with CRLFs.
    pub added_lines: Vec<u8>,
    /// The request is known to ask for no upgrade, so that its fields need not be read for one.
    pub has_no_upgrade: bool,
}

/// A folder of the site outside its document root (Apache `Alias`).
#[derive(Clone, Debug)]
pub struct PathAlias {
    /// The length of the prefix of the decoded path that is mapped to the folder; a slash or the end follows.
    pub path_len: usize,
    /// The folder: absolute, without symbolic links.
    pub folder: Arc<Path>,
}

impl HandlerRequest {
    /// `http` or `https`, as reported by a trusted proxy, or otherwise by the connection.
    pub fn scheme(&self) -> &'static [u8] {
        match self.is_https() {
            true => b"https",
            false => b"http",
        }
    }

    /// Whether the scheme is https.
    pub fn is_https(&self) -> bool {
        forwarding::is_https(self.forwarded.as_deref(), self.tls.is_some())
    }

    /// The folder to which the path is mapped, and the length of the decoded path's prefix that stands for this folder.
    pub fn files(&self) -> (&Arc<Path>, usize) {
        match &self.extra.alias {
            Some(alias) => (&alias.folder, alias.path_len),
            None => (&self.root, 0),
        }
    }

    /// Path and query, percent-encoded as in the request target.
    pub fn target(&self) -> &[u8] {
        &self.head.text[..self.head.target_end]
    }

    /// Path and query of the client's request, before internal redirects.
    pub fn original_target(&self) -> &[u8] {
        // Set only if an internal redirect has replaced the target.
        let original = self.extra.original_target.as_deref();
        original.unwrap_or_else(|| self.target())
    }

    /// The path, percent-encoded as in the request target.
    pub fn raw_path(&self) -> &[u8] {
        let target = self.target();
        // One byte before the query is the `?`; without a query, this is the end of the target.
        let path = target.get(..self.head.query_start.saturating_sub(1));
        path.unwrap_or(target)
    }

    /// The decoded path; begins with `/`, has no dot segments, no `//` and no NUL.
    pub fn path(&self) -> &[u8] {
        &self.head.text[self.head.target_end..self.head.path_end]
    }

    /// The length of the decoded path before its first slash or backslash that was percent-encoded in the target. A
    /// proxy in front may treat only literal ones as separators.
    pub fn plain_path_len(&self) -> usize {
        let raw = self.raw_path();
        // Without these characters, the path has no encoded separators.
        match raw.contains(&b'%') || raw.contains(&b'\\') {
            true => lowroad_http::target::plain_len(raw),
            false => self.path().len(),
        }
    }

    /// The query: the text after the first `?` of the target, not decoded.
    pub fn query(&self) -> Option<&[u8]> {
        let target = self.target();
        target.get(self.head.query_start..)
    }

    /// The requested host, with a port if there is one, not normalized; empty if there is none.
    pub fn host(&self) -> &[u8] {
        &self.head.text[self.head.path_end..self.head.host_end]
    }

    /// All field lines with their CRLFs, validated.
    pub fn lines(&self) -> &[u8] {
        &self.head.text[self.head.host_end..]
    }

    /// All fields in their order: name as received, value without surrounding whitespace.
    pub fn fields(&self) -> FieldLines<'_> {
        FieldLines::new(self.lines())
    }

    /// The protocols of a possible upgrade: the value of Upgrade in an HTTP/1.1 GET without a body, or the protocol of
    /// an HTTP/2 extended CONNECT (RFC 8441).
    ///
    /// An upgrade to HTTP is excluded, since requests in such a tunnel would bypass all rules of this server (h2c
    /// smuggling).
    pub fn upgrade(&self) -> Option<&[u8]> {
        // RFC 9110 §7.8: a server must ignore Upgrade in an HTTP/1.0 request.
        let can_upgrade = !self.extra.has_no_upgrade
            && self.method == Method::Get
            && !self.version.is_10()
            && self.body.stream.is_none();
        let requested = can_upgrade
            .then(|| requested_upgrade(self.fields()))
            .flatten();
        requested.filter(|protocols| !names_http(protocols))
    }

    /// The value of the first field line with this name, compared without case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        // Of a repeated field, only the first line counts.
        self.fields()
            .find(|(field_name, _)| field_name.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}

/// Whether one of the protocols in a value of Upgrade is HTTP.
fn names_http(protocols: &[u8]) -> bool {
    protocols.split(|byte| *byte == b',').any(|protocol| {
        let name = protocol.split(|byte| *byte == b'/').next();
        let name = name.unwrap_or_default().trim_ascii();
        [&b"h2c"[..], b"h2", b"http"]
            .iter()
            .any(|http| name.eq_ignore_ascii_case(http))
    })
}

/// A request target, split at the question mark.
#[derive(Clone, Copy, Debug)]
pub struct RawTarget<'t> {
    /// The path as sent by the client.
    pub path: &'t [u8],
    /// The query without the question mark.
    pub query: Option<&'t [u8]>,
}

/// The head of a request, in a single allocation.
#[derive(Clone)]
pub struct RequestHead {
    /// Target, decoded path, host and field lines, concatenated.
    text: Vec<u8>,
    /// The offset of the query in `text`; without a query, the length of the target plus 1.
    query_start: usize,
    target_end: usize,
    path_end: usize,
    host_end: usize,
}

impl RequestHead {
    /// Creates a head from these parts; see [`Request`].
    pub fn new(target: RawTarget<'_>, path: &[u8], host: &[u8], lines: &[u8]) -> RequestHead {
        let RawTarget {
            path: raw_path,
            query,
        } = target;
        // The offset after `?`, or without a query one past the end of the target, so that `get` returns None.
        let query_start = raw_path.len() + 1;
        let target_end = raw_path.len() + query.map_or(0, |query| query.len() + 1);
        let path_end = target_end + path.len();
        let host_end = path_end + host.len();
        let mut text = Vec::with_capacity(host_end + lines.len());
        text.extend_from_slice(raw_path);
        if let Some(query) = query {
            text.push(b'?');
            text.extend_from_slice(query);
        }
        text.extend_from_slice(path);
        text.extend_from_slice(host);
        text.extend_from_slice(lines);
        RequestHead {
            text,
            query_start,
            target_end,
            path_end,
            host_end,
        }
    }
}

/// Subrequests: returns the files that the site would send for other paths, from memory if cached. Paths of handlers'
/// routes have no file here, since the file may be a script.
pub trait SubrequestSource: Send + Sync {
    /// The content for a decoded path, if it is in memory and fresh.
    fn find_in_memory(&self, path: &[u8]) -> Option<Bytes>;

    /// The content for a decoded path, loaded if necessary; `None` if there is none, or if it is too large for
    /// memory.
    fn load(&self, path: &[u8]) -> SubrequestLoad;
}

/// A pending load of an object.
pub type SubrequestLoad = Pin<Box<dyn Future<Output = Option<Bytes>> + Send>>;

/// The body of a request, without framing.
#[derive(Default)]
pub struct RequestBody {
    /// The length in bytes; `None` if it is unknown (chunked).
    pub len: Option<u64>,
    /// The bytes; `None` if there is no body.
    pub stream: Option<BodyReceiver>,
}

impl RequestBody {
    /// No body.
    pub fn none() -> RequestBody {
        RequestBody {
            len: Some(0),
            stream: None,
        }
    }

    /// Waits for the next piece. `Cut` if the client disconnected or violated the framing.
    pub async fn next(&mut self) -> StreamItem {
        match &self.stream {
            Some(stream) => stream.next().await,
            None => StreamItem::End,
        }
    }

    /// Takes the trailer section, which is known after the end of the body, without fields that are not allowed there.
    pub fn take_trailers(&self) -> Option<Box<ResponseFields>> {
        self.stream.as_ref()?.take_trailers()
    }

    /// Reads the whole body.
    ///
    /// # Errors
    /// `BodyReadError` if the body is longer than `len_max` bytes, or truncated.
    pub async fn read(&mut self, len_max: usize) -> Result<Vec<u8>, BodyReadError> {
        let mut all = Vec::new();
        loop {
            match self.next().await {
                // Checked before copying, so that no more than the limit is ever buffered.
                StreamItem::Bytes(bytes) if all.len() + bytes.len() > len_max => {
                    return Err(BodyReadError::TooLong);
                }
                StreamItem::Bytes(bytes) => all.extend_from_slice(&bytes),
                StreamItem::End => return Ok(all),
                StreamItem::Cut => return Err(BodyReadError::Cut),
            }
        }
    }
}

/// Why a body could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyReadError {
    /// The body exceeds the limit.
    TooLong,
    /// The body was truncated.
    Cut,
}
