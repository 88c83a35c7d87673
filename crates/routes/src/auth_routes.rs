//! The routes of the access rules of a site: to the servers that decide about requests, and to those with key sets.

use std::sync::Arc;
use std::time::Duration;

use lowroad_config::{
    ForwardAuth, OriginConfig, PathPattern, ResponseStorage, RouteConfig, RouteTo, RuleAction,
    SiteConfig, SymlinkPolicy, TokenKeys,
};
use lowroad_engine::tasks::TaskHandle;
use lowroad_request_conditions::FindSwitch;

use crate::key_watch::{KeyReceiver, KeySource, watch_keys};
use crate::route_builder::HandlerSet;
use crate::routes::Route;

/// Time until a key set has arrived, in milliseconds.
const KEYS_TIMEOUT_MS: u64 = 10_000;

/// The routes to the servers of forward authentication, by the number of the access rule.
#[derive(Clone, Default)]
pub struct AuthRoutes(Vec<Option<Arc<Route>>>);

impl AuthRoutes {
    /// The route of the rule with a number.
    pub fn get(&self, rule: usize) -> Option<&Arc<Route>> {
        self.0.get(rule)?.as_ref()
    }
}

impl HandlerSet<'_> {
    /// Creates the routes of a site's access rules.
    ///
    /// # Errors
    /// As for `HandlerRuntime::open`.
    pub fn auth_routes(
        &self,
        site: &SiteConfig,
        find_switch: FindSwitch<'_>,
    ) -> Result<AuthRoutes, String> {
        let routes = site.access.iter().map(|rule| match &rule.action {
            RuleAction::Auth(auth) => {
                let route = auth.forward.as_deref();
                route.map(|it| self.auth_route(it, find_switch)).transpose()
            }
            _ => Ok(None),
        });
        Ok(AuthRoutes(routes.collect::<Result<_, String>>()?))
    }

    fn auth_route(
        &self,
        forward: &ForwardAuth,
        find_switch: FindSwitch<'_>,
    ) -> Result<Arc<Route>, String> {
        // The route is not in the table of the site: no path leads to it.
        let rules = internal_route(&forward.origin, forward.timeout_ms);
        let (label, handler) = self.handler(&rules, SymlinkPolicy::default())?;
        let route = Route::new(&rules, label, handler, None, find_switch);
        Ok(Arc::new(route))
    }

    /// Begins to fetch a key set, again and again.
    ///
    /// # Errors
    /// As for `HandlerRuntime::open`.
    pub fn watch_keys(
        &self,
        origin: &OriginConfig,
        target: &str,
        keys: impl KeyReceiver,
    ) -> Result<TaskHandle, String> {
        let rules = internal_route(origin, KEYS_TIMEOUT_MS);
        let (label, handler) = self.handler(&rules, SymlinkPolicy::default())?;
        // The route is kept by the task, and so are its connections.
        let source = KeySource {
            handler,
            label,
            target: target.to_owned(),
            timeout: Duration::from_millis(KEYS_TIMEOUT_MS),
        };
        Ok(watch_keys(source, keys, self.first_worker()))
    }
}

/// The origins of a site's access rules: those that decide, and those with key sets.
pub fn origins(site: &SiteConfig) -> impl Iterator<Item = &OriginConfig> {
    site.access.iter().flat_map(|rule| {
        let auth = match &rule.action {
            RuleAction::Auth(auth) => Some(auth),
            _ => None,
        };
        let forward = auth.and_then(|auth| auth.forward.as_deref());
        let token = auth.and_then(|auth| auth.token.as_deref());
        let keys = token.and_then(|token| match &token.keys {
            TokenKeys::Url(origin, _) => Some(&**origin),
            TokenKeys::Secret(_) | TokenKeys::File(_) => None,
        });
        forward
            .map(|forward| &forward.origin)
            .into_iter()
            .chain(keys)
    })
}

/// A route that only the server itself uses.
fn internal_route(origin: &OriginConfig, timeout_ms: u64) -> RouteConfig {
    let to = RouteTo::Origin(Box::new(origin.clone()));
    RouteConfig {
        timeout_ms,
        keep: ResponseStorage::Never,
        // A redirect to a login page on the same server must keep its host.
        own_redirects: false,
        internal: true,
        // All clients share the server, and its own limits apply.
        client_share_percent: 100,
        concurrency_max: 65_536,
        ..RouteConfig::new(PathPattern::everything(), to)
    }
}
