//! The routes of a site: the paths that handlers answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lowroad_cache::bypass::BypassRules;
use lowroad_cache::excluded_paths::ExcludedPaths;
use lowroad_cache::query_rules::QueryRules;
use lowroad_cache::request::RequestDirectives;
use lowroad_cache::storage_policy::{CookiePolicy, StoragePolicy};
use lowroad_config as config;
use lowroad_config::{
    BandwidthLimit, CacheBypass, CacheConfig, InterceptedErrors, PathPattern, ResponseStorage,
    RouteTo,
};
use lowroad_handler::spool::SpoolLimits;
use lowroad_handler::{Handler, HandlerResponse};
use lowroad_http::method::Method;
use lowroad_http::request::Request;
use lowroad_http::status::StatusCode;
use lowroad_metrics::MetricScope;
use lowroad_request_conditions::{ConditionInput, ConditionSet, FindSwitch, condition_text};
use lowroad_site_rules::PathMatches;

use crate::cache_rules::CacheRules;
use crate::counts::{RouteCounters, increment};
use crate::failure_log::RouteFailures;
use crate::response_redirect::{self, InternalRedirect};
use crate::route_index::RouteIndex;

/// A route: a pattern and the handler of matching requests.
pub struct Route {
    /// The name in logs and explanations: `fastcgi 127.0.0.1:9000`.
    pub label: String,
    /// The handler.
    pub handler: Arc<dyn Handler>,
    /// Spool files for the part of a shared response that a slow client has not read.
    pub spools: Option<Arc<SpoolLimits>>,
    /// Whether the handler is an origin: its responses are stored, reused and validated by RFC 9111.
    pub is_origin: bool,
    /// Whether responses contain Cache-Status (RFC 9211).
    pub sends_cache_status: bool,
    /// The storage policy for responses.
    pub policy: StoragePolicy,
    /// Whether no response is stored or shared.
    pub never_stores: bool,
    /// The longest request body in bytes, if it is shorter than that of the site.
    pub body_len_max: Option<u64>,
    /// The request fields that only the authentication of the site sets.
    pub protected_fields: Arc<[Box<str>]>,
    /// Requests that the handler always answers, regardless of stored responses.
    bypass: Option<BypassRules>,
    /// Requests that the handler always answers, by conditions: if one of the sets is met.
    bypass_conditions: Vec<ConditionSet>,
    /// Whether the handler answers all requests with cookies.
    bypasses_cookies: bool,
    /// The rules for the query in cache keys.
    pub query_rules: QueryRules,
    /// The rules about lifetimes and storage.
    pub cache_rules: CacheRules,
    /// Whether cache rules apply that the softirq level does not support, so that it gets no responses.
    pub excludes_level: bool,
    /// Whether only rewrites and internal redirects can reach the route.
    pub is_internal: bool,
    /// Whether responses may be internal redirects.
    allows_internal_redirects: bool,
    /// The bandwidth of each response.
    pub bandwidth: Option<BandwidthLimit>,
    /// The errors that are replaced by the error pages of the site.
    intercepted_errors: InterceptedErrors,
    /// Whether cache directives of requests are honoured.
    honours_request_directives: bool,
    /// Whether a response was ever stored, so that a look-up in the store can succeed.
    has_stored: Arc<AtomicBool>,
    /// Whether the last call was answered immediately, so that waiting for the call of another request is not
    /// worthwhile.
    is_instant: AtomicBool,
    /// The metric scope of requests.
    pub metric_scope: MetricScope,
    /// The counters of the route.
    pub counts: RouteCounters,
    /// Failures that have not been logged.
    pub faults: RouteFailures,
    pattern: PathPattern,
    missing: bool,
    conditions: ConditionSet,
    /// The conditions as text.
    conditions_text: String,
    /// Whether paths may contain encoded slashes and backslashes, which the handler interprets.
    allows_encoded_slashes: bool,
    /// Whether the route answers all requests, whether or not files exist.
    matches_all_requests: bool,
    /// The index file of folders on the machine of the FastCGI server (`script_root`).
    remote_index: Option<String>,
}

/// The routes of a site, in the configured order.
#[derive(Default)]
pub struct RouteTable {
    all: Vec<Arc<Route>>,
    index: RouteIndex,
}

