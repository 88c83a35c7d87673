//! The server side of TLS: a connection with one client. `TlsAcceptor` holds the settings.

use std::mem;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConfig, UnbufferedServerConnection};
use rustls::{CommonState, HandshakeKind, ProtocolVersion};

mod alert;
mod settings;
mod sni;

pub(crate) use alert::expected_alert;
pub use settings::{ClientVerification, MinimumVersion, TlsAcceptor, TlsServerSettings};

use crate::clock::TlsClock;
use crate::established::EstablishedSession;
use crate::failure::{TlsFailure, TlsFault};
use crate::first_bytes::{FirstBytes, classify};
use crate::identity::ClientCertificate;
use crate::ktls::CryptoInfo;
use crate::session::{PeerClose, ReceiveProgress, RustlsSession};
use crate::x509::X509Certificate;

/// A TLS connection with one client.
///
/// `TlsServer::receive` takes bytes received from the socket, `TlsServer::encrypt` takes the application's bytes. Both
/// append bytes to the caller's `to_send`, which must be sent in the order of the calls. Between calls a connection
/// holds only its secrets and incomplete input.
pub struct TlsServer {
    stage: ServerStage,
    has_started: bool,
    server_name: Option<Box<str>>,
    /// The clock for the check of certificate expiry when the handshake ends; set only if clients are asked for
    /// certificates.
    clock: Option<TlsClock>,
}

/// The stage of a connection. Each stage is boxed separately: most connections are established, and that state is much
/// smaller.
enum ServerStage {
    Session(Box<RustlsSession<UnbufferedServerConnection>>),
    Established(Box<EstablishedSession>),
    /// The connection failed.
    Over,
}

impl TlsServer {
    /// `clock` must be set if clients are asked for certificates.
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

