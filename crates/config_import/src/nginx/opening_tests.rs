//! Sites open no more paths than nginx, where a translation is not exact.

use super::protection_tests::{import, rules, rules_of};

#[test]
fn handlers_without_an_equal_refuse_their_paths() {
    for handler in [
        "fastcgi_pass $php",
        "proxy_pass http://$mapped",
        "uwsgi_pass 127.0.0.1:9000",
        "scgi_pass 127.0.0.1:9000",
        "memcached_pass 127.0.0.1:9000",
        "content_by_lua_file /x.lua",
        "js_content x.y",
        "passenger_enabled on",
        "stub_status",
        "proxy_pass ftp://127.0.0.1:81",
    ] {
        let found = rules(&format!(
            "location /x/ {{ {handler}; location /x/y/ {{ }} }}"
        ));
        assert_eq!(found, ["/x/y/** Allow", "/x/** Deny(503)"], "{handler}");
        let server = rules(&format!("{handler};"));
        assert_eq!(server, ["/** Deny(503)"], "{handler}");
    }
    let protected = rules("location /x/ { stub_status; allow 10.0.0.1; deny all; }");
    assert_eq!(protected, ["/x/** Deny(503)"]);
    let nested = rules("location / { } location ~ x(?=y) { proxy_pass http://127.0.0.1:81; }");
    assert_eq!(nested, ["/** Deny(503)"]);
}

#[test]
fn expressions_inside_of_others_apply_to_their_paths_only() {
    let php = "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }";
    let (sites, import) = import(&format!(
        "server {{ listen 80; server_name a.example; root /srv; location ~ ^/(a|b)(/|$) {{ {php} }} location ~ ^/config/ {{ deny all; }} location ~ \\.php$ {{ return 404; }} }}"
    ));
    let routes = sites[0].routes.iter();
    let routes: Vec<String> = routes.map(|it| it.pattern.to_string()).collect();
    assert_eq!(routes, ["/a/**.php", "/b/**.php"], "{}", import.text);
    // `secret` may be in each part of the path.
    let denied = rules("location ~ ^/x/.*\\.log$ { location ~ secret { deny all; } }");
    assert_eq!(denied, ["/**secret** Deny(403)"]);
    let cases = rules("location ~* ^/A/ { location ~ \\.SQL$ { deny all; } }");
    assert_eq!(cases, ["(?i)/a/**.sql Deny(403)"]);
    let third = rules("location /a/ { location ~ ^/a/x/ { location ~ \\.txt$ { deny all; } } }");
    assert_eq!(third, ["/a/x/**.txt Deny(403)"]);
}

#[test]
fn wide_globs_open_only_the_paths_of_their_expression() {
    let exact = [
        (
            "allow all;",
            "\npattern = \"/**\"\nallow = true\nvariable = \"$path=~[0-9]{4}\"\n",
        ),
        (
            "",
            "\npattern = \"/**\"\nallow = true\nvariable = \"$path=~[0-9]{4}\"\n",
        ),
        (
            "allow all; proxy_pass http://127.0.0.1:81;",
            "\nvariable = \"$path=~[0-9]{4}\"\norigin = ",
        ),
        (
            "allow all; fastcgi_pass 127.0.0.1:81;",
            "\nvariable = \"$path=~[0-9]{4}\"\nfastcgi = ",
        ),
    ];
    for (lines, expected) in exact {
        let locations =
            format!("location ~ \"[0-9]{{4}}\" {{ {lines} }} location / {{ deny all; }}");
        let server = |more: &str| {
            format!("server {{ listen 80; server_name a.example; root /srv; {more} {locations} }}")
        };
        let (_, import_exact) = import(&server(""));
        assert!(
            import_exact.text.contains(expected),
            "{}",
            import_exact.text
        );
        // A condition sees the requested path.
        let (sites, import) = import(&server("rewrite ^/(x.*)$ /y/$1 last;"));
        assert!(
            !rules_of(&sites[0]).iter().any(|it| it.contains("Allow")),
            "{}",
            import.text
        );
        assert!(import.report.to_string().contains("by hand"), "{lines}");
    }
    let wide = rules(
        "location ~ ^/x/.*\\.log$ { location ~ secret { allow all; } deny all; } location / { deny all; }",
    );
    assert!(!wide.iter().any(|it| it.contains("Allow")), "{wide:?}");
    // The length of a name opens nothing.
    let names = rules("location ~ ^/.+\\.php(/|$) { fastcgi_pass 127.0.0.1:9000; }");
    assert_eq!(names, Vec::<String>::new());
    let (sites, _) = import(
        "server { server_name a; root /srv; location ~ \\.php$|^/update.php { fastcgi_pass 127.0.0.1:9000; } location / { rewrite ^/a /b last; } }",
    );
    let routes = sites[0].routes.iter().map(|it| it.pattern.to_string());
    assert_eq!(routes.collect::<Vec<_>>(), ["*.php", "/update.php**"]);
}

