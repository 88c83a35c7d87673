//! The request object of a template: `request.method`, `request.params.id`, and so on.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use lowroad_handler::HandlerRequest;
use lowroad_http::fields::FieldLines;
use lowroad_http::method::Method;
use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use minijinja::{Error, ErrorKind, State};

use super::csrf::{self, CsrfKey};
use super::form::{self, FormPairs};

/// A request for a page. Most pages use few of its parts, so most parts are created on first use.
pub struct TemplateRequest {
    pub method: Method,
    pub path: Box<[u8]>,
    pub target: Box<[u8]>,
    pub host: Box<[u8]>,
    pub peer: IpAddr,
    pub query: Box<[u8]>,
    /// The request's field lines.
    pub lines: Box<[u8]>,
    /// The memory of the body in bytes, as text and as a form.
    pub body_len: usize,
    body: Value,
    form: Value,
    params: OnceLock<Value>,
    cookies: OnceLock<Value>,
    fields: OnceLock<Value>,
    /// Whether the method is safe, that is, read-only (RFC 9110 §9.2.1).
    pub safe: bool,
    key: CsrfKey,
    token: OnceLock<Result<CsrfToken, String>>,
    /// Whether the page has used data that differ between clients.
    personal: AtomicBool,
}

/// The CSRF token for the forms of a client.
#[derive(Clone)]
pub struct CsrfToken {
    /// The value for the form field.
    pub token: String,
    /// The cookie to set, if the client has none.
    pub new_cookie: Option<String>,
}

impl TemplateRequest {
    /// Creates the object, with the body as text and as parsed form.
    pub fn new(
        request: &HandlerRequest,
        form: FormPairs,
        body: String,
        key: &CsrfKey,
    ) -> TemplateRequest {
        TemplateRequest {
            method: request.method,
            path: copy(request.path()),
            target: copy(request.target()),
            host: copy(request.host()),
            peer: request.peer,
            query: copy(request.query().unwrap_or_default()),
            lines: copy(request.lines()),
            body_len: 0,
            body: Value::from(body),
            form: PairList::value(form),
            params: OnceLock::new(),
            cookies: OnceLock::new(),
            fields: OnceLock::new(),
            safe: form::is_safe(request.method),
            key: key.clone(),
            token: OnceLock::new(),
            personal: AtomicBool::new(false),
        }
    }

    /// The token for this client's forms; the same in every attempt.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn token(&self) -> Result<CsrfToken, String> {
        self.token.get_or_init(|| self.make_token()).clone()
    }

    fn make_token(&self) -> Result<CsrfToken, String> {
        let cookies = form::cookies(&self.lines);
        // A cookie in a different format was not set by this server, and is replaced.
        let existing = text_of(&cookies, csrf::COOKIE).filter(|cookie| csrf::is_cookie(cookie));
        let (cookie, is_new) = match existing {
            Some(cookie) => (cookie.to_string(), false),
            None => (csrf::new_cookie()?, true),
        };
        Ok(CsrfToken {
            // The token is bound to the host, so that a token of one site is invalid for other sites with the same key.
            token: self.key.token(&self.host, &cookie),
            new_cookie: is_new.then_some(cookie),
        })
    }

    /// Whether the request has more than one Cookie field line.
    pub fn has_several_cookie_lines(&self) -> bool {
        let lines = FieldLines::new(&self.lines);
        lines
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"cookie"))
            .nth(1)
            .is_some()
    }

    /// Whether the page has used data that differ between clients.
    pub fn is_personal(&self) -> bool {
        self.personal.load(Relaxed)
    }

    fn part(&self, name: &str) -> Option<Value> {
        // These parts differ between clients, so shared caches must not store the response.
        if matches!(name, "cookies" | "fields" | "peer") {
            self.personal.store(true, Relaxed);
        }
        Some(match name {
            "method" => Value::from(self.method.as_str()),
            "path" => Value::from(lossy(&self.path)),
            "target" => Value::from(lossy(&self.target)),
            "host" => Value::from(lossy(&self.host)),
            "peer" => Value::from(self.peer.to_string()),
            "body" => self.body.clone(),
            "form" => self.form.clone(),
            "params" => list(&self.params, || form::urlencoded(&self.query)),
            "cookies" => list(&self.cookies, || form::cookies(&self.lines)),
            "fields" => list(&self.fields, || fields(&self.lines)),
            _ => return None,
        })
    }
}

