//! Executes the fetches of modules: content of the site for a path, or the response of another server to a GET request.
//!
//! Requests to other servers use hyper's client and connection pool. Redirects are not followed.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use lowroad_config::AllowedDestination;
use lowroad_handler::HandlerRequest;
use lowroad_handler::request_label::RequestLabel;
use lowroad_module::MessageLevel;

use super::call_loop::CallLimits;
use super::identity::ModuleIdentity;

/// The port of URLs that do not contain one.
const PORT: u16 = 80;
/// The maximum number of idle connections per server.
const IDLE_MAX: usize = 8;

static CLIENT: LazyLock<Client<HttpConnector, Empty<Bytes>>> = LazyLock::new(|| {
    Client::builder(TokioExecutor::new())
        .pool_max_idle_per_host(IDLE_MAX)
        .pool_timer(TokioTimer::new())
        .build_http()
});

/// A fetch in progress. It resolves to the status (0 without a response) and the content.
pub type FetchFuture = Pin<Box<dyn Future<Output = (u16, Bytes)> + Send>>;

/// Starts to fetch a path of the request's site, or an `http://` URL of an allowed server. The list of allowed servers
/// prevents server-side request forgery: a client that influences URLs must not reach hosts that only this server can
/// reach.
pub fn fetch(
    identity: &ModuleIdentity,
    request: &HandlerRequest,
    target: &Bytes,
    limits: &CallLimits,
) -> FetchFuture {
    if target.starts_with(b"/") {
        // A path of the site is answered by the site's own objects, without a connection.
        let load = request.objects.load(target);
        return Box::pin(async {
            match load.await {
                Some(bytes) => (200, bytes),
                None => (404, Bytes::new()),
            }
        });
    }
    let url = match check_destination(&identity.fetch, target) {
        Ok(url) => url,
        Err(message) => {
            identity.log_request(MessageLevel::Warn, &message, &RequestLabel::from(request));
            return Box::pin(ready((0, Bytes::new())));
        }
    };
    let limits = *limits;
    Box::pin(async move {
        // The limit is half of the call's time limit, so that the module can still respond if the other server does
        // not.
        let limit = Duration::from_millis(limits.timeout_ms / 2);
        let answer = tokio::time::timeout(limit, get(url, limits.response_len_max)).await;
        answer.ok().flatten().unwrap_or_default()
    })
}

/// Checks a URL against the allowed servers. The URL is parsed only once, so the host that was checked is the host that
/// is connected to.
fn check_destination(servers: &[AllowedDestination], target: &[u8]) -> Result<Uri, String> {
    let target_text = String::from_utf8_lossy(target);
    let url = Uri::try_from(target)
        .map_err(|error| format!("{target_text} is not a valid URL: {error}"))?;
    let (host, port) = (
        url.host().unwrap_or_default(),
        url.port_u16().unwrap_or(PORT),
    );
    // Host and port are compared after parsing, so that user info or unusual notations cannot disguise the host.
    if servers.iter().any(|server| server.covers(host, port)) {
        return Ok(url);
    }
    Err(format!(
        "not permitted to fetch {target_text}: to permit it, add fetch = [\"{host}:{port}\"] to its [[module]]"
    ))
}

/// Fetches a URL; `None` if there is no response, or if it is too long.
async fn get(url: Uri, len_max: usize) -> Option<(u16, Bytes)> {
    let answer = CLIENT.get(url).await.ok()?;
    let status = answer.status().as_u16();
    // The body is limited, since the other server determines its length.
    let body = Limited::new(answer.into_body(), len_max).collect();
    Some((status, body.await.ok()?.to_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetch_is_limited_to_allowed_destinations() {
        let allowed_destinations = ["api.example.com:80", "*.example.org:8080"]
            .map(|text| AllowedDestination::parse(text).expect("a destination"));
        for url in [
            "http://api.example.com/a?b",
            "http://API.example.com:80/",
            "http://a.b.example.org:8080/",
        ] {
            assert!(
                check_destination(&allowed_destinations, url.as_bytes()).is_ok(),
                "{url}"
            );
        }
        for url in [
            "http://127.0.0.1/",
            "http://169.254.169.254/latest/",
            "http://[::1]/",
            "http://api.example.com:81/",
            "http://api.example.com:80@127.0.0.1/",
            "http://127.0.0.1#api.example.com",
            "http://127.0.0.1/?.example.org:8080",
            "http://127.0.0.1\\.example.org:8080/",
            "http://example.org:8080/",
            "http://a.example.org/",
            "http://",
            "http:///",
            "http://:80/",
        ] {
            assert!(
                check_destination(&allowed_destinations, url.as_bytes()).is_err(),
                "{url}"
            );
            assert!(check_destination(&[], url.as_bytes()).is_err(), "{url}");
        }
        let refused = check_destination(&[], b"http://127.0.0.1/").expect_err("it is refused");
        assert!(refused.contains("fetch = [\"127.0.0.1:80\"]"), "{refused}");
    }
}
