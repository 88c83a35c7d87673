//! Configurations of well-known applications, written for these tests with the directives that their documentation uses.
//! The import must account for every directive, and leave at most one in ten to do by hand.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lowroad_config::{Config, InterceptedErrors, OriginProtocol, RouteTo, RuleAction, SameSite};
use lowroad_config_import::{ConfigImport, DirectiveOutcome, OutcomeCounts, caddy, nginx};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs")
}

fn import(name: &str) -> ConfigImport {
    let import =
        nginx::import(&folder().join(format!("{name}.conf")), None).expect("a configuration");
    assert!(import.problems.is_empty(), "{name}: {:?}", import.problems);
    import
}

fn config(import: &ConfigImport) -> Config {
    lowroad_config::parse(&import.text, Path::new("lowroad.toml")).expect("a valid configuration")
}

/// The counts of a configuration without the files that it includes.
fn own_counts(import: &ConfigImport) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    for entry in import
        .report
        .entries()
        .iter()
        .filter(|entry| entry.place.contains(".conf:"))
    {
        match entry.outcome {
            DirectiveOutcome::Translated(_) => counts.translated += 1,
            DirectiveOutcome::NotNeeded(_) => counts.not_needed += 1,
            DirectiveOutcome::ByHand(_) => counts.by_hand += 1,
        }
    }
    counts
}

fn all_counts() -> BTreeMap<String, OutcomeCounts> {
    let files = std::fs::read_dir(folder())
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path());
    let configs = files.filter(|path| path.extension().is_some_and(|it| it == "conf"));
    let names = configs.map(|path| {
        path.file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    });
    names
        .map(|name| (name.clone(), own_counts(&import(&name))))
        .collect()
}

#[test]
fn at_most_one_directive_in_ten_is_left_to_do_by_hand() {
    let counts = all_counts();
    assert!(counts.len() >= 15, "{} configurations", counts.len());
    for (name, counts) in &counts {
        assert!(counts.total() > 8, "{name}");
        assert!(counts.by_hand * 10 <= counts.total(), "{name}: {counts:?}");
    }
}

/// `docs/import.md` has the counts of this test; with `LOWROAD_WRITE_IMPORT` the table is written.
#[test]
fn documented_counts_are_those_of_the_configurations() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/import.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let mut rows = String::new();
    for (name, counts) in all_counts() {
        let OutcomeCounts {
            translated,
            not_needed,
            by_hand,
        } = counts;
        rows.push_str(&format!(
            "| {name} | {translated} | {not_needed} | {by_hand} |\n"
        ));
    }
    let head = "|---|---|---|---|\n";
    let start = text.find(head).expect("the table") + head.len();
    let len = text[start..]
        .find("\n\n")
        .map_or(text.len() - start, |end| end + 1);
    let written = format!("{}{rows}{}", &text[..start], &text[start + len..]);
    if std::env::var_os("LOWROAD_WRITE_IMPORT").is_some() {
        std::fs::write(&page, written).expect("the page is written");
    } else {
        assert_eq!(text, written, "write it with LOWROAD_WRITE_IMPORT=1");
    }
}

#[test]
fn every_directive_is_in_the_report_with_its_line() {
    let text = std::fs::read_to_string(folder().join("wordpress.conf")).expect("the file");
    let report = import("wordpress").report.to_string();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.ends_with(';') && !line.starts_with('#') {
            let place = format!("wordpress.conf:{}: ", index + 1);
            assert!(report.contains(&place), "{place}{line}");
        }
    }
    assert!(report.trim_end().ends_with("0 by hand"), "{report}");
}

#[test]
fn redirect_to_https_joins_two_servers() {
    let config = config(&import("spa_api"));
    let [site] = &config.sites[..] else {
        panic!("one site");
    };
    let tls = site.tls.as_ref().expect("TLS");
    assert!(tls.redirect);
    assert_eq!(site.listen.len(), 1);
    assert!(
        site.redirects
            .iter()
            .all(|it| it.to.to_string() != "https://app.example.org/$1")
    );
}

