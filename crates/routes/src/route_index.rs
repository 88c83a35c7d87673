//! The index of routes by pattern, method, field and cookie. Routes with the same pattern are matched together; routes
//! for other paths or requests cost nothing.

use std::collections::HashMap;

use lowroad_config as config;
use lowroad_config::{NamedCondition, RequestConditions, ValueCondition};
use lowroad_http::method::Method;
use lowroad_http::request::Request;
use lowroad_request_conditions::request_cookies;
use lowroad_site_rules::{DistinctPatterns, FieldMap, PathMatches};

use super::conditions::has_wildcard;

/// The numbers of routes, by pattern and by condition.
#[derive(Default)]
pub(crate) struct RouteIndex(Vec<PatternRoutes>);

/// The routes of a pattern. All numbers are in ascending order.
#[derive(Default)]
struct PatternRoutes {
    /// The first route that applies whether or not the file exists.
    first: Option<usize>,
    /// The first route that applies only if the file is missing.
    first_missing: Option<usize>,
    unconditional: Vec<usize>,
    by_field: FieldMap<usize>,
    /// Routes that require a cookie with a complete name, but no field.
    by_cookie: FieldMap<usize>,
    /// Routes with methods that require neither a field nor a cookie with a complete name.
    by_method: HashMap<String, Vec<usize>>,
}

impl RouteIndex {
    /// Creates the index of routes, which are in the configured order.
    pub(crate) fn new(routes: &[config::RouteConfig]) -> RouteIndex {
        let patterns = DistinctPatterns::from_routes(routes);
        let mut index = RouteIndex::default();
        index
            .0
            .resize_with(patterns.patterns.len(), PatternRoutes::default);
        for (number, route) in routes.iter().enumerate() {
            let pattern_routes = &mut index.0[patterns.index_of[number]];
            let first = match route.missing {
                true => &mut pattern_routes.first_missing,
                false => &mut pattern_routes.first,
            };
            // Routes are tried in order, so the first one represents the pattern.
            first.get_or_insert(number);
            pattern_routes.insert(number, &route.conditions);
        }
        index
    }

    /// The first route with a pattern that matches a path, regardless of its conditions.
    pub(crate) fn first(&self, matches: &PathMatches<'_>, is_missing: bool) -> Option<usize> {
        let found = self
            .find_patterns(matches)
            .filter_map(|routes| match is_missing {
                true => routes.first_missing,
                false => routes.first,
            });
        found.min()
    }

    /// The first route that has a matching pattern and for which `predicate` holds. Only candidates of the index are
    /// tested.
    pub(crate) fn find(
        &self,
        matches: &PathMatches<'_>,
        request: &Request<'_>,
        predicate: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let found = self.find_patterns(matches);
        found
            .filter_map(|routes| routes.find(request, &predicate))
            .min()
    }

    fn find_patterns(&self, matches: &PathMatches<'_>) -> impl Iterator<Item = &PatternRoutes> {
        matches.routes().filter_map(|pattern| self.0.get(pattern))
    }
}

impl PatternRoutes {
    fn insert(&mut self, number: usize, conditions: &RequestConditions) {
        let RequestConditions {
            methods,
            headers,
            cookies,
            ..
        } = conditions;
        // A condition with a value is more selective than one without.
        let most_selective = |all: &[NamedCondition]| {
            // The index contains complete names of fields only; the caller checks names with wildcards, and Host, in place
            // of which the authority of the target counts.
            let is_indexed = |it: &&NamedCondition| {
                !has_wildcard(&it.name) && !it.name.eq_ignore_ascii_case("host")
            };
            let exact_names = || all.iter().filter(is_indexed);
            let with_value = exact_names().find(|it| exact_value(it).is_some());
            with_value.or(exact_names().next()).cloned()
        };
        // Each route is indexed by its most selective condition only; the caller checks all conditions.
        if let Some(field) = most_selective(headers) {
            self.by_field
                .insert(&field.name, exact_value(&field), number);
        } else if let Some(cookie) = most_selective(cookies) {
            self.by_cookie
                .insert(&cookie.name, exact_value(&cookie), number);
        } else if methods.is_empty() {
            self.unconditional.push(number);
        } else {
            for method in methods {
                self.by_method
                    .entry(method.clone())
                    .or_default()
                    .push(number);
            }
        }
    }

