//! A request as a handler sees it: an owned copy of its head, and its body as a stream.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use lowroad_engine::layer::Secured;
use lowroad_engine::stream::{Next, Receiver};
use lowroad_http::fields::{Fields, Lines};
use lowroad_http::forwarding::{self, ForwardedRequest};
use lowroad_http::h1::upgrade_asked;
use lowroad_http::method::Method;
use lowroad_http::version::Version;

use crate::interims::Interims;

/// A request.
pub struct Request {
    /// The method.
    pub method: Method,
    /// The version that the client speaks.
    pub version: Version,
    /// What its head says.
    pub head: Head,
    /// Where the client is.
    pub peer: IpAddr,
    /// Its port there; 0 where it is not known.
    pub peer_port: u16,
    /// Where it connected.
    pub local: SocketAddr,
    /// What was agreed on with it, if it came over TLS.
    pub secured: Option<Arc<Secured>>,
    /// What a trusted proxy reports, if the connection is from one.
    pub forwarded: Option<Arc<ForwardedRequest>>,
    /// The site's folder for this host: absolute, without symbolic links.
    pub root: Arc<Path>,
    /// What the site has.
    pub objects: Arc<dyn Objects>,
    /// The body.
    pub body: Body,
    /// Where responses before the one that counts go.
    pub interims: Interims,
    /// What few ask for.
    pub extra: Extra,
}

/// What few handlers ask for.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Where the files of the path are, if not below the root.
    pub alias: Option<Alias>,
    /// The target that the client sent, where it led to another inside the server.
    pub asked_target: Option<Vec<u8>>,
    /// Who the client is, where it has shown a user's password by the scheme Basic, and the server has verified it.
    pub user: Option<Box<str>>,
}

/// A folder of the site that lies elsewhere than its root.
#[derive(Clone, Debug)]
pub struct Alias {
    /// Bytes of the decoded path that lead to the folder; a slash follows, or nothing.
    pub path_len: usize,
    /// The folder: absolute, without symbolic links.
    pub folder: Arc<Path>,
}

impl Request {
    /// `http` or `https`: as a trusted proxy reports it, else as the request came.
    pub fn scheme(&self) -> &'static [u8] {
        match self.is_https() {
            true => b"https",
            false => b"http",
        }
    }

    /// Whether the scheme is https.
    pub fn is_https(&self) -> bool {
        forwarding::is_https(self.forwarded.as_deref(), self.secured.is_some())
    }

    /// The folder that the path's files are in, and how many bytes of the decoded path lead to it.
    pub fn files(&self) -> (&Arc<Path>, usize) {
        match &self.extra.alias {
            Some(alias) => (&alias.folder, alias.path_len),
            None => (&self.root, 0),
        }
    }

    /// The path and the query as they were sent, still percent-encoded.
    pub fn target(&self) -> &[u8] {
        &self.head.text[..self.head.target_end]
    }

    /// The path and the query as the client sent them, wherever they led inside the server.
    pub fn asked_target(&self) -> &[u8] {
        let asked = self.extra.asked_target.as_deref();
        asked.unwrap_or_else(|| self.target())
    }

    /// The path as it was sent, still percent-encoded.
    pub fn raw_path(&self) -> &[u8] {
        let target = self.target();
        let path = target.get(..self.head.query_start.saturating_sub(1));
        path.unwrap_or(target)
    }

    /// The decoded path; begins with `/`, has no dot segments, no `//` and no NUL.
    pub fn path(&self) -> &[u8] {
        &self.head.text[self.head.target_end..self.head.path_end]
    }

    /// How much of the decoded path comes before the first slash or backslash in it that was encoded. Whoever looks at
    /// requests before us may take only plain ones for slashes.
    pub fn plain_path_len(&self) -> usize {
        let raw = self.raw_path();
        match raw.contains(&b'%') || raw.contains(&b'\\') {
            true => lowroad_http::target::plain_len(raw),
            false => self.path().len(),
        }
    }

    /// What follows the first `?` of the target, as it was sent.
    pub fn query(&self) -> Option<&[u8]> {
        let target = self.target();
        target.get(self.head.query_start..)
    }

    /// The host name that the client asked for, as it was sent, with its port if it has one; empty
    /// if the client named none.
    pub fn host(&self) -> &[u8] {
        &self.head.text[self.head.path_end..self.head.host_end]
    }

    /// All field lines with their CRLFs, validated.
    pub fn lines(&self) -> &[u8] {
        &self.head.text[self.head.host_end..]
    }

    /// All fields in their order: name as received, value without surrounding whitespace.
    pub fn fields(&self) -> Lines<'_> {
        Lines::of(self.lines())
    }

    /// The protocols that the client would rather speak, if it asks for one and can get it: the value of Upgrade in a GET
    /// without a body by HTTP/1.1, or of an extended CONNECT by HTTP/2. Not other versions of HTTP: requests in a tunnel would reach an origin past all that is decided here.
    pub fn upgrade(&self) -> Option<&[u8]> {
        let can = self.method == Method::Get && !self.version.is_10() && self.body.stream.is_none();
        let asked = can.then(|| upgrade_asked(self.fields())).flatten();
        asked.filter(|protocols| !names_http(protocols))
    }

    /// The value of the first field with this name, in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields()
            .find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}

