//! A copy of the request, kept while its page is generated.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddrV4};

use lowroad_http::fields::FieldLines;
use lowroad_http::h1::H1RequestHead;
use lowroad_http::method::Method;
use lowroad_http::request::RequestTarget;
use lowroad_http::target;
use lowroad_http::version::HttpVersion;

use crate::decision::PATH_LEN_MAX;

/// The data of a request that a page may use, or that affect the response.
pub struct PageInput {
    /// The request's method.
    pub method: Method,
    /// The request's version.
    pub version: HttpVersion,
    /// The request line.
    pub line: Vec<u8>,
    path: Vec<u8>,
    query: Vec<u8>,
    host: Vec<u8>,
    lines: Vec<u8>,
    peer: SocketAddrV4,
}

impl PageInput {
    /// An empty input.
    pub fn new() -> PageInput {
        PageInput {
            method: Method::Get,
            version: HttpVersion::Http11,
            line: Vec::new(),
            path: Vec::new(),
            query: Vec::new(),
            host: Vec::new(),
            lines: Vec::new(),
            peer: SocketAddrV4::new(core::net::Ipv4Addr::UNSPECIFIED, 0),
        }
    }

    /// Copies the request. Existing allocations are reused.
    pub fn set(&mut self, head: &H1RequestHead<'_>, peer: SocketAddrV4) {
        let request = &head.request;
        // If the target has no path, as in `OPTIONS *`, the path is the root.
        let (path, query, is_plain) = match request.target {
            RequestTarget::Origin { path, query, plain } => {
                (path, query.unwrap_or_default(), plain)
            }
            _ => (&b"/"[..], &b""[..], true),
        };
        set_path(&mut self.path, path, is_plain);
        self.method = request.method;
        self.version = head.version;
        self.peer = peer;
        let copy = |to: &mut Vec<u8>, from: &[u8]| {
            to.clear();
            to.extend_from_slice(from);
        };
        copy(&mut self.line, head.line());
        copy(&mut self.query, query);
        copy(&mut self.host, request.authority.unwrap_or_default());
        copy(&mut self.lines, request.lines());
    }
}

fn set_path(to: &mut Vec<u8>, path: &[u8], is_plain: bool) {
    to.clear();
    if is_plain {
        return to.extend_from_slice(path);
    }
    let mut scratch = [0; PATH_LEN_MAX];
    // The path was decoded successfully before, to find the page.
    to.extend_from_slice(target::decode(path, &mut scratch).unwrap_or(path));
}

impl lowroad_page::PageRequest for PageInput {
    fn method(&self) -> &str {
        self.method.as_str()
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn target(&self) -> &[u8] {
        let mut words = self.line.split(|byte| *byte == b' ');
        words.nth(1).unwrap_or_default()
    }

    fn host(&self) -> &[u8] {
        &self.host
    }

    fn query(&self) -> &[u8] {
        &self.query
    }

    fn peer(&self) -> IpAddr {
        (*self.peer.ip()).into()
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = FieldLines::new(&self.lines);
        let line = fields.find(|(field_name, _)| field_name.eq_ignore_ascii_case(name.as_bytes()));
        line.map(|(_, value)| value)
    }
}
