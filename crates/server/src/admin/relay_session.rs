//! Decides how the relay of `lowroad dashboard` handles a request. Pure: uses no sockets.
//!
//! Threats: other users of the machine can connect to a port on loopback, and pages of other sites can send requests to
//! it. Therefore the link has a token that works once. Opening it sets a cookie (HttpOnly, SameSite=Strict), which all
//! other requests need. Cookies do not distinguish ports, so the cookie has a random path: a server at another port of
//! this machine never gets it. `Host` must name this port, against DNS rebinding, and requests of other origins are
//! refused.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lowroad_http::body::BodyFraming;
use lowroad_http::h1::H1RequestHead;
use lowroad_http::method::Method;
use lowroad_http::request::{Request, RequestTarget};
use lowroad_http::status::StatusCode;

use super::access::is_same_secret;
use super::operations::{AdminOperation, AdminPermission, AdminRequest};

/// The name of the cookie.
const COOKIE: &str = "lowroad_dashboard";
/// The path, below the session's, at which the relay itself answers: its own state and that of the levels.
const STATE_PATH: &str = "/v1/relay";

/// The secrets of one command. All are lowercase hexadecimal.
pub struct RelaySession {
    /// The token of the link.
    pub token: String,
    /// The value of the cookie.
    pub cookie: String,
    /// The first segment of all paths but the link's.
    pub folder: String,
    /// The port of the relay.
    pub port: u16,
    /// Whether requests that change the server are refused.
    pub is_read_only: bool,
    /// Whether the link was opened.
    pub is_opened: AtomicBool,
}

/// The action for a request.
#[derive(Debug, PartialEq, Eq)]
pub enum RelayDecision {
    /// Set the cookie and send a page that leads to the dashboard.
    Open,
    /// Send it to the server, with this target.
    Forward(Method, String),
    /// Answer with the state of the relay.
    State,
    /// Refuse it.
    Refuse(StatusCode, &'static str),
}

const USED: &str = "this link has been opened before; run lowroad dashboard again for another one";
const NO_SESSION: &str = "open the link that lowroad dashboard has printed";

impl RelaySession {
    /// Decides how to handle a request.
    pub fn decide(&self, head: &H1RequestHead<'_>) -> RelayDecision {
        self.try_decide(head)
            .unwrap_or_else(|(status, why)| RelayDecision::Refuse(status, why))
    }

    /// The link's path and query.
    pub fn link(&self) -> String {
        format!("/?token={}", self.token)
    }

    /// The value of Set-Cookie.
    pub fn set_cookie(&self) -> String {
        let RelaySession { cookie, folder, .. } = self;
        format!("{COOKIE}={cookie}; Path=/{folder}/; HttpOnly; SameSite=Strict")
    }

    fn try_decide(
        &self,
        head: &H1RequestHead<'_>,
    ) -> Result<RelayDecision, (StatusCode, &'static str)> {
        let request = &head.request;
        // First of all, so that a page with a rebound DNS name learns nothing else.
        if !self.is_own_host(request.authority) {
            let why = "the Host field names another server";
            return Err((StatusCode::MISDIRECTED_REQUEST, why));
        }
        // No operation has a body, and the relay would have to forward it.
        if !matches!(head.framing, BodyFraming::None | BodyFraming::Length(0)) {
            return Err((StatusCode::CONTENT_TOO_LARGE, "requests have no body here"));
        }
        let RequestTarget::Origin { path, query, .. } = request.target else {
            return Err((StatusCode::BAD_REQUEST, "the target is no path"));
        };
        // The link is opened from a terminal or another program, so it has neither cookie nor Origin.
        if path == b"/" {
            // A HEAD of a program that examines links would use up the token.
            return match request.method {
                Method::Get => self.open(query),
                _ => Err((StatusCode::METHOD_NOT_ALLOWED, NO_SESSION)),
            };
        }
        let path = self.session_path(path, request)?;
        if !self.is_own_origin(request) {
            let why = "pages of other sites can't use the dashboard";
            return Err((StatusCode::FORBIDDEN, why));
        }
        if path == STATE_PATH.as_bytes() && request.method == Method::Get {
            return Ok(RelayDecision::State);
        }
        self.forward(request.method, path, query)
    }