/// Whether one of the protocols in an Upgrade is HTTP.
fn names_http(protocols: &[u8]) -> bool {
    protocols.split(|byte| *byte == b',').any(|protocol| {
        let name = protocol.split(|byte| *byte == b'/').next();
        let name = name.unwrap_or_default().trim_ascii();
        [&b"h2c"[..], b"h2", b"http"]
            .iter()
            .any(|http| name.eq_ignore_ascii_case(http))
    })
}

/// What the head of a request says, in one piece of memory.
pub struct Head {
    /// Target, decoded path, host and lines, one after the other.
    text: Vec<u8>,
    /// Beyond the target if there is no query.
    query_start: usize,
    target_end: usize,
    path_end: usize,
    host_end: usize,
}

impl Head {
    /// One with these parts, see [`Request`]: the target is given as path and query.
    pub fn new(
        (raw_path, query): (&[u8], Option<&[u8]>),
        path: &[u8],
        host: &[u8],
        lines: &[u8],
    ) -> Head {
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
        Head {
            text,
            query_start,
            target_end,
            path_end,
            host_end,
        }
    }
}

/// What the request's site would send for its paths under the request's host: files, from memory
/// where they are there. What belongs to a program by its path is no file: it may be its source.
pub trait Objects: Send + Sync {
    /// The bytes for a decoded path if they are in memory and fresh.
    fn now(&self, path: &[u8]) -> Option<Bytes>;

    /// The bytes for a decoded path, loaded if need be; `None` if there are none, or more than can
    /// be held in memory.
    fn load(&self, path: &[u8]) -> Loading;
}

/// An object being loaded.
pub type Loading = Pin<Box<dyn Future<Output = Option<Bytes>> + Send>>;

/// A request's body, with its framing taken away.
#[derive(Default)]
pub struct Body {
    /// Its length in bytes; `None` if the client did not say (chunked).
    pub len: Option<u64>,
    /// The bytes; `None` if there is no body.
    pub stream: Option<Receiver>,
}

impl Body {
    /// No body.
    pub fn none() -> Body {
        Body {
            len: Some(0),
            stream: None,
        }
    }

    /// Waits for what is next. `Cut` when the client went away or broke its framing.
    pub async fn next(&mut self) -> Next {
        match &self.stream {
            Some(stream) => stream.next().await,
            None => Next::End,
        }
    }

    /// Takes the fields that followed it (trailers): known once its end has come. Those that belong into heads are not
    /// among them.
    pub fn take_trailers(&self) -> Option<Box<Fields>> {
        self.stream.as_ref()?.take_trailers()
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// [`Unread`] when it is longer than `len_max` bytes, or cut.
    pub async fn read(&mut self, len_max: usize) -> Result<Vec<u8>, Unread> {
        let mut all = Vec::new();
        loop {
            match self.next().await {
                Next::Bytes(bytes) if all.len() + bytes.len() > len_max => {
                    return Err(Unread::TooLong);
                }
                Next::Bytes(bytes) => all.extend_from_slice(&bytes),
                Next::End => return Ok(all),
                Next::Cut => return Err(Unread::Cut),
            }
        }
    }
}

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is longer than allowed.
    TooLong,
    /// The client did not send all of it.
    Cut,
}
