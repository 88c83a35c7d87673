//! QUIC for the listeners with HTTP/3: an endpoint for each worker and listener, with the certificates of the TLS endpoint.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use lowroad_config::Config;
use lowroad_engine::quic_transport::QuicTransport;
use lowroad_engine::tls_session::{AlpnProtocol, TlsInfo};
use lowroad_quic::{
    ProcessWorker, QuicCipher, QuicEndpoint, QuicEndpointConfig, QuicKeys, QuicLimits,
    QuicSettings, SteeringTable, UsedTokens, WORKERS_MAX, WorkerTransport, random_bytes,
};
use lowroad_tls::TlsAcceptor;
use lowroad_tls::quic::{HandshakeSummary, QuicTlsAcceptor};

use super::session::{cipher_name, client_identity};
use super::{TlsEndpoint, unix_s};
use crate::quic_identity::QuicIdentity;

/// Sessions of an address that clients may resume with early data. Each is about 1 KB; a client gets two with each connection.
const EARLY_SESSIONS_MAX: usize = 16_384;

/// The state of QUIC that all workers share, kept across reloads.
#[derive(Default)]
pub struct QuicProcess {
    /// Created with the first listener, or passed by the predecessor.
    identity: OnceLock<QuicIdentity>,
    used_tokens: Arc<UsedTokens>,
}

impl QuicProcess {
    /// The state with the identity that the predecessor has passed, if there is one.
    pub fn new(identity: Option<QuicIdentity>) -> QuicProcess {
        QuicProcess {
            identity: identity.map(OnceLock::from).unwrap_or_default(),
            used_tokens: Arc::default(),
        }
    }

    /// The identity, if there was a listener.
    pub fn known_identity(&self) -> Option<QuicIdentity> {
        self.identity.get().copied()
    }

    /// The identity; `None` if the system has no random bytes.
    fn identity(&self) -> Option<QuicIdentity> {
        if let Some(identity) = self.identity.get() {
            return Some(*identity);
        }
        let secret = random_bytes()?;
        let generation = 0;
        let identity = QuicIdentity { secret, generation };
        Some(*self.identity.get_or_init(|| identity))
    }
}

/// A worker, and the number of workers.
#[derive(Clone, Copy, Debug)]
pub struct QuicWorker {
    /// The worker's number.
    pub number: usize,
    /// The number of workers.
    pub count: usize,
}

/// The TLS endpoint that a worker's QUIC uses for new connections.
pub struct QuicListener(Arc<RwLock<Arc<TlsEndpoint>>>);

impl QuicListener {
    /// Replaces the endpoint, after a reload.
    pub fn set_endpoint(&self, endpoint: &Arc<TlsEndpoint>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = endpoint.clone();
    }
}

/// The certificates of a TLS endpoint for QUIC, and the settings of connections.
pub struct QuicAcceptor {
    acceptor: QuicTlsAcceptor,
    settings: QuicSettings,
}

impl QuicAcceptor {
    /// The certificates, tickets and client verification of `acceptor`.
    pub fn new(acceptor: &TlsAcceptor, config: &Config) -> QuicAcceptor {
        let (default, limits) = (QuicSettings::default(), &config.limits);
        let streams_max = u16::try_from(limits.streams_per_connection_max).unwrap_or(u16::MAX);
        QuicAcceptor {
            acceptor: match config.server.early_data {
                true => acceptor.for_quic_with_early_data(EARLY_SESSIONS_MAX),
                false => acceptor.for_quic(),
            },
            settings: QuicSettings {
                streams_first: default.streams_first.min(streams_max),
                streams_max,
                handshake_timeout_ms: u32::try_from(limits.header_timeout_ms).unwrap_or(u32::MAX),
                ..default
            },
        }
    }
}

impl TlsEndpoint {
    /// Creates the QUIC of a worker's socket at this address. `None` without random bytes, and for workers beyond the
    /// number that identifiers of connections can name.
    pub fn quic(
        self: &Arc<Self>,
        worker: QuicWorker,
    ) -> Option<(QuicListener, Box<dyn QuicTransport>)> {
        let number = u8::try_from(worker.number).ok()?;
        let count = u8::try_from(worker.count).unwrap_or(WORKERS_MAX);
        // Identifiers have 7 bits for the worker.
        if number >= WORKERS_MAX {
            return None;
        }
        let quic = self.quic.as_ref()?;
        let identity = self.process.quic.identity()?;
        let keys = QuicKeys::new(&identity.secret);
        let current = Arc::new(RwLock::new(self.clone()));
        let listener = QuicListener(current.clone());
        let first = quic.acceptor.clone();
        let acceptor = move || {
            let endpoint = current.read().unwrap_or_else(PoisonError::into_inner);
            // Tokens and certificates expire by this clock.
            endpoint.process.clock.set(unix_s());
            let quic = endpoint.quic.as_ref();
            quic.map_or_else(|| first.clone(), |quic| quic.acceptor.clone())
        };
        let faults = self.process.faults.clone();
        let place = ProcessWorker {
            generation: identity.generation,
            worker: number,
        };
        let steering = SteeringTable {
            key: keys.connection_ids(),
            here: place,
            workers: count.min(WORKERS_MAX),
        };
        let config = QuicEndpointConfig {
            cipher: QuicCipher::tls_by(acceptor, move |failure| faults.record(failure)),
            keys,
            place,
            seed: random_bytes()?,
            settings: quic.settings.clone(),
            limits: QuicLimits::default(),
            clock: self.process.clock.clone(),
            used_tokens: self.process.quic.used_tokens.clone(),
        };
        // Only differences of times matter.
        let endpoint = QuicEndpoint::server(config, Instant::now());
        let transport = WorkerTransport::new(endpoint, steering, negotiated_info);
        Some((listener, Box::new(transport)))
    }
}

/// The negotiated parameters.
fn negotiated_info(summary: &HandshakeSummary) -> TlsInfo {
    TlsInfo {
        alpn: AlpnProtocol::Http3,
        // Converted once, as host names are case-insensitive (RFC 4343).
        server_name: summary
            .server_name
            .as_ref()
            .map(|name| name.to_ascii_lowercase().into()),
        // QUIC has no other version (RFC 9001 §4.2).
        version: "TLSv1.3",
        cipher: summary.cipher.map_or("", cipher_name),
        is_resumed: summary.is_resumed,
        client: summary.client_certificate.as_deref().map(client_identity),
    }
}
