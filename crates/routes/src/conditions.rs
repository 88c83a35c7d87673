//! The conditions of routes on requests, other than the path. Responses then depend on the fields in the conditions,
//! which Vary lists.

use std::sync::Arc;

use lowroad_config::{RouteConditions, RouteConfig};
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest as ProgramRequest, HandlerResponse, HandlerResult,
};
use lowroad_http::forwarding;
use lowroad_http::request::Request;

use crate::request_dependences;

/// Whether there are no conditions.
pub fn is_unconditional(conditions: &RouteConditions) -> bool {
    let RouteConditions {
        methods,
        headers,
        cookies,
    } = conditions;
    methods.is_empty() && headers.is_empty() && cookies.is_empty()
}

/// Whether a request meets all conditions.
pub fn are_met(conditions: &RouteConditions, request: &Request<'_>) -> bool {
    let RouteConditions {
        methods,
        headers,
        cookies,
    } = conditions;
    let method = request.method.as_str();
    (methods.is_empty() || methods.iter().any(|listed| listed == method))
        && headers.iter().all(|(name, value)| {
            let has_name =
                |(field_name, _): &(&[u8], &[u8])| field_name.eq_ignore_ascii_case(name.as_bytes());
            // If a field occurs several times, one of the values must match.
            let mut values = request.fields().filter(has_name);
            values.any(|(_, actual)| value_matches(value, actual))
        })
        && cookies.iter().all(|(name, value)| {
            let mut cookie_values =
                request_cookies(request).filter(|(cookie_name, _)| name_matches(cookie_name, name));
            cookie_values.any(|(_, actual)| value_matches(value, actual))
        })
}

/// The cookies of a request (RFC 6265 §4.2.1), as names and values.
pub fn request_cookies<'b>(
    request: &Request<'b>,
) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + use<'b> {
    let fields = request.fields();
    let cookies = fields.filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
    let pairs = cookies.flat_map(|(_, pairs)| pairs.split(|byte| *byte == b';'));
    pairs.filter_map(|pair| {
        let pair = pair.trim_ascii();
        let end = pair.iter().position(|byte| *byte == b'=')?;
        Some((&pair[..end], &pair[end + 1..]))
    })
}

fn value_matches(expected: &Option<String>, actual: &[u8]) -> bool {
    expected
        .as_ref()
        .is_none_or(|expected| expected.as_bytes() == actual)
}

/// Whether the name in a condition ends in a wildcard.
pub fn has_wildcard(name: &str) -> bool {
    name.ends_with('*')
}

/// Whether a cookie's name matches the name in a condition.
fn name_matches(cookie: &[u8], name: &str) -> bool {
    match name.strip_suffix('*') {
        Some(prefix) => cookie.starts_with(prefix.as_bytes()),
        None => cookie == name.as_bytes(),
    }
}

/// The conditions as text.
pub fn text(conditions: &RouteConditions) -> String {
    let mut parts = Vec::new();
    if !conditions.methods.is_empty() {
        parts.push(conditions.methods.join(", "));
    }
    for (separator, pairs) in [(": ", &conditions.headers), ("=", &conditions.cookies)] {
        parts.extend(pairs.iter().map(|(name, value)| match value {
            Some(value) => format!("{name}{separator}{value}"),
            None => name.clone(),
        }));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!(" ({})", parts.join("; ")),
    }
}

/// The fields on which the selection among the routes of a site depends, and those on which the requests of `route`
/// depend, for Vary; `None` if there are none.
pub fn vary(routes: &[RouteConfig], route: &RouteConfig) -> Option<Arc<str>> {
    let conditions = routes.iter().flat_map(|route| {
        let conditions = &route.conditions;
        // All cookies are in one field, so Vary lists the whole field.
        let cookie = (!conditions.cookies.is_empty()).then_some("Cookie");
        let headers = conditions.headers.iter().map(|(name, _)| name.as_str());
        headers.chain(cookie)
    });
    let mut names: Vec<&str> = Vec::new();
    for name in conditions.chain(request_dependences::fields(route)) {
        // Vary lists each field once.
        if !names.iter().any(|listed| listed.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| names.join(", ").into())
}

/// Whether the selection among routes depends on a field in which proxies describe a client or its request. Such a
/// field is not part of the cache key, so the stored response of one route could be sent for a request to another.
pub fn depend_on_reports(routes: &[RouteConfig]) -> bool {
    let mut headers = routes.iter().flat_map(|route| &route.conditions.headers);
    headers.any(|(name, _)| forwarding::is_report(name.as_bytes()))
}

/// A handler that adds fields to Vary in the responses of another handler.
pub struct VaryingHandler {
    /// The wrapped handler.
    pub inner: Arc<dyn Handler>,
    /// The value of Vary.
    pub vary: Arc<str>,
}

impl Handler for VaryingHandler {
    fn inner_handler(&self) -> Option<&dyn Handler> {
        Some(&*self.inner)
    }

    fn begin(self: Arc<Self>, worker: usize, request: ProgramRequest) -> HandlerResult {
        let vary = self.vary.clone();
        let with_vary = move |result: Result<HandlerResponse, HandlerFailure>| {
            result.map(|response| response.field("Vary", &*vary))
        };
        match self.inner.clone().begin(worker, request) {
            HandlerResult::Ready(result) => HandlerResult::Ready(with_vary(result)),
            HandlerResult::OnRuntime(future) => {
                HandlerResult::OnRuntime(Box::pin(async move { with_vary(future.await) }))
            }
            HandlerResult::OnWorker(future) => {
                HandlerResult::OnWorker(Box::pin(async move { with_vary(future.await) }))
            }
        }
    }
}
