//! The parts of a client's request on which the request to a handler depends because of variables, and the consequences
//! for caches: a response is stored only if the cache key and Vary distinguish the requests to which it belongs.
//!
//! Programs get the whole request in any case (RFC 3875), and should send Vary or no lifetime. But a parameter that the
//! operator makes from a field or the client is a sign that they use it, so it counts like a field of a request to an
//! origin.

use lowroad_config::RouteConfig;
use lowroad_http::forwarding;
use lowroad_variables::Dependence;

use crate::response_dependence::ResponseDependence;

/// The dependence of requests to the handler of a route on the client's request, because of variables. A field in which
/// proxies report the client does not count: without the setting, the server sends these fields, too.
pub fn dependence(route: &RouteConfig) -> ResponseDependence {
    let env = route.to.env();
    let of_env = env.iter().flat_map(|(_, value)| value.dependences());
    let of_env = of_env.map(|dependence| (None, dependence));
    let of_fields = route.request.dependences();
    let of_fields = of_fields.map(|(name, dependence)| (Some(name), dependence));
    let mut found = ResponseDependence::default();
    for (name, dependence) in of_fields.chain(of_env) {
        match dependence {
            Dependence::Client => {
                let is_report = name.is_some_and(|name| forwarding::is_report(name.as_bytes()));
                found.is_private |= !is_report;
            }
            Dependence::Field(field) => found.add_field(field),
            // A stored response would survive a change of the file.
            Dependence::File => found.is_private = true,
            Dependence::Request | Dependence::CacheKey => {}
        }
    }
    found
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
            let found = dependence(&route);
            assert_eq!(found.is_private, is_private, "{request}");
            let expected = (!vary.is_empty()).then(|| vary.join(", "));
            assert_eq!(found.vary(), expected.as_deref(), "{request}");
        }
    }

    #[test]
    fn parameters_of_programs_count_like_fields() {
        for (env, is_private, vary) in [
            ("A = \"$host\"", false, None),
            ("A = \"$cookie_a\"", false, Some("Cookie")),
            ("A = \"$client\"", true, None),
        ] {
            for to in ["cgi = true", "fastcgi = \"127.0.0.1:9000\""] {
                let text = format!(
                    "[[site]]\nroot = \"r\"\n[[site.route]]\npattern = \"/a/**\"\n{to}\nenv = {{ {env} }}"
                );
                let config = lowroad_config::parse(&text, Path::new("f")).expect("a configuration");
                let found = dependence(&config.sites[0].routes[0]);
                assert_eq!(
                    (found.is_private, found.vary()),
                    (is_private, vary),
                    "{env}"
                );
            }
        }
    }
}
