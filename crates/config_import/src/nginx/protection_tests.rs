//! Protected paths of an nginx configuration stay protected, also where the import can't translate the protection.

use std::path::Path;

use lowroad_config::{RuleAction, SiteConfig};

use super::import_text;
use crate::ConfigImport;

pub fn import(servers: &str) -> (Vec<SiteConfig>, ConfigImport) {
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
pub fn rules(locations: &str) -> Vec<String> {
    let (sites, import) = import(&format!(
        "server {{ listen 80; server_name a.example; root /srv; {locations} }}"
    ));
    assert_eq!(sites.len(), 1, "{}", import.text);
    rules_of(&sites[0])
}

pub fn rules_of(site: &SiteConfig) -> Vec<String> {
    let rules = site.access.iter();
    rules
        .map(|rule| {
            let action = format!("{:?}", rule.action);
            let name = action.split([' ', '{']).next().unwrap_or_default();
            // Of a password, the name of the action suffices.
            let name = name.split("(Some").next().unwrap_or_default();
            let name = name.split("(Fixed").next().unwrap_or_default();
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
    let php = "location ~ \\.php(/|$) { fastcgi_pass 127.0.0.1:9000; }";
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
