//! Fetches a key set periodically: rotation of the keys of a token issuer. After a failure the pauses grow (exponential
//! back-off). A token with an unknown key leads to an earlier fetch, but at most one in `REQUESTED_PAUSE`: clients can
//! send any number of such tokens.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lowroad_engine::WorkerHandle;
use lowroad_engine::stream::StreamItem;
use lowroad_engine::tasks::TaskHandle;
use lowroad_handler::interim_responses::InterimSink;
use lowroad_handler::request::{RawTarget, RequestExtra, RequestHead};
use lowroad_handler::{
    Handler, HandlerRequest, RequestBody, ResponseContent, SubrequestLoad, SubrequestSource,
};
use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;
use lowroad_http::version::HttpVersion;

/// The pause between fetches.
const PAUSE: Duration = Duration::from_secs(300);
/// The pause after the first failure; it doubles with each further one, up to `FAILURE_PAUSE_MAX`.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
const FAILURE_PAUSE_MAX: Duration = Duration::from_secs(60);
/// The shortest pause before a fetch that a token has caused.
const REQUESTED_PAUSE: Duration = Duration::from_secs(10);
/// The interval between checks whether a token has caused a fetch.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The longest key set, in bytes.
const LEN_MAX: usize = 256 << 10;

/// A server with a key set.
pub(crate) struct KeySource {
    pub handler: Arc<dyn Handler>,
    pub label: String,
    pub target: String,
    /// The time limit of a fetch.
    pub timeout: Duration,
}

/// Receives key sets.
pub trait KeyReceiver: Send + Sync + 'static {
    /// Receives a key set, or the reason of a failure. Returns whether the set is in force.
    fn receive(&self, fetched: Result<Vec<u8>, String>) -> bool;

    /// Whether an earlier fetch was requested since the last call.
    fn take_request(&self) -> bool;
}

/// Begins to fetch the key set, on the worker of `worker`.
pub(crate) fn watch_keys(
    source: KeySource,
    keys: impl KeyReceiver,
    worker: &WorkerHandle,
) -> TaskHandle {
    let local = worker.clone();
    worker.tasks.spawn(async move {
        // Counted without bound; the pause has one.
        let mut failures = 0;
        loop {
            let fetching = local.timers.timeout(source.timeout, source.fetch());
            let fetched = fetching.await.unwrap_or_else(|_| Err("timed out".into()));
            let fetched = fetched.map_err(|reason| format!("{}: {reason}", source.label));
            failures = match keys.receive(fetched) {
                true => 0,
                false => failures + 1,
            };
            // Short sleeps, after each of which a request is noticed.
            let mut waited = Duration::ZERO;
            while waited < pause(failures) {
                local.timers.sleep(CHECK_INTERVAL).await;
                waited += CHECK_INTERVAL;
                // The request is kept until the pause has passed.
                if failures == 0 && waited >= REQUESTED_PAUSE && keys.take_request() {
                    break;
                }
            }
        }
    })
}

/// The pause after this number of successive failures.
fn pause(failures: u32) -> Duration {
    match failures {
        0 => PAUSE,
        _ => (FAILURE_PAUSE * 2u32.saturating_pow(failures - 1)).min(FAILURE_PAUSE_MAX),
    }
}

impl KeySource {
    async fn fetch(&self) -> Result<Vec<u8>, String> {
        let answer = self.handler.clone().begin(0, self.request()).answer().await;
        let response = answer.map_err(|failure| failure.detail)?;
        // A redirect is not followed: the configuration names the place of the keys.
        if response.status != StatusCode::OK {
            return Err(format!("the key set has status {}", response.status.code()));
        }
        let stream = match response.content {
            ResponseContent::Bytes(bytes) => return Ok(bytes.into()),
            ResponseContent::Stream { stream, .. } => stream,
            _ => return Err("the key set has no content".into()),
        };
        // The length is unknown or a claim of the server, so it is checked while reading.
        let mut text = Vec::new();
        loop {
            match stream.next().await {
                StreamItem::Bytes(bytes) if text.len() + bytes.len() <= LEN_MAX => {
                    text.extend_from_slice(&bytes);
                }
                StreamItem::Bytes(_) => {
                    return Err(format!("the key set is longer than {LEN_MAX} bytes"));
                }
                StreamItem::End => return Ok(text),
                StreamItem::Cut => return Err("the key set is truncated".into()),
            }
        }
    }

    fn request(&self) -> HandlerRequest {
        let (path, query) = match self.target.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (self.target.as_str(), None),
        };
        let target = RawTarget {
            path: path.as_bytes(),
            query,
        };
        let lines = b"Accept: application/jwk-set+json, application/json\r\n";
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        HandlerRequest {
            method: Method::Get,
            version: HttpVersion::Http11,
            head: RequestHead::new(target, path.as_bytes(), b"", lines),
            peer: local,
            peer_port: 0,
            local: SocketAddr::new(local, 0),
            tls: None,
            forwarded: None,
            root: Path::new("/").into(),
            objects: Arc::new(NoFiles),
            body: RequestBody::none(),
            interims: InterimSink::default(),
            extra: RequestExtra::default(),
        }
    }
}

/// No files for subrequests.
struct NoFiles;

impl SubrequestSource for NoFiles {
    fn find_in_memory(&self, _: &[u8]) -> Option<Bytes> {
        None
    }

    fn load(&self, _: &[u8]) -> SubrequestLoad {
        Box::pin(std::future::ready(None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_failures_double_up_to_a_minute() {
        let seconds: Vec<u64> = (0..9).map(|failures| pause(failures).as_secs()).collect();
        assert_eq!(seconds, [300, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause(u32::MAX), FAILURE_PAUSE_MAX);
    }
}
