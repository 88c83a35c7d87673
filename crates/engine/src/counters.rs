//! Counters of one worker: written by it alone, read by any thread.
//!
//! Each limit has a counter, so that an operator sees which limit was reached.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter that one thread increments and others read.
#[derive(Debug, Default)]
pub struct WorkerCounter(AtomicU64);

impl WorkerCounter {
    /// Adds one, without an atomic read-modify-write: only the owner writes.
    #[inline]
    pub fn bump(&self) {
        self.add(1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Sets the value.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// The current value.
    pub fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// Counters of one worker since it started.
        #[derive(Debug, Default)]
        pub struct WorkerCounters { $($(#[doc = $doc])+ pub $name: WorkerCounter,)* }

        impl WorkerCounters {
            /// All counters with their names.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.value()),)*]
            }

            /// The descriptions of all counters, in the order of [`WorkerCounters::list`].
            pub const DESCRIPTIONS: &[&'static str] = &[$(concat!($($doc),+),)*];
        }
    };
}

counters! {
    /// Connections accepted.
    connections,
    /// Requests with a complete and well-formed head.
    requests,
    /// Bytes of responses that sockets accepted: heads and bodies.
    sent_bytes,
    /// Requests refused as malformed.
    refused,
    /// Requests that were deferred.
    deferred,
    /// Completed TLS handshakes.
    handshakes,
    /// TLS handshakes that timed out.
    handshake_timeouts,
    /// TLS handshakes that failed, by a protocol error or without common parameters.
    handshake_failures,
    /// Connections of clients that sent clear text to a TLS listener.
    clear_text,
    /// Connections that changed to kernel TLS for sending.
    kernel_tls,
    /// HTTP/2 connections.
    h2_connections,
    /// HTTP/2 streams reset by clients.
    h2_resets,
    /// HTTP/2 streams reset for an error of the client.
    h2_faults,
    /// HTTP/2 streams refused because there were too many.
    h2_refused,
    /// HTTP/2 glitches: frames of little use.
    h2_glitches,
    /// HTTP/2 connections ended for an error of the client.
    h2_ended,
    /// Of these, connections ended for exceeding a limit on cost.
    h2_floods,
    /// HTTP/3 connections.
    h3_connections,
    /// HTTP/3 streams reset by clients.
    h3_resets,
    /// HTTP/3 streams reset for an error of the client.
    h3_faults,
    /// HTTP/3 requests rejected because there were too many, or because the connection ends.
    h3_refused,
    /// HTTP/3 glitches: frames of little use.
    h3_glitches,
    /// HTTP/3 connections ended for an error of the client.
    h3_ended,
    /// Of these, connections ended for exceeding a limit on cost.
    h3_floods,
    /// QUIC handshakes that began.
    quic_handshakes,
    /// QUIC handshakes that failed or timed out.
    quic_handshake_failures,
    /// Of these, handshakes given up after their time limit.
    quic_handshake_timeouts,
    /// QUIC connections that were opened by early data (0-RTT).
    quic_early_connections,
    /// QUIC clients that had to prove their address.
    quic_retries,
    /// QUIC connections refused because there were too many, or the server stops.
    quic_refused,
    /// QUIC datagrams passed to the worker of their connection.
    quic_forwarded,
    /// Datagrams for another worker dropped because too many messages waited for it.
    quic_dropped_datagrams,
    /// Refusals, retries and resets dropped because too many waited to be sent.
    quic_dropped_answers,
    /// QUIC receive windows that did not grow because all of them together had reached their limit.
    quic_withheld_windows,
    /// Connections closed because a head did not arrive in time.
    header_timeouts,
    /// Connections closed because a body did not arrive in time.
    body_timeouts,
    /// Connections closed for idling between requests.
    idle_timeouts,
    /// Connections closed because the client received nothing for too long.
    send_timeouts,
    /// Connections closed because the client was below the minimum rate.
    rate_too_low,
    /// Connections refused at the limit of all connections.
    over_connections_max,
    /// Connections refused at the limit per address.
    over_address_max,
    /// Connections refused or closed because an operator denies their address; for QUIC, datagrams dropped.
    connections_denied,
    /// Connections closed because they lacked a valid PROXY header where one is required.
    proxy_headers_refused,
    /// Pauses in accepting because descriptors or memory ran out.
    accept_pauses,
    /// Responses cut because their file changed while it was sent.
    file_changed,
    /// Responses cut because their file could not be read.
    file_failed,
    /// Responses cut because their handler broke off.
    streams_cut,
    /// Connections passed through to another server.
    passed_through,
    /// Tunnels: connections after a change of protocol, and connections that are passed through.
    tunnels,
    /// Tunnels closed for inactivity.
    tunnel_timeouts,
    /// Connections that broke while a response was being sent.
    broken,
    /// Panics of workers, each of which closed the worker's connections.
    worker_panics,
    /// Panics after which a worker accepted no connections for some time, as the previous one was less than a minute
    /// ago.
    worker_panic_pauses,
}
