//! Classifies errors of ACME authorities by their remedy.

use instant_acme::{Error, Problem};

use crate::authority_client::{AuthorityUnreachable, ResponseMeta};
use crate::plan::{AcmeFailure, FailureKind};

/// The type of a problem document (RFC 8555 §6.7), without the common URN prefix.
pub(crate) fn problem_type(error: &Error) -> Option<&str> {
    match error {
        Error::Api(problem) => short_type(problem),
        _ => None,
    }
}

fn short_type(problem: &Problem) -> Option<&str> {
    problem.r#type.as_deref()?.rsplit(':').next()
}

/// Converts an error of `instant-acme`; `meta` is that of the last response.
pub(crate) fn to_failure(error: &Error, meta: ResponseMeta) -> AcmeFailure {
    let (kind, text) = classify(error, meta);
    let retry_after_s = match kind {
        FailureKind::RateLimited | FailureKind::Unreachable => meta.retry_after_s,
        // For these kinds, waiting does not help, so Retry-After is ignored.
        FailureKind::Refused | FailureKind::WrongAnswer | FailureKind::Local => None,
    };
    AcmeFailure {
        kind,
        retry_after_s,
        text,
    }
}

fn classify(error: &Error, meta: ResponseMeta) -> (FailureKind, String) {
    if let Error::Other(error) = error
        && error.is::<AuthorityUnreachable>()
    {
        return (
            FailureKind::Unreachable,
            format!("cannot be reached: {error}"),
        );
    }
    let status = meta.status.as_u16();
    match error {
        Error::Api(problem) => {
            let kind = match short_type(problem) {
                Some("rateLimited") => FailureKind::RateLimited,
                // The next order starts with a new nonce.
                Some("serverInternal" | "badNonce") => FailureKind::Unreachable,
                Some("malformed") => FailureKind::WrongAnswer,
                // Problem types are optional (RFC 8555 §6.7); without a known type, the status decides.
                _ if status == 429 => FailureKind::RateLimited,
                _ if status >= 500 => FailureKind::Unreachable,
                _ => FailureKind::Refused,
            };
            let text = problem_text(problem);
            match text.is_empty() {
                true => (
                    kind,
                    format!("answered with status {status} without a reason"),
                ),
                false => (kind, text),
            }
        }
        // Responses of proxies in front of the authority have no problem document.
        _ if status == 429 => (FailureKind::RateLimited, "too many requests".into()),
        _ if status >= 500 => (
            FailureKind::Unreachable,
            format!("answered with status {status}"),
        ),
        Error::Timeout(_) => (
            FailureKind::Unreachable,
            "did not finish the order in time".into(),
        ),
        Error::Crypto | Error::KeyRejected => (FailureKind::Local, error.to_string()),
        Error::Unsupported(feature) => {
            (FailureKind::Refused, format!("does not support {feature}"))
        }
        Error::Json(error) => {
            let text =
                format!("answered with status {status} and a body that is not ACME: {error}");
            (FailureKind::WrongAnswer, text)
        }
        error => (
            FailureKind::WrongAnswer,
            format!("sent an invalid response: {error}"),
        ),
    }
}

/// The problem's type and description, with those of its subproblems.
pub(crate) fn problem_text(problem: &Problem) -> String {
    let mut text = problem.detail.clone().unwrap_or_default();
    if let Some(kind) = short_type(problem) {
        text = format!("{kind}: {text}");
    }
    for part in &problem.subproblems {
        text = format!("{text}; {part}");
    }
    // For logs and status: a single line of bounded length.
    let text = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    text.take(1000).collect()
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn api(json: &str, status: u16) -> AcmeFailure {
        let problem: Problem = serde_json::from_str(json).expect("a problem");
        let response_meta = ResponseMeta {
            status: StatusCode::from_u16(status).expect("a status"),
            retry_after_s: Some(60),
        };
        to_failure(&Error::Api(problem), response_meta)
    }

    #[test]
    fn problems_are_classified_by_remedy() {
        let limited = api(
            r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"slow"}"#,
            429,
        );
        assert_eq!(limited.kind, FailureKind::RateLimited);
        assert_eq!(limited.retry_after_s, Some(60));
        assert_eq!(limited.text, "rateLimited: slow");
        let refused = api(
            r#"{"type":"urn:ietf:params:acme:error:dns","detail":"a\nb"}"#,
            400,
        );
        assert_eq!(
            (refused.kind, refused.retry_after_s),
            (FailureKind::Refused, None)
        );
        assert_eq!(refused.text, "dns: a b");
        assert_eq!(api("{}", 503).kind, FailureKind::Unreachable);
        let unexplained = api("{}", 429);
        assert_eq!(unexplained.kind, FailureKind::RateLimited);
        assert_eq!(
            unexplained.text,
            "answered with status 429 without a reason"
        );
    }
}