    /// Replaces the handshake's state by the smaller state of an established connection: records cost less CPU time,
    /// and an idle connection needs less memory. The negotiated values, except the server name, are lost. Has no effect
    /// on TLS 1.2.
    ///
    /// # Errors
    /// `TlsFault::NotReady`: the handshake is not complete, or the connection has ended.
    pub fn settle(&mut self) -> Result<(), TlsFailure> {
        // `EstablishedSession` implements TLS 1.3 only.
        if self.version() != Some(MinimumVersion::Tls13) {
            return Ok(());
        }
        // If `into_parts` fails, the session is lost, so the stage remains `Over`.
        let ServerStage::Session(session) = mem::replace(&mut self.stage, ServerStage::Over) else {
            return Err(TlsFault::NotReady.into());
        };
        let (connection, pending, records) = session.into_parts()?;
        // `rustls` offers this interface for kernel TLS; here the secrets go to `EstablishedSession`.
        let extracted = connection.dangerous_into_kernel_connection();
        let (secrets, connection) = extracted.map_err(TlsFailure::from_error)?;
        let settled = EstablishedSession::new(connection, secrets, pending, records)?;
        self.stage = ServerStage::Established(Box::new(settled));
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

    /// Decrypts bytes received from the socket; they can be split at any position.
    ///
    /// Decrypts in place, so the contents of `wire` are undefined afterwards. Appends the application's bytes to
    /// `plain`, and bytes to send to `to_send`. Input after close_notify or a failure is ignored.
    ///
    /// # Errors
    /// The connection has failed: send `to_send`, which ends with an alert for the client, and close. With
    /// `TlsFault::PlainHttp` there is no alert: send a plaintext HTTP response.
    pub fn receive(
        &mut self,
        wire: &mut [u8],
        plain: &mut Vec<u8>,
        to_send: &mut Vec<u8>,
    ) -> Result<ReceiveProgress, TlsFailure> {
        match &mut self.stage {
            ServerStage::Established(settled) => return settled.receive(wire, plain, to_send),
            ServerStage::Session(session) if session.is_established() => {
                return session.receive(wire, plain, to_send);
            }
            // After a failure the client may still be sending; its bytes are discarded.
            ServerStage::Over => return Ok(ReceiveProgress::default()),
            ServerStage::Session(_) => {}
        }
        // Only the first bytes of a connection show its protocol.
        if self.has_started || wire.is_empty() {
            return self.handshake(wire, plain, to_send);
        }
        // The bytes are classified only once: later bytes belong to TLS records.
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
            // The client gets a TLS alert: its protocol is unknown.
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
        // The lengths before the call serve to remove the output of a session that must not continue.
        let (plain_len, to_send_len) = (plain.len(), to_send.len());
        let (progress, server_name) = sni::record_sni(|| session.receive(wire, plain, to_send));
        // The resolver gets the name in one of the calls only; the others must not erase it.
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
            && let Some(connection) = self.connection()
            && resumes_expired(connection, &clock)
        {
            // The session ticket in `to_send` is removed too, so that the client can't extend the session. No alert can
            // be sent, since it would have to be encrypted.
            plain.truncate(plain_len);
            to_send.truncate(to_send_len);
            self.stage = ServerStage::Over;
            return Err(TlsFault::CertificateExpired.into());
        }
        Ok(progress)
    }

    /// Encrypts the application's bytes, `pieces` in order, and appends the records to `to_send`. After a pause the
    /// first record is small; all others are full. `now_ms` has an arbitrary epoch.
    ///
    /// # Errors
    /// `TlsFault::NotReady` before the handshake is complete and after a failure; `TlsFault::Exhausted`.
    pub fn encrypt(
        &mut self,
        pieces: &[&[u8]],
        to_send: &mut Vec<u8>,
        now_ms: u64,
    ) -> Result<(), TlsFailure> {
        match &mut self.stage {
            ServerStage::Session(session) => session.encrypt(pieces, to_send, now_ms),
            ServerStage::Established(settled) => settled.encrypt(pieces, to_send, now_ms),
            ServerStage::Over => Err(TlsFault::NotReady.into()),
        }
    }

    /// Appends close_notify: this side sends no more data. Received data is still decrypted.
    ///
    /// # Errors
    /// `TlsFault::NotReady`, as for `TlsServer::encrypt`.
    pub fn close(&mut self, to_send: &mut Vec<u8>) -> Result<(), TlsFailure> {
        match &mut self.stage {
            ServerStage::Session(session) => session.close(to_send),
            ServerStage::Established(settled) => settled.close(to_send),
            ServerStage::Over => Err(TlsFault::NotReady.into()),
        }
    }

    /// The keys for kernel TLS. Before the kernel uses them, all bytes encrypted so far must have been written to the
    /// socket. `None`: the kernel doesn't support the cipher, or `TlsServer::settle` has not been called.
    pub fn kernel_keys(&self) -> Option<CryptoInfo> {
        match &self.stage {
            ServerStage::Established(settled) => settled.kernel_keys(),
            _ => None,
        }
    }

    /// Marks that the kernel encrypts sent data from now on, with `TlsServer::kernel_keys`. `TlsServer::encrypt` fails
    /// afterwards; at most one alert is still appended to `to_send`, as plaintext content for the kernel.
    pub fn leave_to_kernel(&mut self) {
        if let ServerStage::Established(settled) = &mut self.stage {
            settled.leave_to_kernel();
        }
    }

    /// Whether the client requested a key update, which is not supported with kernel TLS: the connection must close
    /// after the responses in progress.
    pub fn is_key_update_requested(&self) -> bool {
        matches!(&self.stage, ServerStage::Established(settled) if settled.is_key_update_requested())
    }

    /// How the client ended its data, once the TCP connection has ended.
    pub fn peer_close(&self) -> PeerClose {
        match &self.stage {
            ServerStage::Session(session) => session.peer_close(),
            ServerStage::Established(settled) => settled.peer_close(),
            ServerStage::Over => PeerClose::InHandshake,
        }
    }

    /// Whether the handshake is complete.
    pub fn is_established(&self) -> bool {
        match &self.stage {
            ServerStage::Session(session) => session.is_established(),
            ServerStage::Established(_) => true,
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

    /// The name of the key exchange group, for logs.
    pub fn key_exchange(&self) -> Option<&'static str> {
        let group = self.connection()?.negotiated_key_exchange_group()?;
        group.name().as_str()
    }

    /// The client's certificate, if it sent one. It was verified in this handshake, or in the full handshake of a
    /// resumed session.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        let chain = self.connection()?.peer_certificates()?;
        ClientCertificate::from_der(chain.first()?)
    }
}

/// Whether the client resumed a session after its certificate had expired. Certificates are verified in full handshakes
/// only, and each resumption issues a new ticket.
pub(crate) fn resumes_expired(connection: &CommonState, clock: &TlsClock) -> bool {
    let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    let now_s = i64::try_from(clock.unix_s()).unwrap_or(i64::MAX);
    let is_expired = |certificate: &CertificateDer<'_>| {
        // A certificate that cannot be parsed counts as expired.
        let parsed = X509Certificate::parse(certificate);
        parsed.is_none_or(|parsed| parsed.not_after_s < now_s)
    };
    let chain = connection.peer_certificates();
    is_resumed && chain.is_some_and(|chain| chain.iter().any(is_expired))
}
