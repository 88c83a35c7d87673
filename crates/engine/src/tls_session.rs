//! The interface of a TLS session: it decrypts received bytes and encrypts bytes to send. The engine contains no
//! cryptography; the crate `tls` implements this trait with rustls, the simulator with a fake session.

use std::sync::Arc;

/// The TLS session of one connection, without its socket.
pub trait TlsSession: Send {
    /// Decrypts all received bytes. Appends the plaintext to `plain`, and records that the session sends itself
    /// (handshake, alert) to `wire`.
    ///
    /// # Errors
    /// [`LayerFault`]: the connection has to be closed after `wire` has been sent.
    fn open(
        &mut self,
        ciphertext: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<TlsState, LayerFault>;

    /// Encrypts the start of `pieces` (in order; at most about 64 KiB, and at least one byte if there is any), and
    /// appends the records to `wire`. Returns the number of plaintext bytes encrypted. Called only while the state is
    /// [`TlsState::Ready`] or [`TlsState::Ended`].
    fn encrypt(&mut self, pieces: &[&[u8]], now_ms: u64, wire: &mut Vec<u8>) -> usize;

    /// Appends close_notify.
    fn close(&mut self, wire: &mut Vec<u8>);

    /// Decides whether the kernel encrypts from now on, before a file of `len` bytes is sent. `enable` passes the keys
    /// to the kernel ([`IoDriver::enable_kernel_tls`](crate::driver::IoDriver::enable_kernel_tls)), and returns whether
    /// it accepts them. Called while no encrypted bytes are unsent. Once the kernel encrypts, [`TlsSession::encrypt`]
    /// is not called any more, and the other methods append the content of one alert to `wire`, which is the last
    /// record.
    fn offload(&mut self, len: u64, enable: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let _ = (len, enable);
        false
    }

    /// Whether the client has requested a key update (RFC 8446, section 4.6.3) after the kernel got its keys. These
    /// can't be replaced, so the connection ends after the response in progress.
    fn is_key_worn(&self) -> bool {
        false
    }
}

/// The state of a session.
#[derive(Clone, Debug)]
pub enum TlsState {
    /// The handshake is in progress.
    Handshake,
    /// The handshake is complete, with these parameters.
    Ready(Arc<TlsInfo>),
    /// The client has sent close_notify; its last bytes are in `plain`.
    Ended,
}

/// The parameters of a TLS session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsInfo {
    /// The application protocol.
    pub alpn: AlpnProtocol,
    /// The server name that the client requested (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    /// The name of the version, such as `TLSv1.3`.
    pub version: &'static str,
    /// The name of the cipher suite.
    pub cipher: &'static str,
    /// Whether the client has resumed an earlier session.
    pub is_resumed: bool,
    /// The client's certificate, verified.
    pub client: Option<Arc<ClientIdentity>>,
}

/// The application protocol (ALPN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlpnProtocol {
    /// HTTP/1.1; also if the client does not use ALPN.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
}

/// The identity in a client's verified certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The subject, in the format of RFC 4514.
    pub subject: Box<str>,
    /// The issuer, in the format of RFC 4514.
    pub issuer: Box<str>,
    /// The serial number, in hexadecimal digits.
    pub serial: Box<str>,
    /// SHA-256 of the certificate, in hexadecimal digits.
    pub fingerprint: Box<str>,
    /// The certificate, as PEM.
    pub pem: Box<str>,
}

/// Why a session failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerFault {
    /// The client sent HTTP in clear text. No byte was sent yet, so a clear-text response is possible.
    ClearText,
    /// The client violated the TLS protocol, or there were no common parameters.
    Broken,
}
