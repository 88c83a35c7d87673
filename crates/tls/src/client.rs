//! The client side of TLS: its settings, and one connection to a server.

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

/// Makes client connections, which share one session cache.
#[derive(Clone)]
pub struct ClientConnector(Arc<ClientConfig>);

impl ClientConnector {
    /// Accepts the servers of `server_trust`, offers `protocols` (ALPN, the preferred first), shows `identity` to servers
    /// that request a certificate, and keeps up to `sessions_max` sessions for resumption. Without a `clock` it uses
    /// the system's.
    ///
    /// # Errors
    /// `server_trust` accepts no server.
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
        // "Dangerous" since the verifier is our own; it relies on `webpki`.
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

    /// Starts a connection to a server with this host name or address; appends the ClientHello to `to_send`.
    ///
    /// # Errors
    /// No certificate can be valid for the name.
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

/// Whether a certificate can be valid for this name, a host's or an address.
pub fn is_server_name(name: &str) -> bool {
    ServerName::try_from(name).is_ok()
}

/// TLS with one server; the methods work as those of `TlsServer`.
pub struct TlsClient {
    session: RustlsSession<UnbufferedClientConnection>,
}

impl TlsClient {
    /// See `TlsServer::receive`.
    ///
    /// # Errors
    /// As there.
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
    /// As there.
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
    /// As there.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), TlsFailure> {
        self.session.close(to_send)
    }

    /// The meaning of the end of the server's bytes.
    pub fn peer_close(&self) -> PeerClose {
        self.session.peer_close()
    }

    /// Whether the handshake is over.
    pub fn is_established(&self) -> bool {
        self.session.is_established()
    }

    /// The protocol that the server chose (ALPN).
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

    /// The key exchange, for logs.
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self.session.connection().negotiated_key_exchange_group()?;
        group.name().as_str()
    }
}
