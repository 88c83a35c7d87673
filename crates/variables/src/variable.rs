//! The variables: their names, and the parts of a request on which they depend.

use std::fmt;

use crate::value_map::MapReference;

/// A variable of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// The requested host without its port, as sent. `$host`
    Host,
    /// The requested host with its port, as sent. `$authority`
    Authority,
    /// The client's address. `$client`
    Client,
    /// The client's port; empty if it is unknown. `$client_port`
    ClientPort,
    /// `http` or `https`. `$scheme`
    Scheme,
    /// The method. `$method`
    Method,
    /// The path: percent-decoded, without repeated slashes. `$path`
    Path,
    /// The query as sent, without `?`. `$query`
    Query,
    /// Path and query as sent. `$request_uri`
    RequestUri,
    /// The identifier of the request, 32 hexadecimal digits. `$request_id`
    RequestId,
    /// The name of the site. `$site`
    Site,
    /// The TLS version, such as `TLSv1.3`. `$tls_version`
    TlsVersion,
    /// The cipher suite. `$tls_cipher`
    TlsCipher,
    /// The server name of the TLS handshake. `$tls_server_name`
    TlsServerName,
    /// The subject of the client's certificate. `$client_certificate_subject`
    CertificateSubject,
    /// The issuer of the client's certificate. `$client_certificate_issuer`
    CertificateIssuer,
    /// The serial number of the client's certificate. `$client_certificate_serial`
    CertificateSerial,
    /// The fingerprint of the client's certificate. `$client_certificate_fingerprint`
    CertificateFingerprint,
    /// The first parameter of the query with this name, decoded. `$arg_NAME`
    Argument(String),
    /// The first cookie with this name. `$cookie_NAME`
    Cookie(String),
    /// The first request field with this name. `$header_NAME`
    Field(String),
    /// A capture of the pattern, from 1. `$1` to `$9`
    Capture(usize),
    /// The value of a map. `$map_NAME`
    Map(MapReference),
}

/// The part of a request on which a value depends, as far as it matters for caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependence<'v> {
    /// The cache key distinguishes the values.
    CacheKey,
    /// A request field with this name, which Vary can name.
    Field(&'v str),
    /// The client or its connection, which Vary can't name.
    Client,
    /// Each request has another value, so no response is specific to one.
    Request,
    /// The content of a file, which may change at any time.
    File,
}

/// The variables with fixed names.
const NAMED: [(&str, Variable); 18] = [
    ("host", Variable::Host),
    ("authority", Variable::Authority),
    ("client", Variable::Client),
    ("client_port", Variable::ClientPort),
    ("scheme", Variable::Scheme),
    ("method", Variable::Method),
    ("path", Variable::Path),
    ("query", Variable::Query),
    ("request_uri", Variable::RequestUri),
    ("request_id", Variable::RequestId),
    ("site", Variable::Site),
    ("tls_version", Variable::TlsVersion),
    ("tls_cipher", Variable::TlsCipher),
    ("tls_server_name", Variable::TlsServerName),
    ("client_certificate_subject", Variable::CertificateSubject),
    ("client_certificate_issuer", Variable::CertificateIssuer),
    ("client_certificate_serial", Variable::CertificateSerial),
    (
        "client_certificate_fingerprint",
        Variable::CertificateFingerprint,
    ),
];

/// The prefix of variables that end in a free name, and the variable with such a name.
type VariableFamily = (&'static str, fn(String) -> Variable);

/// The variables that end in a free name.
const FAMILIES: [VariableFamily; 3] = [
    ("arg_", Variable::Argument),
    ("cookie_", Variable::Cookie),
    ("header_", Variable::Field),
];

impl Variable {
    /// The variable with this name, without the dollar sign. In the name of a field, `_` stands for `-`, which is not
    /// possible without braces; the proxy drops fields with `_` in any case.
    pub(crate) fn from_name(name: &str) -> Option<Variable> {
        if let Some((_, variable)) = NAMED.iter().find(|(known, _)| *known == name) {
            return Some(variable.clone());
        }
        FAMILIES.iter().find_map(|(prefix, variable)| {
            let rest = name.strip_prefix(prefix)?;
            let rest = match *prefix {
                // Without braces, the name of a variable cannot contain a hyphen.
                "header_" => rest.replace('_', "-"),
                _ => rest.to_string(),
            };
            (!rest.is_empty()).then(|| variable(rest))
        })
    }

    /// One example of each variable, in the order of the documentation.
    pub(crate) fn examples() -> impl Iterator<Item = Variable> {
        let named = NAMED.iter().map(|(_, variable)| variable.clone());
        let families = FAMILIES.iter();
        named.chain(families.map(|(_, variable)| variable("NAME".to_string())))
    }

    /// The parts of a request on which the value depends.
    pub fn dependences(&self) -> impl Iterator<Item = Dependence<'_>> {
        let map = match self {
            Variable::Map(map) => Some(map.0.dependences()),
            _ => None,
        };
        let own = map.is_none().then(|| self.dependence());
        map.into_iter().flatten().chain(own)
    }

    /// The part of a request on which the value of a variable depends that is not a map.
    pub(crate) fn dependence(&self) -> Dependence<'_> {
        match self {
            Variable::Host
            | Variable::Authority
            | Variable::Scheme
            // GET and HEAD have equal keys, and stored responses are those to GET.
            | Variable::Method
            | Variable::Path
            | Variable::Query
            | Variable::RequestUri
            | Variable::Argument(_)
            | Variable::Site
            | Variable::Capture(_)
            // The dependences of a map are those of its text and its file.
            | Variable::Map(_) => Dependence::CacheKey,
            Variable::Cookie(_) => Dependence::Field("Cookie"),
            Variable::Field(name) => Dependence::Field(name),
            Variable::RequestId => Dependence::Request,
            Variable::Client
            | Variable::ClientPort
            | Variable::TlsVersion
            | Variable::TlsCipher
            | Variable::TlsServerName
            | Variable::CertificateSubject
            | Variable::CertificateIssuer
            | Variable::CertificateSerial
            | Variable::CertificateFingerprint => Dependence::Client,
        }
    }
}

impl fmt::Display for Variable {
    /// The variable as written in a template.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, name) = match self {
            Variable::Capture(number) => return write!(f, "${number}"),
            Variable::Argument(name) => ("arg_", name.as_str()),
            Variable::Cookie(name) => ("cookie_", name.as_str()),
            Variable::Field(name) => ("header_", name.as_str()),
            Variable::Map(map) => ("map_", map.0.name.as_str()),
            variable => {
                let found = NAMED.iter().find(|(_, named)| named == variable);
                ("", found.map_or("", |(name, _)| *name))
            }
        };
        match name.bytes().all(is_name_byte) {
            true => write!(f, "${prefix}{name}"),
            false => write!(f, "${{{prefix}{name}}}"),
        }
    }
}

/// Whether a byte may occur in a name without braces.
pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
