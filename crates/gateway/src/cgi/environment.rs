//! CGI meta-variables (RFC 3875 §4.1), which are also the FastCGI parameters.
//!
//! Also included are variables that programs expect: REMOTE_PORT, REQUEST_URI, DOCUMENT_ROOT, SCRIPT_FILENAME,
//! SERVER_ADDR, REQUEST_SCHEME and REDIRECT_STATUS; HTTPS for https requests, and SSL_* over TLS. Scheme, host and port
//! are those of the client, as reported by a trusted proxy. Omitted are client fields that a program could take for
//! trusted variables: HTTP_PROXY, which HTTP client libraries obey (httpoxy), and names with `_`, which would collide
//! with names with `-`.

use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use lowroad_config::PathPattern;
use lowroad_engine::tls_session::TlsInfo;
use lowroad_handler::HandlerRequest;
use lowroad_http::head_writer::put_number;
use lowroad_variables::{Template, TemplateInput};

use crate::address::write_address;
use crate::script::LocatedScript;

/// The sources of the meta-variables.
pub struct CgiEnvironment<'a> {
    /// The request.
    pub request: &'a HandlerRequest,
    /// The script.
    pub script: &'a LocatedScript,
    /// The script's file, if known.
    pub file: Option<&'a Path>,
    /// The site's root in the program's file system.
    pub root: &'a Path,
    /// The length of the body in bytes, if there is one.
    pub body_len: Option<u64>,
    /// Whether HTTP_AUTHORIZATION is included. RFC 3875 §4.1.18 advises against it, but PHP
    /// applications check passwords themselves.
    pub authorization: bool,
    /// Variables of the configuration; they replace variables of the same name.
    pub extra: &'a [(String, Template)],
    /// The pattern of the route, which captures a part of the path for `extra`.
    pub pattern: &'a PathPattern,
}

/// The value of SERVER_SOFTWARE.
const SOFTWARE: &str = concat!("lowroad/", env!("CARGO_PKG_VERSION"));

