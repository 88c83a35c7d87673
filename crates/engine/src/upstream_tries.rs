//! The attempts to get a response from upstream servers, recorded for the access log. Handlers record them on any
//! thread; the log reads them when the response to the client has ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Maximum number of recorded attempts of a request; later ones are not recorded.
const TRIES_MAX: usize = 32;

/// The attempts of one request, in order.
#[derive(Debug, Default)]
pub struct UpstreamTries(Mutex<Vec<UpstreamTry>>);

/// An attempt at one server. Times are in µs since its start.
#[derive(Clone, Debug)]
pub struct UpstreamTry {
    /// The server: an address with port, or `unix:` and a path.
    pub address: Box<str>,
    /// The status of the response, or of the failure; 0 without either.
    pub status: u16,
    /// The time to connect, 0 for a reused connection; `None` without a connection.
    pub connect_us: Option<u64>,
    /// The time to the head of the response; `None` without a response.
    pub header_us: Option<u64>,
    /// The time to the end of the response or of the attempt; until then, to the time of reading.
    pub response_us: u64,
    started: Instant,
    is_ended: bool,
}

impl UpstreamTry {
    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl UpstreamTries {
    /// Begins an attempt at a server.
    pub fn begin(self: &Arc<Self>, address: &str) -> TryRecorder {
        let mut tries = self.lock();
        // Beyond the limit, no entry has this index, so the recorder has no effect.
        let index = tries.len();
        if index < TRIES_MAX {
            tries.push(UpstreamTry {
                address: address.into(),
                status: 0,
                connect_us: None,
                header_us: None,
                response_us: 0,
                started: Instant::now(),
                is_ended: false,
            });
        }
        drop(tries);
        TryRecorder {
            tries: self.clone(),
            index,
        }
    }

    /// The attempts until now.
    pub fn snapshot(&self) -> Vec<UpstreamTry> {
        let mut tries = self.lock().clone();
        for upstream_try in tries.iter_mut().filter(|it| !it.is_ended) {
            upstream_try.response_us = upstream_try.elapsed_us();
        }
        tries
    }

    fn lock(&self) -> MutexGuard<'_, Vec<UpstreamTry>> {
        // Each change is complete by itself, so the list is valid even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records an attempt. Dropping the last clone does not end the attempt: see [`TryEnd`].
#[derive(Clone, Debug)]
pub struct TryRecorder {
    tries: Arc<UpstreamTries>,
    index: usize,
}

impl TryRecorder {
    /// Records that a connection is available.
    pub fn connected(&self, is_reused: bool) {
        self.update(|it| it.connect_us = Some(if is_reused { 0 } else { it.elapsed_us() }));
    }

    /// Records the head of the response.
    pub fn answered(&self, status: u16) {
        self.update(|it| {
            it.status = status;
            it.header_us = Some(it.elapsed_us());
        });
    }

    /// Records the end of an attempt without a response.
    pub fn failed(&self, status: u16) {
        self.update(|it| it.status = status);
        self.end();
    }

    /// The guard that records the end of the attempt when it is dropped.
    pub fn end_guard(&self) -> TryEnd {
        TryEnd(self.clone())
    }

    fn end(&self) {
        self.update(|it| {
            // `failed` and the guard may both end an attempt: the first time counts.
            if !it.is_ended {
                it.response_us = it.elapsed_us();
                it.is_ended = true;
            }
        });
    }

    fn update(&self, change: impl FnOnce(&mut UpstreamTry)) {
        if let Some(upstream_try) = self.tries.lock().get_mut(self.index) {
            change(upstream_try);
        }
    }
}

/// Records the end of an attempt when it is dropped.
#[derive(Debug)]
pub struct TryEnd(TryRecorder);

impl Drop for TryEnd {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_recorded_in_order() {
        let tries = Arc::new(UpstreamTries::default());
        let first = tries.begin("192.0.2.1:80");
        first.failed(502);
        let second = tries.begin("192.0.2.2:80");
        second.connected(true);
        let end = second.end_guard();
        second.answered(200);
        assert!(!tries.snapshot()[1].is_ended);
        drop(end);
        let all = tries.snapshot();
        let facts = all
            .iter()
            .map(|it| (&*it.address, it.status, it.connect_us));
        assert_eq!(
            facts.collect::<Vec<_>>(),
            [("192.0.2.1:80", 502, None), ("192.0.2.2:80", 200, Some(0))]
        );
        assert!(all[0].header_us.is_none() && all[0].is_ended);
        assert!(all[1].header_us <= Some(all[1].response_us) && all[1].is_ended);
    }

    #[test]
    fn number_of_attempts_is_bounded() {
        let tries = Arc::new(UpstreamTries::default());
        for _ in 0..2 * TRIES_MAX {
            tries.begin("a").failed(502);
        }
        assert_eq!(tries.snapshot().len(), TRIES_MAX);
    }
}
