//! The HTTP client for ACME authorities, and for the operator's service that approves certificates on demand.
//!
//! Unlike the client of `instant-acme`, it limits the time and length of responses, uses the trusted roots of
//! [`lowroad_tls`], and reads Retry-After from error responses. Redirects are not followed.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use lowroad_tls::ServerTrust;
use rustls::ClientConfig;

/// Time limit from the request to the last byte of the response.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest accepted response, longer than any certificate chain.
const LEN_MAX: usize = 1 << 20;

/// A connection pool, shared by all clients of an authority.
#[derive(Clone)]
pub(crate) struct AcmeConnections(Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>);

/// Why the authority did not respond.
#[derive(Debug)]
pub(crate) struct AuthorityUnreachable(String);

impl fmt::Display for AuthorityUnreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AuthorityUnreachable {}

/// Metadata of the last response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResponseMeta {
    pub status: StatusCode,
    pub retry_after_s: Option<u64>,
}

/// The client of one order; records the metadata of the last response.
#[derive(Clone)]
pub(crate) struct AcmeClient {
    http: AcmeConnections,
    last_meta: Arc<Mutex<ResponseMeta>>,
}

/// Whether requests to this URL are protected from eavesdropping: https, or a local address.
pub(crate) fn is_private(url: &Uri) -> bool {
    match (url.scheme_str(), url.host()) {
        (Some("https"), Some(_)) => true,
        (Some("http"), Some(host)) => matches!(host, "localhost" | "127.0.0.1" | "[::1]"),
        _ => false,
    }
}

impl AcmeConnections {
    /// Creates a client that trusts these root certificates (PEM), or those of the system. May block.
    pub fn new(roots: Option<&Path>) -> Result<AcmeConnections, String> {
        let verifier = trust(roots)?.verifier();
        let config = ClientConfig::builder_with_provider(lowroad_tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            // `rustls` calls any custom verifier dangerous; this one is built from the trusted roots.
            .dangerous()
            .with_custom_certificate_verifier(verifier.map_err(|error| error.to_string())?)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new())
            // An order takes minutes, and the next one is weeks away, so idle connections are soon closed.
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(connector);
        Ok(AcmeConnections(client))
    }

    /// Sends a request, with limits for the time and for the length of the response.
    pub async fn send(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Result<http::Response<Bytes>, AuthorityUnreachable> {
        let exchange = async {
            let response = self.0.request(request).await;
            let response =
                response.map_err(|error| AuthorityUnreachable(error_chain_text(&error)))?;
            let (parts, body) = response.into_parts();
            // Bounds the memory that a response of a faulty authority can use.
            let body = Limited::new(body, LEN_MAX).collect().await;
            let body = body.map_err(|error| AuthorityUnreachable(error_chain_text(&*error)))?;
            Ok(http::Response::from_parts(parts, body.to_bytes()))
        };
        let timely = tokio::time::timeout(TIMEOUT, exchange).await;
        timely.unwrap_or_else(|_| Err(AuthorityUnreachable("no answer within 30 s".into())))
    }

    pub fn client(&self) -> AcmeClient {
        AcmeClient {
            http: self.clone(),
            last_meta: Arc::default(),
        }
    }
}

impl AcmeClient {
    pub fn response_meta(&self) -> ResponseMeta {
        *self
            .last_meta
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        // The URLs of an order come from the authority's responses, so they are checked.
        if !is_private(request.uri()) {
            let text = format!("a URL without TLS: {}", request.uri());
            return Err(Error::Other(text.into()));
        }
        let is_get = request.method() == Method::GET;
        let result = self.http.send(request).await;
        let response = result.map_err(|error| Error::Other(Box::new(error)))?;
        // The metadata is also recorded for error responses, since `instant-acme` ignores Retry-After there.
        *self
            .last_meta
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = ResponseMeta {
            status: response.status(),
            retry_after_s: retry_after_s(response.headers(), SystemTime::now()),
        };
        let (mut parts, body) = response.into_parts();
        // An authority may omit Retry-After from renewal information (RFC 9773, section 4.3.2), but `instant-acme`
        // requires it. Polling requests are POSTs, with their own intervals.
        if is_get {
            let retry_after = http::HeaderValue::from_static("21600");
            parts.headers.entry(RETRY_AFTER).or_insert(retry_after);
        }
        let body = Box::new(body);
        Ok(BytesResponse { parts, body })
    }
}

impl HttpClient for AcmeClient {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(self.clone().send(request))
    }
}

/// An error with its chain of sources, since the message of a `hyper` error is incomplete.
fn error_chain_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        // Many errors include the text of their source.
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// Parses Retry-After: seconds or a date.
fn retry_after_s(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(
        date.duration_since(now)
            .map_or(0, |remaining| remaining.as_secs()),
    )
}

fn trust(roots: Option<&Path>) -> Result<ServerTrust, String> {
    let Some(path) = roots else {
        let trust = ServerTrust::system();
        return match trust.is_empty() {
            true => Err(
                "the system has no trusted certificate authorities: install ca-certificates".into(),
            ),
            false => Ok(trust),
        };
    };
    let in_file = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let pem = std::fs::read(path).map_err(|error| in_file(&error))?;
    ServerTrust::from_pem(&pem).map_err(|reason| in_file(&reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_private_for_local_addresses_only() {
        let private = |url: &str| is_private(&url.parse().expect("a URL"));
        assert!(private("https://ca.example/directory"));
        assert!(private("http://127.0.0.1:1/") && private("http://[::1]:1/"));
        assert!(!private("http://ca.example/") && !private("/directory"));
        assert!(!private("http://127.0.0.1.example/"));
    }

    #[test]
    fn retry_after_is_parsed_as_seconds_or_date() {
        let after = |text: &'static str| {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
            let value = http::HeaderValue::from_static(text);
            retry_after_s(&HeaderMap::from_iter([(RETRY_AFTER, value)]), now)
        };
        assert_eq!(after("120"), Some(120));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(7));
        assert_eq!(after("Sun, 06 Nov 1983 08:49:37 GMT"), Some(0));
        assert_eq!(after("soon"), None);
    }
}
