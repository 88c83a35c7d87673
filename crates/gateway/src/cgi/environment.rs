//! The meta-variables of CGI/1.1 (RFC 3875 §4.1), which are also the FastCGI parameters.
//!
//! In addition: REMOTE_PORT, REQUEST_URI, DOCUMENT_ROOT, SCRIPT_FILENAME, SERVER_ADDR, REQUEST_SCHEME and
//! REDIRECT_STATUS, which programs expect; HTTPS over https, and SSL_* over TLS. Scheme, host and port are the
//! client's, as a trusted proxy reports them. Client fields that a program could mistake for the server's are omitted:
//! HTTP_PROXY, which a program's HTTP client would obey (httpoxy), and names with `_`, which would collide with those
//! with `-`.

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lowroad_engine::tls_session::TlsInfo;
use lowroad_handler::HandlerRequest;
use lowroad_http::head_writer::put_number;

use crate::address::put_address;
use crate::script::LocatedScript;

/// The sources of the variables.
pub struct CgiEnvironment<'a> {
    /// The request.
    pub request: &'a HandlerRequest,
    /// The script.
    pub script: &'a LocatedScript,
    /// The script's file, if there is one.
    pub file: Option<&'a Path>,
    /// The site's root in the program's file system.
    pub root: &'a Path,
    /// The length of the body in bytes, if there is one.
    pub body_len: Option<u64>,
    /// Whether HTTP_AUTHORIZATION is included. RFC 3875 §4.1.18 advises against it, but PHP
    /// applications check passwords themselves.
    pub authorization: bool,
    /// Variables of the configuration, which replace those of the same name.
    pub extra: &'a [(String, String)],
}

/// The value of SERVER_SOFTWARE.
const SOFTWARE: &str = concat!("lowroad/", env!("CARGO_PKG_VERSION"));

impl CgiEnvironment<'_> {
    /// Calls `give` once for each variable.
    pub fn each(&self, mut give: impl FnMut(&[u8], &[u8])) {
        // The configuration's variables replace these, and are given last.
        let mut put = |name: &str, value: &[u8]| {
            if !self.is_extra(name.as_bytes()) {
                give(name.as_bytes(), value);
            }
        };
        let fields: Vec<_> = self.request.fields().collect();
        self.put_script(&mut put);
        self.put_request(&mut put);
        let content_type = |line: &&(&[u8], &[u8])| is_among(line.0, &[b"content-type"]);
        if let Some((_, value)) = fields.iter().find(content_type) {
            put("CONTENT_TYPE", value);
        }
        if let Some(user) = &self.request.extra.user {
            put("AUTH_TYPE", b"Basic");
            put("REMOTE_USER", user.as_bytes());
        }
        if self.request.is_https() {
            put("HTTPS", b"on");
        }
        // SSL_* describe this server's connection, even if a proxy reports https.
        if let Some(secured) = &self.request.secured {
            CgiEnvironment::put_secured(secured, &mut put);
        }
        self.put_ends(&mut put);
        self.put_fields(&fields, &mut give);
        for (name, value) in self.extra {
            give(name.as_bytes(), value.as_bytes());
        }
    }

    fn put_script(&self, put: &mut impl FnMut(&str, &[u8])) {
        let root = self.root.as_os_str().as_bytes();
        if let Some(file) = self.file {
            put("SCRIPT_FILENAME", file.as_os_str().as_bytes());
        }
        put("SCRIPT_NAME", &self.script.name);
        put("DOCUMENT_ROOT", root);
        // RFC 3875 §4.1.6: PATH_TRANSLATED only if there is a PATH_INFO.
        if !self.script.info.is_empty() {
            put("PATH_INFO", &self.script.info);
            put("PATH_TRANSLATED", &[root, &self.script.info].concat());
        }
        // php-cgi refuses to run without it (cgi.force_redirect).
        put("REDIRECT_STATUS", b"200");
    }

    fn put_request(&self, put: &mut impl FnMut(&str, &[u8])) {
        let request = self.request;
        put("GATEWAY_INTERFACE", b"CGI/1.1");
        put("SERVER_PROTOCOL", request.version.as_str().as_bytes());
        put("SERVER_SOFTWARE", SOFTWARE.as_bytes());
        put("REQUEST_METHOD", request.method.as_str().as_bytes());
        put("REQUEST_SCHEME", request.scheme());
        // The client's own target: applications build links from it, independent of rewrites.
        put("REQUEST_URI", request.asked_target());
        put("QUERY_STRING", request.query().unwrap_or_default());
        if let Some(len) = self.body_len {
            let mut digits = Vec::with_capacity(20);
            put_number(&mut digits, len);
            put("CONTENT_LENGTH", &digits);
        }
    }

    /// TLS parameters of the connection, by the names of Apache's mod_ssl.
    fn put_secured(secured: &TlsInfo, put: &mut impl FnMut(&str, &[u8])) {
        put("SSL_PROTOCOL", secured.version.as_bytes());
        put("SSL_CIPHER", secured.cipher.as_bytes());
        if let Some(name) = &secured.server_name {
            put("SSL_TLS_SNI", name.as_bytes());
        }
        let Some(client) = &secured.client else {
            return put("SSL_CLIENT_VERIFY", b"NONE");
        };
        put("SSL_CLIENT_VERIFY", b"SUCCESS");
        put("SSL_CLIENT_S_DN", client.subject.as_bytes());
        put("SSL_CLIENT_I_DN", client.issuer.as_bytes());
        put("SSL_CLIENT_M_SERIAL", client.serial.as_bytes());
        put("SSL_CLIENT_FINGERPRINT", client.fingerprint.as_bytes());
        put("SSL_CLIENT_CERT", client.pem.as_bytes());
    }

    fn put_ends(&self, put: &mut impl FnMut(&str, &[u8])) {
        let local = self.request.local;
        let address = local.ip().to_canonical();
        let mut text = Vec::with_capacity(64);
        put_address(&mut text, self.request.peer.to_canonical());
        put("REMOTE_ADDR", &text);
        text.clear();
        // Unknown behind a proxy that reports only the address.
        if self.request.peer_port != 0 {
            put_number(&mut text, self.request.peer_port.into());
            put("REMOTE_PORT", &text);
            text.clear();
        }
        put_address(&mut text, address);
        put("SERVER_ADDR", &text);
        text.clear();
        let forwarded = self.request.forwarded.as_ref();
        // The port that the client used, which may be the proxy's.
        let reported_port = forwarded.and_then(|it| it.port_of(self.request.host()));
        put_number(&mut text, reported_port.unwrap_or(local.port()).into());
        put("SERVER_PORT", &text);
        if !self.request.host().is_empty() {
            put("HTTP_HOST", self.request.host());
        }
        // RFC 3875 §4.1.14: SERVER_NAME must not be empty.
        match host_name(self.request.host()) {
            b"" => put("SERVER_NAME", literal(address).as_bytes()),
            name => put("SERVER_NAME", name),
        }
    }

    /// HTTP_ variables. Lines of the same name are combined (RFC 3875 §4.1.18).
    fn put_fields(&self, fields: &[(&[u8], &[u8])], give: &mut impl FnMut(&[u8], &[u8])) {
        let hops = hops(fields);
        let mut name = Vec::with_capacity(64);
        let mut joined = Vec::new();
        for (at, (field, value)) in fields.iter().enumerate() {
            let said = |line: &&(&[u8], &[u8])| line.0.eq_ignore_ascii_case(field);
            // Quadratic, but bounded by the limit of fields.
            let repeated = fields[..at].iter().any(|line| said(&line));
            if repeated || !self.is_wanted(field) || is_among(field, &hops) {
                continue;
            }
            put_name(field, &mut name);
            if self.is_extra(&name) {
                continue;
            }
            let mut more = fields[at + 1..].iter().filter(said).peekable();
            if more.peek().is_none() {
                give(&name, value);
                continue;
            }
            // RFC 9113 §8.2.3: cookie lines are joined by "; ", unlike list fields.
            let between: &[u8] = match field.eq_ignore_ascii_case(b"cookie") {
                true => b"; ",
                false => b", ",
            };
            joined.clear();
            joined.extend_from_slice(value);
            for (_, value) in more {
                joined.extend_from_slice(between);
                joined.extend_from_slice(value);
            }
            give(&name, &joined);
        }
    }

    fn is_wanted(&self, field: &[u8]) -> bool {
        // Names with `_` would collide with those with `-`, and others are no valid variable names.
        let plain = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
        let is_ours = self.authorization && field.eq_ignore_ascii_case(b"authorization");
        (is_ours || !is_dropped(field)) && field.iter().all(plain)
    }

    fn is_extra(&self, name: &[u8]) -> bool {
        self.extra.iter().any(|(known, _)| known.as_bytes() == name)
    }
}

