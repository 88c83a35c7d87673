//! Implements the engine's TLS session interface for a client connection.

use std::cell::RefCell;
use std::sync::Arc;

use lowroad_engine::tls_session::{
    AlpnProtocol, ClientIdentity, LayerFault, TlsInfo, TlsSession, TlsState,
};
use lowroad_tls::{ClientCertificate, MinimumVersion, TlsFault, TlsServer};

use super::TlsEndpoint;

/// Bytes encrypted at a time: four full records. Encrypted bytes must be sent in order, and occupy memory while the
/// socket's buffer is full.
const SEALED_LEN_MAX: usize = 64 * 1024;
/// The shortest file that enables kernel TLS for its connection. All later responses on the connection then use kernel
/// TLS, too, which costs more for short responses.
const KERNEL_LEN_MIN: u64 = 128 * 1024;
/// The maximum number of slices encrypted at a time.
const PIECES_MAX: usize = 32;

thread_local! {
    /// A buffer for in-place decryption, since the received bytes are borrowed immutably.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The TLS session of a client.
pub struct ListenerSession {
    /// `None` if the session could not be created, for example without random bytes.
    server: Option<TlsServer>,
    info: Option<Arc<TlsInfo>>,
    /// Whether kernel TLS may be enabled. False after the first attempt.
    can_offload: bool,
    endpoint: Arc<TlsEndpoint>,
}

impl ListenerSession {
    /// Starts a session.
    pub fn new(endpoint: &Arc<TlsEndpoint>) -> ListenerSession {
        let server = endpoint.acceptor.accept();
        let server = server.inspect_err(|failure| endpoint.process.faults.record(failure));
        ListenerSession {
            server: server.ok(),
            info: None,
            can_offload: endpoint.can_offload,
            endpoint: endpoint.clone(),
        }
    }
}

impl TlsSession for ListenerSession {
    fn open(
        &mut self,
        ciphertext: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<TlsState, LayerFault> {
        // Decryption works in place, but the received bytes are borrowed immutably, so they are copied.
        let server = self.server.as_mut().ok_or(LayerFault::Broken)?;
        let progress = SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.extend_from_slice(ciphertext);
            server.receive(scratch, plain, wire)
        });
        let progress = progress.map_err(|failure| {
            self.endpoint.process.faults.record(&failure);
            // The name is known even if the handshake failed because there is no certificate for it.
            if let Some(name) = server.server_name() {
                self.endpoint.request_on_demand(name);
            }
            match failure.fault {
                TlsFault::PlainHttp => LayerFault::ClearText,
                _ => LayerFault::Broken,
            }
        })?;
        if !server.is_established() {
            return Ok(TlsState::Handshake);
        }
        match &self.info {
            Some(_) if progress.closed => Ok(TlsState::Ended),
            Some(secured) => Ok(TlsState::Ready(secured.clone())),
            // The session is ready even if the client has already closed: requests that arrived with the end of the
            // handshake are processed first, and the socket reports the close later.
            None => {
                let secured = Arc::new(negotiated_info(server));
                self.info = Some(secured.clone());
                if !progress.closed {
                    server.settle().map_err(|failure| {
                        self.endpoint.process.faults.record(&failure);
                        LayerFault::Broken
                    })?;
                }
                Ok(TlsState::Ready(secured))
            }
        }
    }

    fn encrypt(&mut self, pieces: &[&[u8]], now_ms: u64, wire: &mut Vec<u8>) -> usize {
        let mut slices: [&[u8]; PIECES_MAX] = [&[]; PIECES_MAX];
        let (mut count, mut len) = (0, 0);
        for (slice, piece) in slices.iter_mut().zip(pieces) {
            *slice = &piece[..piece.len().min(SEALED_LEN_MAX - len)];
            len += slice.len();
            count += 1;
            if len == SEALED_LEN_MAX {
                break;
            }
        }
        // Without a session there is nothing to encrypt.
        let Some(server) = &mut self.server else {
            return len;
        };
        if let Err(failure) = server.encrypt(&slices[..count], wire, now_ms) {
            // The engine stops sending after this failure, so the client does not take the missing bytes for an empty
            // response.
            self.endpoint.process.faults.record(&failure);
        }
        len
    }

    fn close(&mut self, wire: &mut Vec<u8>) {
        if let Some(server) = &mut self.server {
            // After a failure there is no session to close.
            let _ = server.close(wire);
        }
    }

    fn offload(&mut self, len: u64, enable: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        if !self.can_offload || len < KERNEL_LEN_MIN {
            return false;
        }
        // Kernel TLS is tried only once per connection.
        self.can_offload = false;
        let Some(server) = &mut self.server else {
            return false;
        };
        let is_enabled = server
            .kernel_keys()
            .is_some_and(|keys| enable(keys.as_bytes()));
        if is_enabled {
            // From here on, only the kernel may encrypt: two encryptors would use the same sequence numbers.
            server.leave_to_kernel();
        }
        is_enabled
    }

    fn is_key_worn(&self) -> bool {
        self.server
            .as_ref()
            .is_some_and(TlsServer::is_key_update_requested)
    }
}

/// The negotiated parameters.
fn negotiated_info(server: &TlsServer) -> TlsInfo {
    TlsInfo {
        alpn: match server.protocol() {
            Some(b"h2") => AlpnProtocol::Http2,
            _ => AlpnProtocol::Http1,
        },
        // Converted once, as host names are case-insensitive (RFC 4343).
        server_name: server
            .server_name()
            .map(|name| name.to_ascii_lowercase().into()),
        version: match server.version() {
            Some(MinimumVersion::Tls12) => "TLSv1.2",
            _ => "TLSv1.3",
        },
        cipher: server.cipher().map_or("", cipher_name),
        is_resumed: server.is_resumed(),
        client: server
            .client_certificate()
            .map(|certificate| client_identity(&certificate)),
    }
}

/// The identity in a client's certificate.
pub fn client_identity(certificate: &ClientCertificate) -> Arc<ClientIdentity> {
    Arc::new(ClientIdentity {
        subject: certificate.subject.as_str().into(),
        issuer: certificate.issuer.as_str().into(),
        serial: certificate.serial.as_str().into(),
        fingerprint: certificate.fingerprint.as_str().into(),
        pem: certificate.pem.as_str().into(),
    })
}

/// The IANA name of a cipher suite.
pub fn cipher_name(name: &'static str) -> &'static str {
    match name {
        "TLS13_AES_128_GCM_SHA256" => "TLS_AES_128_GCM_SHA256",
        "TLS13_AES_256_GCM_SHA384" => "TLS_AES_256_GCM_SHA384",
        "TLS13_CHACHA20_POLY1305_SHA256" => "TLS_CHACHA20_POLY1305_SHA256",
        suite => suite,
    }
}
