//! Protected paths of an nginx configuration stay protected, also where the import can't translate the protection.

use std::path::Path;

use lowroad_config::{RuleAction, SiteConfig};

use super::import_text;
use crate::ConfigImport;

fn import(servers: &str) -> (Vec<SiteConfig>, ConfigImport) {
    let text = format!("http {{\n{servers}\n}}\n");
    let import = import_text(&text, Path::new("nginx.conf")).expect("a configuration");
    assert!(
        import.problems.is_empty(),
        "{:?}\n{}",
        import.problems,
        import.text
    );
    let config = lowroad_config::parse(&import.text, Path::new("lowroad.toml"));
    (config.expect("a valid configuration").sites, import)
}

/// The rules of a server with these locations, as `PATTERN ACTION`.
fn rules(locations: &str) -> Vec<String> {
    let (sites, import) = import(&format!(
        "server {{ listen 80; server_name a.example; root /srv; {locations} }}"
    ));
    assert_eq!(sites.len(), 1, "{}", import.text);
    rules_of(&sites[0])
}

fn rules_of(site: &SiteConfig) -> Vec<String> {
    let rules = site.access.iter();
    rules
        .map(|rule| {
            let action = format!("{:?}", rule.action);
            let name = action.split([' ', '{']).next().unwrap_or_default();
            // Of a password, the name of the action suffices.
            let name = name.split("(Some").next().unwrap_or_default();
            format!("{} {name}", rule.pattern)
        })
        .collect()
}

#[test]
fn client_certificates_of_one_name_close_it_where_they_are_refused() {
    let server = |name: &str, verify: &str| {
        format!(
            "server {{ listen 443 ssl; server_name {name}; ssl_certificate /a.pem; ssl_certificate_key /a.key; {verify} location / {{ proxy_pass http://127.0.0.1:81; }} }}"
        )
    };
    let verify = "ssl_verify_client on; ssl_client_certificate /ca.pem;";
    let (sites, import) = import(&(server("www.example", "") + &server("admin.example", verify)));
    assert!(sites[1].tls.is_none(), "{}", import.text);
    assert_eq!(
        rules_of(sites.last().expect("a site")),
        ["/** Deny(503)"],
        "{}",
        import.text
    );
}

#[test]
fn exceptions_of_closed_locations_open_nothing() {
    let rules = rules(
        "location ~ ^/(?!public/).*\\.sql$ { deny all; } location /public/private/ { deny all; } location /public/staff/ { auth_basic x; auth_basic_user_file /p; }",
    );
    assert!(!rules.iter().any(|it| it.contains("Allow")), "{rules:?}");
    assert!(
        rules.iter().any(|it| it == "/public/private/** Deny(403)"),
        "{rules:?}"
    );
}

#[test]
fn open_locations_open_no_scripts() {
    let php = "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }";
    let password = "auth_basic x; auth_basic_user_file /p;";
    // The expression precedes the prefix, and keeps the password of the server.
    let prefix = rules(&format!(
        "{password} location /open/ {{ auth_basic off; }} {php}"
    ));
    let expected = ["*.php Auth", "*.php Allow", "/open/** Allow", "/** Auth"];
    assert_eq!(prefix.len(), expected.len(), "{prefix:?}");
    for (rule, expected) in prefix.iter().zip(expected) {
        assert!(rule.starts_with(expected), "{prefix:?}");
    }
    for open in ["auth_basic off", "allow all"] {
        let guard = match open {
            "allow all" => "deny all;",
            _ => password,
        };
        let (sites, import) = import(&format!(
            "server {{ listen 80; server_name a.example; root /srv; {guard} location ~* \\.(css|js)$ {{ {open}; }} {php} }}"
        ));
        let rules = &sites[0].access;
        let opened: Vec<_> = rules
            .iter()
            .filter(|it| matches!(it.action, RuleAction::Allow))
            .collect();
        assert!(opened.len() >= 2, "{}", import.text);
        let names = opened.iter().filter(|it| it.pattern.to_string() != "*.php");
        for rule in names {
            // `/x.php/y.css` is a request for the script.
            assert_eq!(rule.conditions.exceptions.len(), 1, "{}", import.text);
        }
        assert!(import.text.contains(r"\.php/"), "{}", import.text);
    }
}

#[test]
fn callers_have_the_access_of_their_named_location() {
    let auth = rules(
        "location / { try_files $uri @app; } location @app { auth_basic x; auth_basic_user_file /p; proxy_pass http://127.0.0.1:81; }",
    );
    assert!(auth[0].starts_with("/** Auth"), "{auth:?}");
    let den = rules(
        "location / { try_files $uri @den; } location @den { allow 10.0.0.0/8; deny all; proxy_pass http://127.0.0.1:81; }",
    );
    assert_eq!(den, ["/** Deny(403)"]);
}