impl Route {
    /// Creates a route from its configuration and its handler. `find_switch` finds the switch of a file in a condition.
    pub fn new(
        rules: &lowroad_config::RouteConfig,
        label: String,
        handler: Arc<dyn Handler>,
        spools: Option<Arc<SpoolLimits>>,
        find_switch: FindSwitch<'_>,
    ) -> Route {
        let is_origin = matches!(rules.to, RouteTo::Origin(_));
        let cache_rules = CacheRules::new(&rules.caching.rules, find_switch);
        let has_ttl = rules.caching.ttl_s.is_some() || cache_rules.has_lifetime();
        let has_program_ttl = !is_origin && has_ttl;
        let ignored = rules.caching.ignored_arguments.iter();
        let query_rules =
            QueryRules::new(ignored.map(String::as_str), rules.caching.sorts_arguments);
        Route {
            label,
            handler,
            spools,
            is_origin,
            sends_cache_status: is_origin && rules.caching.status_field,
            policy: StoragePolicy {
                shared_only: rules.keep == ResponseStorage::Shared,
                ..match is_origin {
                    true => policy(&rules.caching),
                    false => StoragePolicy {
                        ttl_secs: rules.caching.ttl_s,
                        ..StoragePolicy::APPLICATION
                    },
                }
            },
            never_stores: rules.keep == ResponseStorage::Never,
            body_len_max: rules.body_len_max,
            protected_fields: Arc::default(),
            bypass: rules.caching.bypass.as_ref().map(bypass),
            bypass_conditions: rules
                .caching
                .bypass_conditions
                .iter()
                .map(|conditions| ConditionSet::new(conditions, find_switch))
                .collect(),
            bypasses_cookies: has_program_ttl && rules.caching.bypass_conditions.is_empty(),
            excludes_level: has_program_ttl
                || rules.bandwidth.is_some()
                || !query_rules.is_empty()
                || !cache_rules.is_empty()
                || !rules.caching.bypass_conditions.is_empty(),
            query_rules,
            cache_rules,
            bandwidth: rules.bandwidth,
            intercepted_errors: rules.intercepted_errors.clone(),
            allows_internal_redirects: match rules.to {
                RouteTo::Cgi(_) | RouteTo::FastCgi(_) => true,
                RouteTo::Origin(_) => rules.internal_redirects,
                RouteTo::Module(_) | RouteTo::Pages(_) => false,
            },
            is_internal: rules.internal,
            honours_request_directives: rules.caching.request_directives,
            has_stored: Arc::default(),
            is_instant: AtomicBool::new(false),
            metric_scope: MetricScope::default(),
            counts: RouteCounters::default(),
            faults: RouteFailures::default(),
            pattern: rules.pattern.clone(),
            missing: rules.missing,
            conditions: ConditionSet::new(&rules.conditions, find_switch),
            conditions_text: condition_text(&rules.conditions),
            allows_encoded_slashes: !matches!(rules.to, RouteTo::Pages(_)),
            remote_index: remote_index(&rules.to),
            matches_all_requests: !rules.missing
                && rules.pattern.to_string() == "/**"
                && rules.conditions.is_empty(),
        }
    }

    /// The pattern of its paths.
    pub fn pattern(&self) -> &PathPattern {
        &self.pattern
    }

    /// The cache directives of a request that this route honours.
    pub fn request_directives(&self, request: &Request<'_>) -> RequestDirectives {
        match self.is_origin {
            // The common case, for which no field has to be read.
            true if !request.affects_caching() => RequestDirectives {
                is_get: request.method == Method::Get,
                ..RequestDirectives::GET
            },
            true => RequestDirectives::read(
                request.method == Method::Get,
                request.fields(),
                self.honours_request_directives,
            ),
            false => RequestDirectives::GET,
        }
    }

    /// The internal redirect in a response, if the route allows them.
    pub fn internal_redirect(&self, response: &HandlerResponse) -> Option<InternalRedirect> {
        self.allows_internal_redirects
            .then(|| response_redirect::from_response(response))?
    }

    /// Whether a request bypasses the cache: no stored response is used, and none is stored.
    pub fn bypasses(&self, input: &ConditionInput<'_>) -> bool {
        let request = input.request;
        let has_cookie = || {
            let mut fields = request.fields();
            fields.any(|(name, _)| name.eq_ignore_ascii_case(b"cookie"))
        };
        let bypass = self.bypass.as_ref();
        bypass.is_some_and(|bypass| bypass.matches(request.raw_target(), request.fields()))
            || self.bypasses_cookies && has_cookie()
            || self.bypass_conditions.iter().any(|set| set.is_met(input))
    }

    /// The status of the error page that replaces a response with this status; `has_page` returns whether the site has a
    /// page for a status.
    #[inline]
    pub fn replacing_status(
        &self,
        status: StatusCode,
        has_page: impl Fn(StatusCode) -> bool,
    ) -> Option<StatusCode> {
        match &self.intercepted_errors {
            InterceptedErrors::None => None,
            _ if status.code() < 400 => None,
            InterceptedErrors::WithPage => has_page(status).then_some(status),
            InterceptedErrors::Listed(listed) => {
                let found = listed
                    .iter()
                    .find(|(range, _)| range.contains(status.code()));
                StatusCode::new(found?.1)
            }
        }
    }