    /// Opens the session with the link's token, once.
    fn open(&self, query: Option<&[u8]>) -> Result<RelayDecision, (StatusCode, &'static str)> {
        let token = query.and_then(|query| query.strip_prefix(b"token="));
        let is_right = token.is_some_and(|token| is_same_secret(self.token.as_bytes(), token));
        if !is_right {
            return Err((StatusCode::UNAUTHORIZED, NO_SESSION));
        }
        // One swap decides: of two clients with the token only one gets the session.
        match self.is_opened.swap(true, Relaxed) {
            true => Err((StatusCode::UNAUTHORIZED, USED)),
            false => Ok(RelayDecision::Open),
        }
    }

    /// The path below the session's folder, for a client with the cookie.
    fn session_path<'b>(
        &self,
        path: &'b [u8],
        request: &Request<'_>,
    ) -> Result<&'b [u8], (StatusCode, &'static str)> {
        let refused = (StatusCode::UNAUTHORIZED, NO_SESSION);
        let below = path.strip_prefix(b"/").ok_or(refused)?;
        let below = below.strip_prefix(self.folder.as_bytes()).ok_or(refused)?;
        let has_cookie = fields(request, "Cookie")
            .flat_map(|value| value.split(|byte| *byte == b';'))
            .filter_map(|pair| pair.trim_ascii().strip_prefix(COOKIE.as_bytes()))
            .filter_map(|rest| rest.strip_prefix(b"="))
            .any(|value| is_same_secret(self.cookie.as_bytes(), value));
        match has_cookie && below.starts_with(b"/") {
            true => Ok(below),
            false => Err(refused),
        }
    }

    /// Forwards the operations that the page needs, reading and purges, so that a stolen session can't stop the server.
    fn forward(
        &self,
        method: Method,
        path: &[u8],
        query: Option<&[u8]>,
    ) -> Result<RelayDecision, (StatusCode, &'static str)> {
        let asked = AdminRequest::new(method, path, query).map_err(|problem| {
            let why = "the dashboard has no such operation";
            (problem.status, why)
        })?;
        let is_change = asked.entry.permission > AdminPermission::Read;
        if is_change && self.is_read_only {
            let why = "this dashboard is read-only: it was started with --read-only";
            return Err((StatusCode::FORBIDDEN, why));
        }
        if is_change && asked.entry.operation != AdminOperation::Purge {
            let why = "the dashboard can only look and purge";
            return Err((StatusCode::FORBIDDEN, why));
        }
        let mut target = String::from_utf8_lossy(path).into_owned();
        if let Some(query) = query {
            target.push('?');
            target.push_str(&String::from_utf8_lossy(query));
        }
        Ok(RelayDecision::Forward(method, target))
    }

    fn is_own_host(&self, authority: Option<&[u8]>) -> bool {
        self.hosts().any(|host| authority == Some(host.as_bytes()))
    }

    /// Whether a page of this relay sends the request, as far as the browser tells (Fetch Standard, `Origin` and
    /// `Sec-Fetch-Site`). Changes need an Origin.
    fn is_own_origin(&self, request: &Request<'_>) -> bool {
        let is_own = |origin: &[u8]| {
            self.hosts()
                .any(|host| origin == format!("http://{host}").as_bytes())
        };
        let mut origins = fields(request, "Origin").peekable();
        let has_origin = origins.peek().is_some();
        let is_read = matches!(request.method, Method::Get | Method::Head);
        let is_same_site = |site: &[u8]| site == b"same-origin" || site == b"none";
        (is_read || has_origin)
            && origins.all(is_own)
            && fields(request, "Sec-Fetch-Site").all(is_same_site)
    }

    fn hosts(&self) -> impl Iterator<Item = String> {
        let port = self.port;
        ["127.0.0.1", "localhost"]
            .into_iter()
            .map(move |host| format!("{host}:{port}"))
    }
}

