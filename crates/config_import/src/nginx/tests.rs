//! Single directives, and how they work together.

use std::path::Path;

use lowroad_config::{Config, RouteTo, RuleAction};

use super::import_text;
use crate::{ConfigImport, DirectiveOutcome};

/// Imports the content of `http`.
fn import(text: &str) -> ConfigImport {
    let text = format!("http {{\n{text}\n}}\n");
    let import = import_text(&text, Path::new("nginx.conf")).expect("a configuration");
    assert!(import.problems.is_empty(), "{:?}", import.problems);
    import
}

fn config(import: &ConfigImport) -> Config {
    lowroad_config::parse(&import.text, Path::new("lowroad.toml")).expect("a valid configuration")
}

/// The outcome of the directive with this text.
fn outcome<'i>(import: &'i ConfigImport, directive: &str) -> &'i DirectiveOutcome {
    let mut entries = import.report.entries().iter();
    let entry = entries.find(|entry| entry.directive == directive);
    &entry
        .unwrap_or_else(|| panic!("{directive} in {}", import.report))
        .outcome
}

fn is_by_hand(import: &ConfigImport, directive: &str) -> bool {
    matches!(outcome(import, directive), DirectiveOutcome::ByHand(_))
}

fn origins(import: &ConfigImport) -> Vec<String> {
    let config = config(import);
    let routes = config.sites.iter().flat_map(|site| &site.routes);
    let to_origin = routes.filter_map(|route| match &route.to {
        RouteTo::Origin(origin) => {
            let path = route.pattern.to_string();
            let server = origin.servers[0].url.to_string();
            Some(format!("{path} {server} {}", route.missing))
        }
        _ => None,
    });
    to_origin.collect()
}

const FALLBACK: &str =
    "location @fb { proxy_pass http://127.0.0.1:2; proxy_set_header Host $host; }";
const FIRST: &str = "proxy_pass http://127.0.0.1:1; proxy_set_header Host $host;";

#[test]
fn error_page_beside_an_origin_keeps_the_origin() {
    for (error_page, intercepts, by_hand) in [
        ("error_page 404 @fb", "", false),
        ("error_page 404 = @fb", "proxy_intercept_errors on;", true),
        (
            "error_page 404 =200 /x.html",
            "proxy_intercept_errors on;",
            true,
        ),
        (
            "error_page 404 = /index.php",
            "proxy_intercept_errors on;",
            true,
        ),
        (
            "error_page 404 https://b.example/",
            "proxy_intercept_errors on;",
            true,
        ),
        (
            "error_page 404 500 = @fb",
            "proxy_intercept_errors on;",
            true,
        ),
    ] {
        for text in [
            format!("server {{ location / {{ {FIRST} {intercepts} {error_page}; }} {FALLBACK} }}"),
            format!("server {{ location / {{ {error_page}; {FIRST} {intercepts} }} {FALLBACK} }}"),
            format!("server {{ {error_page}; {intercepts} location / {{ {FIRST} }} {FALLBACK} }}"),
        ] {
            let import = import(&text);
            let first = "/** http://127.0.0.1:1 false".to_string();
            assert_eq!(origins(&import), [first], "{text}\n{}", import.text);
            assert_eq!(
                is_by_hand(&import, error_page),
                by_hand,
                "{text}\n{}",
                import.report
            );
        }
    }
}

#[test]
fn error_page_with_a_status_is_one_of_the_routes_that_replace_errors() {
    let text = |intercepts| {
        format!(
            "server {{ root /srv; error_page 404 /404.html; error_page 500 502 =503 /down.html; \
             location / {{ {FIRST} proxy_intercept_errors {intercepts}; }} }}"
        )
    };
    const CHANGED: &str = "error_page 500 502 =503 /down.html";
    let on = import(&text("on"));
    let expected = "intercept_errors = { 404 = 404, 500 = 503, 502 = 503 }";
    assert!(on.text.contains(expected), "{}", on.text);
    assert!(!is_by_hand(&on, CHANGED), "{}", on.report);
    let off = import(&text("off"));
    assert!(!off.text.contains("intercept_errors"), "{}", off.text);
    assert!(is_by_hand(&off, CHANGED), "{}", off.report);
    for import in [&on, &off] {
        let pages = &config(import).sites[0].error_pages;
        assert_eq!(pages[&502], "/down.html");
    }
}

