//! The server side of TLS: one connection to a client. The `TlsAcceptor` holds its settings.

use std::mem;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConfig, UnbufferedServerConnection};
use rustls::{HandshakeKind, ProtocolVersion};

mod alert;
mod settings;
mod sni;

pub use settings::{ClientVerification, MinimumVersion, TlsAcceptor, TlsServerSettings};

use crate::clock::TlsClock;
use crate::established::EstablishedSession;
use crate::failure::{TlsFailure, TlsFault};
use crate::first_bytes::{FirstBytes, classify};
use crate::identity::ClientCertificate;
use crate::ktls::CryptoInfo;
use crate::session::{PeerClose, ReceiveProgress, RustlsSession};
use crate::x509::X509Certificate;

/// TLS with one client.
///
/// `TlsServer::receive` takes the bytes from the socket, `TlsServer::encrypt` those of the application. Both append the
/// bytes for the socket to the caller's buffer, which must be sent in that order. Between calls a connection keeps
/// only its secrets and incomplete input.
pub struct TlsServer {
    stage: ServerStage,
    has_started: bool,
    server_name: Option<Box<str>>,
    /// Until the handshake ends, where certificates are requested from clients.
    clock: Option<TlsClock>,
}

/// The stage of a connection. Each has an allocation: most connections are established, which is much smaller.
enum ServerStage {
    Session(Box<RustlsSession<UnbufferedServerConnection>>),
    Settled(Box<EstablishedSession>),
    /// The connection failed.
    Over,
}

