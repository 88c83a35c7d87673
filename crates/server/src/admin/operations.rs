//! The operations of the admin service, and the parser of requests for them. Pure: uses no server and no socket.

use std::borrow::Cow;

use lowroad_http::method::Method;

use super::problem::AdminProblem;

/// An operation of the admin service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminOperation {
    /// Leads to the dashboard.
    Root,
    /// The page of the dashboard.
    Dashboard,
    /// The metrics in a Prometheus exposition format.
    Metrics,
    /// The counters as text.
    Status,
    /// A snapshot as JSON: the metrics and the time.
    Snapshot,
    /// A snapshot each second, as server-sent events.
    Events,
    /// The URLs with the most requests, as JSON.
    Urls,
    /// The values of the configuration in force, as JSON.
    Config,
    /// An explanation of how a request would be answered.
    Explain,
    /// Purges stored responses.
    Purge,
    /// Reloads the configuration file.
    Reload,
    /// Turns the maintenance mode of sites on or off.
    Maintenance,
    /// Starts a new process of the program that takes over.
    Upgrade,
    /// Ends the server gracefully.
    Stop,
    /// The OpenAPI document of this service.
    Description,
}

/// The permission that a token grants or an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AdminPermission {
    /// Read-only operations.
    Read,
    /// All operations.
    Full,
}

/// The method, path, operation and permission of each operation; the OpenAPI document must have the same paths.
pub const OPERATIONS: [(Method, &str, AdminOperation, AdminPermission); 15] = [
    (
        Method::Get,
        "/",
        AdminOperation::Root,
        AdminPermission::Read,
    ),
    (
        Method::Get,
        "/dashboard",
        AdminOperation::Dashboard,
        AdminPermission::Read,
    ),
    (
        Method::Get,
        "/metrics",
        AdminOperation::Metrics,
        AdminPermission::Read,
    ),
    (
        Method::Get,
        "/v1/status",
        AdminOperation::Status,
        AdminPermission::Read,
    ),
    (
        Method::Get,
        "/v1/snapshot",
        AdminOperation::Snapshot,
        AdminPermission::Read,
    ),
    (
        Method::Get,
        "/v1/events",
        AdminOperation::Events,
        AdminPermission::Read,
    ),
    (
        Method::Get,
        "/v1/urls",
        AdminOperation::Urls,
        AdminPermission::Read,
    ),
    (
        Method::Get,
        "/v1/config",
        AdminOperation::Config,
        AdminPermission::Read,
    ),
    (
        Method::Get,
        "/v1/explain",
        AdminOperation::Explain,
        AdminPermission::Read,
    ),
    (
        Method::Post,
        "/v1/purge",
        AdminOperation::Purge,
        AdminPermission::Full,
    ),
    (
        Method::Post,
        "/v1/reload",
        AdminOperation::Reload,
        AdminPermission::Full,
    ),
    (
        Method::Post,
        "/v1/maintenance",
        AdminOperation::Maintenance,
        AdminPermission::Full,
    ),
    (
        Method::Post,
        "/v1/upgrade",
        AdminOperation::Upgrade,
        AdminPermission::Full,
    ),
    (
        Method::Post,
        "/v1/stop",
        AdminOperation::Stop,
        AdminPermission::Full,
    ),
    (
        Method::Get,
        "/openapi.json",
        AdminOperation::Description,
        AdminPermission::Read,
    ),
];

/// A request for an operation.
#[derive(Debug, PartialEq, Eq)]
pub struct AdminRequest {
    /// The operation.
    pub operation: AdminOperation,
    /// The permission that the operation needs.
    pub permission: AdminPermission,
    /// The query parameters, decoded, in their order.
    pub parameters: Vec<(String, String)>,
}

impl AdminRequest {
    /// Finds the operation of a request. HEAD is treated like GET.
    ///
    /// # Errors
    /// There is no such path, or it does not support the method.
    pub fn new(
        method: Method,
        path: &[u8],
        query: Option<&[u8]>,
    ) -> Result<AdminRequest, AdminProblem> {
        let path = String::from_utf8_lossy(path);
        let mut at_path = OPERATIONS.iter().filter(|(_, known, ..)| *known == path);
        let Some((expected, _, operation, permission)) = at_path.next() else {
            return Err(AdminProblem::not_found(format!(
                "{path}: the admin service has no such path; /openapi.json lists them"
            )));
        };
        let is_read = method == Method::Head && *expected == Method::Get;
        if method != *expected && !is_read {
            return Err(AdminProblem::wrong_method(*expected, &path));
        }
        Ok(AdminRequest {
            operation: *operation,
            permission: *permission,
            parameters: parameters(query.unwrap_or_default()),
        })
    }

    /// The value of the first parameter with this name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The values of all parameters with this name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self
            .parameters
            .iter()
            .filter(move |(known, _)| known == name);
        named.map(|(_, value)| value.as_str())
    }

    /// The value of the first parameter with this name.
    ///
    /// # Errors
    /// The parameter is missing.
    pub fn required(&self, name: &str) -> Result<&str, AdminProblem> {
        self.parameter(name).ok_or_else(|| {
            AdminProblem::bad_request(format!("the parameter {name} is missing from the query"))
        })
    }
}

