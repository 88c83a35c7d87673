//! Tunnels: connections after an upgrade (101). Bytes are forwarded between the client and the handler, no faster than
//! they are read, in each direction until its end.
//!
//! ```text
//!  client ─► receive ─► StreamState::incoming ─► TunnelPeer::from_client
//!  client ◄─ SendQueue (a stream) ◄───────────── TunnelPeer::to_client
//! ```
//! The end of one direction is forwarded as a half-close, and leaves the other open. If a direction is cut, the
//! connection is closed. Tunnels on streams of HTTP/2 are in `h2/tunnels`.

use crate::stream::{self, BodyReceiver, BodySender};

/// The idle timeout after the server's direction has ended, as the client rarely sends more then.
const HALF_CLOSED_MS: u64 = 10_000;

/// The connection's end of a tunnel, with both directions.
pub struct ClientTunnel {
    /// The client's bytes.
    from_client: BodySender,
    /// The bytes for the client.
    to_client: BodyReceiver,
    /// See [`ClientTunnel::with_idle_timeout`].
    idle_timeout_ms: Option<u64>,
}

/// The other end of a [`ClientTunnel`]. When both directions are dropped without an end, the client's connection is
/// closed.
pub struct TunnelPeer {
    /// The client's bytes, which are received no faster than they are read here. This direction ends when the client
    /// half-closes, and is cut when the connection breaks, times out or is closed by a drain.
    pub from_client: BodyReceiver,
    /// Bytes for the client. Ending this direction half-closes the connection; the client may still send.
    pub to_client: BodySender,
}

impl ClientTunnel {
    /// Creates both ends. Each direction buffers about `len_max` bytes.
    pub fn new(len_max: usize) -> (ClientTunnel, TunnelPeer) {
        let (from_client, peer_from_client) = stream::stream(len_max);
        let (peer_to_client, to_client) = stream::stream(len_max);
        let tunnel = ClientTunnel {
            from_client,
            to_client,
            idle_timeout_ms: None,
        };
        let peer = TunnelPeer {
            from_client: peer_from_client,
            to_client: peer_to_client,
        };
        (tunnel, peer)
    }

    /// Replaces the worker's idle timeout by `idle_timeout_ms`.
    #[must_use]
    pub fn with_idle_timeout(mut self, idle_timeout_ms: u64) -> ClientTunnel {
        self.idle_timeout_ms = Some(idle_timeout_ms);
        self
    }

    /// The direction to the client, and the direction from the client.
    pub(crate) fn split(self) -> (BodyReceiver, TunnelReturn) {
        let tunnel_return = TunnelReturn {
            sender: self.from_client,
            idle_timeout_ms: self.idle_timeout_ms,
        };
        (self.to_client, tunnel_return)
    }
}

/// The direction from the client, before the tunnel is started.
pub(crate) struct TunnelReturn {
    pub sender: BodySender,
    pub idle_timeout_ms: Option<u64>,
}

/// The activity of a tunnel.
pub(crate) struct TunnelActivity {
    idle_timeout_ms: u64,
    /// Bytes of both directions at the last check.
    transferred: u64,
    /// The time of the last check that found more bytes.
    since_ms: u64,
}

impl TunnelActivity {
    /// The activity of a tunnel that begins now.
    pub(crate) fn new(idle_timeout_ms: u64, now_ms: u64) -> TunnelActivity {
        TunnelActivity {
            idle_timeout_ms,
            transferred: 0,
            since_ms: now_ms,
        }
    }

    /// Shortens the timeout after the server's direction has ended. Returns the time of the next check.
    pub(crate) fn half_close(&mut self, now_ms: u64) -> u64 {
        self.idle_timeout_ms = self.idle_timeout_ms.min(HALF_CLOSED_MS);
        self.since_ms = now_ms;
        now_ms + self.idle_timeout_ms
    }

    /// Records the bytes moved until now. Returns the time of the next check; `None` if the tunnel has timed out.
    pub(crate) fn check(&mut self, transferred: u64, now_ms: u64) -> Option<u64> {
        if self.transferred != transferred {
            (self.transferred, self.since_ms) = (transferred, now_ms);
        }
        let until_ms = self.since_ms + self.idle_timeout_ms;
        // Bytes between two checks count as if transferred at the second, so the timeout is at most a quarter longer.
        let soon_ms = now_ms + (self.idle_timeout_ms / 4).max(1);
        (now_ms < until_ms).then_some(until_ms.min(soon_ms))
    }
}
