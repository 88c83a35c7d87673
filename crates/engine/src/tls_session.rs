//! The interface of a TLS session: it decrypts received bytes and encrypts bytes to send. The engine has no
//! cryptography; the simulator has a fake session.

use std::sync::Arc;

/// The TLS session of one connection. It knows no socket and no clock.
pub trait TlsSession: Send {
    /// Decrypts received bytes, all of them. The plaintext is appended to `plain`, and the session's own messages
    /// (handshake, alert) to `wire`.
    ///
    /// # Errors
    /// [`LayerFault`]: the connection is over, once `wire` has been sent.
    fn open(
        &mut self,
        ciphertext: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<LayerState, LayerFault>;

    /// Encrypts the start of `pieces`, in order, and appends it to `wire`: at most about 64 KiB, and at least one byte
    /// if there is any. Returns the number of plaintext bytes. Called only while the state is [`LayerState::Ready`] or
    /// [`LayerState::Ended`].
    fn encrypt(&mut self, pieces: &[&[u8]], now_ms: u64, wire: &mut Vec<u8>) -> usize;

    /// Appends close_notify.
    fn close(&mut self, wire: &mut Vec<u8>);

    /// Decides whether the kernel encrypts from now on, before a file of `len` bytes is sent. `enable` passes the keys
    /// to the kernel ([`IoDriver::enable_kernel_tls`](crate::driver::IoDriver::enable_kernel_tls)), and returns
    /// whether it accepts them. Called while no encrypted bytes wait. Once the kernel encrypts,
    /// [`TlsSession::encrypt`] is not called any more, and the other methods append the content of one alert to
    /// `wire`, which is the last record.
    fn offload(&mut self, len: u64, enable: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let _ = (len, enable);
        false
    }

    /// Whether the client has requested other keys than the kernel has. The kernel's can't be changed, so the
    /// connection ends with the response in progress.
    fn is_key_worn(&self) -> bool {
        false
    }
}

/// The state of a session.
#[derive(Clone, Debug)]
pub enum LayerState {
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
    /// The client's certificate, verified.
    pub client: Option<Arc<ClientIdentity>>,
}

/// The application protocol (ALPN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlpnProtocol {
    /// HTTP/1.1, also without ALPN.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
}

/// The identity in a client's verified certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The subject, as RFC 4514 writes it.
    pub subject: Box<str>,
    /// The issuer, as RFC 4514 writes it.
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
    /// The client sent HTTP in clear text. No byte was sent yet, so it can get a clear-text response.
    ClearText,
    /// The client violated the protocol, or there were no common parameters.
    Broken,
}
