//! Rewrites, redirects and look-ups of files: their translation selects the requests that nginx selects.

use std::path::Path;

use lowroad_config::{PathSelector, RuleAction, SiteConfig};

use super::import_text;
use crate::{ConfigImport, DirectiveOutcome};

const PASS: &str = "proxy_pass http://127.0.0.1:1; proxy_set_header Host $host;";
const SCRIPT: &str = "fastcgi_pass 127.0.0.1:9000;";

/// Imports a server with these lines.
fn import(lines: &str) -> (SiteConfig, ConfigImport) {
    import_http("", lines)
}

fn import_http(http: &str, lines: &str) -> (SiteConfig, ConfigImport) {
    let text = format!("http {{ {http} server {{ listen 80; root /srv; {lines} }} }}");
    let import = import_text(&text, Path::new("nginx.conf")).expect("a configuration");
    assert!(import.problems.is_empty(), "{:?}", import.problems);
    let config = lowroad_config::parse(&import.text, Path::new("lowroad.toml"));
    let mut sites = config.expect("a valid configuration").sites;
    assert_eq!(sites.len(), 1, "{}", import.text);
    (sites.remove(0), import)
}

/// The tables of a kind, each without its header.
fn tables(import: &ConfigImport, header: &str) -> Vec<String> {
    let parts = import.text.split("\n\n");
    let tables = parts.filter_map(|part| part.split_once(&format!("{header}\n")));
    tables
        .map(|(_, keys)| keys.trim_end().to_string())
        .collect()
}

fn is_by_hand(import: &ConfigImport, directive: &str) -> bool {
    let mut entries = import.report.entries().iter();
    let entry = entries.find(|it| it.directive.starts_with(directive));
    let entry = entry.unwrap_or_else(|| panic!("{directive} in {}", import.report));
    matches!(entry.outcome, DirectiveOutcome::ByHand(_))
}

fn assert_translated(import: &ConfigImport) {
    assert_eq!(import.report.counts().by_hand, 0, "{}", import.report);
}

#[test]
fn look_ahead_of_a_rewrite_is_an_exception() {
    let (_, import) = import(&format!(
        "location ~ \\.php(?:$|/) {{ rewrite ^/(?!index|core\\/x) /index.php$request_uri; {SCRIPT} }}"
    ));
    assert_translated(&import);
    assert_eq!(
        tables(&import, "[[site.rewrite]]"),
        [
            "regex = \"^/(.*)$\"\nto = \"/index.php/$1\"\nvariable = '$path=~\\.php(?:$|/)'\n\
          not = { variable = '$path=~^/(?:index|core\\/x)' }"
        ]
    );
}

#[test]
fn rewrite_without_an_equal_refuses_its_paths() {
    for (rewrite, rule) in [
        (
            "rewrite ^/data/.*(?<!\\.pub)$ /closed.html last;",
            "variable = \"$path=~^/data/.*$\"\ndeny = 503",
        ),
        (
            "rewrite ^/x/(?=a)b /y$cookie_a last;",
            "variable = \"$path=~^/x/b\"\ndeny = 503",
        ),
        (
            "rewrite ^/x$ /y$cookie_a permanent;",
            "variable = \"$path=~^/x$\"\ndeny = 503",
        ),
    ] {
        for lines in [
            rewrite.to_string(),
            format!("location /d/ {{ {rewrite} }}"),
            format!("{rewrite} location / {{ {PASS} }}"),
        ] {
            let (site, import) = import(&lines);
            assert!(is_by_hand(&import, "rewrite"), "{}", import.report);
            assert!(site.rewrites.is_empty(), "{}", import.text);
            assert_eq!(site.access[0].action, RuleAction::Deny(503));
            assert!(import.text.contains(rule), "{rule} in {}", import.text);
        }
    }
    // A back-reference: no table can express even the paths.
    let lines = "rewrite ^/(a)\\1 /b last;";
    let (site, _) = import(lines);
    assert!(site.access[0].conditions.is_empty());
    let (site, _) = import(&format!("location /x/ {{ {lines} }}"));
    assert_eq!(site.access[0].pattern.to_string(), "/x/**");
}