/// Parses a query (URL Living Standard, application/x-www-form-urlencoded).
fn parameters(query: &[u8]) -> Vec<(String, String)> {
    let parts = query
        .split(|byte| *byte == b'&')
        .filter(|it| !it.is_empty());
    let pairs = parts.map(|part| {
        let end = part.iter().position(|byte| *byte == b'=');
        let (name, value) = part.split_at(end.unwrap_or(part.len()));
        // Skips the equals sign, which a parameter without a value lacks.
        (decoded(name), decoded(value.get(1..).unwrap_or_default()))
    });
    pairs.collect()
}

/// Decodes `%HH` and `+`. Keeps a percent sign without two hexadecimal digits, as browsers do.
fn decoded(text: &[u8]) -> String {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let code = (*byte == b'%')
            .then(|| Some(digit(text.get(at + 1))? * 16 + digit(text.get(at + 2))?))
            .flatten();
        match (code, byte) {
            (Some(code), _) => {
                out.push(code as u8); // two digits: below 256
                at += 3;
                continue;
            }
            (None, b'+') => out.push(b' '),
            (None, byte) => out.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes a parameter's value.
pub fn encoded(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:*".contains(&byte);
    if text.bytes().all(is_plain) {
        return text.into();
    }
    let mut out = String::with_capacity(2 * text.len());
    for byte in text.bytes() {
        match is_plain(byte) {
            true => out.push(byte.into()),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn encoded_parameter_decodes_to_itself() {
        for text in ["", "http://h/a?b=c&d=%20+e", "Cookie: a=b; c", "\u{fc}\n"] {
            let query = format!("x=1&url={}&url=2", encoded(text));
            let request = AdminRequest::new(Method::Get, b"/v1/explain", Some(query.as_bytes()));
            let request = request.expect("an operation");
            assert_eq!(request.parameter("url"), Some(text));
            assert_eq!(request.all("url").count(), 2);
        }
    }

    #[test]
    fn malformed_queries_are_parsed_as_in_browsers() {
        let read = |query: &str| parameters(query.as_bytes());
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            read("&&a&=b&%=%4"),
            [pair("a", ""), pair("", "b"), pair("%", "%4")]
        );
        assert_eq!(read("a=%ff%41+"), [pair("a", "\u{fffd}A ")]);
    }

    #[test]
    fn openapi_document_has_all_operations() {
        let document: serde_json::Value =
            serde_json::from_str(crate::admin::actions::OPENAPI).expect("JSON");
        let paths = document["paths"].as_object().expect("paths");
        let described = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods").keys();
            methods.map(move |method| format!("{} {path}", method.to_uppercase()))
        });
        let mut described: Vec<String> = described.collect();
        let known = OPERATIONS
            .iter()
            .map(|(method, path, ..)| format!("{} {path}", method.as_str()));
        let mut known: Vec<String> = known.collect();
        described.sort();
        known.sort();
        assert_eq!(described, known);
    }

    #[test]
    fn wrong_method_is_refused_with_the_allowed_one() {
        let wrong = AdminRequest::new(Method::Get, b"/v1/reload", None).expect_err("no GET");
        assert_eq!((wrong.status.code(), wrong.allow), (405, Some("POST")));
        let unknown = AdminRequest::new(Method::Get, b"/v2", None).expect_err("no path");
        assert_eq!(unknown.status.code(), 404);
        assert!(AdminRequest::new(Method::Head, b"/metrics", None).is_ok());
    }

    #[test]
    fn openapi_document_describes_each_operation() {
        let document: serde_json::Value =
            serde_json::from_str(super::super::actions::OPENAPI).expect("JSON");
        let paths = document["paths"].as_object().expect("paths");
        let described = paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("methods");
            methods.keys().map(move |method| (method.as_str(), path))
        });
        let described: BTreeSet<(&str, &str)> = described
            .map(|(method, path)| (method, path.as_str()))
            .collect();
        let names = OPERATIONS.map(|(method, path, ..)| (method.as_str().to_lowercase(), path));
        let offered: BTreeSet<(&str, &str)> = names
            .iter()
            .map(|(method, path)| (method.as_str(), *path))
            .collect();
        assert_eq!(described, offered);
        for ((method, path), (_, _, _, permission)) in names.iter().zip(OPERATIONS) {
            let responses = &paths[*path][method]["responses"];
            // Any operation may be refused for its token (401), or because too many requests are waiting (503).
            for status in ["401", "429", "503"] {
                assert!(responses.get(status).is_some(), "{path}: {status}");
            }
            // `/` redirects to the dashboard.
            let success = if *path == "/" { "307" } else { "200" };
            assert!(responses.get(success).is_some(), "{path}: {success}");
            let needs_full = permission == AdminPermission::Full;
            assert_eq!(responses.get("403").is_some(), needs_full, "{path}");
            for (status, response) in responses.as_object().expect("responses") {
                let problem = response.get("$ref").and_then(|link| link.as_str());
                let expected = (status != success).then_some("#/components/responses/Problem");
                assert_eq!(problem, expected, "{path}: {status}");
            }
        }
    }
}
