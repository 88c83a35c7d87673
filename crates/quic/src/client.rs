//! Opening connections, for tests and load generators.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use quinn_proto::{ClientConfig, ConnectError, TokenMemoryCache, TokenStore, crypto};

use crate::connection_ids::CONNECTION_ID_LEN;
use crate::endpoint::QuicEndpoint;
use crate::event::ConnectionKey;
use crate::null_cipher::NullCipher;
use crate::settings::QuicSettings;

/// The cryptography of a client, and the tokens that servers have given it.
#[derive(Clone)]
pub struct QuicClientCipher {
    crypto: Arc<dyn crypto::ClientConfig>,
    tokens: Arc<dyn TokenStore>,
}

impl std::fmt::Debug for QuicClientCipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("QuicClientCipher")
    }
}

/// Without a store: each connection begins without a token.
struct NoTokens;

impl TokenStore for NoTokens {
    fn insert(&self, _: &str, _: Bytes) {}

    fn take(&self, _: &str) -> Option<Bytes> {
        None
    }
}

impl QuicClientCipher {
    /// Any cryptography.
    #[must_use]
    pub fn new(crypto: Arc<dyn crypto::ClientConfig>) -> QuicClientCipher {
        QuicClientCipher {
            crypto,
            tokens: Arc::new(NoTokens),
        }
    }

    /// Without cryptography.
    #[must_use]
    pub fn null() -> QuicClientCipher {
        QuicClientCipher::new(Arc::new(NullCipher))
    }

    /// Keeps the latest tokens of servers in memory.
    #[must_use]
    pub fn with_token_memory(self) -> QuicClientCipher {
        self.with_tokens(Arc::new(TokenMemoryCache::default()))
    }

    /// Keeps the tokens of servers in a store.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Arc<dyn TokenStore>) -> QuicClientCipher {
        self.tokens = tokens;
        self
    }
}

impl<P> QuicEndpoint<P> {
    /// Opens a connection. `first_id` is random: the identifier of the server until it has chosen one.
    ///
    /// # Errors
    /// The address or the name is not valid.
    pub fn connect(
        &mut self,
        cipher: &QuicClientCipher,
        settings: &QuicSettings,
        first_id: [u8; CONNECTION_ID_LEN],
        to: SocketAddr,
        server_name: &str,
        permit: P,
    ) -> Result<ConnectionKey, ConnectError> {
        let mut config = ClientConfig::new(cipher.crypto.clone());
        config
            .transport_config(settings.transport())
            .token_store(cipher.tokens.clone())
            .initial_dst_cid_provider(Arc::new(move || quinn_proto::ConnectionId::new(&first_id)));
        // The time of the turn: a client connects between `advance` and `emit`.
        let (endpoint, now) = self.inner();
        let (handle, connection) = endpoint.connect(now, config, to, server_name)?;
        Ok(self.add(handle, connection, permit))
    }
}