#[test]
fn refused_location_with_rewrites_stays_refused() {
    let rules = rules(
        "location /x/ { rewrite ^/x/old /y permanent; return 302 https://$weird/; auth_basic x; auth_basic_user_file /p; }",
    );
    assert_eq!(rules, ["/x/** Deny(503)"]);
}

#[test]
fn unknown_guards_refuse_their_paths() {
    for guard in ["auth_ldap x;", "auth_jwt x;", "access_by_lua_file /x.lua;"] {
        let found = rules(&format!("location /x/ {{ {guard} }}"));
        assert_eq!(found, ["/x/** Deny(503)"], "{guard}");
    }
    assert_eq!(
        rules("auth_jwt x; location /x/ { auth_jwt off; }"),
        ["/x/** Allow", "/** Deny(503)"]
    );
    assert_eq!(
        rules("location ~ ^/(?=secret)s { deny all; }"),
        ["/** Deny(503)"]
    );
    assert_eq!(
        rules("location /x/ { limit_except GET { auth_basic x; auth_basic_user_file /p; } }"),
        ["/x/** Deny(403)"]
    );
}

#[test]
fn refusals_hold_for_all_methods_and_spellings() {
    let (_, import) = import(
        "server { server_name a.example; root /srv; location / { limit_except GET POST { deny all; } } location ~* \\.(sql|bak)$ { deny all; } }",
    );
    let methods = "not = { methods = [\"GET\", \"POST\", \"HEAD\"] }\ndeny = 403";
    assert!(import.text.contains(methods), "{}", import.text);
    assert!(
        import.text.contains("pattern = \"(?i)*.sql\""),
        "{}",
        import.text
    );
}

#[test]
fn words_with_line_ends_add_no_tables() {
    let (sites, import) = import(
        "upstream app { server 127.0.0.1:81 'max_conns=1\n[[site]]\nnames = \"evil\"\nroot = \"/\"\n#'; server 127.0.0.1:82; } server { listen 80; server_name a.example; location '/x\n[[site.rule]]\nallow = true\n#' { deny all; } location / { proxy_pass http://app; } }",
    );
    assert_eq!(sites.len(), 1, "{}", import.text);
    assert!(!rules_of(&sites[0]).contains(&"/** Allow".to_string()));
    assert!(!import.text.contains("connections"), "{}", import.text);
}

#[test]
fn unknown_guard_of_a_server_refuses_all_its_paths() {
    for guard in [
        "if ($slow) { return 403; }",
        "if ($remote_addr ~ ^10) { return 444; }",
    ] {
        for server in [
            format!("listen 80; server_name a.example; {guard}"),
            guard.to_string(),
        ] {
            let (sites, import) = import(&format!(
                "server {{ root /srv; {server} location /x/ {{ allow all; }} location / {{ proxy_pass http://127.0.0.1:81; }} }}"
            ));
            let rules = rules_of(&sites[0]);
            assert_eq!(rules[0], "/** Deny(403)", "{}", import.text);
            let report = import.report.to_string();
            assert!(report.contains("the server is refused"), "{report}");
        }
    }
}

#[test]
fn folders_are_listed_only_where_all_are() {
    let import_server = |lines: &str| {
        let (_, import) = import(&format!(
            "server {{ listen 80; server_name a.example; root /srv; {lines} }}"
        ));
        let is_by_hand = import.report.to_string().contains("no folders are listed");
        (import.text.contains("listing = true"), is_by_hand)
    };
    for (lines, expected) in [
        ("autoindex on;", (true, false)),
        (
            "location / { autoindex on; } location = /50x.html { }",
            (true, false),
        ),
        (
            "location /pub/ { autoindex on; } location / { proxy_pass http://127.0.0.1:81; }",
            (true, false),
        ),
        ("location /pub/ { autoindex on; }", (false, true)),
        (
            "autoindex on; location /private/ { autoindex off; }",
            (false, true),
        ),
        (
            "location /pub/ { autoindex on; } location / { try_files $uri @app; } location @app { proxy_pass http://127.0.0.1:81; }",
            (false, true),
        ),
    ] {
        assert_eq!(import_server(lines), expected, "{lines}");
    }
}

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
        "proxy_pass ftp://127.0.0.1:81",
    ] {
        let found = rules(&format!(
            "location /x/ {{ {handler}; location /x/y/ {{ }} }}"
        ));
        assert_eq!(found, ["/x/y/** Allow", "/x/** Deny(503)"], "{handler}");
        let server = rules(&format!("{handler};"));
        assert_eq!(server, ["/** Deny(503)"], "{handler}");
    }
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
    let php = "location ~ \\.php$ { fastcgi_pass 127.0.0.1:9000; }";
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
    let other = rules(&format!("location ~ \\.php$ {{ root /other; {php} }}"));
    assert_eq!(other, ["*.php Deny(503)"]);
    let same = rules(&format!("location ~ \\.php$ {{ root /srv; {php} }}"));
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
