//! The operations of the admin service, and the parser of requests for them. Pure: uses no server and no socket.

use std::borrow::Cow;

use lowroad_http::method::Method;

use super::problem::AdminProblem;

/// The maximum length of a body with a whole list: more than a full deny list has, with spaces and ends.
pub const LIST_LEN_MAX: u64 = 4 << 20;
/// The maximum length of other bodies.
const BODY_LEN_MAX: u64 = 64 << 10;

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
    /// The sites and routes in force.
    Sites,
    /// The certificates.
    Certificates,
    /// Renews an automatic certificate now.
    RenewCertificate,
    /// The level of the error log, and the sampling of traces.
    Log,
    /// Changes the level of the error log, or the sampling of traces.
    ChangeLog,
    /// The deny list.
    Deny,
    /// Replaces the deny list.
    ReplaceDeny,
    /// Adds and removes entries of the deny list.
    ChangeDeny,
    /// The servers of all origins.
    Origins,
    /// The servers of an origin.
    Origin,
    /// Adds a server to an origin.
    AddServer,
    /// A server of an origin.
    Server,
    /// Changes the state or the weight of a server.
    ChangeServer,
    /// Removes a server that was added.
    RemoveServer,
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

/// An operation with its method, path and permission. `{name}` in a path stands for one segment.
pub struct OperationEntry {
    /// The method; HEAD is treated like GET.
    pub method: Method,
    /// The path.
    pub path: &'static str,
    /// The operation.
    pub operation: AdminOperation,
    /// The permission that the operation needs.
    pub permission: AdminPermission,
}

const fn read(path: &'static str, operation: AdminOperation) -> OperationEntry {
    OperationEntry {
        method: Method::Get,
        path,
        operation,
        permission: AdminPermission::Read,
    }
}

const fn change(method: Method, path: &'static str, operation: AdminOperation) -> OperationEntry {
    OperationEntry {
        method,
        path,
        operation,
        permission: AdminPermission::Full,
    }
}

/// All operations; the OpenAPI document must have the same paths.
pub const OPERATIONS: &[OperationEntry] = &[
    read("/", AdminOperation::Root),
    read("/dashboard", AdminOperation::Dashboard),
    read("/metrics", AdminOperation::Metrics),
    read("/v1/status", AdminOperation::Status),
    read("/v1/snapshot", AdminOperation::Snapshot),
    read("/v1/events", AdminOperation::Events),
    read("/v1/urls", AdminOperation::Urls),
    read("/v1/config", AdminOperation::Config),
    read("/v1/explain", AdminOperation::Explain),
    change(Method::Post, "/v1/purge", AdminOperation::Purge),
    change(Method::Post, "/v1/reload", AdminOperation::Reload),
    change(Method::Post, "/v1/maintenance", AdminOperation::Maintenance),
    change(Method::Post, "/v1/upgrade", AdminOperation::Upgrade),
    change(Method::Post, "/v1/stop", AdminOperation::Stop),
    read("/v1/sites", AdminOperation::Sites),
    read("/v1/certificates", AdminOperation::Certificates),
    change(
        Method::Post,
        "/v1/certificates/{name}/renew",
        AdminOperation::RenewCertificate,
    ),
    read("/v1/log", AdminOperation::Log),
    change(Method::Patch, "/v1/log", AdminOperation::ChangeLog),
    read("/v1/deny", AdminOperation::Deny),
    change(Method::Put, "/v1/deny", AdminOperation::ReplaceDeny),
    change(Method::Patch, "/v1/deny", AdminOperation::ChangeDeny),
    read("/v1/origins", AdminOperation::Origins),
    read("/v1/origins/{origin}", AdminOperation::Origin),
    change(
        Method::Post,
        "/v1/origins/{origin}/servers",
        AdminOperation::AddServer,
    ),
    read(
        "/v1/origins/{origin}/servers/{address}",
        AdminOperation::Server,
    ),
    change(
        Method::Patch,
        "/v1/origins/{origin}/servers/{address}",
        AdminOperation::ChangeServer,
    ),
    change(
        Method::Delete,
        "/v1/origins/{origin}/servers/{address}",
        AdminOperation::RemoveServer,
    ),
    read("/openapi.json", AdminOperation::Description),
];

impl OperationEntry {
    /// The name of the operation in metrics.
    pub fn name(&self) -> String {
        format!("{} {}", self.method.as_str(), self.path)
    }
}

/// A request for an operation.
pub struct AdminRequest {
    /// The operation.
    pub entry: &'static OperationEntry,
    /// The variable segments of the path, decoded, in their order.
    pub segments: Vec<String>,
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
        let matching = OPERATIONS
            .iter()
            .filter_map(|entry| Some((entry, segments(entry.path, path)?)));
        let mut at_path: Vec<(&'static OperationEntry, Vec<String>)> = matching.collect();
        let allowed = |entry: &OperationEntry| {
            method == entry.method || (method == Method::Head && entry.method == Method::Get)
        };
        // HEAD is answered like GET; the engine omits the body.
        let Some(found) = at_path.iter().position(|(entry, _)| allowed(entry)) else {
            let path = String::from_utf8_lossy(path);
            if at_path.is_empty() {
                return Err(AdminProblem::not_found(format!(
                    "{path}: the admin service has no such path; /openapi.json lists them"
                )));
            }
            let methods: Vec<Method> = at_path.iter().map(|(entry, _)| entry.method).collect();
            return Err(AdminProblem::wrong_method(&methods, &path));
        };
        let (entry, segments) = at_path.swap_remove(found);
        Ok(AdminRequest {
            entry,
            segments,
            parameters: parameters(query.unwrap_or_default()),
        })
    }

