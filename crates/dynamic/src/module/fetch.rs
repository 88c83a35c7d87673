//! Fetches of modules: what the site has for a path, or what another server answers to a GET.
//!
//! The client is hyper's, which keeps connections open and knows HTTP; it follows no redirects.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::run::Limits;
use crate::Request;

/// Connections to one server that are kept open.
const IDLE_MAX: usize = 8;

static CLIENT: LazyLock<Client<HttpConnector, Empty<Bytes>>> = LazyLock::new(|| {
    Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(IDLE_MAX)
        .pool_timer(TokioTimer::new())
        .build_http()
});

/// A fetch under way: a status, 0 if there was no answer, and bytes.
pub type Fetching = Pin<Box<dyn Future<Output = (u16, Bytes)> + Send>>;

/// Begins to get a path of the request's site or an `http://` URL.
pub fn fetch(request: &Request, target: &Bytes, limits: &Limits) -> Fetching {
    if target.starts_with(b"/") {
        let loading = request.objects.load(target);
        return Box::pin(async {
            match loading.await {
                Some(bytes) => (200, bytes),
                None => (404, Bytes::new()),
            }
        });
    }
    let (target, limits) = (target.clone(), *limits);
    Box::pin(async move {
        // So that the module can still answer when another server does not.
        let limit = Duration::from_millis(limits.timeout_ms / 2);
        let answer = tokio::time::timeout(limit, get(&target, limits.response_len_max)).await;
        answer.ok().flatten().unwrap_or_default()
    })
}

/// What a server answers; `None` if it does not, or with too much.
async fn get(url: &[u8], len_max: usize) -> Option<(u16, Bytes)> {
    let url = hyper::Uri::try_from(url).ok()?;
    let answer = CLIENT.get(url).await.ok()?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), len_max).collect();
    Some((status, body.await.ok()?.to_bytes()))
}
