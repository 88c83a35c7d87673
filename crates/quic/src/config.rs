//! The configuration of an endpoint.

use std::sync::Arc;

use aws_lc_rs::hmac;
use lowroad_engine::datagram_relay::ProcessWorker;
use lowroad_tls::{TlsClock, TlsFailure};
use quinn_proto::{
    ConnectionIdGenerator, EndpointConfig, ServerConfig, ValidationTokenConfig, crypto,
};

use crate::admission::QuicLimits;
use crate::connection_ids::WorkerIds;
use crate::keys::{QuicKeys, ResetKey, TokenKey, derived};
use crate::null_cipher::NullCipher;
use crate::settings::QuicSettings;
use crate::tokens::{TOKEN_LIFETIME, TokenClock, UsedTokens};

/// QUIC version 1 (RFC 9000), the only one that is accepted.
pub(crate) const VERSION_1: u32 = 1;

/// Receives the reasons for which handshakes fail.
pub(crate) type FailureReport = Arc<dyn Fn(&TlsFailure) + Send + Sync>;

/// The cryptography of new connections.
#[derive(Clone)]
pub struct QuicCipher {
    pub(crate) server: Arc<dyn crypto::ServerConfig>,
    /// `None` without cryptography.
    pub(crate) report: Option<FailureReport>,
}

impl std::fmt::Debug for QuicCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QuicCipher")
    }
}

impl QuicCipher {
    /// Without cryptography, for simulations and tests.
    #[must_use]
    pub fn null() -> QuicCipher {
        QuicCipher {
            server: Arc::new(NullCipher),
            report: None,
        }
    }
}

/// The configuration of an endpoint.
#[derive(Clone, Debug)]
pub struct QuicEndpointConfig {
    /// The cryptography of a server.
    pub cipher: QuicCipher,
    /// The keys, common to all workers.
    pub keys: QuicKeys,
    /// The worker, for connection identifiers.
    pub place: ProcessWorker,
    /// Random bytes that no other endpoint has: all random choices except those of TLS follow from them.
    pub seed: [u8; 32],
    /// Settings of each connection.
    pub settings: QuicSettings,
    /// Limits of the endpoint.
    pub limits: QuicLimits,
    /// The time of day, for tokens.
    pub clock: TlsClock,
    /// Tokens that were used, common to all workers.
    pub used_tokens: Arc<UsedTokens>,
}

impl QuicEndpointConfig {
    pub(crate) fn endpoint(&self) -> EndpointConfig {
        let mut config = EndpointConfig::new(Arc::new(ResetKey(self.keys.reset.clone())));
        let (key, place) = (self.keys.connection_ids(), self.place);
        // The generator of identifiers must not reveal the state of the other one.
        let ids = derived(&self.seed, b"lowroad quic id seed");
        config
            .supported_versions(vec![VERSION_1])
            .rng_seed(Some(derived(&self.seed, b"lowroad quic rng seed")))
            .cid_generator(move || -> Box<dyn ConnectionIdGenerator> {
                let seed = hmac::Key::new(hmac::HMAC_SHA256, &ids);
                Box::new(WorkerIds::new(key, place, seed))
            });
        config
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let token_key = Arc::new(TokenKey(self.keys.token.clone()));
        let mut config = ServerConfig::new(self.cipher.server.clone(), token_key);
        let mut tokens = ValidationTokenConfig::default();
        // One token is enough: a client that opens several connections at once proves its address once.
        tokens
            .lifetime(TOKEN_LIFETIME)
            .log(self.used_tokens.clone())
            .sent(1);
        config
            .transport_config(self.settings.transport())
            .validation_token_config(tokens)
            .time_source(Arc::new(TokenClock(self.clock.clone())));
        Arc::new(config)
    }
}