#[test]
fn error_page_of_missing_files_is_inherited() {
    let import = import(&format!(
        "server {{ root /srv; error_page 404 = @fb; location / {{ }} location /own/ {{ error_page 404 /404.html; }} {FALLBACK} }}"
    ));
    assert_eq!(
        origins(&import),
        ["/** http://127.0.0.1:2 true"],
        "{}",
        import.text
    );
}

#[test]
fn named_fallback_beside_an_origin_publishes_no_files() {
    let import = import(&format!(
        "server {{ root /srv/app; location / {{ try_files $uri @fb; {FIRST} }} {FALLBACK} }}"
    ));
    assert_eq!(
        origins(&import),
        ["/** http://127.0.0.1:1 false"],
        "{}",
        import.text
    );
    assert!(
        is_by_hand(&import, "try_files $uri @fb"),
        "{}",
        import.report
    );
}

#[test]
fn return_of_a_server_without_root_is_a_redirect() {
    for (target, expected) in [
        ("$scheme://b.example$request_uri", "http://b.example/$1"),
        ("$scheme://b.example", "http://b.example"),
        ("https://b.example", "https://b.example"),
        ("https://b.example$request_uri", "https://b.example"),
        (
            "$scheme://www.$host$request_uri",
            "http://www.$host$request_uri",
        ),
        ("https://$host$request_uri", "https://$host"),
        ("https://$host:8443$request_uri", "https://$host:8443"),
        ("https://$host/login", "https://$host/login"),
    ] {
        for names in ["", "server_name a.example;"] {
            for place in [
                format!("return 301 {target};"),
                format!("location / {{ return 301 {target}; }}"),
            ] {
                let import = import(&format!("server {{ listen 80; {names} {place} }}"));
                let config = config(&import);
                assert_eq!(
                    config.sites.len(),
                    1,
                    "{place}\n{}\n{}",
                    import.text,
                    import.report
                );
                let redirects = &config.sites[0].redirects;
                assert_eq!(
                    redirects.len(),
                    1,
                    "{place}\n{}\n{}",
                    import.text,
                    import.report
                );
                let to = redirects[0].to.to_string();
                assert!(to.starts_with(expected), "{target}: {to}");
            }
        }
    }
}

#[test]
fn redirects_without_an_equal_publish_nothing() {
    for place in [
        "return 302 https://sso.example/$cookie_a;",
        "location / { return 302 https://sso.example/$cookie_a; }",
    ] {
        let import = import(&format!("server {{ listen 80; {place} }}"));
        let config = config(&import);
        let rule = &config.sites[0].access[0];
        assert_eq!(rule.action, RuleAction::Deny(503), "{}", import.text);
        assert_eq!(rule.pattern.to_string(), "/**");
        assert_eq!(import.report.counts().by_hand, 1, "{}", import.report);
    }
}

#[test]
fn scheme_of_the_request_stays_in_redirects() {
    let import = import(
        "server { listen 80; listen 443 ssl; server_name a.example; ssl_certificate /c; ssl_certificate_key /k; \
         return 301 $scheme://b.example$request_uri; }",
    );
    let config = config(&import);
    let schemes = config.sites[0].redirects.iter();
    let schemes: Vec<_> = schemes
        .map(|it| (it.to.to_string(), it.conditions.is_https))
        .collect();
    assert_eq!(
        schemes,
        [
            ("http://b.example/$1".to_string(), Some(false)),
            ("https://b.example/$1".to_string(), Some(true))
        ]
    );
}

#[test]
fn http3_of_nginx_needs_no_settings() {
    let import = import(
        "server { listen 443 quic reuseport; listen 443 ssl; ssl_certificate /c; ssl_certificate_key /k; root /r; \
         http3_hq off; quic_retry on; add_header Alt-Svc 'h3=\":443\"; ma=86400'; }",
    );
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let config = config(&import);
    let [site] = &config.sites[..] else {
        panic!("not one site: {:?}", config.sites)
    };
    assert!(site.listen.is_empty());
    let address = site.tls_addresses()[0];
    assert!(config.has_http3(address));
    let advertised = site.headers.iter().flat_map(|it| &it.set);
    assert_eq!(
        advertised.filter(|(name, _)| &**name == "Alt-Svc").count(),
        1
    );
}