    fn find(&self, request: &Request<'_>, predicate: &impl Fn(usize) -> bool) -> Option<usize> {
        let fits = |number: &usize| predicate(*number);
        let unconditional = self.unconditional.iter().copied().find(fits);
        // The common case of a pattern without conditions.
        let is_unconditional =
            self.by_field.is_empty() && self.by_cookie.is_empty() && self.by_method.is_empty();
        if is_unconditional {
            return unconditional;
        }
        let of_method = |name| self.by_method.get(name).into_iter().flatten();
        // GET includes HEAD.
        let is_head = request.method == Method::Head;
        let of_get = is_head.then(|| of_method("GET")).into_iter().flatten();
        let of_request = of_method(request.method.as_str());
        let method_match = of_request.chain(of_get).copied().filter(fits).min();
        // A condition is met by a member of a list, too.
        let members = request.fields().flat_map(|(name, value)| {
            let members = value.split(|byte| *byte == b',');
            members.map(move |member| (name, member.trim_ascii()))
        });
        let field_matches = self.by_field.get(members);
        let cookie_matches = self.by_cookie.get(request_cookies(request));
        let conditional = field_matches
            .chain(cookie_matches)
            .copied()
            .filter(fits)
            .min();
        [unconditional, method_match, conditional]
            .into_iter()
            .flatten()
            .min()
    }
}