#[test]
fn paths_that_a_look_ahead_excludes_have_their_own_locations() {
    let locations = "location /api/ { proxy_pass http://127.0.0.1:2; } location / { } location ~ \\.css$ { expires 1h; }";
    let (site, import) = import(&format!(
        "location ~ ^/(?!api|static) {{ {PASS} }} {locations}"
    ));
    assert_translated(&import);
    let routes: Vec<String> = site
        .routes
        .iter()
        .map(|it| it.pattern.to_string())
        .collect();
    assert_eq!(routes, ["/api/**", "/**"], "{}", import.text);
    // The files are served by internal aliases, which rewrites reach before the route for all paths.
    let is_led = |path: &str| {
        let mut froms = site.rewrites.iter().map(|it| &it.from);
        froms.any(|from| match from {
            PathSelector::Pattern(pattern) => pattern.matches(path.as_bytes()),
            PathSelector::Regex(regex) => regex.is_match(path.as_bytes()),
        })
    };
    assert!(
        is_led("/static/a.txt") && is_led("/apix") && !is_led("/x"),
        "{}",
        import.text
    );
    // Without an equal, the paths are refused.
    for (lines, excluded) in [
        (format!("location ~ ^/(?!v[0-9]+/) {{ {PASS} }}"), "a class"),
        (
            format!("location ~ ^/(?!api) {{ {PASS} }} location / {{ alias /x/; }}"),
            "an alias",
        ),
    ] {
        let (site, import) = self::import(&lines);
        assert!(
            is_by_hand(&import, "location ~"),
            "{excluded}: {}",
            import.report
        );
        assert_eq!(site.access[0].action, RuleAction::Deny(503), "{excluded}");
    }
}

#[test]
fn conditions_on_paths_are_translated_with_their_look_aheads() {
    let (_, import) = import("if ($uri ~ ^/(?!open)) { return 403; } location / { }");
    assert_translated(&import);
    assert_eq!(
        tables(&import, "[[site.rule]]"),
        ["variable = \"$path=~^/\"\nnot = { variable = \"$path=~^/(?:open)\" }\ndeny = 403"]
    );
    let (_, import) = self::import("if ($uri ~* ^/x/(?!y)(.*)$) { return 301 /z/$1; }");
    assert_eq!(
        tables(&import, "[[site.redirect]]"),
        [
            "regex = \"(?i)^/x/(.*)$\"\nto = \"/z/$1?\"\nnot = { variable = \"$path=~(?i)^/x/(?:y)\" }"
        ]
    );
    // A condition on the target compares its query, too.
    let (_, import) = self::import("if ($request_uri ~ \"^/p\\?a=1\") { return 301 /q; }");
    assert!(
        import.text.contains("variable = '$request_uri=~^/p\\?a=1'"),
        "{}",
        import.text
    );
}

#[test]
fn rewrites_and_redirects_stay_in_their_location() {
    let (_, import) = import(&format!(
        "location / {{ rewrite ^/(.*)$ /app/$1 last; }} location /static/ {{ }} location /app/ {{ {PASS} }} \
         location ~ \\.php$ {{ {SCRIPT} }}"
    ));
    let [rewrite] = &tables(&import, "[[site.rewrite]]")[..] else {
        panic!("{}", import.text);
    };
    for path in ["^/static/", "^/app/", "\\.php$"] {
        assert!(rewrite.contains(path), "{path} in {rewrite}");
    }
    let (_, import) = self::import("location /a/ { rewrite /old$ /new permanent; }");
    assert_eq!(
        tables(&import, "[[site.redirect]]"),
        ["regex = \"/old$\"\nto = \"/new\"\nvariable = \"$path=~^/a/\""]
    );
    assert_translated(&import);
}