#[test]
fn expressions_have_precedence_over_prefixes() {
    let config = config(&import("mediawiki"));
    let denied: Vec<String> = config.sites[0]
        .access
        .iter()
        .filter(|rule| matches!(rule.action, RuleAction::Deny(_)))
        .map(|rule| rule.pattern.to_string())
        .collect();
    assert_eq!(denied, ["/w/images/deleted**", "/w/cache**", "/**"]);
    // The last rule refuses everything, so the paths of other locations are allowed before.
    let allowed = config.sites[0]
        .access
        .iter()
        .filter(|rule| rule.action == RuleAction::Allow);
    let allowed: Vec<String> = allowed.map(|rule| rule.pattern.to_string()).collect();
    for pattern in ["/w/index.php", "/wiki/**", "/robots.txt"] {
        assert!(
            allowed.iter().any(|it| it == pattern),
            "{pattern}: {allowed:?}"
        );
    }
}

#[test]
fn files_beside_an_origin_are_reached_by_a_rewrite() {
    let config = config(&import("django_gunicorn"));
    let site = &config.sites[0];
    assert!(site.aliases.iter().all(|alias| alias.internal));
    let rewrites: Vec<&str> = site.rewrites.iter().map(|it| it.to.as_str()).collect();
    assert!(
        rewrites.iter().any(|to| to.ends_with("/$1")),
        "{rewrites:?}"
    );
    assert_eq!(site.routes.len(), 1);
    assert!(matches!(site.routes[0].to, RouteTo::Origin(_)));
}

#[test]
fn snippet_without_a_server_becomes_a_site() {
    let text =
        "location /a { alias /srv/a; location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; } }";
    let import = nginx::import_text(text, Path::new("snippet.conf")).expect("a snippet");
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
    let config = config(&import);
    assert_eq!(config.sites[0].routes[0].pattern.to_string(), "/a**.php");
    assert_eq!(config.sites[0].aliases[0].path, "/a");
}

#[test]
fn internal_files_stay_hidden_from_clients() {
    let text = "server { root /srv; location /kept/ { internal; } location ~ \\.key$ { internal; } \
                location / { proxy_pass http://127.0.0.1:1; proxy_set_header Host $host; } }";
    let import = nginx::import_text(text, Path::new("nginx.conf")).expect("a configuration");
    let config = config(&import);
    let site = &config.sites[0];
    assert_eq!(site.aliases.len(), 1);
    assert!(site.aliases[0].internal && site.aliases[0].path == "/kept");
    assert!(
        site.rewrites.is_empty(),
        "a rewrite would lead clients there"
    );
    let refused: Vec<String> = site
        .access
        .iter()
        .map(|rule| rule.pattern.to_string())
        .collect();
    assert_eq!(refused, ["*.key"]);
    assert!(
        import
            .report
            .to_string()
            .contains("location ~ \\.key$: by hand"),
        "{}",
        import.report
    );
}

#[test]
fn path_of_proxy_pass_is_translated_or_left_to_do_by_hand() {
    let text = "server { location /api/ { proxy_pass http://127.0.0.1:3000/v2/; proxy_set_header Host $host; } }";
    let import = nginx::import_text(text, Path::new("nginx.conf")).expect("a configuration");
    let route = import.text.split("[[site.route]]").nth(1).expect("a route");
    assert!(
        route.contains("strip_prefix = \"/api\"\n"),
        "{}",
        import.text
    );
    assert!(route.contains("add_prefix = \"/v2\"\n"), "{}", import.text);
}