#[test]
fn proxies_are_trusted_with_the_field_of_clients_only() {
    let proxies = "set_real_ip_from 10.0.0.0/8;";
    let guard = "location /x/ { allow 10.1.0.0/16; deny all; }";
    for (field, is_trusted) in [
        ("real_ip_header X-Forwarded-For;", true),
        ("real_ip_header X-Real-IP;", false),
        ("real_ip_header CF-Connecting-IP;", false),
        // The default of nginx is X-Real-IP.
        ("", false),
    ] {
        let (sites, import) = import(&format!(
            "server {{ listen 80; server_name a.example; root /srv; {proxies} {field} {guard} }}"
        ));
        let has_key = import.text.contains("trusted_proxies");
        assert_eq!(has_key, is_trusted, "{}", import.text);
        let rule = match is_trusted {
            true => "/x/** Deny(403)",
            false => "/x/** Deny(503)",
        };
        assert_eq!(rules_of(&sites[0]), [rule], "{}", import.text);
        assert!(import.report.to_string().contains("X-Forwarded-Host"));
    }
}

#[test]
fn internal_folders_of_error_pages_stay_internal() {
    for locations in [
        "location /priv/ { internal; }",
        "location ^~ /priv { internal; allow all; }",
    ] {
        let (sites, import) = import(&format!(
            "server {{ listen 80; server_name a.example; root /srv; error_page 404 /priv/s.txt; {locations} }}"
        ));
        let aliases = &sites[0].aliases;
        assert!(aliases.len() == 1 && aliases[0].internal, "{}", import.text);
        assert!(import.text.contains("/priv/s.txt"), "{}", import.text);
    }
}

#[test]
fn refused_folders_have_no_index_file() {
    for refusal in ["return 403;", "deny all;"] {
        for index in [
            "location = /index.html { }",
            "location = /index.html { allow all; }",
        ] {
            let (sites, import) = import(&format!(
                "server {{ listen 80; server_name a.example; root /srv; location / {{ {refusal} }} {index} }}"
            ));
            let rule = sites[0].access.last().expect("a rule");
            assert_eq!(rule.pattern.to_string(), "/**", "{}", import.text);
            assert!(rule.conditions.exceptions.is_empty(), "{}", import.text);
        }
    }
}

#[test]
fn inner_expressions_without_an_equal_come_before_others() {
    let rules = rules(
        "auth_basic x; auth_basic_user_file /p; location /x/ { location ~ a(?=b) { deny all; } location ~ \\.txt$ { auth_basic off; } }",
    );
    assert_eq!(rules[0], "/x/** Deny(503)", "{rules:?}");
}

#[test]
fn scripts_do_not_run_where_only_files_are_sent() {
    let php = "location ~ \\.php(/|$) { fastcgi_pass 127.0.0.1:9000; }";
    let nested = format!("location / {{ {php} }}");
    for (files, handler, expected) in [
        (
            "location ^~ /uploads/ { }",
            php,
            "/uploads/**.php Deny(503)",
        ),
        (
            "location ~* ^/uploads/ { }",
            php,
            "(?i)/uploads/**.php Deny(503)",
        ),
        (
            "location @b { proxy_pass http://127.0.0.1:81; } location ^~ /up/ { try_files $uri @b; }",
            php,
            "/up/**.php Deny(503)",
        ),
        ("location = /up/evil.php { }", php, "/up/evil.php Deny(503)"),
        (
            "location /uploads/ { }",
            &nested,
            "/uploads/**.php Deny(503)",
        ),
        ("location ^~ /a/ { allow all; }", php, "/a/**.php Deny(503)"),
    ] {
        let found = rules(&format!("{files} {handler}"));
        assert_eq!(found[0], expected, "{files}: {found:?}");
    }
    for files in ["location /uploads/ { }", "location ~* \\.(css|js)$ { }"] {
        let found = rules(&format!("{files} {php}"));
        assert!(
            !found.iter().any(|it| it.contains("Deny")),
            "{files}: {found:?}"
        );
    }
}