#[test]
fn rewrite_with_break_keeps_its_location() {
    let (site, import) = import(&format!(
        "location /api/ {{ rewrite ^/api/(.*)$ /v2/$1 break; {PASS} }}"
    ));
    assert!(site.rewrites.is_empty(), "{}", import.text);
    assert!(
        import
            .text
            .contains("strip_prefix = \"/api\"\nadd_prefix = \"/v2\"\nrestore_prefix = false\n"),
        "{}",
        import.text
    );
    // Other forms lead to a route of the location.
    for (lines, is_missing) in [
        (
            format!("location /v/ {{ rewrite ^/v/(\\d+)/(.*)$ /n/$2?v=$1 break; {PASS} }}"),
            false,
        ),
        (
            format!("location /v/ {{ rewrite ^/v/(\\d+)/(.*)$ /n/$2?v=$1; break; {PASS} }}"),
            false,
        ),
        (
            format!(
                "location / {{ try_files $uri @app; }} location @app {{ rewrite ^/v/(\\d+)/(.*)$ /n/$2?v=$1 break; {PASS} }}"
            ),
            true,
        ),
    ] {
        let (site, import) = self::import(&lines);
        let to = site.rewrites[0].to.to_string();
        assert!(to.starts_with("/rewritten-"), "{}", import.text);
        assert!(to.ends_with("/n/$2?v=$1&$query"), "{to}");
        assert_eq!(site.rewrites[0].missing, is_missing);
        let inner = site.routes.iter().find(|it| it.internal);
        let inner = inner.expect("an internal route");
        assert_eq!(
            inner.pattern.to_string(),
            format!("{}**", &to[..to.len() - "n/$2?v=$1&$query".len()])
        );
        assert!(
            import.text.contains("remove = \"X-Forwarded-Prefix\""),
            "{}",
            import.text
        );
        assert_translated(&import);
    }
    // Files of the new path are those of the location, also where another one refuses them.
    let (site, import) = self::import(
        "location /d/ { rewrite ^/d/(.*)$ /files/$1 break; } location /files/ { deny all; }",
    );
    assert!(site.aliases[0].internal, "{}", import.text);
    assert_eq!(
        site.rewrites[0].to.to_string(),
        format!("{}/files/$1", site.aliases[0].path)
    );
}

#[test]
fn files_of_try_files_are_looked_up_in_their_order() {
    let (site, import) = import(&format!(
        "location / {{ try_files $uri $uri.html $uri/ $uri/x.htm /index.php?$args; }} location ~ \\.php(/|$) {{ {SCRIPT} }}"
    ));
    let rewrites: Vec<(String, bool, bool)> = site
        .rewrites
        .iter()
        .map(|it| (it.to.to_string(), it.exists, it.missing))
        .collect();
    let expected = [
        ("/$1.html".to_string(), true, false),
        ("/$1/x.htm".to_string(), true, true),
        ("/index.php?$query".to_string(), false, true),
    ];
    assert_eq!(rewrites, expected, "{}", import.text);
    // The files of other locations do not get the handler for missing files.
    let (site, import) = self::import(&format!(
        "location / {{ try_files $uri $uri/ @app; }} location /docs/ {{ try_files $uri =404; }} location @app {{ {PASS} }}"
    ));
    assert_eq!(site.routes.len(), 1);
    assert_eq!(
        site.routes[0].conditions.exceptions.len(),
        1,
        "{}",
        import.text
    );
}

#[test]
fn exact_locations_refuse_their_path_only() {
    let (site, import) = import(&format!(
        "location = /api/ {{ return 404; }} location = / {{ deny all; }} location = /t {{ return 410 gone; }} \
         location = /pw/ {{ auth_basic x; auth_basic_user_file /p; }} location = /x.php {{ deny all; }} \
         location ~ \\.php(/|$) {{ {SCRIPT} }} location /api/ {{ {PASS} }}"
    ));
    let responses: Vec<String> = site
        .access
        .iter()
        .filter(|it| matches!(it.action, RuleAction::Respond(_)))
        .map(|it| it.pattern.to_string())
        .collect();
    assert_eq!(responses, ["/api/", "/t", "/"], "{}", import.text);
    // What follows the name of a script is a path of the script.
    assert!(
        import.text.contains("pattern = \"/x.php\"\ndeny = 403"),
        "{}",
        import.text
    );
    let (_, index) = self::import("index a.html; location = /x/a.html { deny all; }");
    assert!(
        index.text.contains("pattern = \"/x/a.html\"\ndeny = 403"),
        "{}",
        index.text
    );
    let password = site
        .access
        .iter()
        .find(|it| it.pattern.to_string() == "/pw/");
    let password = password.expect("a rule");
    assert_eq!(password.conditions.exceptions.len(), 1, "{}", import.text);
}