/// Whether a field has no HTTP_ variable because it has its own variable, is hop-by-hop, or is dangerous.
///
/// Host is dropped since a target with an authority overrides it (RFC 9112 §3.2.2); HTTP_HOST has the effective host.
/// The match by length limits the comparisons to one or two names.
fn is_dropped(field: &[u8]) -> bool {
    let is = |name: &[u8]| field.eq_ignore_ascii_case(name);
    match field.len() {
        2 => is(b"te"),
        4 => is(b"host"),
        5 => is(b"proxy"),
        6 => is(b"expect"),
        7 => is(b"trailer") || is(b"upgrade"),
        10 => is(b"connection") || is(b"keep-alive"),
        12 => is(b"content-type"),
        13 => is(b"authorization"),
        14 => is(b"content-length"),
        16 => is(b"proxy-connection"),
        17 => is(b"transfer-encoding"),
        19 => is(b"proxy-authorization"),
        _ => false,
    }
}

/// `Accept-Encoding` becomes `HTTP_ACCEPT_ENCODING`.
fn put_name(field: &[u8], name: &mut Vec<u8>) {
    name.clear();
    name.extend_from_slice(b"HTTP_");
    name.extend(field.iter().map(|byte| match byte {
        b'-' => b'_',
        byte => byte.to_ascii_uppercase(),
    }));
}

/// The fields that Connection declares hop-by-hop (RFC 9110 §7.6.1). The usual options name none.
fn hops<'f>(fields: &[(&'f [u8], &'f [u8])]) -> Vec<&'f [u8]> {
    fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"))
        .flat_map(|(_, value)| value.split(|b| *b == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|option| !is_among(option, &[b"keep-alive", b"close"]))
        .collect()
}

fn is_among(field: &[u8], names: &[&[u8]]) -> bool {
    names.iter().any(|name| field.eq_ignore_ascii_case(name))
}

/// A host without its port.
fn host_name(host: &[u8]) -> &[u8] {
    // An IPv6 address has colons within its brackets.
    let bracket = host.iter().rposition(|b| *b == b']').unwrap_or(0);
    match host[bracket..].iter().position(|b| *b == b':') {
        Some(colon) => &host[..bracket + colon],
        None => host,
    }
}

/// An address in the form for URLs.
fn literal(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests;