#[test]
fn fallbacks_to_protected_files_are_left_out() {
    for guard in ["deny all;", "auth_basic x; auth_basic_user_file /p;"] {
        let (_, import) = import(&format!(
            "server {{ listen 80; server_name a.example; root /srv; location / {{ try_files $uri /index.html; }} location = /index.html {{ {guard} }} }}"
        ));
        assert!(!import.text.contains("fallback"), "{}", import.text);
        let report = import.report.to_string();
        assert!(
            report.contains("by hand: missing files are 404"),
            "{report}"
        );
    }
}

#[test]
fn scripts_in_another_root_are_refused() {
    let php = "fastcgi_pass 127.0.0.1:9000;";
    let other = rules(&format!("location ~ \\.php(/|$) {{ root /other; {php} }}"));
    assert_eq!(other, ["*.php Deny(503)"]);
    let same = rules(&format!("location ~ \\.php(/|$) {{ root /srv; {php} }}"));
    assert_eq!(same, Vec::<String>::new());
}

#[test]
fn sources_of_scripts_are_not_sent_after_a_rewrite() {
    let (_, import) = import(
        "server { listen 80; server_name a.example; root /srv; location /pub/ { rewrite ^/pub/(.*)$ /priv/$1 break; } location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; } }",
    );
    let rewrite = "to = \"/files-2/priv/$1\"\nnot = ";
    assert!(import.text.contains(rewrite), "{}", import.text);
}

#[test]
fn alias_of_a_single_file_is_one_of_its_folder() {
    let (sites, import) = import(
        "server { listen 80; server_name a.example; root /srv; location = /favicon.ico { alias /img/icons/fav.ico; } }",
    );
    let aliases = &sites[0].aliases;
    assert_eq!(aliases.len(), 1, "{}", import.text);
    assert!(
        import.text.contains("folder = \"/img/icons/\""),
        "{}",
        import.text
    );
    assert!(
        import.text.contains("to = \"/files-1/fav.ico\""),
        "{}",
        import.text
    );
}

#[test]
fn default_sites_refuse_the_hosts_of_names_without_an_equal() {
    let (sites, import) = import(
        "server { listen 80 default_server; server_name a.example; root /srv; } server { listen 80; server_name ~^(?<u>.+)\\.b\\.example$ mail.*; auth_basic x; auth_basic_user_file /p; root /other; }",
    );
    assert_eq!(
        rules_of(&sites[0]),
        ["/** Deny(503)", "/** Deny(503)"],
        "{}",
        import.text
    );
    for host in ["$host=~(?i)^(?<u>.+)\\.b\\.example$", "$host=~(?i)^mail\\."] {
        let rule = format!("variable = '{host}'\nnot = {{ host = \"a.example\" }}\ndeny = 503");
        assert!(import.text.contains(&rule), "{}", import.text);
    }
}

#[test]
fn inner_expressions_open_no_longer_prefix() {
    let rules =
        rules("location / { location ~ \\.txt$ { allow all; } } location /priv/ { deny all; }");
    assert_eq!(rules, ["/priv/** Deny(403)"]);
}

