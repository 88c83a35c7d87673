//! TLS sessions of `lowroad_tls` for `quinn-proto`.

use std::any::Any;
use std::sync::Arc;

use bytes::BytesMut;
use lowroad_tls::TlsFailure;
use lowroad_tls::quic::{
    HeaderProtectionKey, Keys as TlsKeys, PacketKey as TlsPacketKey, QuicTlsAcceptor,
    QuicTlsConnector, QuicTlsSession, initial_keys, retry_tag,
};
use quinn_proto::crypto::{
    ClientConfig, CryptoError, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey,
    ServerConfig, Session, UnsupportedVersion,
};
use quinn_proto::transport_parameters::TransportParameters;
use quinn_proto::{ConnectError, ConnectionId, Side, TransportError, TransportErrorCode};

use crate::client::QuicClientCipher;
use crate::config::{FailureReport, QuicCipher, VERSION_1};

/// Bytes of the largest packet number (RFC 9000 §17.1); header protection takes its sample behind them.
const NUMBER_LEN_MAX: usize = 4;
const RETRY_TAG_LEN: usize = 16;

impl QuicCipher {
    /// TLS 1.3 with the certificates of an acceptor.
    #[must_use]
    pub fn tls(acceptor: QuicTlsAcceptor) -> QuicCipher {
        QuicCipher::tls_by(move || acceptor.clone(), |_| {})
    }

    /// TLS 1.3 with the acceptor that `current` returns at each handshake, for certificates that change. `report` receives
    /// the reasons for which handshakes fail.
    #[must_use]
    pub fn tls_by(
        current: impl Fn() -> QuicTlsAcceptor + Send + Sync + 'static,
        report: impl Fn(&TlsFailure) + Send + Sync + 'static,
    ) -> QuicCipher {
        let report: FailureReport = Arc::new(report);
        QuicCipher {
            server: Arc::new(TlsServerCipher {
                acceptor: Box::new(current),
                report: report.clone(),
            }),
            report: Some(report),
        }
    }
}

impl QuicClientCipher {
    /// TLS 1.3 with the trust of a connector.
    #[must_use]
    pub fn tls(connector: QuicTlsConnector) -> QuicClientCipher {
        QuicClientCipher::new(Arc::new(TlsClientCipher(connector)))
    }
}

struct TlsServerCipher {
    acceptor: Box<dyn Fn() -> QuicTlsAcceptor + Send + Sync>,
    report: FailureReport,
}

impl ServerConfig for TlsServerCipher {
    fn initial_keys(&self, version: u32, id: &ConnectionId) -> Result<Keys, UnsupportedVersion> {
        if version != VERSION_1 {
            return Err(UnsupportedVersion);
        }
        let keys = initial_keys(id, true);
        keys.map(packet_space_keys).ok_or(UnsupportedVersion)
    }

    fn retry_tag(&self, _: u32, id: &ConnectionId, packet: &[u8]) -> [u8; RETRY_TAG_LEN] {
        retry_tag(id, packet)
    }

    fn start_session(self: Arc<Self>, _: u32, params: &TransportParameters) -> Box<dyn Session> {
        let session = (self.acceptor)().accept(encoded(params));
        Box::new(TlsSession {
            // TLS 1.3 is always on in `TlsServerSettings`; a session without state refuses the client.
            session: session.inspect_err(|failure| (self.report)(failure)).ok(),
            side: Side::Server,
            report: Some(self.report.clone()),
        })
    }
}

struct TlsClientCipher(QuicTlsConnector);

impl ClientConfig for TlsClientCipher {
    fn start_session(
        self: Arc<Self>,
        _: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let session = self.0.connect(server_name, encoded(params));
        let session = session.map_err(|_| ConnectError::InvalidServerName(server_name.into()))?;
        Ok(Box::new(TlsSession {
            session: Some(session),
            side: Side::Client,
            report: None,
        }))
    }
}

fn encoded(params: &TransportParameters) -> Vec<u8> {
    let mut bytes = Vec::new();
    params.write(&mut bytes);
    bytes
}

/// A session; `None` if it could not be started.
struct TlsSession {
    session: Option<QuicTlsSession>,
    side: Side,
    /// `None` for clients.
    report: Option<FailureReport>,
}

impl Session for TlsSession {
    fn initial_keys(&self, id: &ConnectionId, side: Side) -> Keys {
        let keys = initial_keys(id, side.is_server());
        // `lowroad_tls::provider` lists the suite.
        packet_space_keys(keys.expect("AES-128-GCM is available"))
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        Some(Box::new(self.session.as_ref()?.summary()?))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        let keys = self.session.as_ref()?.early_keys()?;
        Some((
            Box::new(ProtectionKey(keys.header)),
            Box::new(PayloadKey(keys.packet)),
        ))
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.session.as_ref()?.is_early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.session
            .as_ref()
            .is_none_or(QuicTlsSession::is_handshaking)
    }

