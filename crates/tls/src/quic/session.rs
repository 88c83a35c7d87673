//! The handshake of one connection, of either side.

use std::sync::Arc;

use rustls::client::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::quic::{
    ClientConnection, Connection, DirectionalKeys, KeyChange, Keys, ServerConnection, Version,
};
use rustls::server::{ProducesTickets, ServerConfig, ServerSessionMemoryCache};
use rustls::{AlertDescription, CommonState, Error, HandshakeKind};

use super::HTTP3;
use super::key_update::{KeyUpdates, NextPacketKeys};
use crate::client::ClientConnector;
use crate::clock::TlsClock;
use crate::failure::{TlsFailure, TlsFault};
use crate::identity::ClientCertificate;
use crate::server::{TlsAcceptor, expected_alert, resumes_expired};

/// Accepts connections of one listener, on all workers.
#[derive(Clone)]
pub struct QuicTlsAcceptor {
    config: Arc<ServerConfig>,
    clock: Option<TlsClock>,
}

impl TlsAcceptor {
    /// The same certificates, tickets and client verification for HTTP/3.
    #[must_use]
    pub fn for_quic(&self) -> QuicTlsAcceptor {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![HTTP3.to_vec()];
        // QUIC skips packets of 0-RTT itself.
        config.max_early_data_size = 0;
        config.enable_secret_extraction = false;
        QuicTlsAcceptor {
            config: Arc::new(config),
            clock: self.clock.clone(),
        }
    }

    /// As [`TlsAcceptor::for_quic`], and accepts early data (0-RTT). Tickets name sessions of a table, at most `sessions_max`.
    /// Each is used once, so that early data can't be replayed (RFC 8446 §8.1). Has no effect if clients are asked for
    /// certificates, since a request in early data comes before the check that the certificate has not expired.
    #[must_use]
    pub fn for_quic_with_early_data(&self, sessions_max: usize) -> QuicTlsAcceptor {
        let acceptor = self.for_quic();
        if self.clock.is_some() || acceptor.config.send_tls13_tickets == 0 {
            return acceptor;
        }
        let mut config = ServerConfig::clone(&acceptor.config);
        // `rustls` accepts early data only without tickets that hold the session themselves.
        config.ticketer = Arc::new(NoTickets);
        config.session_storage = ServerSessionMemoryCache::new(sessions_max);
        // QUIC limits early data by its windows, and TLS must not (RFC 9001 §4.6.1).
        config.max_early_data_size = u32::MAX;
        QuicTlsAcceptor {
            config: Arc::new(config),
            ..acceptor
        }
    }
}

/// Issues no tickets that hold the session.
#[derive(Debug)]
struct NoTickets;

impl ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

impl QuicTlsAcceptor {
    /// Starts a connection with a client. `parameters` are the encoded transport parameters.
    ///
    /// # Errors
    /// `TlsFault::Internal`: TLS 1.3 is not available.
    pub fn accept(&self, parameters: Vec<u8>) -> Result<QuicTlsSession, TlsFailure> {
        let connection = ServerConnection::new(self.config.clone(), Version::V1, parameters);
        let connection = connection.map_err(TlsFailure::from_error)?;
        Ok(QuicTlsSession::new(
            Connection::Server(connection),
            self.clock.clone(),
        ))
    }
}

/// Opens connections, for tests and load generators.
#[derive(Clone)]
pub struct QuicTlsConnector(Arc<ClientConfig>);

impl ClientConnector {
    /// The same trust and sessions for HTTP/3.
    #[must_use]
    pub fn for_quic(&self) -> QuicTlsConnector {
        QuicTlsConnector::from_config(ClientConfig::clone(self.config()))
    }

    /// As [`ClientConnector::for_quic`], and sends early data to servers that accept it.
    #[must_use]
    pub fn for_quic_with_early_data(&self) -> QuicTlsConnector {
        let mut config = ClientConfig::clone(self.config());
        config.enable_early_data = true;
        QuicTlsConnector::from_config(config)
    }
}

impl QuicTlsConnector {
    /// The trust, algorithms and sessions of a configuration, for HTTP/3.
    #[must_use]
    pub fn from_config(mut config: ClientConfig) -> QuicTlsConnector {
        config.alpn_protocols = vec![HTTP3.to_vec()];
        QuicTlsConnector(Arc::new(config))
    }

    /// Starts a connection to a server with this host name or address.
    ///
    /// # Errors
    /// `name` cannot be in a certificate.
    pub fn connect(&self, name: &str, parameters: Vec<u8>) -> Result<QuicTlsSession, TlsFailure> {
        let name = ServerName::try_from(name.to_owned());
        let name =
            name.map_err(|error| TlsFailure::from_error(Error::General(error.to_string())))?;
        let connection = ClientConnection::new(self.0.clone(), Version::V1, name, parameters);
        let connection = connection.map_err(TlsFailure::from_error)?;
        Ok(QuicTlsSession::new(Connection::Client(connection), None))
    }
}

/// A failed handshake.
#[derive(Clone, Debug)]
pub struct QuicAlert {
    /// The code of the alert (RFC 8446 §6), which QUIC sends in CONNECTION_CLOSE.
    pub code: u8,
    /// The reason.
    pub failure: TlsFailure,
}

/// Negotiated values of a complete handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeSummary {
    /// The server name that the client requested (SNI).
    pub server_name: Option<Box<str>>,
    /// Whether the connection resumed an earlier session.
    pub is_resumed: bool,
    /// The cipher suite, for logs.
    pub cipher: Option<&'static str>,
    /// The name of the key exchange group, for logs.
    pub key_exchange: Option<&'static str>,
    /// The client's certificate, if it sent one, verified as in `TlsServer::client_certificate`.
    pub client_certificate: Option<Box<ClientCertificate>>,
}

