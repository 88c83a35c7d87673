//! The conditions of routes on requests, other than the path. Responses then depend on the facts in the conditions,
//! and caches are informed of that dependence.

use std::sync::Arc;

use lowroad_config::RouteConfig;
use lowroad_handler::{
    Handler, HandlerFailure, HandlerRequest as ProgramRequest, HandlerResponse, HandlerResult,
};

use crate::response_dependence::ResponseDependence;

/// Whether the name in a condition ends in a wildcard.
pub fn has_wildcard(name: &str) -> bool {
    name.ends_with('*')
}

/// The dependence of all responses of a site's routes on the facts by which a route is selected.
pub fn selection(routes: &[RouteConfig]) -> ResponseDependence {
    let mut dependence = ResponseDependence::default();
    for route in routes {
        dependence.add(&ResponseDependence::from_conditions(&route.conditions));
    }
    dependence
}

/// A handler that adds fields with the dependence of another handler's responses, for caches.
pub struct DependentHandler {
    /// The wrapped handler.
    pub inner: Arc<dyn Handler>,
    /// The dependence of the responses.
    pub dependence: Arc<ResponseDependence>,
}

impl Handler for DependentHandler {
    fn inner_handler(&self) -> Option<&dyn Handler> {
        Some(&*self.inner)
    }

    fn begin(self: Arc<Self>, worker: usize, request: ProgramRequest) -> HandlerResult {
        let dependence = self.dependence.clone();
        let changed = move |result: Result<HandlerResponse, HandlerFailure>| {
            result.map(|mut response| {
                dependence.apply(&mut response.fields);
                response
            })
        };
        match self.inner.clone().begin(worker, request) {
            HandlerResult::Ready(result) => HandlerResult::Ready(changed(result)),
            HandlerResult::OnRuntime(future) => {
                HandlerResult::OnRuntime(Box::pin(async move { changed(future.await) }))
            }
            HandlerResult::OnWorker(future) => {
                HandlerResult::OnWorker(Box::pin(async move { changed(future.await) }))
            }
        }
    }
}