/// The value that a condition requires, if it is only one. Lists are not found by their members.
fn exact_value(condition: &NamedCondition) -> Option<&str> {
    match &condition.value {
        ValueCondition::Exact(value) if !value.contains(',') => Some(value),
        ValueCondition::Exact(_) => None,
        ValueCondition::Any | ValueCondition::Matches(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;
    use std::path::Path;
    use std::sync::Arc;

    use lowroad_http::h1::parse;
    use lowroad_http::limits::RequestLimits;

    use super::*;
    use lowroad_request_conditions::{ConditionInput, ConditionSet, FileSwitch};
    use lowroad_site_rules::SitePatterns;

    /// A site with routes that have these keys.
    fn site(routes: impl IntoIterator<Item = String>) -> config::SiteConfig {
        let mut text = "[[site]]\nlisten = \"127.0.0.1:0\"\nroot = \"/srv\"\n".to_owned();
        for route in routes {
            text += &format!("[[site.route]]\n{route}\nfastcgi = \"127.0.0.1:9\"\n");
        }
        let config = config::parse(&text, Path::new("lowroad.toml"));
        config.expect("a configuration").sites.remove(0)
    }

    /// The first route for a request for `/a` if `/a` is a file, and the number of routes tested. All patterns in these
    /// tests match the path.
    fn find(site: &config::SiteConfig, request: &str) -> (Option<usize>, usize) {
        let head = parse(request.as_bytes(), &RequestLimits::default());
        let request = head.expect("a request").expect("a whole one").request;
        let facts = ConditionInput {
            request: &request,
            client: Ipv4Addr::LOCALHOST.into(),
            is_https: false,
            has_certificate: false,
            unix_s: 0,
        };
        let find_switch = |file: &Path| Arc::new(FileSwitch::new(file.into(), false));
        let fits = |route: &config::RouteConfig| {
            let conditions = ConditionSet::new(&route.conditions, &find_switch);
            !route.missing && conditions.is_met(&facts)
        };
        let patterns = SitePatterns::new(site);
        let looks = Cell::new(0);
        let index = RouteIndex::new(&site.routes);
        let found = index.find(&patterns.match_path(b"/a", None), &request, |number| {
            looks.set(looks.get() + 1);
            fits(&site.routes[number])
        });
        assert_eq!(found, site.routes.iter().position(fits), "{request:?}");
        (found, looks.get())
    }

    #[test]
    fn route_index_finds_first_matching_route() {
        let keys = [
            "pattern = \"/a\"\nheader = [\"X-Tier: gold\"]",
            "pattern = \"/**\"\nheader = [\"x-tier\"]\nmethods = [\"PUT\"]",
            "pattern = \"/a\"\ncookie = [\"beta=1\"]",
            "pattern = \"/**\"\ncookie = [\"beta\"]\nmissing = true",
            "pattern = \"/a\"\nmethods = [\"POST\", \"PUT\"]",
            "pattern = \"/**\"\ncookie = [\"beta\"]",
            "pattern = \"/a\"",
        ];
        let site = site(keys.map(str::to_owned));
        for (method, fields, wanted) in [
            ("GET", "X-TIER: gold\r\n", 0),
            ("GET", "X-Tier: silver\r\n", 6),
            ("PUT", "X-Tier: silver\r\n", 1),
            ("GET", "Cookie: alpha=2;  beta=1\r\n", 2),
            ("GET", "Cookie: alpha=2\r\nCookie: beta=2=3\r\n", 5),
            ("GET", "Cookie: beta\r\n", 6),
            ("PUT", "Cookie: beta=2\r\n", 4),
            (
                "POST",
                "X-Tier: gold\r\nX-Tier: silver\r\nCookie: beta=1\r\n",
                0,
            ),
            ("POST", "Cookie: beta=1\r\n", 2),
            ("GET", "", 6),
        ] {
            let request = format!("{method} /a HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            assert_eq!(find(&site, &request).0, Some(wanted), "{request}");
        }
    }

    #[test]
    fn cookie_condition_with_trailing_star_matches_prefix() {
        let keys = [
            "pattern = \"/a\"\ncookie = [\"session_*\", \"beta\"]",
            "pattern = \"/a\"\ncookie = \"session_*=1\"",
            "pattern = \"/a\"\ncookie = \"session_*\"\nmethods = \"PUT\"",
            "pattern = \"/**\"\ncookie = \"logged_in_*\"",
            "pattern = \"/a\"\ncookie = \"*\"",
            "pattern = \"/a\"",
        ];
        let site = site(keys.map(str::to_owned));
        for (method, cookies, wanted) in [
            ("GET", "session_7=2; beta=1", 0),
            ("GET", "a=2; session_7=1", 1),
            ("GET", "session_=1", 1),
            ("PUT", "session_7=2", 2),
            ("GET", "logged_in_d649=x", 3),
            ("GET", "Logged_in_d649=x", 4),
            ("GET", "session=1", 4),
            ("GET", "", 5),
        ] {
            let request = format!("{method} /a HTTP/1.1\r\nHost: h\r\nCookie: {cookies}\r\n\r\n");
            assert_eq!(find(&site, &request).0, Some(wanted), "{request}");
        }
    }

    #[test]
    fn route_index_skips_routes_with_other_conditions() {
        let request = "GET /a HTTP/1.1\r\nHost: h\r\nX-Tier: 7\r\nCookie: b=7\r\n\r\n";
        for condition in ["header = [\"X-Tier: N\"]", "cookie = [\"b=N\"]"] {
            let key = |at: usize| condition.replace('N', &at.to_string());
            let routes = (0..1000).map(|at| format!("pattern = \"/a\"\n{}", key(at)));
            assert_eq!(find(&site(routes), request), (Some(7), 1), "{condition}");
        }
        let puts = (0..1000).map(|_| "pattern = \"/a\"\nmethods = [\"PUT\"]".to_owned());
        assert_eq!(find(&site(puts), request), (None, 0));
    }
}
