//! Single directives, and how they work together.

use std::path::Path;

use lowroad_config::{Config, PathSelector, RuleAction, SiteConfig};

use super::import_text;
use crate::{ConfigImport, DirectiveOutcome};

fn import(text: &str) -> ConfigImport {
    let import = import_text(text, Path::new("Caddyfile")).expect("a Caddyfile");
    assert!(
        import.problems.is_empty(),
        "{:?}\n{}",
        import.problems,
        import.text
    );
    assert!(
        !import.text.contains("# [["),
        "the parser refused: {}",
        import.text
    );
    import
}

fn config(import: &ConfigImport) -> Config {
    lowroad_config::parse(&import.text, Path::new("lowroad.toml")).expect("a valid configuration")
}

/// The only site of a plain block with these directives.
fn site(directives: &str) -> (SiteConfig, ConfigImport) {
    let import = import(&format!("http://a.example {{\n{directives}\n}}\n"));
    let mut sites = config(&import).sites;
    assert_eq!(sites.len(), 1);
    (sites.remove(0), import)
}

fn rules(site: &SiteConfig) -> Vec<String> {
    let rules = site.access.iter();
    rules
        .map(|rule| format!("{} {:?}", rule.pattern, rule.action))
        .collect()
}

fn routes(site: &SiteConfig) -> Vec<String> {
    let routes = site.routes.iter();
    routes
        .map(|it| format!("{} {}", it.pattern, it.missing))
        .collect()
}

#[test]
fn order_is_that_of_caddy_not_of_the_file() {
    let (site, import) = site(
        "reverse_proxy app:80\nrespond /a/b \"x\"\nrespond /a/b/c \"y\"\nredir /old /new\nbasic_auth /a/* {\nbob $2a$x\n}",
    );
    let rules = rules(&site);
    // Passwords come before answers, and longer paths before shorter ones.
    assert!(rules[0].starts_with("(?i)/a/**"), "{rules:?}");
    assert!(rules[1].starts_with("/a/b/c"), "{rules:?}");
    assert!(rules[2].starts_with("/a/b "), "{rules:?}");
    assert_eq!(site.redirects.len(), 1, "{}", import.text);
    assert!(import.text.contains("bob:$2a$x"), "{}", import.text);
}

#[test]
fn sites_without_a_file_server_publish_no_files() {
    for directives in [
        "root * /srv/app\nreverse_proxy /api/* app:80",
        "root * /srv/app\nrespond /health \"ok\"",
        "root * /srv/app\nfile_server /public/*",
        "root * /srv/app\n@get method GET\nfile_server @get",
    ] {
        let (site, import) = site(directives);
        let last = site.access.last().expect("a rule");
        assert_eq!(last.action, RuleAction::Deny(404), "{}", import.text);
        assert_eq!(last.pattern.to_string(), "/**", "{}", import.text);
    }
    // All paths are scripts.
    let (site, _) = site("root * /srv/app\nphp_fastcgi php:9000");
    assert_eq!(routes(&site), ["*.php false", "/** false"]);
}

#[test]
fn untranslated_protection_refuses_instead_of_opening() {
    for directives in [
        "@odd expression {path}.startsWith('/x')\nrespond @odd 403\nreverse_proxy app:80",
        "@odd vars a b\nhandle @odd {\nbasic_auth {\nbob $2a$x\n}\nreverse_proxy app:80\n}\nreverse_proxy app:80",
        "forward_auth auth:9091 {\nuri /verify?url={uri}\n}\nreverse_proxy app:80",
        "redir https://{system.hostname}\nfile_server",
    ] {
        let (site, import) = site(directives);
        let rule = &site.access[0];
        assert_eq!(rule.action, RuleAction::Deny(503), "{}", import.text);
        assert!(
            import.report.to_string().contains("refused until then"),
            "{}",
            import.report
        );
    }
    // A password for requests that are not known is asked of all.
    let (site, _) = site("@odd vars a b\nbasic_auth @odd {\nbob $2a$x\n}\nreverse_proxy app:80");
    assert!(
        matches!(site.access[0].action, RuleAction::Auth(_)),
        "{:?}",
        site.access[0]
    );
}

#[test]
fn blocks_exclude_each_other() {
    let (site, import) = site(
        "handle /a/* {\nheader X-A 1\n}\nhandle {\nredir https://b.example{uri}\n}\nreverse_proxy app:80",
    );
    assert!(
        import.text.contains("not = { variable = \"$path=~^/a/\" }"),
        "{}",
        import.text
    );
    assert_eq!(routes(&site), ["/** false"]);
}

#[test]
fn redirect_after_a_route_leaves_its_paths_out() {
    let (site, import) = site(
        "handle /api/* {\nreverse_proxy app:80\n}\nhandle {\nredir https://b.example{uri} permanent\n}",
    );
    assert_eq!(site.redirects.len(), 1);
    assert_eq!(
        site.redirects[0].conditions.exceptions.len(),
        1,
        "{}",
        import.text
    );
}

