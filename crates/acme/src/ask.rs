//! On demand: whether somebody wants a certificate for a name.

use bytes::Bytes;
use http::{Request, Uri};
use instant_acme::BodyWrapper;

use crate::http::Http;
use crate::plan::{Kind, Trouble};

/// Asks `GET URL?domain=NAME`. 200 means yes, every other status no.
pub(crate) async fn ask(http: &Http, url: &str, name: &str) -> Result<bool, Trouble> {
    let uri = uri(url, name)?;
    let request = Request::get(uri).body(BodyWrapper::<Bytes>::default());
    let request = request.map_err(|error| Trouble::local(format!("{url}: {error}")))?;
    match http.ask(request).await {
        Ok(response) => Ok(response.status() == http::StatusCode::OK),
        Err(error) => {
            let text = format!("{url} cannot be asked whether {name} is wanted: {error}");
            Err(Trouble::new(Kind::Local, text))
        }
    }
}

/// The name has letters, digits, hyphens and dots: nothing that would have to be escaped.
fn uri(url: &str, name: &str) -> Result<Uri, Trouble> {
    let mark = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{mark}domain={name}");
    url.parse()
        .map_err(|error| Trouble::local(format!("{url}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_may_be_longer() {
        let query = |url| uri(url, "a.example").expect("a URL").to_string();
        assert_eq!(
            query("http://[::1]:1/ask"),
            "http://[::1]:1/ask?domain=a.example"
        );
        assert_eq!(query("http://h/?k=1"), "http://h/?k=1&domain=a.example");
    }
}
