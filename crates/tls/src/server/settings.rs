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

/// Tickets that a client gets. Those of TLS 1.3 should be used for one connection each.
const TICKETS: usize = 2;
/// Bytes of rejected early data that are skipped, counted encrypted: 16 KiB of content, which servers permit by
/// default (RFC 8446, section 4.2.10), in up to 960 records, each with a type and a tag.
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

/// Whether clients must authenticate by certificate, and the authorities that are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientVerification {
    /// Clients are not asked for certificates.
    #[default]
    None,
    /// A certificate is optional. One that is not signed by these authorities (PEM) ends the connection.
    Request(Vec<u8>),
    /// A certificate is required.
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
    /// The verification of clients.
    pub clients: ClientVerification,
    /// Session tickets; `None`: no resumption.
    pub tickets: Option<TicketService>,
    /// The log of secrets for debugging; `None`: none.
    pub key_log: Option<Arc<KeyLog>>,
    /// Whether the server's order of cipher suites counts, the cheapest first; otherwise the client's does, which
    /// suits clients without AES instructions.
    pub own_order: bool,
    /// The time, for tickets and the verification of client certificates.
    pub clock: TlsClock,
}

impl TlsServerSettings {
    /// TLS 1.2 and 1.3, HTTP/1.1, without resumption and without client certificates.
    pub fn new(certificates: CertificateStore, clock: TlsClock) -> TlsServerSettings {
        TlsServerSettings {
            certificates,
            protocols: vec!["http/1.1".into()],
            version_min: MinimumVersion::default(),
            clients: ClientVerification::default(),
            tickets: None,
            key_log: None,
            own_order: true,
            clock,
        }
    }
}

/// Makes connections for one listener, for all workers.
#[derive(Clone)]
pub struct TlsAcceptor {
    config: Arc<ServerConfig>,
    /// Set if certificates are requested from clients.
    clock: Option<TlsClock>,
}

impl TlsAcceptor {
    /// An acceptor with these settings. 0-RTT is not offered, since early data can be replayed by an attacker.
    ///
    /// # Errors
    /// The authorities for clients are unusable; the failure has the reason.
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
        config.ignore_client_order = settings.own_order;
        // Resumption is stateless: by tickets only.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        if let Some(tickets) = &settings.tickets {
            config.ticketer = tickets.with_rules(rules(&settings.clients));
            config.send_tls13_tickets = TICKETS;
        }
        if let Some(log) = &settings.key_log {
            config.key_log = log.clone();
        }
        // This bounds the skipping only: `rustls` accepts early data with sessions in memory, which are disabled above.
        config.max_early_data_size = SKIPPED_LEN_MAX;
        // For `TlsServer::settle` and kernel TLS.
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
    /// `TlsFault::Internal`, as when the system has no randomness.
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
        // The handshake continues without a certificate; the handlers decide.
        false => builder.allow_unauthenticated(),
    };
    builder
        .build()
        .map_err(|error| Error::General(error.to_string()))
}

/// The rules that sessions are bound to: a session begun without a certificate must not resume where one is required.
fn rules(clients: &ClientVerification) -> Vec<u8> {
    let (kind, authorities): (u8, &[u8]) = match clients {
        ClientVerification::None => (0, &[]),
        ClientVerification::Request(authorities) => (1, authorities),
        ClientVerification::Require(authorities) => (2, authorities),
    };
    // A digest, since the authorities can be long and are part of each ticket's authenticated data.
    let digest = digest::digest(&digest::SHA256, authorities);
    [&[kind], digest.as_ref()].concat()
}