/// Imports a server with these lines, after these maps.
fn import_text(name: &str, maps: &str, server: &str) -> ConfigImport {
    let folder = std::env::temp_dir().join(format!("lowroad-import-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("nginx.conf");
    let text = format!("http {{\n{maps}\nserver {{\nlisten 80;\nroot /srv;\n{server}\n}}\n}}\n");
    std::fs::write(&file, text).expect("a file");
    let import = nginx::import(&file, None).expect("a configuration");
    std::fs::remove_dir_all(&folder).expect("the folder");
    assert!(import.problems.is_empty(), "{:?}", import.problems);
    import
}

#[test]
fn maps_become_tables_and_their_variables_are_used() {
    let import = import_text(
        "maps",
        "map $uri $moved { /old /new; /Older https://b.example/x; }\n\
         map $http_user_agent $bad { default 0; ~*scraper 1; ~Exact 1; '' 1; }\n\
         map $host $kind { hostnames; default other; .a.example a; }\n\
         map $uri $unused { /x $host; }",
        "if ($moved) { return 301 $moved; }\nif ($bad) { return 403; }\nadd_header X-Kind \"$kind $http_x_a\";",
    );
    let config = config(&import);
    assert!(!import.text.contains("By hand"), "{}", import.text);
    let names: Vec<&str> = config.maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(names, ["bad", "kind", "moved"]);
    let [bad, kind, moved] = &config.maps[..] else {
        panic!("{names:?}");
    };
    assert_eq!(moved.entries.find(b"/OLD"), Some("/new"));
    assert_eq!(bad.entries.find(b"a SCRAPER"), Some("1"));
    assert_eq!(
        (bad.entries.find(b"exact"), bad.entries.find(b"Exact")),
        (None, Some("1"))
    );
    assert_eq!((bad.entries.find(b""), &bad.default[..]), (Some("1"), "0"));
    assert_eq!(kind.entries.find(b"x.a.example"), Some("a"));
    let site = &config.sites[0];
    assert_eq!(site.redirects[0].to.as_str(), "$map_moved?");
    assert_eq!(site.access[0].action, RuleAction::Deny(403));
    assert_eq!(site.access[0].conditions.variables.len(), 1);
    assert_eq!(site.headers[0].set[0].1.as_str(), "$map_kind $header_x_a");
}

#[test]
fn intercepted_errors_have_the_pages_of_the_site() {
    let import = import_text(
        "errors",
        "",
        "error_page 502 /down.html;\nlocation /api/ { proxy_pass http://127.0.0.1:9; proxy_intercept_errors on; }\n\
         location /own/ { proxy_pass http://127.0.0.1:9; }",
    );
    let config = config(&import);
    let routes = config.sites[0].routes.iter();
    let intercepting: Vec<String> = routes
        .filter(|route| route.intercepted_errors == InterceptedErrors::WithPage)
        .map(|route| route.pattern.to_string())
        .collect();
    assert_eq!(intercepting, ["/api/**"]);
}

#[test]
fn syntax_error_has_its_place() {
    let folder = std::env::temp_dir().join(format!("lowroad-import-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let main = folder.join("nginx.conf");
    std::fs::write(&main, "http {\n  include sites/*;\n}\n").expect("a file");
    std::fs::create_dir_all(folder.join("sites")).expect("a folder");
    std::fs::write(folder.join("sites/a"), "server {\n  root \"/x;\n}\n").expect("a file");
    let error = nginx::import(&main, None)
        .expect_err("an open quote")
        .to_string();
    std::fs::remove_dir_all(&folder).expect("the folder is removed");
    assert!(
        error.ends_with("sites/a:2:8: a quote is not closed"),
        "{error}"
    );
}

/// Damaged configurations are refused or translated; the result is always valid.
#[test]
fn damaged_configurations_are_translated_or_refused() {
    let mut imported = 0;
    for name in all_counts().into_keys() {
        let text =
            std::fs::read_to_string(folder().join(format!("{name}.conf"))).expect("the file");
        let lines: Vec<&str> = text.lines().collect();
        for omitted in (0..lines.len()).step_by(11) {
            let without: Vec<&str> = lines
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != omitted)
                .map(|(_, line)| *line)
                .collect();
            let text = without.join("\n").replacen(" /", " ", omitted % 3);
            let Ok(import) = nginx::import_text(&text, Path::new("nginx.conf")) else {
                continue;
            };
            // Without a server there is no site.
            if import.site_count > 0 && import.problems.is_empty() {
                imported += 1;
                config(&import);
            }
        }
    }
    assert!(imported > 50, "{imported} translations");
}

#[test]
fn grpc_servers_become_origins_with_http2() {
    let text = "http {\n\
        upstream calls { server 10.0.0.1:50051; server 10.0.0.2:50051; }\n\
        server {\n listen 80;\n server_name a.example;\n\
          location /one. { grpc_pass 127.0.0.1:50051; grpc_set_header Host $host; grpc_read_timeout 10m; }\n\
          location /two. { grpc_pass grpcs://calls; grpc_ssl_verify on; grpc_ssl_trusted_certificate /etc/ca.pem; }\n\
          location /three/ { proxy_pass http://unix:/run/app.sock; proxy_http_version 2; }\n\
        }\n}\n";
    let import = nginx::import_text(text, Path::new("nginx.conf")).expect("a configuration");
    assert!(import.problems.is_empty(), "{:?}", import.problems);
    let by_hand = |outcome: &DirectiveOutcome| matches!(outcome, DirectiveOutcome::ByHand(_));
    let entries = import.report.entries();
    assert!(
        !entries.iter().any(|entry| by_hand(&entry.outcome)),
        "{entries:?}"
    );
    let config = config(&import);
    let origins = config.sites[0]
        .routes
        .iter()
        .filter_map(|route| match &route.to {
            RouteTo::Origin(origin) => Some(origin),
            _ => None,
        });
    let mut seen: Vec<_> = origins
        .map(|origin| {
            let encrypted = origin.is_encrypted();
            (origin.servers.len(), encrypted, origin.protocol)
        })
        .collect();
    seen.sort_by_key(|(servers, encrypted, _)| (*servers, *encrypted));
    seen.dedup();
    assert_eq!(
        seen,
        [
            (1, false, OriginProtocol::H2),
            (2, true, OriginProtocol::H2)
        ],
        "{}",
        import.text
    );
}

/// Caddyfiles in the style of those that applications document, written for this test.
#[test]
fn caddyfiles_leave_at_most_one_directive_in_ten_to_do_by_hand() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/caddyfiles");
    let (mut count, mut by_hand, mut total) = (0, 0, 0);
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        let import = caddy::import(&path).expect("a Caddyfile");
        assert!(
            import.problems.is_empty(),
            "{path:?}: {:?}",
            import.problems
        );
        let counts = import.report.counts();
        by_hand += counts.by_hand;
        total += counts.total();
        assert!(!import.text.contains("# [["), "{path:?}: {}", import.text);
        config(&import);
        count += 1;
    }
    assert!(count >= 8, "{count} Caddyfiles");
    assert!(by_hand * 10 <= total, "{by_hand} of {total}");
}

#[test]
fn sticky_cookie_is_translated() {
    let text = "events {}\nhttp {\nupstream app {\n server 10.0.0.1:3000;\n server 10.0.0.2:3000;\n\
         sticky cookie srv expires=1h path=/ secure httponly samesite=strict;\n}\n\
         server {\n listen 80;\n location / { proxy_pass http://app; }\n}\n}\n";
    let import = nginx::import_text(text, Path::new("nginx.conf")).expect("a configuration");
    let config = config(&import);
    let RouteTo::Origin(origin) = &config.sites[0].routes[0].to else {
        panic!("{}", import.text);
    };
    let sticky = origin.sticky.as_ref().expect("sticky sessions");
    assert_eq!(
        (sticky.cookie.as_str(), sticky.lifetime_s),
        ("srv", Some(3600))
    );
    assert_eq!((sticky.is_secure, sticky.is_http_only), (Some(true), true));
    assert_eq!(sticky.same_site, SameSite::Strict);
}

/// Damaged Caddyfiles are refused or translated, and the result is always valid.
#[test]
fn damaged_caddyfiles_are_translated_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/caddyfiles");
    let mut imported = 0;
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("the file");
        let words: Vec<&str> = text.split_inclusive(' ').collect();
        for omitted in (0..words.len()).step_by(3) {
            let without = words
                .iter()
                .enumerate()
                .filter(|(index, _)| *index != omitted);
            let text: String = without.map(|(_, word)| *word).collect();
            let text = text.replacen('/', "*/é", omitted % 4);
            let Ok(import) = caddy::import_text(&text, Path::new("Caddyfile")) else {
                continue;
            };
            if import.site_count > 0 && import.problems.is_empty() {
                imported += 1;
                config(&import);
            }
        }
    }
    assert!(imported > 50, "{imported} translations");
}