impl std::fmt::Debug for TemplateRequest {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("request")
    }
}

fn list(cell: &OnceLock<Value>, make: impl FnOnce() -> FormPairs) -> Value {
    cell.get_or_init(|| PairList::value(make())).clone()
}

/// The request's fields, with names in lower case.
fn fields(lines: &[u8]) -> FormPairs {
    let field = |(name, value): (&[u8], &[u8])| {
        let name = lossy(name).to_ascii_lowercase();
        (name, form::FormValue::Text(lossy(value).into_owned()))
    };
    FieldLines::new(lines).map(field).collect()
}

fn copy(bytes: &[u8]) -> Box<[u8]> {
    bytes.into()
}

/// Whether the browser reports that a page of another site has sent the request (Sec-Fetch-Site, Fetch Metadata).
pub fn is_cross_site(request: &HandlerRequest) -> bool {
    let site = request.field("Sec-Fetch-Site");
    site.is_some_and(|site| site.eq_ignore_ascii_case(b"cross-site"))
}

/// Whether the request has a valid CSRF token, in the form or in a header field.
pub fn has_token(request: &HandlerRequest, form: &FormPairs, key: &CsrfKey) -> bool {
    let cookies = form::cookies(request.lines());
    // Without a cookie, no token is valid.
    let cookie = text_of(&cookies, csrf::COOKIE).unwrap_or_default();
    let header = request.field(csrf::HEADER).map(lossy);
    // The form field takes precedence; scripts may use the header field.
    let token = text_of(form, csrf::FIELD).map(Cow::Borrowed).or(header);
    token.is_some_and(|token| key.verify(request.host(), cookie, &token))
}

fn text_of<'p>(pairs: &'p FormPairs, name: &str) -> Option<&'p str> {
    pairs.iter().find(|(key, _)| key == name)?.1.text()
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

impl Object for TemplateRequest {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.part(key.as_str()?)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        // The object is not enumerable, so that `part` observes every access.
        Enumerator::NonEnumerable
    }
}

/// Name-value pairs for a template: an index returns the first value of a name, or none; `.all(name)` returns all of
/// them.
#[derive(Debug)]
struct PairList(Vec<(String, Value)>);

impl PairList {
    fn value(pairs: FormPairs) -> Value {
        let value = |value| match value {
            form::FormValue::Text(text) => Value::from(text),
            form::FormValue::File(bytes) => Value::from_bytes(bytes),
        };
        let pairs = pairs.into_iter().map(|(name, it)| (name, value(it)));
        Value::from_object(PairList(pairs.collect()))
    }

    fn all<'l>(&'l self, name: &'l str) -> impl Iterator<Item = Value> + 'l {
        let values = self.0.iter().filter(move |(key, _)| key == name);
        values.map(|(_, value)| value.clone())
    }
}

impl Object for PairList {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        // A missing pair is `none` rather than undefined, since the client decides which pairs are present.
        let first = self.all(key.as_str()?).next();
        Some(first.unwrap_or(Value::from(())))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| Value::from(name)).collect())
    }

    fn call_method(
        self: &Arc<Self>,
        _: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        match (method, args.first().and_then(Value::as_str)) {
            ("all", Some(name)) => Ok(self.all(name).collect()),
            _ => Err(Error::new(
                ErrorKind::UnknownMethod,
                format!("unknown method .{method}(): write .all(\"name\")"),
            )),
        }
    }
}