#[test]
fn files_beside_a_route_for_all_paths_are_reached() {
    let (site, import) =
        site("handle_path /static/* {\nroot * /srv/static\nfile_server\n}\nreverse_proxy app:80");
    assert!(site.aliases[0].internal, "{}", import.text);
    assert_eq!(site.rewrites[0].to.to_string(), "/files-1/$1");
    // Existing files only: the route is for missing ones.
    let (site, import) = self::site(
        "root * /srv\n@s file\nhandle @s {\nfile_server\n}\nhandle {\nreverse_proxy app:80\n}",
    );
    assert_eq!(routes(&site), ["/** true"], "{}", import.text);
}

#[test]
fn fixed_answers_leave_the_paths_of_blocks_out() {
    let (site, import) = site("handle /api/* {\nreverse_proxy app:80\n}\nrespond \"else\"");
    assert_eq!(
        site.access[0].conditions.exceptions.len(),
        1,
        "{}",
        import.text
    );
    let last = site.access.last().expect("a rule");
    assert!(
        matches!(last.action, RuleAction::Deny(404)),
        "{}",
        import.text
    );
}

#[test]
fn hidden_files_pass_the_last_rule() {
    let (site, import) = site(
        "handle /a/* {\nroot * /srv\nfile_server\n}\nhandle /a/b/c/* {\nroot * /x\nfile_server\n}\n@p path /a/b/* /q/*\nreverse_proxy @p app:80\nrespond 404",
    );
    let hidden = site.aliases.iter().filter(|it| it.internal);
    for alias in hidden {
        let pattern = format!("{}/**", alias.path);
        let rules = rules(&site);
        assert!(
            rules
                .iter()
                .any(|it| it.starts_with(&*pattern) && it.ends_with("Allow")),
            "{}",
            import.text
        );
    }
}

#[test]
fn rewrites_of_several_paths_keep_their_parentheses() {
    let (site, import) = site("@m path /a(b)/* /c/*\nrewrite @m /x{uri}\nreverse_proxy app:80");
    let PathSelector::Regex(regex) = &site.rewrites[0].from else {
        panic!("a pattern: {}", import.text);
    };
    for path in ["/a(b)/d", "/c/d"] {
        assert!(regex.is_match(path.as_bytes()), "{path}: {}", import.text);
    }
    assert!(!regex.is_match(b"/ab/d"), "{}", import.text);
    assert_eq!(site.rewrites[0].from.captures(), 1, "{}", import.text);
}

#[test]
fn addresses_become_listeners() {
    let import = import("a.example, http://b.example, localhost:8443, :9000 {\nfile_server\n}\n");
    let sites = config(&import).sites;
    let listens: Vec<(usize, usize, bool)> = sites
        .iter()
        .map(|it| {
            let tls = it.tls.as_ref();
            (
                it.names.len(),
                it.listen.len(),
                tls.is_some_and(|it| it.redirect),
            )
        })
        .collect();
    assert_eq!(
        listens,
        [(1, 1, true), (1, 1, false), (1, 0, false), (1, 1, false)],
        "{}",
        import.text
    );
}

#[test]
fn directives_of_other_plugins_are_reported() {
    let (_, import) = site("rate_limit {\nzone x\n}\nfile_server");
    let by_hand = import.report.entries().iter();
    let by_hand = by_hand.filter(|it| matches!(it.outcome, DirectiveOutcome::ByHand(_)));
    assert_eq!(by_hand.count(), 2, "{}", import.report);
}

#[test]
fn wildcard_keeps_tls_until_its_certificate_is_ordered() {
    let import = import("*.a.example {\nreverse_proxy app:80\n}\n");
    let site = &config(&import).sites[0];
    assert!(
        site.tls.as_ref().is_some_and(|it| it.redirect),
        "{}",
        import.text
    );
    assert_eq!(import.report.counts().by_hand, 1, "{}", import.report);
}

#[test]
fn cookies_of_load_balancers_are_sticky() {
    for (policy, expected) in [
        ("lb_policy cookie", "sticky = { cookie = \"lb\" }"),
        ("lb_policy cookie srv key", "sticky = { cookie = \"srv\" }"),
    ] {
        let text = format!("http://a.example {{\nreverse_proxy a:80 b:80 {{\n{policy}\n}}\n}}\n");
        let import =
            super::import_text(&text, std::path::Path::new("Caddyfile")).expect("a Caddyfile");
        assert!(
            import.problems.is_empty() && import.report.counts().by_hand == 0,
            "{}",
            import.report
        );
        assert!(import.text.contains(expected), "{}", import.text);
    }
}

#[test]
fn pages_of_a_class_are_one_key() {
    let (pages, import) = site(
        "root * /srv\nfile_server\nhandle_errors 404 {\nrewrite * /404.html\nfile_server\n}\nhandle_errors {\nrewrite * /error.html\nfile_server\n}",
    );
    for key in ["5xx = \"/error.html\"", "404 = \"/404.html\""] {
        assert!(import.text.contains(key), "{}", import.text);
    }
    let pages = &pages.error_pages;
    assert_eq!(
        (&*pages[&404], &*pages[&403], &*pages[&500]),
        ("/404.html", "/error.html", "/error.html")
    );
}