impl HandshakeSummary {
    fn new(connection: &Connection) -> HandshakeSummary {
        let server_name = match connection {
            Connection::Server(server) => server.server_name().map(Box::from),
            Connection::Client(_) => None,
        };
        let common: &CommonState = connection;
        let suite = common.negotiated_cipher_suite();
        let group = common.negotiated_key_exchange_group();
        let chain = common.peer_certificates();
        let certificate = chain
            .and_then(|chain| chain.first())
            .and_then(ClientCertificate::from_der);
        HandshakeSummary {
            server_name,
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
            cipher: suite.and_then(|suite| suite.suite().as_str()),
            key_exchange: group.and_then(|group| group.name().as_str()),
            client_certificate: certificate.map(Box::new),
        }
    }
}

/// The TLS session of a QUIC connection. The caller passes received messages to `read`, and sends those of `write`, each
/// at the level of the keys that it returned last.
pub struct QuicTlsSession {
    /// `None` once a server's handshake is complete.
    handshake: Option<Box<Connection>>,
    updates: Option<Box<KeyUpdates>>,
    summary: Option<Arc<HandshakeSummary>>,
    /// For the expiry of client certificates.
    clock: Option<TlsClock>,
}

impl QuicTlsSession {
    fn new(connection: Connection, clock: Option<TlsClock>) -> QuicTlsSession {
        QuicTlsSession {
            handshake: Some(Box::new(connection)),
            updates: None,
            summary: None,
            clock,
        }
    }

    /// Processes messages of one level, split anywhere.
    ///
    /// # Errors
    /// The connection is to be closed with the alert.
    pub fn read(&mut self, messages: &[u8]) -> Result<(), QuicAlert> {
        let Some(connection) = &mut self.handshake else {
            // RFC 9001 §6: QUIC has no KeyUpdate messages; clients have no others after the handshake.
            return Err(QuicAlert {
                code: AlertDescription::UnexpectedMessage.into(),
                failure: TlsFault::Protocol.into(),
            });
        };
        // The end of the handshake is seen by one call only.
        let was_handshaking = connection.is_handshaking();
        if let Err(error) = connection.read_hs(messages) {
            let alert = expected_alert(&error, true).or(connection.alert());
            return Err(QuicAlert {
                code: alert.unwrap_or(AlertDescription::InternalError).into(),
                failure: TlsFailure::from_error(error),
            });
        }
        if was_handshaking
            && !connection.is_handshaking()
            && let Some(clock) = self.clock.take()
            && resumes_expired(connection, &clock)
        {
            // The tickets that are ready are not sent, so that the client can't extend the session.
            return Err(QuicAlert {
                code: AlertDescription::CertificateExpired.into(),
                failure: TlsFault::CertificateExpired.into(),
            });
        }
        Ok(())
    }

    /// Appends messages to send, and returns the keys of the next level once they are known. To be called again until
    /// it does neither.
    pub fn write(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        let connection = self.handshake.as_mut()?;
        let len = out.len();
        // `rustls` writes its tickets after the client's last message; the state must not be dropped before.
        let change = connection.write_hs(out);
        if change.is_none() && out.len() == len && !connection.is_handshaking() {
            self.settle();
        }
        match change? {
            KeyChange::Handshake { keys } => Some(keys),
            // `next` has the secrets after the first update.
            KeyChange::OneRtt { keys, next } => {
                let updates = KeyUpdates::new(next, &*keys.local.packet);
                self.updates = Some(Box::new(updates));
                Some(keys)
            }
        }
    }

    /// Drops the state of a server's handshake. A client still receives tickets.
    fn settle(&mut self) {
        if let Some(connection) = &self.handshake
            && self.summary.is_none()
        {
            self.summary = Some(Arc::new(HandshakeSummary::new(connection)));
        }
        if let Some(Connection::Server(_)) = self.handshake.as_deref() {
            self.handshake = None;
        }
    }

    /// Whether the handshake is in progress.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        let handshake = self.handshake.as_ref();
        handshake.is_some_and(|connection| connection.is_handshaking())
    }

    /// The peer's encoded transport parameters, while the session has the state of the handshake.
    #[must_use]
    pub fn peer_parameters(&self) -> Option<&[u8]> {
        self.handshake.as_ref()?.quic_transport_parameters()
    }

    /// The negotiated values, once the handshake is complete; with early data, those that are known before.
    #[must_use]
    pub fn summary(&self) -> Option<Arc<HandshakeSummary>> {
        let early = || {
            let connection = self.handshake.as_ref()?;
            self.early_keys()?;
            Some(Arc::new(HandshakeSummary::new(connection)))
        };
        self.summary.clone().or_else(early)
    }

    /// The keys of early data: for a client that may send it, and for a server that accepts it.
    #[must_use]
    pub fn early_keys(&self) -> Option<DirectionalKeys> {
        match self.handshake.as_deref()? {
            Connection::Client(client) => client.zero_rtt_keys(),
            Connection::Server(server) => server.zero_rtt_keys(),
        }
    }

    /// Whether the server has accepted the early data of this client; `None` on the side of the server.
    #[must_use]
    pub fn is_early_data_accepted(&self) -> Option<bool> {
        match self.handshake.as_deref()? {
            Connection::Client(client) => Some(client.is_early_data_accepted()),
            Connection::Server(_) => None,
        }
    }

    /// The keys of the next key update; `None` before the handshake has keys for applications.
    pub fn next_keys(&mut self) -> Option<NextPacketKeys> {
        Some(self.updates.as_mut()?.next_keys())
    }
}
