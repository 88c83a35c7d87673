//! Certificates on demand: asks the operator's service whether a name may get a certificate.

use bytes::Bytes;
use http::{Request, Uri};
use instant_acme::BodyWrapper;

use crate::authority_client::AcmeConnections;
use crate::plan::{AcmeFailure, FailureKind};

/// Sends `GET URL?domain=NAME`. Status 200 permits the certificate, any other status refuses it.
pub(crate) async fn check(
    http: &AcmeConnections,
    url: &str,
    name: &str,
) -> Result<bool, AcmeFailure> {
    let uri = uri(url, name)?;
    let request = Request::get(uri).body(BodyWrapper::<Bytes>::default());
    let request = request.map_err(|error| AcmeFailure::local(format!("{url}: {error}")))?;
    match http.send(request).await {
        Ok(response) => Ok(response.status() == http::StatusCode::OK),
        Err(error) => {
            let text = format!("the request to {url} about {name} failed: {error}");
            // The service is run by the operator, so its failure is a local one.
            Err(AcmeFailure::new(FailureKind::Local, text))
        }
    }
}

/// The URL of the request. A validated name has only letters, digits, hyphens and dots, so it needs no escaping.
fn uri(url: &str, name: &str) -> Result<Uri, AcmeFailure> {
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}domain={name}");
    url.parse()
        .map_err(|error| AcmeFailure::local(format!("{url}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_is_appended_to_existing_query() {
        let query = |url| uri(url, "a.example").expect("a URL").to_string();
        assert_eq!(
            query("http://[::1]:1/ask"),
            "http://[::1]:1/ask?domain=a.example"
        );
        assert_eq!(query("http://h/?k=1"), "http://h/?k=1&domain=a.example");
    }
}
