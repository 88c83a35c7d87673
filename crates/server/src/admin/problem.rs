//! Error responses of the admin service, as problem details (RFC 9457).

use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;

use super::audit::AuditedChange;

/// The reason why an operator's request failed.
#[derive(Debug, PartialEq, Eq)]
pub struct AdminProblem {
    /// The status of the response.
    pub status: StatusCode,
    /// The reason and a remedy.
    pub detail: String,
    /// The methods that the path supports, if the request had another one (Allow field).
    pub allow: Option<String>,
    /// Seconds after which the client may retry (Retry-After field).
    pub retry_after_s: Option<u64>,
    /// The change that is in force although it could not be saved.
    pub unsaved: Option<Box<AuditedChange>>,
}

impl AdminProblem {
    /// A problem with this status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> AdminProblem {
        AdminProblem {
            status,
            detail: detail.into(),
            allow: None,
            retry_after_s: None,
            unsaved: None,
        }
    }

    /// A problem with status 400.
    pub fn bad_request(detail: impl Into<String>) -> AdminProblem {
        AdminProblem::new(StatusCode::BAD_REQUEST, detail)
    }

    /// A problem with status 404.
    pub fn not_found(detail: impl Into<String>) -> AdminProblem {
        AdminProblem::new(StatusCode::NOT_FOUND, detail)
    }

    /// A problem with status 405: the path takes other methods.
    pub fn wrong_method(expected: &[Method], path: &str) -> AdminProblem {
        let names = expected.iter().map(|method| match method {
            Method::Get => "GET, HEAD",
            other => other.as_str(),
        });
        let allow = names.collect::<Vec<_>>().join(", ");
        AdminProblem {
            detail: format!("{path} takes {allow}"),
            allow: Some(allow),
            ..AdminProblem::new(StatusCode::METHOD_NOT_ALLOWED, "")
        }
    }

    /// A problem with status 412: the state has changed since the client read it.
    pub fn stale(current: &str) -> AdminProblem {
        AdminProblem::new(
            StatusCode::PRECONDITION_FAILED,
            format!(
                "the state has changed meanwhile, nothing was changed now; its ETag is {current}"
            ),
        )
    }

    /// The problem as JSON.
    pub fn to_json(&self) -> Vec<u8> {
        let object = serde_json::json!({
            "type": "about:blank",
            "title": self.status.reason(),
            "status": self.status.code(),
            "detail": self.detail,
        });
        object.to_string().into_bytes()
    }
}
