//! The properties of a request that variables show.

use std::borrow::Cow;
use std::io::Write;
use std::net::IpAddr;

use crate::encoding::decode_query_value;
use crate::variable::Variable;

/// The properties of a request.
pub trait RequestFacts {
    /// The requested host, with a port if there is one; empty if there is none.
    fn authority(&self) -> &[u8];

    /// The client's address.
    fn client(&self) -> IpAddr;

    /// The client's port; 0 if it is unknown.
    fn client_port(&self) -> u16;

    /// Whether the client uses https.
    fn is_https(&self) -> bool;

    /// The method.
    fn method(&self) -> &str;

    /// The decoded path.
    fn path(&self) -> &[u8];

    /// The query, without `?`.
    fn query(&self) -> Option<&[u8]>;

    /// Path and query as the client sent them.
    fn request_uri(&self) -> Cow<'_, [u8]>;

    /// The request fields: names and values.
    fn fields(&self) -> Box<dyn Iterator<Item = (&[u8], &[u8])> + '_>;

    /// The identifier of the request.
    fn request_id(&self) -> u128;

    /// The TLS session, if there is one.
    fn tls(&self) -> Option<TlsFacts<'_>>;
}

/// The properties of a TLS session. A client without a certificate has empty texts.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsFacts<'a> {
    /// The version, such as `TLSv1.3`.
    pub version: &'a str,
    /// The cipher suite.
    pub cipher: &'a str,
    /// The server name of the handshake.
    pub server_name: &'a str,
    /// The subject of the client's certificate.
    pub subject: &'a str,
    /// The issuer of the client's certificate.
    pub issuer: &'a str,
    /// The serial number of the client's certificate.
    pub serial: &'a str,
    /// The fingerprint of the client's certificate.
    pub fingerprint: &'a str,
}

/// Appends the value of a variable; nothing if the request has none. Captures and the site are not properties of a
/// request.
pub(crate) fn append(facts: &dyn RequestFacts, variable: &Variable, out: &mut Vec<u8>) {
    let tls = || facts.tls().unwrap_or_default();
    let text = match variable {
        Variable::Host => return out.extend_from_slice(without_port(facts.authority())),
        Variable::Authority => return out.extend_from_slice(facts.authority()),
        // A dual-stack socket reports IPv4 clients as ::ffff:192.0.2.1.
        Variable::Client => return put(facts.client().to_canonical(), out),
        // A proxy may report the address of a client without its port.
        Variable::ClientPort if facts.client_port() == 0 => return,
        Variable::ClientPort => return put(facts.client_port(), out),
        Variable::Path => return out.extend_from_slice(facts.path()),
        Variable::Query => return out.extend_from_slice(facts.query().unwrap_or_default()),
        Variable::RequestUri => return out.extend_from_slice(&facts.request_uri()),
        Variable::RequestId => return put(format_args!("{:032x}", facts.request_id()), out),
        Variable::Argument(name) => return append_argument(facts, name.as_bytes(), out),
        Variable::Cookie(name) => return append_cookie(facts, name.as_bytes(), out),
        Variable::Field(name) => return append_field(facts, name.as_bytes(), out),
        Variable::Site | Variable::Capture(_) | Variable::Map(_) => return,
        Variable::Scheme if facts.is_https() => "https",
        Variable::Scheme => "http",
        Variable::Method => facts.method(),
        Variable::TlsVersion => tls().version,
        Variable::TlsCipher => tls().cipher,
        Variable::TlsServerName => tls().server_name,
        Variable::CertificateSubject => tls().subject,
        Variable::CertificateIssuer => tls().issuer,
        Variable::CertificateSerial => tls().serial,
        Variable::CertificateFingerprint => tls().fingerprint,
    };
    out.extend_from_slice(text.as_bytes());
}

fn put(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write!(out, "{value}");
}

fn append_argument(facts: &dyn RequestFacts, name: &[u8], out: &mut Vec<u8>) {
    let pairs = facts
        .query()
        .unwrap_or_default()
        .split(|byte| *byte == b'&');
    let mut decoded_name = Vec::new();
    for pair in pairs {
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (pair_name, value) = pair.split_at(equals.unwrap_or(pair.len()));
        decoded_name.clear();
        // `a` and `%61` are the same name, so names are compared decoded.
        decode_query_value(pair_name, &mut decoded_name);
        if decoded_name == name {
            return decode_query_value(value.get(1..).unwrap_or_default(), out);
        }
    }
}

fn append_cookie(facts: &dyn RequestFacts, name: &[u8], out: &mut Vec<u8>) {
    let lines = facts.fields();
    let lines = lines.filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
    let mut pairs = lines.flat_map(|(_, pairs)| pairs.split(|byte| *byte == b';'));
    let value = pairs.find_map(|pair| {
        // The name must end there: `id` is also the beginning of `id2`.
        let rest = pair.trim_ascii().strip_prefix(name)?;
        rest.strip_prefix(b"=")
    });
    out.extend_from_slice(value.unwrap_or_default());
}

/// Several lines of a field are one list (RFC 9110 §5.3).
fn append_field(facts: &dyn RequestFacts, name: &[u8], out: &mut Vec<u8>) {
    let fields = facts.fields();
    let lines = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    for (index, (_, value)) in lines.enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
    }
}

/// An authority without its port.
fn without_port(authority: &[u8]) -> &[u8] {
    // The colons in brackets belong to an IPv6 address.
    let bracket = authority.iter().rposition(|byte| *byte == b']');
    let after = bracket.map_or(0, |bracket| bracket + 1);
    match authority[after..].iter().position(|byte| *byte == b':') {
        Some(colon) => &authority[..after + colon],
        None => authority,
    }
}