/// The values of a field.
fn fields<'b>(request: &Request<'b>, name: &'static str) -> impl Iterator<Item = &'b [u8]> {
    let named = move |(known, _): &(&[u8], &[u8])| known.eq_ignore_ascii_case(name.as_bytes());
    request.fields().filter(named).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use lowroad_http::h1;
    use lowroad_http::limits::RequestLimits;

    use super::*;

    fn session(is_read_only: bool) -> RelaySession {
        RelaySession {
            token: "aa".into(),
            cookie: "bb".into(),
            folder: "cc".into(),
            port: 99,
            is_read_only,
            is_opened: AtomicBool::new(false),
        }
    }

    fn decide(session: &RelaySession, line: &str, fields: &str) -> RelayDecision {
        let text = format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:99\r\n{fields}\r\n");
        decide_text(session, &text)
    }

    fn decide_text(session: &RelaySession, text: &str) -> RelayDecision {
        let head = h1::parse(text.as_bytes(), &RequestLimits::default());
        session.decide(&head.expect("valid").expect("complete"))
    }

    /// The status of a refusal, otherwise 200.
    fn code(decision: &RelayDecision) -> u16 {
        match decision {
            RelayDecision::Refuse(status, _) => status.code(),
            _ => 200,
        }
    }

    const COOKIE_LINE: &str = "Cookie: a=b; lowroad_dashboard=bb\r\n";

    #[test]
    fn link_token_works_once() {
        let session = session(false);
        for wrong in ["GET /", "GET /?token=", "GET /?token=ab", "GET /?token=aaa"] {
            assert_eq!(code(&decide(&session, wrong, "")), 401, "{wrong}");
        }
        let link = format!("GET {}", session.link());
        assert_eq!(decide(&session, &link, ""), RelayDecision::Open);
        assert_eq!(code(&decide(&session, &link, "")), 401);
        assert!(session.set_cookie().contains("Path=/cc/; HttpOnly"));
    }

    #[test]
    fn other_paths_require_the_cookie_and_the_folder() {
        let session = session(false);
        let forward = |target: &str| RelayDecision::Forward(Method::Get, target.into());
        for (line, fields, expected) in [
            ("GET /cc/dashboard", COOKIE_LINE, forward("/dashboard")),
            (
                "GET /cc/v1/explain?url=x%20y",
                COOKIE_LINE,
                forward("/v1/explain?url=x%20y"),
            ),
            ("GET /cc/v1/relay", COOKIE_LINE, RelayDecision::State),
        ] {
            assert_eq!(decide(&session, line, fields), expected);
        }
        for (line, fields) in [
            ("GET /dashboard", COOKIE_LINE),
            ("GET /ccc/dashboard", COOKIE_LINE),
            ("GET /cc", COOKIE_LINE),
            ("GET /cc/dashboard", ""),
            ("GET /cc/dashboard", "Cookie: lowroad_dashboard=b\r\n"),
            ("GET /cc/dashboard", "Cookie: xlowroad_dashboard=bb\r\n"),
            ("GET /cc/v1/relay", "Authorization: Bearer bb\r\n"),
        ] {
            let decision = decide(&session, line, fields);
            assert_eq!(code(&decision), 401, "{line} {fields}");
        }
        let unknown = decide(&session, "GET /cc/v1/unknown", COOKIE_LINE);
        assert_eq!(code(&unknown), 404);
    }

    #[test]
    fn other_hosts_and_origins_are_refused() {
        let session = session(false);
        for (host, expected) in [
            ("127.0.0.1:99", 200),
            ("localhost:99", 200),
            ("127.0.0.1", 421),
            ("127.0.0.1:98", 421),
            ("rebound.example:99", 421),
        ] {
            let text = format!("GET /cc/metrics HTTP/1.1\r\nHost: {host}\r\n{COOKIE_LINE}\r\n");
            assert_eq!(code(&decide_text(&session, &text)), expected, "{host}");
        }
        let own = "Origin: http://127.0.0.1:99\r\n";
        for (line, fields, expected) in [
            ("GET /cc/metrics", "Sec-Fetch-Site: same-origin\r\n", 200),
            ("GET /cc/metrics", "Sec-Fetch-Site: same-site\r\n", 403),
            ("GET /cc/metrics", "Origin: http://127.0.0.1:98\r\n", 403),
            ("POST /cc/v1/purge?target=all", own, 200),
            ("POST /cc/v1/purge?target=all", "", 403),
            ("POST /cc/v1/purge?target=all", "Origin: null\r\n", 403),
            ("POST /cc/v1/stop", own, 403),
            ("POST /cc/v1/reload", own, 403),
            ("GET /cc/v1/purge?target=all", "", 405),
            ("POST /cc/v1/purge", "Content-Length: 1\r\n", 413),
        ] {
            let fields = format!("{COOKIE_LINE}{fields}");
            let decision = decide(&session, line, &fields);
            assert_eq!(code(&decision), expected, "{line} {fields}");
        }
    }

    #[test]
    fn read_only_relay_refuses_purges() {
        let fields = format!("{COOKIE_LINE}Origin: http://localhost:99\r\n");
        let session = session(true);
        let purge = decide(&session, "POST /cc/v1/purge?target=all", &fields);
        assert_eq!(code(&purge), 403);
        let look = decide(&session, "GET /cc/v1/snapshot", &fields);
        assert_eq!(code(&look), 200);
    }
}
