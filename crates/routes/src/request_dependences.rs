//! The parts of a client's request on which the request to a handler depends because of variables, and the consequences
//! for caches: a response is stored only if the cache key and Vary distinguish the requests to which it belongs.
//!
//! Programs get the whole request in any case (RFC 3875), and know that they must send Vary or no lifetime. So only the
//! fields that are set for origins count.

use lowroad_cache::vary;
use lowroad_config::{RouteConfig, RouteTo};
use lowroad_http::forwarding;
use lowroad_variables::{Dependence, Template, Variable};

/// Whether requests to the handler contain the identifier of the request.
pub fn uses_request_id(route: &RouteConfig) -> bool {
    let env = match &route.to {
        RouteTo::Cgi(cgi) => &cgi.env[..],
        RouteTo::FastCgi(fastcgi) => &fastcgi.env,
        RouteTo::Module(_) | RouteTo::Origin(_) | RouteTo::Pages(_) => &[],
    };
    let lines = route.request.set.iter().chain(&route.request.append);
    let has_id = |value: &Template| value.variables().any(|it| *it == Variable::RequestId);
    lines.chain(env).any(|(_, value)| has_id(value))
}

/// Whether requests depend on the client in a way that Vary can't express. A field in which proxies report the client
/// does not count: without such a setting, the server sends these fields, too.
pub fn depends_on_client(route: &RouteConfig) -> bool {
    route
        .request
        .dependences()
        .any(|(name, dependence)| match dependence {
            // A stored response would survive a change of the file.
            Dependence::File => true,
            Dependence::Client => !forwarding::is_report(name.as_bytes()),
            // Any client can send these fields, and no cache key contains them.
            Dependence::Field(field) => {
                let field = field.to_ascii_lowercase();
                // Vary takes preferences that mean the same for equal, variables do not.
                forwarding::is_report(field.as_bytes()) || vary::is_preference(field.as_bytes())
            }
            Dependence::Request | Dependence::CacheKey => false,
        })
}

/// The request fields on which requests depend, for Vary.
pub fn fields(route: &RouteConfig) -> impl Iterator<Item = &str> {
    let dependences = route.request.dependences();
    dependences.filter_map(|(_, dependence)| match dependence {
        Dependence::Field(field) => Some(field),
        Dependence::Client | Dependence::Request | Dependence::File | Dependence::CacheKey => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn route(request: &str) -> RouteConfig {
        let text = format!(
            "[[site]]\n[[site.route]]\npattern = \"/**\"\norigin = \"http://a\"\n[site.route.request]\n{request}"
        );
        let config = lowroad_config::parse(&text, Path::new("f")).expect("a configuration");
        config.sites[0].routes[0].clone()
    }

    #[test]
    fn storage_depends_on_variables_of_request_fields() {
        for (request, is_private, vary) in [
            ("set = { A = \"$host$arg_a$method\" }", false, &[][..]),
            ("set = { A = \"$client\" }", true, &[]),
            ("append = { A = \"$tls_cipher\" }", true, &[]),
            ("set = { X-Real-IP = \"$client\" }", false, &[]),
            ("set = { X-Forwarded-For = \"$client, a\" }", false, &[]),
            ("set = { A = \"$request_id\" }", false, &[]),
            ("set = { A = \"$cookie_a\" }", false, &["Cookie"]),
            ("set = { A = \"$header_x_b\" }", false, &["x-b"]),
            ("set = { A = \"$header_x_real_ip\" }", true, &["x-real-ip"]),
            ("remove = \"Cookie\"", false, &[]),
        ] {
            let route = route(request);
            assert_eq!(depends_on_client(&route), is_private, "{request}");
            assert!(fields(&route).eq(vary.iter().copied()), "{request}");
            assert_eq!(uses_request_id(&route), request.contains("request_id"));
        }
    }
}