#[test]
fn scripts_are_refused_without_their_folders() {
    let front = format!("location ~ ^/index\\.php(/|$) {{ {SCRIPT} internal; }}");
    let refusal = "location ~ \\.php$ { return 404; }";
    let fallback = "location / { try_files $uri /index.php$is_args$args; }";
    let (site, import) = import(&format!("{fallback} {front} {refusal}"));
    assert_eq!(site.index, ["index.html"], "{}", import.text);
    let folders = "$path=~(?:^|[^.]php|[^p]hp|[^h]p|[^p/])/$";
    let rule = format!("pattern = \"*.php\"\ndeny = 404\nnot = {{ variable = \"{folders}\" }}");
    assert!(import.text.contains(&rule), "{}", import.text);
    let (_, import) = self::import(&format!("index index.php; {fallback} {front} {refusal}"));
    let rule = "deny = 404\nnot = { variable = \"$path=~^/$\" }";
    assert!(import.text.contains(rule), "{}", import.text);
    // A rewrite could lead from a folder to a script.
    let (_, import) = self::import(&format!(
        "rewrite ^/$ /other.php; {fallback} {front} {refusal}"
    ));
    assert!(!import.text.contains("/$\" }"), "{}", import.text);
}

#[test]
fn queries_of_redirects_are_those_of_nginx() {
    for (lines, to) in [
        ("rewrite ^/a$ /x?y=1 permanent;", "/x?y=1&$query"),
        ("rewrite ^/a$ /x?y=1? permanent;", "/x?y=1"),
        ("rewrite ^/a$ /x? permanent;", "/x?"),
        ("location /a { return 301 /x; }", "/x?"),
        (
            "location /a { return 301 https://h.example$request_uri; }",
            "https://h.example/$1",
        ),
        (
            "location /a { return 301 https://h.example$uri; }",
            "https://h.example/$1?",
        ),
    ] {
        let (site, import) = import(lines);
        assert_eq!(site.redirects[0].to.to_string(), to, "{}", import.text);
    }
    let (site, _) = import_http(
        "map $request_uri $new { ~page=3 /x; }",
        "if ($new) { return 301 $new; }",
    );
    assert_eq!(site.redirects[0].to.to_string(), "$map_new?");
}

#[test]
fn redirect_of_a_prefix_leaves_scripts_out() {
    let (site, import) = import(&format!(
        "location /remote {{ return 301 /remote.php$request_uri; }} location ~ \\.php(?:$|/) {{ {SCRIPT} }}"
    ));
    assert_translated(&import);
    assert_eq!(site.redirects.len(), 1, "{}", import.text);
    assert!(
        import
            .text
            .contains("not = { variable = '$path=~\\.php(?:$|/)' }"),
        "{}",
        import.text
    );
}

#[test]
fn redirect_of_a_host_keeps_status_and_scheme() {
    let lines = "server_name a.example www.a.example; if ($host = www.a.example) { return 302 $scheme://a.example$request_uri; }";
    let text = format!("http {{ server {{ listen 80; root /srv; {lines} }} }}");
    let import = import_text(&text, Path::new("nginx.conf")).expect("a configuration");
    let [redirect] = &tables(&import, "[[site.redirect]]")[..] else {
        panic!("{}", import.text);
    };
    assert_eq!(
        redirect,
        "from = \"/**\"\nto = \"http://a.example/$1\"\nstatus = 302"
    );
}

#[test]
fn fields_of_files_are_not_those_of_scripts() {
    let (_, import) = import(&format!(
        "location ~ \\.php(?:$|/) {{ add_header X-Php 1; {SCRIPT} }} \
         location ~ \\.css$ {{ try_files $uri /index.php$uri; add_header X-Css 1; add_header X-Php 2; }}"
    ));
    let fields = tables(&import, "[[site.header]]");
    let expected = "pattern = \"/**.php/**.css\"\nset = { X-Php = \"1\" }\nremove = \"X-Css\"";
    assert!(fields.iter().any(|it| it == expected), "{fields:?}");
    assert!(
        fields.iter().any(|it| it.contains("\"/**.php/**\"")),
        "{fields:?}"
    );
}