    /// Describes the errors that error pages replace; `pages`: the statuses for which the site has a page. `None` without
    /// such errors.
    pub fn describe_intercepted_errors(&self, pages: &str) -> Option<String> {
        match &self.intercepted_errors {
            InterceptedErrors::None => None,
            InterceptedErrors::WithPage => Some(match pages {
                "" => "none is replaced: the site has no error_pages".to_owned(),
                pages => format!("{pages} are replaced by the site's pages"),
            }),
            InterceptedErrors::Listed(errors) => {
                let items = errors.iter().map(|(range, status)| {
                    let (range, status) = (range.to_string(), status.to_string());
                    match range == status {
                        true => range,
                        false => format!("{range} as {status}"),
                    }
                });
                let errors = items.collect::<Vec<_>>().join(", ");
                Some(format!("{errors} are replaced by the site's pages"))
            }
        }
    }

    /// Whether a response was ever stored.
    pub fn is_storing(&self) -> bool {
        self.has_stored.load(Relaxed)
    }

    /// Records that a response was stored.
    pub fn begin_storing(&self) {
        // Written only on a change, since workers share the cache line.
        if !self.is_storing() {
            self.has_stored.store(true, Relaxed);
        }
    }

    /// Whether the last call was answered immediately.
    pub fn is_instant(&self) -> bool {
        self.is_instant.load(Relaxed)
    }

    /// Records whether a call was answered immediately.
    pub fn set_instant(&self, is_instant: bool) {
        // Written only on a change, as above.
        if self.is_instant() != is_instant {
            self.is_instant.store(is_instant, Relaxed);
        }
    }

    /// Whether the handler may be called with a method. PURGE is not forwarded to origins, which may trust this server
    /// more than its clients.
    pub fn accepts_method(&self, method: Method) -> bool {
        is_for_handlers(method) && !(self.is_origin && method == Method::Purge)
    }

    /// The pattern of the paths, as text.
    pub fn pattern_text(&self) -> String {
        self.pattern.to_string()
    }

    /// The pattern, the conditions and the handler, as text.
    pub fn name(&self) -> String {
        let missing = if self.missing { " (missing)" } else { "" };
        let conditions = match &self.conditions_text[..] {
            "" => String::new(),
            text => format!(" ({text})"),
        };
        format!("{}{missing}{conditions} to {}", self.pattern, self.label)
    }
}

impl RouteTable {
    /// Creates the table from routes and their configuration, both in the configured order.
    pub fn new(routes: Vec<Route>, rules: &[config::RouteConfig]) -> RouteTable {
        RouteTable {
            index: RouteIndex::new(rules),
            all: routes.into_iter().map(Arc::new).collect(),
        }
    }

    /// Shares with `previous` the flags that tell whether a route has stored responses; for a site that continues with
    /// the stored responses of `previous`.
    pub fn with_storing_flags_of(mut self, previous: &RouteTable) -> RouteTable {
        for (route, previous_route) in self.all.iter_mut().zip(&previous.all) {
            // The table is new, so its routes have no other references.
            if let Some(route) = Arc::get_mut(route) {
                route.has_stored = previous_route.has_stored.clone();
            }
        }
        self
    }

    /// Sets the metric scope of each route.
    pub fn with_scopes(mut self, scope: impl Fn(&Route) -> MetricScope) -> RouteTable {
        for route in &mut self.all {
            // The table is new, so its routes have no other references.
            if let Some(route) = Arc::get_mut(route) {
                route.metric_scope = scope(route);
            }
        }
        self
    }

