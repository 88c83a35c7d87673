//! Error responses of the admin service, as problem details (RFC 9457).

use lowroad_http::method::Method;
use lowroad_http::status::StatusCode;

/// The reason why an operator's request failed.
#[derive(Debug, PartialEq, Eq)]
pub struct AdminProblem {
    /// The status of the response.
    pub status: StatusCode,
    /// The reason and a remedy.
    pub detail: String,
    /// The method that the path supports, if the request had another one (Allow field).
    pub allow: Option<&'static str>,
    /// Seconds after which the client may retry (Retry-After field).
    pub retry_after_s: Option<u64>,
}

impl AdminProblem {
    /// A problem with this status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> AdminProblem {
        AdminProblem {
            status,
            detail: detail.into(),
            allow: None,
            retry_after_s: None,
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

    /// A problem with status 405.
    pub fn wrong_method(expected: Method, path: &str) -> AdminProblem {
        let detail = format!("{path} takes {}", expected.as_str());
        AdminProblem {
            allow: Some(match expected {
                Method::Post => "POST",
                _ => "GET, HEAD",
            }),
            ..AdminProblem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
        }
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
