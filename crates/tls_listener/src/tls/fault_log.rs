//! Counts failed handshakes and TLS errors of clients by class. At most one log line per class and second is written,
//! since any client can cause errors.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lowroad_log::ErrorLogger;
use lowroad_store::clock;
use lowroad_tls::{TlsFailure, TlsFault};

/// The names of the counters, in the order of [`kind`].
const KINDS: [&str; 8] = [
    "tls.plain_http",
    "tls.not_tls",
    "tls.nothing_in_common",
    "tls.no_certificate",
    "tls.client_certificate",
    "tls.alerts",
    "tls.broken",
    "tls.internal",
];

/// The minimum time between two log lines of the same class.
const LOG_INTERVAL_MS: u64 = 1000;

/// The counts of failures, and the times of their log lines.
pub struct TlsFaultLog {
    counts: [AtomicU64; KINDS.len()],
    /// The earliest time of the next log line of each class.
    next_ms: [AtomicU64; KINDS.len()],
    logger: ErrorLogger,
}

impl TlsFaultLog {
    /// A log with all counters zero.
    pub fn new(logger: ErrorLogger) -> TlsFaultLog {
        TlsFaultLog {
            counts: Default::default(),
            next_ms: Default::default(),
            logger,
        }
    }

    /// Counts a failure, and logs it unless this class was logged within the last second.
    pub fn record(&self, failure: &TlsFailure) {
        let kind = kind(failure.fault);
        self.counts[kind].fetch_add(1, Relaxed);
        let now_ms = clock::now_ms();
        let next_ms = self.next_ms[kind].load(Relaxed);
        // If several threads get here in the same second, only the one with a successful exchange logs.
        let is_next = |next: &AtomicU64| {
            next.compare_exchange(next_ms, now_ms + LOG_INTERVAL_MS, Relaxed, Relaxed)
                .is_ok()
        };
        if now_ms >= next_ms && is_next(&self.next_ms[kind]) {
            self.logger.info(format_args!(
                "TLS handshake with a client failed: {failure}"
            ));
        }
    }

    /// The name and count of each class.
    pub fn counters(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        KINDS.into_iter().zip(counts)
    }

    /// The counters as text, for `lowroad status`.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.counters()
            .map(|(kind, count)| (kind, count.to_string()))
    }
}

fn kind(fault: TlsFault) -> usize {
    match fault {
        TlsFault::PlainHttp => 0,
        TlsFault::NotTls => 1,
        TlsFault::NothingInCommon => 2,
        TlsFault::NoCertificate => 3,
        TlsFault::CertificateMissing
        | TlsFault::CertificateName
        | TlsFault::CertificateExpired
        | TlsFault::CertificateNotYetValid
        | TlsFault::CertificateIssuer
        | TlsFault::Certificate => 4,
        TlsFault::Alert(_) => 5,
        TlsFault::Undecryptable | TlsFault::Oversized | TlsFault::Protocol => 6,
        TlsFault::Exhausted | TlsFault::NotReady | TlsFault::Internal => 7,
    }
}