    /// All routes.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.all.iter().map(|route| &**route)
    }

    /// Whether there are no routes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The route for a request and a path, whether or not a file exists.
    ///
    /// # Errors
    /// A pattern matches, but the conditions do not: a file of that name must not be served either.
    pub fn find_route(
        &self,
        matches: &PathMatches<'_>,
        facts: &ConditionInput<'_>,
    ) -> Result<Option<&Arc<Route>>, NoRoute> {
        // The common case of a reverse proxy, in which no pattern has to be matched.
        if let Some(first) = self.all.first().filter(|route| route.matches_all_requests) {
            return Ok(Some(first));
        }
        if self.index.first(matches, false).is_none() {
            return Ok(None);
        }
        let found = self.find(matches, facts, |route| !route.missing);
        // The pattern of a route matches, but no conditions do: a file must not be sent instead.
        found.map(Some).ok_or(NoRoute)
    }

    /// The route for a path with encoded slashes or backslashes: the first that matches, since no file can have such a
    /// path. Responses are stored with the path that the client sent, so origins may interpret the path freely.
    pub fn find_slash_route(
        &self,
        matches: &PathMatches<'_>,
        facts: &ConditionInput<'_>,
    ) -> Option<&Arc<Route>> {
        let first = self.find(matches, facts, |_| true);
        first.filter(|route| route.allows_encoded_slashes)
    }

    /// The path of the index file of a folder that may exist only on the machine of the FastCGI server.
    pub fn remote_index(&self, folder: &[u8]) -> Option<Vec<u8>> {
        let index = self.all.iter().find_map(|it| it.remote_index.as_ref())?;
        folder
            .ends_with(b"/")
            .then(|| [folder, index.as_bytes()].concat())
    }

    /// The route for the path of a remote index file.
    pub fn find_remote_index(
        &self,
        matches: &PathMatches<'_>,
        facts: &ConditionInput<'_>,
    ) -> Option<&Arc<Route>> {
        let route = self.find_route(matches, facts).ok().flatten()?;
        let accepts_method = route.accepts_method(facts.request.method);
        (route.remote_index.is_some() && accepts_method).then_some(route)
    }

    /// The route for a path without a file, regardless of its other conditions.
    pub fn find_missing_route(&self, matches: &PathMatches<'_>) -> Option<&Arc<Route>> {
        self.all.get(self.index.first(matches, true)?)
    }

    /// The route for a request and a path without a file.
    pub fn find_missing_route_for(
        &self,
        matches: &PathMatches<'_>,
        facts: &ConditionInput<'_>,
    ) -> Option<&Arc<Route>> {
        self.find(matches, facts, |route| route.missing)
    }

    /// The first route that matches a request and a path, and for which `predicate` holds.
    fn find(
        &self,
        matches: &PathMatches<'_>,
        facts: &ConditionInput<'_>,
        predicate: impl Fn(&Route) -> bool,
    ) -> Option<&Arc<Route>> {
        let found = self.index.find(matches, facts.request, |number| {
            let route = self.all.get(number);
            route.is_some_and(|it| predicate(it) && it.conditions.is_met(facts))
        });
        self.all.get(found?)
    }
}

fn remote_index(to: &RouteTo) -> Option<String> {
    let RouteTo::FastCgi(fastcgi) = to else {
        return None;
    };
    let finds_scripts = fastcgi.script_root.is_some() && fastcgi.script.is_none();
    // Without `script_root`, scripts are files of this machine and found as such.
    (finds_scripts && !fastcgi.index.is_empty()).then(|| fastcgi.index.clone())
}

/// A pattern matches, but the conditions of the routes do not.
pub struct NoRoute;

/// The storage policy for an origin's responses.
fn policy(caching: &CacheConfig) -> StoragePolicy {
    StoragePolicy {
        ttl_secs: caching.ttl_s,
        heuristic_secs_max: caching.guessed_s_max,
        denial_statuses: caching.refusals,
        encoding_in_key: caching.encoding_in_key,
        stale_while_revalidate_secs: caching.stale_while_revalidate_s,
        stale_if_error_secs: caching.stale_if_error_s,
        cookies: match caching.cookies {
            config::CookieStorage::Shared => CookiePolicy::Shared,
            config::CookieStorage::Never => CookiePolicy::Never,
            config::CookieStorage::Always => CookiePolicy::Always,
        },
        ..StoragePolicy::ORIGIN
    }
}

/// The requests that bypass the cache.
fn bypass(rules: &CacheBypass) -> BypassRules {
    BypassRules {
        cookies: rules.cookies,
        cache_control: rules.cache_control,
        // If the paths are invalid, all are excluded rather than none.
        excluded: ExcludedPaths::read(&rules.paths).unwrap_or_else(|_| ExcludedPaths::all_paths()),
    }
}

/// Counts a waiting request until it is dropped.
pub struct WaitCount(Arc<Route>);

impl WaitCount {
    /// Begins to count a request that waits for the handler of a route.
    pub fn start(route: &Arc<Route>) -> WaitCount {
        increment(&route.counts.waiting);
        WaitCount(route.clone())
    }
}

impl Drop for WaitCount {
    fn drop(&mut self) {
        self.0.counts.waiting.fetch_sub(1, Relaxed);
    }
}

/// Whether any handler may be called with a method. TRACE would reveal fields that scripts must not see; CONNECT is for
/// forward proxies.
pub fn is_for_handlers(method: Method) -> bool {
    !matches!(method, Method::Trace | Method::Connect)
}
