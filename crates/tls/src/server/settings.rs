//! The TLS settings of a listener.

use std::sync::Arc;

use aws_lc_rs::digest;
use rustls::server::{
    NoClientAuth, NoServerSessionStorage, ServerConfig, WebPkiClientVerifier,
    danger::ClientCertVerifier,
};
use rustls::version::{TLS12, TLS13};
use rustls::{Error, RootCertStore, SupportedProtocolVersion};

use super::TlsServer;
use super::sni::SniResolver;
use crate::certificates::{CHALLENGE_PROTOCOL, CertificateStore};
use crate::clock::TlsClock;
use crate::failure::TlsFailure;
use crate::key_log::KeyLog;
use crate::provider::{provider, server_provider};
use crate::tickets::TicketService;

/// Tickets per connection. A client should use each TLS 1.3 ticket only once.
const TICKETS_PER_CONNECTION: usize = 2;
/// Bytes of rejected early data that are skipped, counted with record overhead: 16 KiB of content, which servers permit
/// by default (RFC 8446, section 4.2.10), in up to 960 records, each with a type byte and a tag.
const SKIPPED_LEN_MAX: u32 = 32 * 1024;

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MinimumVersion {
    /// RFC 5246.
    #[default]
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// Whether clients must authenticate with a certificate, and the trusted authorities.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientVerification {
    /// Clients are not asked for a certificate.
    #[default]
    None,
    /// A certificate is optional. One that is not signed by these authorities (PEM) fails the handshake.
    Request(Vec<u8>),
    /// A certificate signed by these authorities (PEM) is required.
    Require(Vec<u8>),
}

/// Settings for TLS with clients.
#[derive(Clone, Debug)]
pub struct TlsServerSettings {
    /// The server's certificates.
    pub certificates: CertificateStore,
    /// Application protocols, the preferred first (ALPN).
    pub protocols: Vec<String>,
    /// The oldest version that is accepted.
    pub version_min: MinimumVersion,
    /// The verification of client certificates.
    pub clients: ClientVerification,
    /// Session tickets; `None`: no resumption.
    pub tickets: Option<TicketService>,
    /// The log of secrets, for debugging.
    pub key_log: Option<Arc<KeyLog>>,
    /// Whether the server's preference of cipher suites applies, the cheapest first; otherwise the client's preference,
    /// which suits clients without AES instructions.
    pub prefers_server_ciphers: bool,
    /// The time, for tickets and the verification of client certificates.
    pub clock: TlsClock,
}

impl TlsServerSettings {
    /// TLS 1.2 and 1.3, HTTP/1.1, no resumption and no client certificates.
    pub fn new(certificates: CertificateStore, clock: TlsClock) -> TlsServerSettings {
        TlsServerSettings {
            certificates,
            protocols: vec!["http/1.1".into()],
            version_min: MinimumVersion::default(),
            clients: ClientVerification::default(),
            tickets: None,
            key_log: None,
            prefers_server_ciphers: true,
            clock,
        }
    }
}

/// Accepts connections of one listener, on all workers.
#[derive(Clone)]
pub struct TlsAcceptor {
    pub(crate) config: Arc<ServerConfig>,
    /// The time for the verification of client certificates; set if clients are asked for certificates.
    pub(crate) clock: Option<TlsClock>,
}

impl TlsAcceptor {
    /// Creates an acceptor. 0-RTT is not offered, since early data can be replayed by an attacker.
    ///
    /// # Errors
    /// The authorities for client certificates are unusable.
    pub fn new(settings: &TlsServerSettings) -> Result<TlsAcceptor, TlsFailure> {
        let builder = ServerConfig::builder_with_provider(server_provider())
            .with_protocol_versions(versions(settings.version_min))
            .map_err(TlsFailure::from_error)?
            .with_client_cert_verifier(
                verifier(&settings.clients).map_err(TlsFailure::from_error)?,
            );
        let mut config =
            builder.with_cert_resolver(Arc::new(SniResolver(settings.certificates.clone())));
        let protocols = settings.protocols.iter().map(|name| name.as_bytes());
        config.alpn_protocols = protocols
            .chain([CHALLENGE_PROTOCOL])
            .map(<[u8]>::to_vec)
            .collect();
        config.ignore_client_order = settings.prefers_server_ciphers;
        // Resumption is stateless, with tickets only.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if let Some(tickets) = &settings.tickets {
            config.ticketer = tickets.with_rules(rules(&settings.clients));
            config.send_tls13_tickets = TICKETS_PER_CONNECTION;
        }
        if let Some(log) = &settings.key_log {
            config.key_log = log.clone();
        }
        // This only bounds the bytes that are skipped: `rustls` accepts early data only with stateful sessions,
        // disabled above.
        config.max_early_data_size = SKIPPED_LEN_MAX;
        // `TlsServer::settle` and kernel TLS extract the secrets.
        config.enable_secret_extraction = true;
        config.time_provider = Arc::new(settings.clock.clone());
        let asks_for_certificate = settings.clients != ClientVerification::None;
        Ok(TlsAcceptor {
            config: Arc::new(config),
            clock: asks_for_certificate.then(|| settings.clock.clone()),
        })
    }

    /// Starts a connection with a client.
    ///
    /// # Errors
    /// `TlsFault::Internal`, for example if the system has no random bytes.
    pub fn accept(&self) -> Result<TlsServer, TlsFailure> {
        TlsServer::new(self.config.clone(), self.clock.clone())
    }
}

fn versions(min: MinimumVersion) -> &'static [&'static SupportedProtocolVersion] {
    // The newest version first.
    static ALL: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match min {
        MinimumVersion::Tls12 => &ALL,
        MinimumVersion::Tls13 => &ALL[..1],
    }
}

fn verifier(clients: &ClientVerification) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    let (authorities, required) = match clients {
        ClientVerification::None => return Ok(Arc::new(NoClientAuth)),
        ClientVerification::Request(authorities) => (authorities, false),
        ClientVerification::Require(authorities) => (authorities, true),
    };
    let mut roots = RootCertStore::empty();
    let parsed = crate::certificates::read_all(authorities);
    for certificate in parsed.map_err(|reason| Error::General(reason.to_string()))? {
        roots.add(certificate)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let builder = match required {
        true => builder,
        // The handshake continues without a certificate; the handlers decide whether they require one.
        false => builder.allow_unauthenticated(),
    };
    builder
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

/// The rules that tickets are bound to: a session that began without a client certificate must not be resumed where a
/// client certificate is required.
fn rules(clients: &ClientVerification) -> Vec<u8> {
    let (kind, authorities): (u8, &[u8]) = match clients {
        ClientVerification::None => (0, &[]),
        ClientVerification::Request(authorities) => (1, authorities),
        ClientVerification::Require(authorities) => (2, authorities),
    };
    // The rules contain a digest, since they are part of each ticket's authenticated data, and the authorities can be
    // long.
    let digest = digest::digest(&digest::SHA256, authorities);
    [&[kind], digest.as_ref()].concat()
}
