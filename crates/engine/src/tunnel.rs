//! Connections whose protocol was changed (101): bytes go both ways between the client and who has taken it over, each
//! way until its end, and no faster than the other side takes them. Knows not what they mean.
//!
//! ```text
//!  client ─► receive ─► underway.incoming ─► Far::from_client
//!  client ◄─ sending (a stream) ◄─────────── Far::to_client
//! ```
//! The end of one way is passed on and leaves the other way open. A way that is cut cuts the connection. Tunnels in streams of
//! HTTP/2 are in `h2/tunnels`.

use crate::stream::{self, BodyReceiver, BodySender};

/// Idle timeout once the server has sent its last byte: the client mostly has nothing more to send.
const HALF_CLOSED_MS: u64 = 10_000;

/// What a connection becomes: its end of both ways.
pub struct ClientTunnel {
    /// Where the client's bytes go.
    from_client: BodySender,
    /// Where those for the client come from.
    to_client: BodyReceiver,
    /// See [`ClientTunnel::with_idle_timeout`].
    idle_timeout_ms: Option<u64>,
}

/// The other end of a [`ClientTunnel`]. When both are dropped without an end, the client's connection is closed.
pub struct TunnelPeer {
    /// What the client sends; it is read no faster than this is. Its end is the client's last byte; it is cut when the
    /// connection breaks, idles or is closed by a drain.
    pub from_client: BodyReceiver,
    /// What the client is sent. Its end is passed on, after which the client may still speak.
    pub to_client: BodySender,
}

impl ClientTunnel {
    /// Both ends; about `len_max` bytes may wait on each way.
    pub fn new(len_max: usize) -> (ClientTunnel, TunnelPeer) {
        let (from_client, far_from_client) = stream::stream(len_max);
        let (far_to_client, to_client) = stream::stream(len_max);
        let tunnel = ClientTunnel {
            from_client,
            to_client,
            idle_timeout_ms: None,
        };
        let far = TunnelPeer {
            from_client: far_from_client,
            to_client: far_to_client,
        };
        (tunnel, far)
    }

    /// Closes when nothing has moved on either way for so long, and not after the idle timeout of the worker.
    #[must_use]
    pub fn with_idle_timeout(mut self, idle_timeout_ms: u64) -> ClientTunnel {
        self.idle_timeout_ms = Some(idle_timeout_ms);
        self
    }

    /// The way to the client, and the rest.
    pub(crate) fn split(self) -> (BodyReceiver, TunnelReturn) {
        let back = TunnelReturn {
            to: self.from_client,
            idle_timeout_ms: self.idle_timeout_ms,
        };
        (self.to_client, back)
    }
}

/// The way back from the client, before it has begun.
pub(crate) struct TunnelReturn {
    pub to: BodySender,
    pub idle_timeout_ms: Option<u64>,
}

/// Whether anything moves in a tunnel.
pub(crate) struct TunnelActivity {
    idle_timeout_ms: u64,
    /// Bytes of both ways when last looked.
    moved: u64,
    /// When it was seen that there were more.
    since_ms: u64,
}

impl TunnelActivity {
    /// A tunnel that begins now.
    pub(crate) fn new(idle_timeout_ms: u64, now_ms: u64) -> TunnelActivity {
        TunnelActivity {
            idle_timeout_ms,
            moved: 0,
            since_ms: now_ms,
        }
    }

    /// The server has sent its last byte. When to look next.
    pub(crate) fn half_close(&mut self, now_ms: u64) -> u64 {
        self.idle_timeout_ms = self.idle_timeout_ms.min(HALF_CLOSED_MS);
        self.since_ms = now_ms;
        now_ms + self.idle_timeout_ms
    }

    /// So many bytes have moved until now. When to look again; `None` if nothing has moved for too long.
    pub(crate) fn look(&mut self, moved: u64, now_ms: u64) -> Option<u64> {
        if self.moved != moved {
            (self.moved, self.since_ms) = (moved, now_ms);
        }
        let until_ms = self.since_ms + self.idle_timeout_ms;
        // What moves between two looks counts from the second: a quarter more at most.
        let soon_ms = now_ms + (self.idle_timeout_ms / 4).max(1);
        (now_ms < until_ms).then_some(until_ms.min(soon_ms))
    }
}
