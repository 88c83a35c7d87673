//! What stands between a connection and its socket where bytes do not go as they are: a layer opens what comes and seals
//! what goes, as TLS does. The engine knows no cryptography; the simulator has a layer of its own.

use std::sync::Arc;

/// One connection's layer. It knows no socket and no clock.
pub trait TlsSession: Send {
    /// Takes bytes that came from the socket, all of them. What they mean is appended to `plain`, what the layer has to say
    /// by itself (a handshake, an alert) to `wire`.
    ///
    /// # Errors
    /// [`LayerFault`]: the connection is over, once `wire` has been sent.
    fn open(
        &mut self,
        came: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<LayerState, LayerFault>;

    /// Seals a start of `pieces`, one behind the other, and appends it to `wire`: at most about 64 KiB, and at least one byte
    /// if there is any. Gives how many bytes that were. Asked only while the state is [`LayerState::Ready`] or
    /// [`LayerState::Ended`].
    fn encrypt(&mut self, pieces: &[&[u8]], now_ms: u64, wire: &mut Vec<u8>) -> usize;

    /// Appends the word that no more will follow.
    fn close(&mut self, wire: &mut Vec<u8>);

    /// Whether the kernel is to seal from now on what is sent, of which a file of `len` bytes is next. `tell` gives it what
    /// it must know ([`Driver::encrypt`](crate::driver::Driver::seal)), and says whether it does so. Asked while nothing waits
    /// that was sealed. Once the kernel seals, [`TlsSession::encrypt`] is not asked any more, and what the others append to `wire` is the
    /// content of one alert, the last that is said.
    fn offload(&mut self, len: u64, tell: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let _ = (len, tell);
        false
    }

    /// Whether the kernel should seal with other keys than it has. It can't be given others, so the connection ends with the
    /// response under way.
    fn is_worn(&self) -> bool {
        false
    }
}

/// How far a layer is.
#[derive(Clone, Debug)]
pub enum LayerState {
    /// Both sides are still agreeing.
    Handshake,
    /// Both have agreed; what the client is known by.
    Ready(Arc<TlsInfo>),
    /// The client will say no more; what it said before is in `plain`.
    Ended,
}

/// What both sides of a layer have agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsInfo {
    /// Which protocol is spoken inside.
    pub inside: AlpnProtocol,
    /// The server's name as the client said it (SNI), in lower case.
    pub server_name: Option<Box<str>>,
    /// Name of the version, as `TLSv1.3`.
    pub version: &'static str,
    /// Name of the cipher suite.
    pub cipher: &'static str,
    /// The client's certificate, verified.
    pub client: Option<Arc<ClientIdentity>>,
}

/// The protocol inside a layer (ALPN).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AlpnProtocol {
    /// HTTP/1.1, or nothing was said.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
}

/// What a verified certificate of a client says.
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

/// Why a layer can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerFault {
    /// The client speaks HTTP in clear text. Nothing was said yet; it can be answered so.
    ClearText,
    /// The client broke the layer's rules, or nothing could be agreed on.
    Broken,
}
