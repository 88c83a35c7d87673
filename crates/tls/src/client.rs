//! The client side of TLS: its settings, and a connection to one server.

use std::sync::Arc;

use rustls::client::{ClientConfig, Resumption, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{Error, HandshakeKind};

use crate::certificates::CertificatePair;
use crate::clock::TlsClock;
use crate::failure::TlsFailure;
use crate::provider::provider;
use crate::server_trust::ServerTrust;
use crate::session::{PeerClose, ReceiveProgress, RustlsSession};

/// Starts client connections, which share one session cache.
#[derive(Clone)]
pub struct ClientConnector(Arc<ClientConfig>);

impl ClientConnector {
    /// Accepts the servers that `trust` accepts, offers `protocols` (ALPN, the preferred one first), presents
    /// `identity` if a server requests a certificate, and caches up to `sessions_max` sessions for resumption. Without
    /// a `clock`, the system's clock is used.
    ///
    /// # Errors
    /// `trust` accepts no server.
    pub fn new(
        trust: &ServerTrust,
        protocols: &[&str],
        identity: Option<&CertificatePair>,
        sessions_max: usize,
        clock: impl Into<Option<TlsClock>>,
    ) -> Result<ClientConnector, TlsFailure> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsFailure::from_error)?;
        // `rustls` calls any custom verifier dangerous; this crate's verifier relies on `webpki`.
        let builder = builder
            .dangerous()
            .with_custom_certificate_verifier(trust.verifier()?);
        let mut config = match identity {
            Some(pair) => {
                let client_key = SingleCertAndKey::from(pair.certified().clone());
                builder.with_client_cert_resolver(Arc::new(client_key))
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = protocols
            .iter()
            .map(|name| name.as_bytes().to_vec())
            .collect();
        config.resumption = match sessions_max {
            0 => Resumption::disabled(),
            max => Resumption::in_memory_sessions(max),
        };
        if let Some(clock) = clock.into() {
            config.time_provider = Arc::new(clock);
        }
        Ok(ClientConnector(Arc::new(config)))
    }

    pub(crate) fn config(&self) -> &ClientConfig {
        &self.0
    }

    /// Starts a connection to a server with this host name or address; appends the ClientHello to `to_send`.
    ///
    /// # Errors
    /// `name` cannot be in a certificate.
    pub fn connect(&self, name: &str, to_send: &mut Vec<u8>) -> Result<TlsClient, TlsFailure> {
        let name = ServerName::try_from(name.to_owned());
        let name =
            name.map_err(|error| TlsFailure::from_error(Error::General(error.to_string())))?;
        let connection = UnbufferedClientConnection::new(self.0.clone(), name);
        let mut session = RustlsSession::new(connection.map_err(TlsFailure::from_error)?);
        session.start(to_send)?;
        Ok(TlsClient { session })
    }
}

/// Whether a certificate can be issued for this name, a host name or an address.
pub fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// A TLS connection to one server; the methods work like those of `TlsServer`.
pub struct TlsClient {
    session: RustlsSession<UnbufferedClientConnection>,
}

impl TlsClient {
    /// See `TlsServer::receive`.
    ///
    /// # Errors
    /// As `TlsServer::receive`.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<ReceiveProgress, TlsFailure> {
        self.session.receive(wire, plain, to_send)
    }

    /// See `TlsServer::encrypt`.
    ///
    /// # Errors
    /// As `TlsServer::encrypt`.
    pub fn encrypt(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), TlsFailure> {
        self.session.encrypt(pieces, to_send, now_ms)
    }

    /// See `TlsServer::close`.
    ///
    /// # Errors
    /// As `TlsServer::close`.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), TlsFailure> {
        self.session.close(to_send)
    }

    /// How the server ended its data, once the TCP connection has ended.
    pub fn peer_close(&self) -> PeerClose {
        self.session.peer_close()
    }

    /// Whether the handshake is complete.
    pub fn is_established(&self) -> bool {
        self.session.is_established()
    }

    /// The negotiated application protocol (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.session.connection().alpn_protocol()
    }

    /// Whether the connection resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.session.connection().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The server's certificate, in DER.
    pub fn server_certificate(&self) -> Option<&[u8]> {
        let chain = self.session.connection().peer_certificates()?;
        chain.first().map(|leaf| leaf.as_ref())
    }

    /// The name of the key exchange group, for logs.
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self.session.connection().negotiated_key_exchange_group()?;
        group.name().as_str()
    }
}
