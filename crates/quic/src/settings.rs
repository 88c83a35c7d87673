//! Settings of connections, and their translation for `quinn-proto`.

use std::sync::Arc;

use quinn_proto::{IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};

/// Settings of each connection. Windows and streams begin small, since most connections of a server are idle or short,
/// and are raised for connections that use them.
#[derive(Clone, Debug)]
pub struct QuicSettings {
    /// Concurrent requests that a client may begin with.
    pub streams_first: u16,
    /// Concurrent requests that a client may have once it uses most of the first ones.
    pub streams_max: u16,
    /// Concurrent unidirectional streams of a client: HTTP/3 needs three.
    pub client_streams_max: u16,
    /// Unread bytes of a stream.
    pub stream_window: u32,
    /// Unread bytes of all streams of a new connection.
    pub window_first: u32,
    /// Unread bytes of all streams, once the client has filled smaller windows within a few round trips.
    pub window_max: u32,
    /// Written bytes of a new connection that are not acknowledged.
    pub send_window_first: u32,
    /// Written bytes that are not acknowledged; as many as twice the congestion window are taken.
    pub send_window_max: u32,
    /// Milliseconds without packets after which a connection ends silently (RFC 9000 §10.1).
    pub idle_timeout_ms: u32,
    /// Milliseconds within which a handshake must complete (`QuicCounters::handshake_timeouts`).
    pub handshake_timeout_ms: u32,
    /// The largest payload of a UDP datagram that path MTU discovery tries.
    pub datagram_len_max: u16,
}

impl Default for QuicSettings {
    fn default() -> QuicSettings {
        QuicSettings {
            streams_first: 16,
            streams_max: 128,
            client_streams_max: 8,
            stream_window: 1 << 20,
            window_first: 128 << 10,
            window_max: 4 << 20,
            send_window_first: 64 << 10,
            send_window_max: 8 << 20,
            idle_timeout_ms: 30_000,
            handshake_timeout_ms: 10_000,
            // Ethernet less the headers of IPv6 and UDP.
            datagram_len_max: 1452,
        }
    }
}

impl QuicSettings {
    pub(crate) fn transport(&self) -> Arc<TransportConfig> {
        let mut mtu = MtuDiscoveryConfig::default();
        mtu.upper_bound(self.datagram_len_max);
        let mut config = TransportConfig::default();
        config
            .max_concurrent_bidi_streams(self.streams_first.into())
            .max_concurrent_uni_streams(self.client_streams_max.into())
            .stream_receive_window(self.stream_window.into())
            .receive_window(self.window_first.into())
            .send_window(self.send_window_first.into())
            .max_idle_timeout(Some(IdleTimeout::from(VarInt::from(self.idle_timeout_ms))))
            // The caller writes in the order of priorities.
            .send_fairness(false)
            .mtu_discovery_config(Some(mtu))
            // RFC 9221 is not offered.
            .datagram_receive_buffer_size(None);
        Arc::new(config)
    }
}