impl CgiEnvironment<'_> {
    /// Calls `emit` once for each variable.
    pub fn for_each_variable(&self, mut emit: impl FnMut(&[u8], &[u8])) {
        // Variables of the configuration replace the standard variables of the same name, and are emitted last.
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
        // SSL_* describe the connection to this server, even if a proxy reports https.
        if let Some(tls) = &self.request.tls {
            CgiEnvironment::set_tls_variables(tls, &mut set);
        }
        self.set_address_variables(&mut set);
        self.set_field_variables(&fields, &mut emit);
        self.set_extra_variables(&mut emit);
    }

    fn set_extra_variables(&self, emit: &mut impl FnMut(&[u8], &[u8])) {
        for (name, template) in self.extra {
            match template.constant() {
                Some(value) => emit(name.as_bytes(), value.as_bytes()),
                None => {
                    let capture = self.pattern.capture(self.request.path());
                    let input = TemplateInput {
                        facts: self.request,
                        captures: &[capture.unwrap_or_default()],
                    };
                    emit(name.as_bytes(), &template.field_value(input));
                }
            }
        }
    }

    fn set_script_variables(&self, set: &mut impl FnMut(&str, &[u8])) {
        let root = self.root.as_os_str().as_bytes();
        if let Some(file) = self.file {
            set("SCRIPT_FILENAME", file.as_os_str().as_bytes());
        }
        set("SCRIPT_NAME", &self.script.name);
        set("DOCUMENT_ROOT", root);
        // PATH_TRANSLATED is set only together with PATH_INFO (RFC 3875 §4.1.6).
        if !self.script.info.is_empty() {
            set("PATH_INFO", &self.script.info);
            set("PATH_TRANSLATED", &[root, &self.script.info].concat());
        }
        // php-cgi refuses to run without REDIRECT_STATUS (cgi.force_redirect).
        set("REDIRECT_STATUS", b"200");
    }

    fn set_request_variables(&self, set: &mut impl FnMut(&str, &[u8])) {
        let request = self.request;
        set("GATEWAY_INTERFACE", b"CGI/1.1");
        set("SERVER_PROTOCOL", request.version.as_str().as_bytes());
        set("SERVER_SOFTWARE", SOFTWARE.as_bytes());
        set("REQUEST_METHOD", request.method.as_str().as_bytes());
        set("REQUEST_SCHEME", request.scheme());
        // The request target as sent by the client, not the rewritten one: applications build links from it.
        set("REQUEST_URI", request.original_target());
        // Without a query, the variable must be present and empty (RFC 3875 §4.1.7).
        set("QUERY_STRING", request.query().unwrap_or_default());
        if let Some(len) = self.body_len {
            let mut digits = Vec::with_capacity(20);
            put_number(&mut digits, len);
            set("CONTENT_LENGTH", &digits);
        }
    }

    /// TLS parameters of the connection, named as in Apache's mod_ssl.
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
        // The port is unknown behind a proxy that reports only the address.
        if self.request.peer_port != 0 {
            put_number(&mut text, self.request.peer_port.into());
            set("REMOTE_PORT", &text);
            text.clear();
        }
        write_address(&mut text, address);
        set("SERVER_ADDR", &text);
        text.clear();
        let forwarded = self.request.forwarded.as_ref();
        // The port to which the client connected, which may be the proxy's.
        let reported_port = forwarded.and_then(|it| it.client_port(self.request.host()));
        put_number(&mut text, reported_port.unwrap_or(local.port()).into());
        set("SERVER_PORT", &text);
        if !self.request.host().is_empty() {
            set("HTTP_HOST", self.request.host());
        }
        // SERVER_NAME must not be empty (RFC 3875 §4.1.14).
        match host_name(self.request.host()) {
            b"" => set("SERVER_NAME", literal(address).as_bytes()),
            name => set("SERVER_NAME", name),
        }
    }

    /// Sets the HTTP_ variables. Field lines of the same name are combined (RFC 3875 §4.1.18).
    fn set_field_variables(&self, fields: &[(&[u8], &[u8])], emit: &mut impl FnMut(&[u8], &[u8])) {
        let hop_by_hop = hop_by_hop_fields(fields);
        let mut name = Vec::with_capacity(64);
        let mut joined = Vec::new();
        for (index, (field, value)) in fields.iter().enumerate() {
            let has_same_name = |line: &&(&[u8], &[u8])| line.0.eq_ignore_ascii_case(field);
            // The search is quadratic, but the number of fields is limited.
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
            // Cookie lines are joined by "; " (RFC 9113 §8.2.3), list fields by ", ".
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
        // Names with `_` would collide with names with `-`; other characters are invalid in variable names.
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

/// Whether a field gets no HTTP_ variable: it has a variable of another name, is hop-by-hop, or is dangerous.
///
/// Host is dropped because the authority of an absolute request target overrides it (RFC 9112 §3.2.2); HTTP_HOST
/// contains the effective host. Matching the length first leaves one or two names to compare.
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

/// Converts `Accept-Encoding` to `HTTP_ACCEPT_ENCODING`.
fn write_variable_name(field: &[u8], name: &mut Vec<u8>) {
    name.clear();
    name.extend_from_slice(b"HTTP_");
    name.extend(field.iter().map(|byte| match byte {
        b'-' => b'_',
        byte => byte.to_ascii_uppercase(),
    }));
}

/// The fields that Connection lists as hop-by-hop (RFC 9110 §7.6.1). The usual options of Connection, such as `close`,
/// name no fields.
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
    // The colons in brackets belong to an IPv6 address.
    let bracket = host.iter().rposition(|b| *b == b']').unwrap_or(0);
    match host[bracket..].iter().position(|b| *b == b':') {
        Some(colon) => &host[..bracket + colon],
        None => host,
    }
}

/// An address as written in URLs.
fn literal(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

#[cfg(test)]
mod tests;