#[test]
fn expressions_inside_of_prefixes_keep_their_protection() {
    for (locations, expected) in [
        (
            r#"location /a/private/ { location ~ "^/a/" { deny all; } }"#,
            &["/a/private/** Deny(403)"][..],
        ),
        (
            r#"location /a/private/ { location ~ "/private/" { deny all; } }"#,
            &["/a/private/** Deny(403)"],
        ),
        (
            r"location /admin/ { location ~ ^/[a-z]+/x\.txt$ { deny all; } }",
            &["/*/x.txt Deny(403)"],
        ),
        (
            "location /a/private { location ~ ^/a/p { deny all; } }",
            &["/a/private** Deny(403)"],
        ),
        (
            "location /a/b/ { location ~* ^/a/B/x { deny all; } }",
            &["(?i)/a/b/x** Deny(403)"],
        ),
        (
            "location ^~ /a/private/ { location ~ ^/a/.*secret$ { deny all; } }",
            &["/a/private/**secret Deny(403)"],
        ),
        (
            r#"location /x { location ~ "\.(php|bak)$" { deny all; } }"#,
            &["/x**.php Deny(403)", "/x**.bak Deny(403)"],
        ),
        (
            "location /priv { location ~ secret { return 404; } }",
            &["/**secret** Deny(404)"],
        ),
    ] {
        assert_eq!(rules(locations), expected, "{locations}");
    }
    let php = r"location ^~ /up/ { location ~ ^/u.*\.php$ { fastcgi_pass 127.0.0.1:9000; } }";
    let (sites, import) = import(&format!(
        "server {{ listen 80; server_name a.example; root /srv; {php} }}"
    ));
    let routes = sites[0].routes.iter();
    let routes: Vec<String> = routes.map(|it| it.pattern.to_string()).collect();
    assert_eq!(routes, ["/up/**.php"], "{}", import.text);
}

#[test]
fn paths_that_an_expression_excludes_stay_closed() {
    let found = rules(r#"location ~ "^/(?!a/)" { } location ~ secret { deny all; }"#);
    // `secret` may be in each part of a path below `/a/`, so no globs are left for the first location.
    assert_eq!(found, ["/** Deny(503)", "/**secret** Deny(403)"]);
}

#[test]
fn rewrites_of_internal_locations_open_nothing() {
    for rewrite in [
        "location /dl/ { internal; rewrite ^/dl/(.*)$ /private/$1 break; }",
        "location ^~ /a/ { internal; rewrite ^ /private/secret break; }",
    ] {
        let (sites, import) = import(&format!(
            "server {{ listen 80; server_name a.example; root /srv; {rewrite} location /private/ {{ deny all; }} }}"
        ));
        assert!(sites[0].rewrites.is_empty(), "{}", import.text);
    }
}

#[test]
fn refused_scripts_do_not_run_with_a_slash_behind_their_name() {
    for refusal in ["deny all;", "return 403;"] {
        let (sites, import) = import(&format!(
            "server {{ listen 80; server_name a.example; root /srv; index index.html; \
             location ~ \\.php$ {{ {refusal} fastcgi_pass 127.0.0.1:9000; }} }}"
        ));
        assert_eq!(sites[0].access[0].conditions.exceptions.len(), 1);
        let expression = "$path=~(?:^|[^.]php|[^p]hp|[^h]p|[^p/])/$";
        assert!(import.text.contains(expression), "{}", import.text);
    }
    let excepted = lowroad_config::PathExpression::parse("(?:^|[^.]php|[^p]hp|[^h]p|[^p/])/$");
    let excepted = excepted.expect("an expression");
    for (path, is_excepted) in [
        ("/", true),
        ("/a/", true),
        ("/php/", true),
        ("/hp/", true),
        ("/xphp/", true),
        ("/x.php/", false),
        ("/a/.php/", false),
        ("/x.php", false),
    ] {
        assert_eq!(excepted.is_match(path.as_bytes()), is_excepted, "{path}");
    }
}

#[test]
fn paths_beside_the_folder_of_an_alias_are_refused() {
    for (location, text) in [
        ("location /a/x { internal; }", "/a/x"),
        ("location ^~ /a/x { alias /srv/other; }", "/a/x"),
        ("location /priv { root /alt; }", "/priv"),
        ("location /a.b { alias /srv/other/; }", r"/a\.b"),
    ] {
        let (sites, import) = import(&format!(
            "server {{ listen 80; server_name a.example; root /srv; {location} }}"
        ));
        let rule = &sites[0].access[0];
        assert_eq!(rules_of(&sites[0])[0].split(' ').nth(1), Some("Deny(404)"));
        assert_eq!(rule.conditions.variables.len(), 1, "{}", import.text);
        let condition = format!("$path=~^{text}[^/]");
        assert!(import.text.contains(&condition), "{}", import.text);
        assert_eq!(sites[0].aliases.len(), 1, "{}", import.text);
    }
    for location in [
        "location /a/x/ { internal; }",
        "location /a/x { expires 1d; }",
    ] {
        assert!(rules(location).is_empty(), "{location}");
    }
}