    fn read_handshake(&mut self, messages: &[u8]) -> Result<bool, TransportError> {
        let Some(session) = &mut self.session else {
            return Err(TransportError {
                code: TransportErrorCode::INTERNAL_ERROR,
                frame: None,
                reason: "TLS could not be started".into(),
            });
        };
        match session.read(messages) {
            // The summary is taken once the connection is open, so no event is needed.
            Ok(()) => Ok(false),
            Err(alert) => {
                if let Some(report) = &self.report {
                    report(&alert.failure);
                }
                Err(TransportError {
                    code: TransportErrorCode::crypto(alert.code),
                    frame: None,
                    reason: alert.failure.to_string(),
                })
            }
        }
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let session = self.session.as_ref();
        let Some(mut bytes) = session.and_then(QuicTlsSession::peer_parameters) else {
            return Ok(None);
        };
        Ok(Some(TransportParameters::read(self.side, &mut bytes)?))
    }

    fn write_handshake(&mut self, out: &mut Vec<u8>) -> Option<Keys> {
        self.session.as_mut()?.write(out).map(packet_space_keys)
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        let keys = self.session.as_mut()?.next_keys()?;
        Some(KeyPair {
            local: Box::new(PayloadKey(Box::new(keys.local))),
            remote: Box::new(PayloadKey(Box::new(keys.remote))),
        })
    }

    fn is_valid_retry(&self, id: &ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        let Some(len) = payload.len().checked_sub(RETRY_TAG_LEN) else {
            return false;
        };
        // The tag is public, so a comparison in constant time is not needed.
        let (token, tag) = payload.split_at(len);
        retry_tag(id, &[header, token].concat()) == tag
    }

    fn export_keying_material(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        // HTTP/3 needs none, and the secret is dropped with the handshake.
        Err(ExportKeyingMaterialError)
    }
}

fn packet_space_keys(keys: TlsKeys) -> Keys {
    Keys {
        header: KeyPair {
            local: Box::new(ProtectionKey(keys.local.header)),
            remote: Box::new(ProtectionKey(keys.remote.header)),
        },
        packet: KeyPair {
            local: Box::new(PayloadKey(keys.local.packet)),
            remote: Box::new(PayloadKey(keys.remote.packet)),
        },
    }
}

/// Protects headers (RFC 9001 §5.4).
struct ProtectionKey(Box<dyn HeaderProtectionKey>);

/// The parts of a packet that header protection needs.
struct ProtectedParts<'p> {
    sample: &'p [u8],
    first: &'p mut u8,
    number: &'p mut [u8],
}

impl ProtectionKey {
    /// Splits a packet; `None` if it is too short, which `quinn-proto` rules out before.
    fn split<'p>(&self, number_at: usize, packet: &'p mut [u8]) -> Option<ProtectedParts<'p>> {
        let (header, rest) = packet.split_at_mut_checked(number_at + NUMBER_LEN_MAX)?;
        let (first, header) = header.split_first_mut()?;
        Some(ProtectedParts {
            sample: rest.get(..self.0.sample_len())?,
            first,
            number: header.get_mut(number_at - 1..)?,
        })
    }
}

impl HeaderKey for ProtectionKey {
    fn decrypt(&self, number_at: usize, packet: &mut [u8]) {
        if let Some(parts) = self.split(number_at, packet) {
            // Fails only for samples of another length.
            _ = self
                .0
                .decrypt_in_place(parts.sample, parts.first, parts.number);
        }
    }

    fn encrypt(&self, number_at: usize, packet: &mut [u8]) {
        if let Some(parts) = self.split(number_at, packet) {
            _ = self
                .0
                .encrypt_in_place(parts.sample, parts.first, parts.number);
        }
    }

    fn sample_size(&self) -> usize {
        self.0.sample_len()
    }
}

/// Encrypts and decrypts packets.
struct PayloadKey(Box<dyn TlsPacketKey>);

impl PacketKey for PayloadKey {
    fn encrypt(&self, number: u64, packet: &mut [u8], header_len: usize) {
        let (header, payload) = packet.split_at_mut(header_len);
        // The last bytes of the packet are room for the tag.
        let (content, tag) = payload.split_at_mut(payload.len() - self.0.tag_len());
        match self.0.encrypt_in_place(number, header, content) {
            Ok(sealed) => tag.copy_from_slice(sealed.as_ref()),
            // The plaintext must not be sent; the peer discards this packet.
            Err(_) => payload.fill(0),
        }
    }

    fn decrypt(
        &self,
        number: u64,
        header: &[u8],
        payload: &mut BytesMut,
    ) -> Result<(), CryptoError> {
        let opened = self.0.decrypt_in_place(number, header, payload);
        let len = opened.map_err(|_| CryptoError)?.len();
        payload.truncate(len);
        Ok(())
    }

    fn tag_len(&self) -> usize {
        self.0.tag_len()
    }

    fn confidentiality_limit(&self) -> u64 {
        self.0.confidentiality_limit()
    }

    fn integrity_limit(&self) -> u64 {
        self.0.integrity_limit()
    }
}