impl TlsServer {
    /// `clock` is set if certificates are requested from clients.
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        clock: Option<TlsClock>,
    ) -> Result<TlsServer, TlsFailure> {
        let connection = UnbufferedServerConnection::new(config).map_err(TlsFailure::from_error)?;
        Ok(TlsServer {
            stage: ServerStage::Session(Box::new(RustlsSession::new(connection))),
            has_started: false,
            server_name: None,
            clock,
        })
    }

    /// Drops the state of the completed handshake: later records cost less, and an idle connection needs less memory.
    /// Except for the server's name, the negotiated values are no longer available. Without effect with TLS 1.2.
    ///
    /// # Errors
    /// `TlsFault::NotReady`: the handshake is not complete, or the connection has ended.
    pub fn settle(&mut self) -> Result<(), TlsFailure> {
        // `EstablishedSession` implements TLS 1.3 only.
        if self.version() != Some(MinimumVersion::Tls13) {
            return Ok(());
        }
        // `Over` stays in its place if the session is not ready, since its state is lost.
        let ServerStage::Session(session) = mem::replace(&mut self.stage, ServerStage::Over) else {
            return Err(TlsFault::NotReady.into());
        };
        let (connection, pending, records) = session.into_parts()?;
        // The interface of `rustls` for kernel TLS; here `EstablishedSession` takes the secrets.
        let extracted = connection.dangerous_into_kernel_connection();
        let (secrets, connection) = extracted.map_err(TlsFailure::from_error)?;
        let settled = EstablishedSession::new(connection, secrets, pending, records)?;
        self.stage = ServerStage::Settled(Box::new(settled));
        Ok(())
    }

    fn session(&self) -> Option<&RustlsSession<UnbufferedServerConnection>> {
        match &self.stage {
            ServerStage::Session(session) => Some(session),
            _ => None,
        }
    }

    fn connection(&self) -> Option<&UnbufferedServerConnection> {
        self.session().map(RustlsSession::connection)
    }

    /// Decrypts bytes from the socket, in pieces of any length.
    ///
    /// Decryption is in place, so `wire` is garbage afterwards. The application's bytes are appended to `plain`, bytes
    /// to send to `to_send`. After close_notify and after a failure, input is ignored.
    ///
    /// # Errors
    /// The connection is over: send `to_send`, which holds an alert for the client, and close. With
    /// `TlsFault::PlainHttp` it is empty, and the client understands a response in plain text.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<ReceiveProgress, TlsFailure> {
        match &mut self.stage {
            ServerStage::Settled(settled) => return settled.receive(wire, plain, to_send),
            ServerStage::Session(session) if session.is_established() => {
                return session.receive(wire, plain, to_send);
            }
            // After a failure the client may still be sending; its bytes are dropped.
            ServerStage::Over => return Ok(ReceiveProgress::default()),
            ServerStage::Session(_) => {}
        }
        // Only the first bytes show the protocol.
        if self.has_started || wire.is_empty() {
            return self.handshake(wire, plain, to_send);
        }
        // Once: later bytes belong to TLS records.
        self.has_started = true;
        match classify(wire) {
            FirstBytes::Http => {
                self.stage = ServerStage::Over;
                Err(TlsFault::PlainHttp.into())
            }
            FirstBytes::Ssl3 => {
                self.stage = ServerStage::Over;
                to_send.extend_from_slice(&alert::PROTOCOL_VERSION);
                Err(TlsFault::NothingInCommon.into())
            }
            FirstBytes::Tls => self.handshake(wire, plain, to_send),
            // The error is answered by a TLS alert: no other protocol is known to be understood.
            FirstBytes::Unknown => match self.handshake(wire, plain, to_send) {
                Err(_) => Err(TlsFault::NotTls.into()),
                progress => progress,
            },
        }
    }

    fn handshake(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<ReceiveProgress, TlsFailure> {
        let ServerStage::Session(session) = &mut self.stage else {
            return Ok(ReceiveProgress::default());
        };
        // The lengths from before, to remove the output of a session that must not go on.
        let (plain_len, to_send_len) = (plain.len(), to_send.len());
        let (progress, server_name) = sni::record_sni(|| session.receive(wire, plain, to_send));
        // The resolver sees the name in one call only; other calls must not erase it.
        self.server_name = server_name.or(self.server_name.take());
        let progress = progress.inspect_err(|failure| {
            let version = session.connection().protocol_version();
            let is_tls13 = version == Some(ProtocolVersion::TLSv1_3);
            if let Some(error) = failure.error() {
                alert::correct_alert(error, is_tls13, to_send);
            }
        })?;
        if progress.established
            && let Some(clock) = self.clock.take()
            && self.resumes_expired(&clock)
        {
            // The session ticket in `to_send` is dropped too, so the session can't be prolonged. An alert can't be
            // encrypted instead.
            plain.truncate(plain_len);
            to_send.truncate(to_send_len);
            self.stage = ServerStage::Over;
            return Err(TlsFault::CertificateExpired.into());
        }
        Ok(progress)
    }

    /// Whether the client resumed a session after its certificate expired. Certificates are verified in full
    /// handshakes only, and each resumption issues another ticket.
    fn resumes_expired(&self, clock: &TlsClock) -> bool {
        let chain = self.connection().and_then(|it| it.peer_certificates());
        let now_s = i64::try_from(clock.unix_s()).unwrap_or(i64::MAX);
        let is_expired = |certificate: &CertificateDer<'_>| {
            // A certificate that cannot be parsed cannot be shown to be valid.
            let parsed = X509Certificate::parse(certificate);
            parsed.is_none_or(|parsed| parsed.not_after_s < now_s)
        };
        self.is_resumed() && chain.is_some_and(|chain| chain.iter().any(is_expired))
    }

    /// Encrypts the application's bytes, `pieces` in order, and appends the records to `to_send`: a small one first
    /// after a pause, full ones otherwise. `now_ms` has any epoch.
    ///
    /// # Errors
    /// `TlsFault::NotReady` before the handshake is over and after a failure; `TlsFault::Exhausted`.
    pub fn encrypt(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), TlsFailure> {
        match &mut self.stage {
            ServerStage::Session(session) => session.encrypt(pieces, to_send, now_ms),
            ServerStage::Settled(settled) => settled.encrypt(pieces, to_send, now_ms),
            ServerStage::Over => Err(TlsFault::NotReady.into()),
        }
    }

    /// Appends close_notify: this side sends no more. Input is still decrypted.
    ///
    /// # Errors
    /// `TlsFault::NotReady`, as of `TlsServer::encrypt`.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), TlsFailure> {
        match &mut self.stage {
            ServerStage::Session(session) => session.close(to_send),
            ServerStage::Settled(settled) => settled.close(to_send),
            ServerStage::Over => Err(TlsFault::NotReady.into()),
        }
    }

    /// The keys with which the kernel can encrypt from now on; all encrypted bytes must be in the socket first.
    /// `None`: the cipher is unsupported, or the connection is not settled (`TlsServer::settle`).
    pub fn kernel_keys(&self) -> Option<CryptoInfo> {
        match &self.stage {
            ServerStage::Settled(settled) => settled.kernel_keys(),
            _ => None,
        }
    }

    /// Marks that the kernel encrypts from now on, with its keys (`TlsServer::kernel_keys`). `TlsServer::encrypt` then
    /// fails; only one alert is still appended to `to_send`, as unencrypted content for the kernel.
    pub fn leave_to_kernel(&mut self) {
        if let ServerStage::Settled(settled) = &mut self.stage {
            settled.leave_to_kernel();
        }
    }

    /// Whether the client requested a key update, which kernel TLS can't do: responses in progress may end, no more.
    pub fn is_key_worn(&self) -> bool {
        matches!(&self.stage, ServerStage::Settled(settled) if settled.is_key_worn())
    }

    /// The meaning of the end of the client's bytes.
    pub fn peer_close(&self) -> PeerClose {
        match &self.stage {
            ServerStage::Session(session) => session.peer_close(),
            ServerStage::Settled(settled) => settled.peer_close(),
            ServerStage::Over => PeerClose::InHandshake,
        }
    }

    /// Whether the handshake is over.
    pub fn is_established(&self) -> bool {
        match &self.stage {
            ServerStage::Session(session) => session.is_established(),
            ServerStage::Settled(_) => true,
            ServerStage::Over => false,
        }
    }

    /// The server name that the client requested (SNI).
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// The negotiated application protocol (ALPN).
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection()?.alpn_protocol()
    }

    /// Whether the connection resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.connection().and_then(|it| it.handshake_kind()) == Some(HandshakeKind::Resumed)
    }

    /// The negotiated version.
    pub fn version(&self) -> Option<MinimumVersion> {
        match self.connection()?.protocol_version()? {
            ProtocolVersion::TLSv1_2 => Some(MinimumVersion::Tls12),
            ProtocolVersion::TLSv1_3 => Some(MinimumVersion::Tls13),
            _ => None,
        }
    }

    /// The cipher suite, for logs.
    pub fn cipher(&self) -> Option<&'static str> {
        let suite = self.connection()?.negotiated_cipher_suite()?;
        suite.suite().as_str()
    }

    /// The key exchange, for logs.
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self.connection()?.negotiated_key_exchange_group()?;
        group.name().as_str()
    }

    /// The client's certificate, if shown. It was verified in this handshake, or in the one that began the session.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        let chain = self.connection()?.peer_certificates()?;
        ClientCertificate::from_der(chain.first()?)
    }
}
