//! Parses certificates, for operators and handlers. Verification is left to `webpki`.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::der::{self, DerElement, DerReader};

mod name;
mod time;

pub(crate) use name::common_name;
pub use name::display as display_name;
pub use time::display as display_time;

/// The fields of a certificate that this server uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct X509Certificate<'a> {
    /// The serial number.
    pub serial: &'a [u8],
    /// The issuer's name in DER; see [`display_name`].
    pub issuer: &'a [u8],
    /// The subject's name in DER; see [`display_name`].
    pub subject: &'a [u8],
    /// The first second of validity, in seconds since 1970.
    pub not_before_s: i64,
    /// The last second of validity, in seconds since 1970.
    pub not_after_s: i64,
    /// The public key with its algorithm, in DER.
    pub public_key: &'a [u8],
    /// The subject alternative names.
    pub names: Vec<AltName>,
    /// Whether the certificate may sign other certificates (CA flag).
    pub is_authority: bool,
    /// The identifier of the issuer's key (RFC 5280, section 4.2.1.1).
    pub authority_key: Option<&'a [u8]>,
    /// Whether the certificate has the URL of its issuer's certificate (RFC 5280, section 4.2.2.1), as public
    /// authorities require.
    pub has_issuer_url: bool,
}

/// A subject alternative name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AltName {
    /// A host name, or a wildcard: `*.example.org`.
    Dns(String),
    /// An email address.
    Email(String),
    /// A URI, unparsed.
    Uri(String),
    /// An IPv4 or IPv6 address.
    Ip(std::net::IpAddr),
}

impl std::fmt::Display for AltName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AltName::Dns(name) => write!(f, "DNS:{name}"),
            AltName::Email(name) => write!(f, "email:{name}"),
            AltName::Uri(name) => write!(f, "URI:{name}"),
            AltName::Ip(ip) => write!(f, "IP:{ip}"),
        }
    }
}

const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const AUTHORITY_INFORMATION: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x01];
/// Within AUTHORITY_INFORMATION, the access method for the URL of the issuer's certificate (caIssuers).
const CA_ISSUERS: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x02];

impl<'a> X509Certificate<'a> {
    /// Parses a certificate (RFC 5280, section 4.1). `None`: it is malformed.
    pub fn parse(bytes: &'a [u8]) -> Option<X509Certificate<'a>> {
        let mut certificate = DerReader(bytes).expect(der::SEQUENCE)?.reader();
        let mut fields = certificate.expect(der::SEQUENCE)?.reader();
        // The signature algorithm and the signature are not used here, but must be present.
        certificate.expect(der::SEQUENCE)?;
        certificate.expect(der::BIT_STRING)?;

        // The version; absent in version 1.
        fields.optional(der::context(0, true));
        let serial = fields.expect(der::INTEGER)?.content;
        fields.expect(der::SEQUENCE)?;
        let issuer = fields.expect(der::SEQUENCE)?.encoded;
        let mut validity = fields.expect(der::SEQUENCE)?.reader();
        let subject = fields.expect(der::SEQUENCE)?.encoded;
        let public_key = fields.expect(der::SEQUENCE)?.encoded;
        let mut certificate = X509Certificate {
            serial,
            issuer,
            subject,
            not_before_s: time::parse(validity.next()?)?,
            not_after_s: time::parse(validity.next()?)?,
            public_key,
            names: Vec::new(),
            is_authority: false,
            authority_key: None,
            has_issuer_url: false,
        };
        // Up to two unique identifiers, unused in practice, can precede the extensions.
        if let Some(extensions) = fields.find(|field| field.tag == der::context(3, true)) {
            for extension in extensions.reader().expect(der::SEQUENCE)?.reader() {
                certificate.extend(extension)?;
            }
        }
        Some(certificate)
    }

    fn extend(&mut self, extension: DerElement<'a>) -> Option<()> {
        let mut fields = extension.reader();
        let id = fields.expect(der::OID)?.content;
        // The critical flag does not matter here.
        fields.optional(der::BOOLEAN);
        let mut value = DerReader(fields.expect(der::OCTET_STRING)?.content);
        if id == SUBJECT_ALT_NAME {
            let names = value.expect(der::SEQUENCE)?.reader();
            self.names = names.filter_map(alt_name).collect();
        } else if id == BASIC_CONSTRAINTS {
            let mut constraints = value.expect(der::SEQUENCE)?.reader();
            // DER omits a default value, here FALSE.
            let flag = constraints.optional(der::BOOLEAN);
            self.is_authority = flag.is_some_and(|flag| flag.content == [0xff]);
        } else if id == AUTHORITY_KEY {
            let mut fields = value.expect(der::SEQUENCE)?.reader();
            let key = fields.optional(der::context(0, false));
            self.authority_key = key.map(|key| key.content);
        } else if id == AUTHORITY_INFORMATION {
            let mut descriptions = value.expect(der::SEQUENCE)?.reader();
            let is_issuers = |description: DerElement<'_>| {
                description
                    .reader()
                    .expect(der::OID)
                    .is_some_and(|id| id.content == CA_ISSUERS)
            };
            self.has_issuer_url = descriptions.any(is_issuers);
        }
        Some(())
    }

    /// Whether issuer and subject are the same name. The signature is not verified.
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// The serial number in hexadecimal digits, as OpenSSL prints it.
    pub fn serial_hex(&self) -> String {
        // DER prepends a zero byte if the first bit of the number is set.
        let digits = match self.serial {
            [0, rest @ ..] if !rest.is_empty() => rest,
            serial => serial,
        };
        hex(digits)
    }
}

/// Parses a subject alternative name; `None` for types that this server does not use.
fn alt_name(name: DerElement<'_>) -> Option<AltName> {
    const EMAIL: u8 = der::context(1, false);
    const DNS: u8 = der::context(2, false);
    const URI: u8 = der::context(6, false);
    const IP: u8 = der::context(7, false);
    let text = || {
        // Control characters in names could forge log lines.
        let text = std::str::from_utf8(name.content).ok()?;
        text.bytes()
            .all(|byte| byte.is_ascii_graphic())
            .then(|| text.to_owned())
    };
    match name.tag {
        // Host names are compared in lower case.
        DNS => text().map(|name| AltName::Dns(name.to_ascii_lowercase())),
        EMAIL => text().map(AltName::Email),
        URI => text().map(AltName::Uri),
        IP => match name.content.len() {
            4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(name.content).ok()?).into()),
            16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(name.content).ok()?).into()),
            _ => None,
        }
        .map(AltName::Ip),
        _ => None,
    }
}

/// Hexadecimal digits, in upper case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02X}");
    }
    text
}
