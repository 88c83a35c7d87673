//! Counters of one worker: written by it alone, read by anybody.
//!
//! Every limit has one, so that an operator sees which limit was hit.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A number that one thread raises and others read.
#[derive(Debug, Default)]
pub struct WorkerCounter(AtomicU64);

impl WorkerCounter {
    /// Adds one. Not a locked instruction: only the owner writes.
    #[inline]
    pub fn bump(&self) {
        self.add(1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Is `value` from now on.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The value now.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What one worker has seen since it started.
        #[derive(Debug, Default)]
        pub struct WorkerCounters { $($(#[$doc])* pub $name: WorkerCounter,)* }

        impl WorkerCounters {
            /// Every counter with its name.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.value()),)*]
            }
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Requests whose head was complete and well formed.
    requests,
    /// Bytes of answers that sockets took: heads and bodies.
    sent_bytes,
    /// Requests refused for their form.
    refused,
    /// Requests that waited for a helper.
    deferred,
    /// Connections whose layer (TLS) was agreed on.
    handshakes,
    /// Those of which that did not happen in time.
    handshake_timeouts,
    /// Those whose client broke the layer's rules, or agreed to nothing.
    handshake_failures,
    /// Those whose client spoke in clear text.
    clear_text,
    /// Connections for which the kernel has come to seal what is sent.
    kernel_tls,
    /// Connections on which HTTP/2 is spoken.
    h2_connections,
    /// Streams of HTTP/2 that clients reset.
    h2_resets,
    /// Streams that were reset for a fault of the client.
    h2_faults,
    /// Streams refused, as there were too many.
    h2_refused,
    /// Frames of little use.
    h2_glitches,
    /// Connections that were ended for a fault of the client.
    h2_ended,
    /// Of these, those that wanted too much.
    h2_floods,
    /// Connections closed because a head did not come in time.
    header_timeouts,
    /// Connections closed because a body did not come in time.
    body_timeouts,
    /// Connections closed for idling between requests.
    idle_timeouts,
    /// Connections closed because the client took nothing for too long.
    send_timeouts,
    /// Connections closed because the client was below the minimum rate.
    rate_too_low,
    /// Connections turned away at the limit of all connections.
    over_connections_max,
    /// Connections turned away at the limit per address.
    over_address_max,
    /// Connections closed because they did not begin with the PROXY header that they have to begin with.
    proxy_headers_refused,
    /// Times that accepting paused because descriptors or memory ran out.
    accept_pauses,
    /// Answers cut because their file changed while being sent.
    file_changed,
    /// Answers cut because their file could not be read.
    file_failed,
    /// Answers cut because the program that made them broke off.
    streams_cut,
    /// Connections that were passed through to another server as they are.
    passed_through,
    /// Tunnels: connections after a change of protocol, and connections that are passed through.
    tunnels,
    /// Tunnels that were closed because no byte moved for too long.
    tunnel_timeouts,
    /// Connections that broke while an answer was under way.
    broken,
}