#[test]
fn lifetimes_of_caches_are_reported_as_they_are() {
    let cached = "proxy_cache_path /c keys_zone=z:1m; server { proxy_cache_valid 200 10m; proxy_cache_valid 404 1m;";
    let text = format!("{cached} location / {{ {FIRST} proxy_cache z; }} }}");
    let import = import(&text);
    assert_eq!(
        *outcome(&import, "proxy_cache_valid 200 10m"),
        DirectiveOutcome::Translated("also for other statuses that may be stored".to_string())
    );
    assert_eq!(
        *outcome(&import, "proxy_cache_valid 404 1m"),
        DirectiveOutcome::translated()
    );
    assert!(import.text.contains("\nttl = \"10m\""), "{}", import.text);
    // Without a zone, or with conditions, nothing is stored.
    for rest in ["", "proxy_cache z; proxy_no_cache $cookie_a;"] {
        let import = self::import(&format!("{cached} location / {{ {FIRST} {rest} }} }}"));
        assert!(
            matches!(
                outcome(&import, "proxy_cache_valid 200 10m"),
                DirectiveOutcome::NotNeeded(_) | DirectiveOutcome::ByHand(_)
            ),
            "{}",
            import.report
        );
        assert!(!import.text.contains("ttl"), "{}", import.text);
    }
}

#[test]
fn maps_are_used_in_requests_to_origins_and_programs() {
    let import = import(
        "map $http_user_agent $kind { default plain; ~*bot robot; }\n\
         map $host $tenant { a.example one; }\n\
         server { root /srv;\n\
         location / { proxy_pass http://127.0.0.1:1; proxy_set_header Host $host; proxy_set_header X-Kind \"${kind}_$remote_addr\"; }\n\
         location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; fastcgi_param TENANT $tenant; fastcgi_param WHO $http_x_who; }\n}",
    );
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let names: Vec<String> = config(&import)
        .maps
        .iter()
        .map(|it| it.name.clone())
        .collect();
    assert_eq!(names, ["kind", "tenant"]);
    for line in [
        "set.X-Kind = \"${map_kind}_$client\"",
        "TENANT = \"$map_tenant\"",
        "WHO = \"$header_x_who\"",
    ] {
        assert!(import.text.contains(line), "{line} in {}", import.text);
    }
}

#[test]
fn odd_entries_of_maps_are_left_out_and_reported() {
    let import = import(
        "map $uri $kind { default plain; /a one; ~^/(?<x>b) $x; ~(?=c) three; \\~d four; \\*.e five; }\n\
         server { root /srv; add_header X-Kind $kind; }",
    );
    let DirectiveOutcome::ByHand(way) = outcome(&import, "map $uri $kind") else {
        panic!("{}", import.report);
    };
    assert!(
        way.contains("~^/(?<x>b) $x") && way.contains("~(?=c)"),
        "{way}"
    );
    let config = config(&import);
    let map = &config.maps[0].entries;
    assert_eq!(map.find(b"/a"), Some("one"));
    assert_eq!(map.find(b"~d"), Some("four"), "{}", import.text);
    assert_eq!(map.find(b"xd"), None);
    assert_eq!((map.find(b"*.e"), map.find(b"x.e")), (Some("five"), None));
}

#[test]
fn incomplete_maps_open_no_protected_path() {
    let import = import(
        "map $uri $bad { default 0; ~(?=c) 1; /x 1; }\n\
         server { root /srv; location /in/ { if ($bad) { return 403; } } }",
    );
    assert!(is_by_hand(&import, "if ($bad)"), "{}", import.report);
    let config = config(&import);
    let rule = &config.sites[0].access[0];
    assert_eq!(
        (rule.pattern.to_string().as_str(), &rule.action),
        ("/in/**", &RuleAction::Deny(403))
    );
    assert!(rule.conditions.variables.is_empty());
}

#[test]
fn conditions_on_values_of_maps_are_translated() {
    let import = import(
        "map $http_user_agent $mobile { default 0; ~*phone 1; }\n\
         server { root /srv; if ($mobile = 1) { return 302 https://m.example$request_uri; }\n\
         if ($mobile != 0) { rewrite ^/a$ /b last; }\n\
         location /x { if ($mobile ~ ^[12]) { return 403; } if ($http_x_old = 1) { return 301 /new; } } }",
    );
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let config = config(&import);
    let site = &config.sites[0];
    assert_eq!(site.redirects.len(), 2, "{}", import.text);
    assert_eq!(site.rewrites.len(), 1);
    for line in [
        "variable = \"$map_mobile=1\"",
        "not = { variable = \"$map_mobile=0\" }",
        "variable = \"$map_mobile=~^[12]\"",
        "header = \"X-Old: 1\"",
    ] {
        assert!(import.text.contains(line), "{line} in {}", import.text);
    }
}

