//! A request to the admin service with its client, its conditions and its body.

use serde::de::DeserializeOwned;

use super::operations::{AdminPermission, AdminRequest};
use super::problem::AdminProblem;
use lowroad_http::preconditions;
use lowroad_http::status::StatusCode;

/// A client that may use the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminClient {
    /// Its permission.
    pub permission: AdminPermission,
    /// The client for the audit: the user of the Unix socket, the token or the subject of the certificate.
    pub name: String,
}

/// A request with all that its operation needs.
pub struct AdminCall {
    /// The operation.
    pub request: AdminRequest,
    /// The client.
    pub client: AdminClient,
    /// Method, path and query as the client sent them, for the audit.
    pub target: String,
    /// The Accept field.
    pub accept: String,
    /// The If-Match field.
    pub if_match: Option<String>,
    /// The Content-Type field.
    pub content_type: Option<String>,
    /// The body; empty for an operation without one.
    pub body: Vec<u8>,
}

impl AdminCall {
    /// The body.
    ///
    /// # Errors
    /// It is not JSON, or not of this form: unknown members are mistakes, since they would be ignored otherwise.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, AdminProblem> {
        let media_type = self.content_type.as_deref().unwrap_or("application/json");
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if !["application/json", "application/merge-patch+json"]
            .iter()
            .any(|known| media_type.eq_ignore_ascii_case(known))
        {
            return Err(AdminProblem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!("{media_type}: send the change as application/json"),
            ));
        }
        // Otherwise an array would be accepted as well, as the members in the order of the type.
        if self.body.trim_ascii_start().first() != Some(&b'{') {
            return Err(AdminProblem::bad_request(
                "the body can't be used: it is not a JSON object",
            ));
        }
        serde_json::from_slice(&self.body)
            .map_err(|error| AdminProblem::bad_request(format!("the body can't be used: {error}")))
    }

    /// Checks the condition of the request against the tag of the state that it would change. Without a condition, the
    /// change is made in any case.
    ///
    /// # Errors
    /// The state is another one (412).
    pub fn check_match(&self, tag: &str) -> Result<(), AdminProblem> {
        let Some(condition) = &self.if_match else {
            return Ok(());
        };
        // Weak tags never match (RFC 9110 §13.1.1).
        let is_tag = |known: &[u8]| known == tag.as_bytes();
        match condition == "*" || preconditions::list_matches(condition.as_bytes(), is_tag) {
            true => Ok(()),
            false => Err(AdminProblem::stale(tag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use lowroad_http::method::Method;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Patch {
        weight: u32,
    }

    fn call(body: &str, content_type: Option<&str>, if_match: Option<&str>) -> AdminCall {
        let path = b"/v1/origins/a/servers/b";
        AdminCall {
            request: AdminRequest::new(Method::Patch, path, None).expect("an operation"),
            client: AdminClient {
                permission: AdminPermission::Full,
                name: "token".into(),
            },
            target: "PATCH".into(),
            accept: String::new(),
            if_match: if_match.map(str::to_owned),
            content_type: content_type.map(str::to_owned),
            body: body.into(),
        }
    }

    #[test]
    fn body_is_json_without_unknown_members() {
        let parsed = call(
            "{\"weight\":3}",
            Some("application/json; charset=utf-8"),
            None,
        );
        assert_eq!(parsed.json::<Patch>().expect("a patch").weight, 3);
        for (body, content_type, status) in [
            ("", None, 400),
            ("{", None, 400),
            ("{\"weight\":3}x", None, 400),
            ("[3]", None, 400),
            (" [3]", None, 400),
            ("null", None, 400),
            ("{\"weight\":[3]}", None, 400),
            ("{\"weight\":3,\"weight\":4}", None, 400),
            ("{\"weight\":-1}", None, 400),
            ("{\"weight\":3,\"wait\":1}", None, 400),
            ("{\"weight\":3}", Some("text/plain"), 415),
        ] {
            let problem = call(body, content_type, None).json::<Patch>();
            let problem = problem.expect_err("a problem");
            assert_eq!(problem.status.code(), status, "{body}");
        }
    }

    #[test]
    fn condition_matches_the_tag_of_the_state() {
        let matches = |condition| call("", None, condition).check_match("\"1\"").is_ok();
        assert!(matches(None) && matches(Some("*")) && matches(Some("\"0\", \"1\"")));
        for condition in ["\"0\"", "W/\"1\"", "1", "\"0\", *", "\"1\", x", ""] {
            assert!(!matches(Some(condition)), "{condition}");
        }
    }
}