    /// The variable segment of the path at this index; empty if the path of the operation has none there.
    pub fn segment(&self, index: usize) -> &str {
        self.segments.get(index).map_or("", String::as_str)
    }

    /// Whether the operation takes a JSON body.
    pub fn takes_body(&self) -> bool {
        matches!(
            self.entry.operation,
            AdminOperation::AddServer
                | AdminOperation::ChangeServer
                | AdminOperation::ChangeLog
                | AdminOperation::ReplaceDeny
                | AdminOperation::ChangeDeny
        )
    }

    /// The maximum length of the body.
    pub fn body_len_max(&self) -> u64 {
        match self.entry.operation {
            AdminOperation::ReplaceDeny | AdminOperation::ChangeDeny => LIST_LEN_MAX,
            _ => BODY_LEN_MAX,
        }
    }

    /// Whether the operation compares If-Match with the tag of the settings that it changes.
    pub fn has_condition(&self) -> bool {
        matches!(
            self.entry.operation,
            AdminOperation::AddServer
                | AdminOperation::ChangeServer
                | AdminOperation::RemoveServer
                | AdminOperation::ChangeLog
                | AdminOperation::ReplaceDeny
                | AdminOperation::ChangeDeny
        )
    }

    /// Whether the operation may wait for applications, for another process or for the disk.
    pub fn may_wait(&self) -> bool {
        matches!(
            self.entry.operation,
            AdminOperation::Reload
                | AdminOperation::Upgrade
                | AdminOperation::Purge
                | AdminOperation::Explain
        )
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

/// The variable segments of `path`, decoded; `None` if it does not match `pattern`.
fn segments(pattern: &str, path: &[u8]) -> Option<Vec<String>> {
    let (mut expected, mut actual) = (pattern.split('/'), path.split(|byte| *byte == b'/'));
    let mut found = Vec::new();
    loop {
        // Segments are compared before they are decoded: an encoded slash does not separate two.
        match (expected.next(), actual.next()) {
            (None, None) => return Some(found),
            (Some(name), Some(segment)) if name.starts_with('{') && !segment.is_empty() => {
                found.push(decoded(segment, SpaceEncoding::Percent));
            }
            (Some(name), Some(segment)) if name.as_bytes() == segment => {}
            _ => return None,
        }
    }
}

/// How a space is encoded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SpaceEncoding {
    /// As a plus sign, in queries.
    Plus,
    /// As %20 only, in paths.
    Percent,
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
        let value = value.get(1..).unwrap_or_default();
        (
            decoded(name, SpaceEncoding::Plus),
            decoded(value, SpaceEncoding::Plus),
        )
    });
    pairs.collect()
}

/// Decodes `%HH`, and `+` in a query. Keeps a percent sign without two hexadecimal digits, as browsers do.
fn decoded(text: &[u8], space: SpaceEncoding) -> String {
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
            (None, b'+') if space == SpaceEncoding::Plus => out.push(b' '),
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

/// Percent-encodes a segment of a path.
pub fn encoded_segment(text: &str) -> String {
    encoded(text).replace('/', "%2F")
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
    fn variable_segments_are_decoded() {
        let path = b"/v1/origins/http%3A%2F%2Fa%3A1/servers/10.0.0.1:80+";
        let request = AdminRequest::new(Method::Get, path, None).expect("an operation");
        assert_eq!(request.entry.operation, AdminOperation::Server);
        assert_eq!(request.segments, ["http://a:1", "10.0.0.1:80+"]);
        for path in [
            "/v1/origins/",
            "/v1/origins/a/",
            "/v1/origins/a/servers/b/c",
        ] {
            assert!(
                AdminRequest::new(Method::Get, path.as_bytes(), None).is_err(),
                "{path}"
            );
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
            .map(|entry| format!("{} {}", entry.method.as_str(), entry.path));
        let mut known: Vec<String> = known.collect();
        described.sort();
        known.sort();
        assert_eq!(described, known);
    }

    #[test]
    fn wrong_method_is_refused_with_the_allowed_one() {
        let wrong = AdminRequest::new(Method::Get, b"/v1/reload", None)
            .err()
            .expect("no GET");
        assert_eq!(wrong.status.code(), 405);
        assert_eq!(wrong.allow.as_deref(), Some("POST"));
        let several = AdminRequest::new(Method::Put, b"/v1/origins/a/servers/b", None);
        let several = several.err().expect("no PUT");
        assert_eq!(several.allow.as_deref(), Some("GET, HEAD, PATCH, DELETE"));
        let unknown = AdminRequest::new(Method::Get, b"/v2", None)
            .err()
            .expect("no path");
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
        let names: Vec<(String, &OperationEntry)> = OPERATIONS
            .iter()
            .map(|entry| (entry.method.as_str().to_lowercase(), entry))
            .collect();
        let offered: BTreeSet<(&str, &str)> = names
            .iter()
            .map(|(method, entry)| (method.as_str(), entry.path))
            .collect();
        assert_eq!(described, offered);
        for (method, entry) in &names {
            let (path, permission) = (&entry.path, entry.permission);
            let responses = &paths[*path][method]["responses"];
            // Any operation may be refused for its token (401), or because too many requests are waiting (503).
            for status in ["401", "429", "503"] {
                assert!(responses.get(status).is_some(), "{path}: {status}");
            }
            let success = match entry.operation {
                AdminOperation::Root => "307",
                AdminOperation::AddServer => "201",
                AdminOperation::RenewCertificate => "202",
                _ => "200",
            };
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