#[test]
fn refused_handshakes_are_those_of_the_sites_at_the_address() {
    let reject = "server { listen 443 ssl default_server; ssl_reject_handshake on; }";
    let secure = "server { listen 443 ssl; server_name b.example; root /b; ssl_certificate /c; ssl_certificate_key /k; }";
    let plain = "server { listen 80; server_name a.example; root /a; }";
    let import = import(&format!("{reject} {plain}"));
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let config = config(&import);
    assert_eq!(config.sites.len(), 1, "{}", import.text);
    assert!(config.sites[0].tls.is_none());
    let import = self::import(&format!("{reject} {secure} {plain}"));
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let text = &import.text;
    assert!(text.matches("strict_sni = true").count() == 1, "{text}");
    assert_eq!(self::config(&import).sites.len(), 2, "{text}");
    // Its plain listener stays.
    let both = "server { listen 80 default_server; listen 443 ssl default_server; ssl_reject_handshake on; root /d; }";
    let import = self::import(&format!("{both} {secure}"));
    assert_eq!(self::config(&import).sites.len(), 2, "{}", import.text);
}

#[test]
fn redirect_of_a_location_leaves_paths_with_precedence_out() {
    let import = import(
        "server { root /srv; location ^~ /.well-known { location /.well-known/acme-challenge { try_files $uri =404; }\n\
         return 301 /index.php$request_uri; } }",
    );
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let config = config(&import);
    let redirect = &config.sites[0].redirects[0];
    assert_eq!(redirect.conditions.exceptions.len(), 1, "{}", import.text);
}

#[test]
fn condition_in_an_exact_location_is_for_its_path() {
    let import = import(
        "server { root /srv; location = / { if ($http_user_agent ~ ^Dav) { return 302 /remote/$is_args$args; } } }",
    );
    assert!(import.text.contains("regex = \"^/()$\""), "{}", import.text);
}

#[test]
fn fallback_is_not_for_files_of_other_locations() {
    let import = import(
        "server { root /srv; location / { try_files $uri /index.html; } location /assets/ { expires 1y; } }",
    );
    let config = config(&import);
    let rules = config.sites[0].access.iter();
    let fallbacks: Vec<_> = rules
        .filter(|it| matches!(it.action, RuleAction::Fallback(_)))
        .collect();
    assert_eq!(fallbacks.len(), 1);
    assert_eq!(
        fallbacks[0].conditions.exceptions.len(),
        1,
        "{}",
        import.text
    );
}

#[test]
fn condition_that_refuses_with_a_text_refuses() {
    for (block, line) in [
        (
            "if ($http_x_key != \"k\") { return 403 \"no key\"; }",
            "not = { header = \"X-Key: k\" }",
        ),
        (
            "if ($cookie_user = \"\") { return 401 '{\"e\":1}'; }",
            "not = { cookie = \"user=~.\" }",
        ),
        // Not translatable: the location is refused.
        ("if ($slow) { return 403 \"no\"; }", "deny = 403"),
        (
            "if ($http_x = 1) { add_header X y; return 403; }",
            "deny = 403",
        ),
    ] {
        let import = import(&format!(
            "server {{ listen 80; location /l/ {{ {block} {FIRST} }} }}"
        ));
        assert!(import.text.contains(line), "{block}:\n{}", import.text);
        assert!(import.text.contains("deny = 403"), "{}", import.text);
    }
}

#[test]
fn bandwidths_are_those_of_sites_and_routes() {
    let import = import(&format!(
        "server {{ limit_rate 100k; location / {{ limit_rate 1m; limit_rate_after 2m; {FIRST} }} location /x/ {{ {FIRST} }} location /f/ {{ root /srv; limit_rate 3k; }} }}"
    ));
    let config = config(&import);
    let site = &config.sites[0];
    let rates: Vec<_> = site
        .routes
        .iter()
        .map(|route| {
            route
                .bandwidth
                .as_ref()
                .map(|it| (it.bytes_per_s, it.after))
        })
        .collect();
    assert_eq!(rates, [None, Some((1 << 20, 2 << 20))], "{}", import.text);
    assert!(
        import.text.contains("rate = \"100KB/s\""),
        "{}",
        import.text
    );
    assert!(is_by_hand(&import, "limit_rate 3k"), "{}", import.report);
    assert!(!is_by_hand(&import, "limit_rate 1m"), "{}", import.report);
}

