//! The conditions of routes on requests, other than the path. Responses then depend on the fields in the conditions,
//! which Vary lists.

use std::sync::Arc;

use lowroad_cache::vary;
use lowroad_config::{RequestConditions, RouteConfig};
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest as ProgramRequest, HandlerResponse, HandlerResult,
};
use lowroad_http::forwarding;
use lowroad_variables::Dependence;

use crate::request_dependences;

/// Whether the name in a condition ends in a wildcard.
pub fn has_wildcard(name: &str) -> bool {
    name.ends_with('*')
}

/// The conditions of all routes, and their exceptions.
fn all_conditions(routes: &[RouteConfig]) -> impl Iterator<Item = &RequestConditions> {
    let conditions = routes.iter().map(|route| &route.conditions);
    conditions.flat_map(|it| std::iter::once(it).chain(&it.exceptions))
}

/// The fields on which the selection among the routes of a site depends, and those on which the requests of `route`
/// depend, for Vary; `None` if there are none.
pub fn vary(routes: &[RouteConfig], route: &RouteConfig) -> Option<Arc<str>> {
    let conditions = all_conditions(routes).flat_map(|conditions| {
        // All cookies are in one field, so Vary lists the whole field.
        let cookie = (!conditions.cookies.is_empty()).then_some("Cookie");
        let headers = conditions.headers.iter().map(|it| it.name.as_str());
        let variables = conditions.variable_dependences();
        let variables = variables.filter_map(|it| match it {
            Dependence::Field(name) => Some(name),
            _ => None,
        });
        headers.chain(cookie).chain(variables)
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

/// Whether the selection among routes depends on a fact that is neither in the cache key nor in a field that Vary can
/// list exactly: the client, the time, a file, a preference, or a field in which proxies describe a client or its request. The stored response
/// of one route could then be sent for a request to another.
pub fn depend_on_unkeyed_facts(routes: &[RouteConfig]) -> bool {
    all_conditions(routes).any(|conditions| {
        let mut headers = conditions.headers.iter();
        !conditions.addresses.is_empty()
            || conditions.has_certificate.is_some()
            || !conditions.times.is_empty()
            || conditions.file.is_some()
            || headers.any(|it| is_unkeyed_field(&it.name))
            || conditions.variable_dependences().any(|it| match it {
                Dependence::Field(name) => is_unkeyed_field(name),
                Dependence::CacheKey => false,
                Dependence::Client | Dependence::Request | Dependence::File => true,
            })
    })
}

/// Whether Vary does not distinguish the values of a field as conditions do.
fn is_unkeyed_field(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // Vary takes preferences that mean the same for equal, conditions do not.
    forwarding::is_report(name.as_bytes()) || vary::is_preference(name.as_bytes())
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