#[test]
fn expressions_wider_than_globs_are_conditions() {
    let (site, import) = import(
        "location ~ \"\\.[0-9a-f]{8}\\.css$\" { add_header X-H 1; } location ~* \\.GIF$ { expires 1d; }",
    );
    assert_translated(&import);
    let fields = tables(&import, "[[site.header]]");
    assert!(
        fields[0].contains("variable = '$path=~\\.[0-9a-f]{8}\\.css$'"),
        "{fields:?}"
    );
    assert!(
        site.cache_control[0].pattern.matches(b"/a.gif"),
        "{}",
        import.text
    );
    // A lifetime can't have a condition, and that of other files would be wrong.
    let (site, import) = self::import("location ~ \"\\.[0-9a-f]{8}\\.css$\" { expires max; }");
    assert!(site.cache_control.is_empty(), "{}", import.text);
    assert!(is_by_hand(&import, "location"), "{}", import.report);
}

#[test]
fn files_without_a_lifetime_get_none_of_another_location() {
    let (_, import) =
        import("location / { expires 1h; } location /raw/ { } location ~ \\.gif$ { expires 1d; }");
    let fields = tables(&import, "[[site.header]]");
    assert_eq!(
        fields,
        [
            "pattern = \"/raw/**\"\nremove = \"Cache-Control\"",
            // The expression precedes the folder.
            "pattern = \"*.gif\"\nset = { Cache-Control = \"max-age=86400\" }",
        ],
        "{}",
        import.text
    );
}

#[test]
fn page_of_another_folder_is_in_an_alias() {
    let (site, import) =
        import("error_page 500 502 /50x.html; location = /50x.html { root /usr/share/html; }");
    assert_eq!(site.aliases[0].folder, Path::new("/usr/share/html"));
    assert_eq!(
        site.error_pages[&502],
        format!("{}/50x.html", site.aliases[0].path),
        "{}",
        import.text
    );
}

#[test]
fn limits_of_connections_are_not_widened() {
    let zone = "limit_conn_zone $binary_remote_addr zone=c:1m;";
    let (_, import) = import_http(zone, "location /d/ { limit_conn c 1; }");
    assert!(is_by_hand(&import, "limit_conn c"), "{}", import.report);
    assert!(!import.text.contains("connections_per_address_max"));
    let (_, import) = import_http(zone, "limit_conn c 1;");
    assert!(import.text.contains("connections_per_address_max = 1"));
}

#[test]
fn refusals_of_a_server_come_first() {
    let (site, import) = import(
        "location /a/ { return 404; } location = /c { return 200 ok; } if ($request_method = PUT) { return 405; }",
    );
    assert_eq!(
        site.access[0].action,
        RuleAction::Deny(405),
        "{}",
        import.text
    );
    assert_eq!(
        import.text.matches("deny = 405").count(),
        1,
        "{}",
        import.text
    );
    assert_translated(&import);
}

#[test]
fn file_of_a_maintenance_mode_is_a_condition() {
    for (condition, key) in [
        ("-f $document_root/down", "file_exists = \"/srv/down\""),
        ("-f /run/maintenance", "file_exists = \"/run/maintenance\""),
        ("!-e /run/up", "not = { file_exists = \"/run/up\" }"),
    ] {
        let (_, import) = import(&format!("if ({condition}) {{ return 503; }}"));
        assert_translated(&import);
        let rules = tables(&import, "[[site.rule]]");
        assert_eq!(rules, [format!("{key}\ndeny = 503")]);
    }
    let (_, import) = self::import("if (-f $document_root/$host) { return 503; }");
    assert!(is_by_hand(&import, "if"), "{}", import.report);
}

#[test]
fn index_files_are_those_of_all_locations() {
    let php = format!("location ~ \\.php$ {{ {SCRIPT} }}");
    let (site, import) = import(&format!(
        "location / {{ index a.html; }} location /blog/ {{ index index.php a.html; }} {php}"
    ));
    assert_eq!(site.index, ["a.html", "index.php"], "{}", import.text);
    assert!(
        import
            .report
            .to_string()
            .contains("all index files of the site"),
        "{}",
        import.report
    );
    let (site, _) = self::import(&format!("index index.php; location / {{ }} {php}"));
    assert_eq!(site.index, ["index.php"]);
}

#[test]
fn links_are_followed_as_in_nginx() {
    assert!(import("").1.text.contains("symlinks = \"follow\""));
    let (_, import) = import("disable_symlinks on;");
    assert!(import.text.contains("symlinks = \"none\""));
}