#[test]
fn lifetimes_by_status_are_rules_of_the_cache() {
    let import = import(&format!(
        "server {{ location / {{ proxy_cache x; proxy_cache_valid 10m; proxy_cache_valid 404 1m; proxy_cache_valid 500 0; proxy_cache_valid any 5s; proxy_ignore_headers Cache-Control Expires; {FIRST} }} }}"
    ));
    config(&import);
    let rules = "rule = [{ status = [200, 301, 302], ttl = \"10m\", override = true }, { status = [404], ttl = \"1m\", override = true }, { status = [500], no_store = true }, { ttl = \"5s\", override = true }]";
    assert!(import.text.contains(rules), "{}", import.text);
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
}

#[test]
fn texts_of_return_are_fixed_responses() {
    let import_server = |lines: &str| {
        let import = import(&format!("server {{ root /srv; {lines} }}"));
        let config = config(&import);
        let respond = config.sites[0].access.iter();
        let respond = respond.filter(|it| matches!(it.action, RuleAction::Respond(_)));
        let patterns: Vec<String> = respond.map(|it| it.pattern.to_string()).collect();
        (patterns, import)
    };
    let (patterns, import) =
        import_server("location = /health { return 200 \"ok\\n\"; } location / { deny all; }");
    assert_eq!(patterns, ["/health"], "{}", import.text);
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    for lines in [
        "location = /a { return 204; }",
        // The refusals of the server come first, as in nginx.
        "location = /a { return 200 ok; } if ($http_user_agent ~ bot) { return 403; }",
        "location = /a { return 410 gone; }",
    ] {
        let (patterns, import) = import_server(lines);
        assert_eq!(patterns, ["/a"], "{lines}: {}", import.text);
        assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    }
    for lines in [
        // A text with a variable.
        "location = /a { return 200 $cookie_a; }",
        // Rules come before the routes of other locations.
        "location / { return 200 ok; } location /api/ { proxy_pass http://127.0.0.1:1; }",
        "location = /a { if ($http_x_a) { return 403; } return 200 ok; }",
        "rewrite ^/old /new permanent; location = /a { return 200 ok; }",
    ] {
        let (patterns, import) = import_server(lines);
        assert!(patterns.is_empty(), "{lines}: {}", import.text);
        assert_eq!(
            import.report.counts().by_hand,
            1,
            "{lines}: {}",
            import.report
        );
    }
}

#[test]
fn slashes_are_removed_without_a_loop_at_folders() {
    for (condition, line) in [
        ("!-d", "rewrite ^/(.+)/$ /$1 permanent"),
        ("!-e", "rewrite ^(.*)/$ $1 redirect"),
    ] {
        let import = import(&format!(
            "server {{ root /srv; if ({condition} $request_filename) {{ {line}; }} location / {{ try_files $uri $uri/ /index.php; }} location ~ \\.php$ {{ fastcgi_pass 127.0.0.1:9000; }} }}"
        ));
        let config = config(&import);
        assert!(config.sites[0].redirects.is_empty(), "{}", import.text);
        assert!(
            import.text.contains("trailing_slash = \"remove\""),
            "{}",
            import.text
        );
        assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    }
    // Another redirect for missing files has no equal.
    let import = import(
        "server { root /srv; if (!-f $request_filename) { rewrite ^/(.*)$ /$1/ permanent; } }",
    );
    assert!(
        config(&import).sites[0].redirects.is_empty(),
        "{}",
        import.text
    );
    assert!(import.report.counts().by_hand > 0, "{}", import.report);
}

