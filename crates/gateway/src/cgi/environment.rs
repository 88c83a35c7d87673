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

use crate::address::write_address;
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
    /// Calls `emit` once for each variable.
    pub fn for_each_variable(&self, mut emit: impl FnMut(&[u8], &[u8])) {
        // The configuration's variables replace these, and are given last.
        let mut set = |name: &str, value: &[u8]| {
            if !self.is_extra(name.as_bytes()) {
                emit(name.as_bytes(), value);
            }
        };
        let fields: Vec<_> = self.request.fields().collect();
        self.set_script_variables(&mut set);
        self.set_request_variables(&mut set);
        let content_type = |line: &&(&[u8], &[u8])| is_among(line.0, &[b"content-type"]);
        if let Some((_, value)) = fields.iter().find(content_type) {
            set("CONTENT_TYPE", value);
        }
        if let Some(user) = &self.request.extra.user {
            set("AUTH_TYPE", b"Basic");
            set("REMOTE_USER", user.as_bytes());
        }
        if self.request.is_https() {
            set("HTTPS", b"on");
        }
        // SSL_* describe this server's connection, even if a proxy reports https.
        if let Some(tls) = &self.request.secured {
            CgiEnvironment::set_tls_variables(tls, &mut set);
        }
        self.set_address_variables(&mut set);
        self.set_field_variables(&fields, &mut emit);
        for (name, value) in self.extra {
            emit(name.as_bytes(), value.as_bytes());
        }
    }

    fn set_script_variables(&self, set: &mut impl FnMut(&str, &[u8])) {
        let root = self.root.as_os_str().as_bytes();
        if let Some(file) = self.file {
            set("SCRIPT_FILENAME", file.as_os_str().as_bytes());
        }
        set("SCRIPT_NAME", &self.script.name);
        set("DOCUMENT_ROOT", root);
        // RFC 3875 §4.1.6: PATH_TRANSLATED only if there is a PATH_INFO.
        if !self.script.info.is_empty() {
            set("PATH_INFO", &self.script.info);
            set("PATH_TRANSLATED", &[root, &self.script.info].concat());
        }
        // php-cgi refuses to run without it (cgi.force_redirect).
        set("REDIRECT_STATUS", b"200");
    }

    fn set_request_variables(&self, set: &mut impl FnMut(&str, &[u8])) {
        let request = self.request;
        set("GATEWAY_INTERFACE", b"CGI/1.1");
        set("SERVER_PROTOCOL", request.version.as_str().as_bytes());
        set("SERVER_SOFTWARE", SOFTWARE.as_bytes());
        set("REQUEST_METHOD", request.method.as_str().as_bytes());
        set("REQUEST_SCHEME", request.scheme());
        // The client's own target: applications build links from it, independent of rewrites.
        set("REQUEST_URI", request.original_target());
        set("QUERY_STRING", request.query().unwrap_or_default());
        if let Some(len) = self.body_len {
            let mut digits = Vec::with_capacity(20);
            put_number(&mut digits, len);
            set("CONTENT_LENGTH", &digits);
        }
    }

    /// TLS parameters of the connection, by the names of Apache's mod_ssl.
    fn set_tls_variables(tls: &TlsInfo, set: &mut impl FnMut(&str, &[u8])) {
        set("SSL_PROTOCOL", tls.version.as_bytes());
        set("SSL_CIPHER", tls.cipher.as_bytes());
        if let Some(name) = &tls.server_name {
            set("SSL_TLS_SNI", name.as_bytes());
        }
        let Some(client) = &tls.client else {
            return set("SSL_CLIENT_VERIFY", b"NONE");
        };
        set("SSL_CLIENT_VERIFY", b"SUCCESS");
        set("SSL_CLIENT_S_DN", client.subject.as_bytes());
        set("SSL_CLIENT_I_DN", client.issuer.as_bytes());
        set("SSL_CLIENT_M_SERIAL", client.serial.as_bytes());
        set("SSL_CLIENT_FINGERPRINT", client.fingerprint.as_bytes());
        set("SSL_CLIENT_CERT", client.pem.as_bytes());
    }

    fn set_address_variables(&self, set: &mut impl FnMut(&str, &[u8])) {
        let local = self.request.local;
        let address = local.ip().to_canonical();
        let mut text = Vec::with_capacity(64);
        write_address(&mut text, self.request.peer.to_canonical());
        set("REMOTE_ADDR", &text);
        text.clear();
        // Unknown behind a proxy that reports only the address.
        if self.request.peer_port != 0 {
            put_number(&mut text, self.request.peer_port.into());
            set("REMOTE_PORT", &text);
            text.clear();
        }
        write_address(&mut text, address);
        set("SERVER_ADDR", &text);
        text.clear();
        let forwarded = self.request.forwarded.as_ref();
        // The port that the client used, which may be the proxy's.
        let reported_port = forwarded.and_then(|it| it.client_port(self.request.host()));
        put_number(&mut text, reported_port.unwrap_or(local.port()).into());
        set("SERVER_PORT", &text);
        if !self.request.host().is_empty() {
            set("HTTP_HOST", self.request.host());
        }
        // RFC 3875 §4.1.14: SERVER_NAME must not be empty.
        match host_name(self.request.host()) {
            b"" => set("SERVER_NAME", literal(address).as_bytes()),
            name => set("SERVER_NAME", name),
        }
    }

    /// HTTP_ variables. Lines of the same name are combined (RFC 3875 §4.1.18).
    fn set_field_variables(&self, fields: &[(&[u8], &[u8])], emit: &mut impl FnMut(&[u8], &[u8])) {
        let hop_by_hop = hop_by_hop_fields(fields);
        let mut name = Vec::with_capacity(64);
        let mut joined = Vec::new();
        for (index, (field, value)) in fields.iter().enumerate() {
            let has_same_name = |line: &&(&[u8], &[u8])| line.0.eq_ignore_ascii_case(field);
            // Quadratic, but bounded by the limit of fields.
            let repeated = fields[..index].iter().any(|line| has_same_name(&line));
            if repeated || !self.is_wanted(field) || is_among(field, &hop_by_hop) {
                continue;
            }
            write_variable_name(field, &mut name);
            if self.is_extra(&name) {
                continue;
            }
            let mut duplicates = fields[index + 1..].iter().filter(has_same_name).peekable();
            if duplicates.peek().is_none() {
                emit(&name, value);
                continue;
            }
            // RFC 9113 §8.2.3: cookie lines are joined by "; ", unlike list fields.
            let separator: &[u8] = match field.eq_ignore_ascii_case(b"cookie") {
                true => b"; ",
                false => b", ",
            };
            joined.clear();
            joined.extend_from_slice(value);
            for (_, value) in duplicates {
                joined.extend_from_slice(separator);
                joined.extend_from_slice(value);
            }
            emit(&name, &joined);
        }
    }

    fn is_wanted(&self, field: &[u8]) -> bool {
        // Names with `_` would collide with those with `-`, and others are no valid variable names.
        let is_plain = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-';
        let is_authorization = self.authorization && field.eq_ignore_ascii_case(b"authorization");
        (is_authorization || !is_dropped(field)) && field.iter().all(is_plain)
    }

    fn is_extra(&self, name: &[u8]) -> bool {
        self.extra
            .iter()
            .any(|(extra_name, _)| extra_name.as_bytes() == name)
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
fn write_variable_name(field: &[u8], name: &mut Vec<u8>) {
    name.clear();
    name.extend_from_slice(b"HTTP_");
    name.extend(field.iter().map(|byte| match byte {
        b'-' => b'_',
        byte => byte.to_ascii_uppercase(),
    }));
}

/// The fields that Connection declares hop-by-hop (RFC 9110 §7.6.1). The usual options name none.
fn hop_by_hop_fields<'f>(fields: &[(&'f [u8], &'f [u8])]) -> Vec<&'f [u8]> {
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