/// Small sites of lines that add and remove slashes: none of them becomes a loop.
#[test]
fn redirects_for_slashes_do_not_loop() {
    let servers = [
        "",
        "rewrite ^/(.*)/$ /$1 permanent;",
        "rewrite ^([^.]*[^/])$ $1/ permanent;",
        "if (!-d $request_filename) { rewrite ^/(.*)/$ /$1 permanent; }",
        "rewrite ^/app$ /app/ redirect;",
    ];
    let first = format!("location /app/ {{ {FIRST} }}");
    let locations = [
        "",
        &first,
        "location = /app { return 301 /app/; }",
        "location = /app/ { return 301 /app; }",
        "location /app { return 302 /app/; }",
        "location / { try_files $uri $uri/ /index.html; }",
    ];
    let mut count = 0;
    for server in servers {
        for (index, one) in locations.iter().enumerate() {
            for other in locations.iter().skip(index + 1) {
                let import = import(&format!("server {{ root /srv; {server} {one} {other} }}"));
                let warnings = config(&import).document.warnings;
                let mut loops = warnings.iter().map(|it| &it.message);
                assert!(!loops.any(|it| it.contains("loop")), "{}", import.text);
                count += usize::from(import.report.to_string().contains("endless loop"));
            }
        }
    }
    assert!(count > 5, "{count} loops were found");
    let import = import(&format!(
        "server {{ root /srv; {first} location = /app {{ return 301 /app/; }} }}"
    ));
    assert_eq!(
        config(&import).sites[0].redirects.len(),
        1,
        "{}",
        import.text
    );
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
}

#[test]
fn mirror_and_resolver_are_keys_of_route_and_origin() {
    let import = import(
        "upstream app { zone app 64k; resolver 127.0.0.53 [::1]:5353 valid=10s; server app.example:80 resolve; }
         upstream fixed { resolver 127.0.0.53; server 10.0.0.1; }
         server { mirror /copy;
           location / { proxy_pass http://app; proxy_set_header Host $host; }
           location /fixed/ { mirror off; proxy_pass http://fixed; }
           location = /copy { internal; proxy_pass http://10.0.0.9:81$request_uri; proxy_set_header Host $host; } }",
    );
    let config = config(&import);
    let routes = &config.sites[0].routes;
    let patterns: Vec<String> = routes.iter().map(|it| it.pattern.to_string()).collect();
    assert!(
        !patterns.iter().any(|it| it.contains("copy")),
        "{}",
        import.text
    );
    for route in routes {
        let RouteTo::Origin(origin) = &route.to else {
            panic!("{}", import.text);
        };
        let is_app = origin.servers[0].url.to_string().contains("app.example");
        let mirror = route
            .mirror
            .as_ref()
            .map(|it| it.to.servers[0].url.to_string());
        let expected = is_app.then(|| "http://10.0.0.9:81".to_string());
        assert_eq!(mirror, expected, "{}", import.text);
        assert_eq!(
            origin.resolvers.len(),
            if is_app { 2 } else { 0 },
            "{}",
            import.text
        );
    }
    for directive in ["mirror /copy", "resolver 127.0.0.53 [::1]:5353 valid=10s"] {
        assert!(!is_by_hand(&import, directive), "{}", import.report);
    }
}

#[test]
fn mirror_of_another_path_is_by_hand() {
    let import = import(&format!(
        "server {{ mirror /copy; location / {{ {FIRST} }} location = /copy {{ internal; proxy_pass http://10.0.0.9; }} }}"
    ));
    assert!(is_by_hand(&import, "mirror /copy"), "{}", import.report);
    assert!(
        config(&import).sites[0]
            .routes
            .iter()
            .all(|it| it.mirror.is_none())
    );
    // No route copies requests to the origin, so the location stays.
    let routes = &config(&import).sites[0].routes;
    let copy = routes.iter().find(|it| it.pattern.to_string() == "/copy");
    let copy = copy.unwrap_or_else(|| panic!("{}", import.text));
    assert!(copy.internal, "{}", import.text);
    let RouteTo::Origin(origin) = &copy.to else {
        panic!("{}", import.text);
    };
    let url = origin.servers[0].url.to_string();
    assert_eq!(url, "http://10.0.0.9:80", "{}", import.text);
}

#[test]
fn server_without_a_root_is_reported_with_the_default_folder() {
    const DIFFERENCE: &str = "no root: nginx' default folder";
    let without = import("server { listen 8080; }");
    assert!(
        without.report.to_string().contains(DIFFERENCE),
        "{}",
        without.report
    );
    let with = import("server { listen 8080; root /srv; }");
    assert!(
        !with.report.to_string().contains(DIFFERENCE),
        "{}",
        with.report
    );
}
